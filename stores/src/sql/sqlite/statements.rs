//! All SQL of the store.
//!
//! Parameters are written `$1`, `$2` and not `?1`: sqlx gives the statements of one text the same list of arguments and
//! goes by the name of each parameter; SQLite numbers `$` names without gaps, while a gap left by `?7` would make sqlx
//! miscount. A plain `?` takes the next argument after those that plain ones have taken, over all statements. One text is
//! one hand-over to sqlx's worker thread, which costs more than most statements.
//!
//! What is given drives each join (`CROSS JOIN`, `INDEXED BY`): a file that was analysed while small must not turn it
//! round and scan the entities. Ids of an array come in one blob, cut by `substr(blob, offset + 1, length)`.

pub(super) mod bodies;
pub(super) mod long;
pub(super) mod schedule;
pub(super) mod survey;

use std::sync::LazyLock;

/// What the entity part of a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntityPart {
    None,
    Update,
    Create,
}

/// What the dedup part of a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DedupPart {
    None,
    Always,
    /// Only if the entity part won.
    IfWon,
}

/// Opens a transaction as a writer at once: one that read first and wrote later could be refused as stale.
const BEGIN: &str = "BEGIN IMMEDIATE; ";
const COMMIT: &str = "; COMMIT";

/// The outbox entries with the times since when they wait: new ones as given, known ones as they were.
fn pending(given: &str, now: &str) -> String {
    format!(
        "CASE WHEN hapax_entity.pending IS NULL OR {given} IS NULL THEN {given} ELSE \
           (SELECT json_group_object(n.key, json_array(n.value ->> 0, \
              coalesce(hapax_entity.pending -> n.key ->> 1, n.value ->> 1))) FROM json_each({given}) AS n) END, \
         pending_since = iif({given} IS NULL, NULL, coalesce(hapax_entity.pending_since, {now}))"
    )
}

/// One write, without arrays: $1 now; $2 scope, $3 key, $4 expected version, $5 token, $6 completed, $7 pending,
/// $8 outbox, $9 state; $10 dedup key, $11 attempt, $12 fingerprint, $13 time, $14 reply.
static ONE: LazyLock<[[String; 3]; 3]> = LazyLock::new(|| {
    let update = format!(
        "UPDATE hapax_entity SET version = version + 1, token = $5, completed = $6, changed_at = $1, pending = {}, \
         outbox = $8, state = $9 WHERE scope = $2 AND key = $3 AND version = $4",
        pending("$7", "$1")
    );
    let create = "INSERT INTO hapax_entity \
           (scope, key, version, token, completed, changed_at, pending_since, pending, outbox, state) \
         SELECT $2, $3, value + 1, $5, $6, $1, iif($7 IS NULL, NULL, $1), $7, $8, $9 \
         FROM hapax_meta WHERE name = 'version_floor' \
         ON CONFLICT (scope, key) DO NOTHING RETURNING token, version";
    let insert = "INSERT INTO hapax_dedup (generation, key, attempt, fingerprint, time, reply) \
         SELECT max(id), $10, $11, $12, $13, $14 FROM hapax_generation";
    let won = "HAVING EXISTS (SELECT 1 FROM hapax_entity WHERE scope = $2 AND key = $3 AND token = $5)";
    let dedup = format!("{insert} HAVING true ON CONFLICT DO NOTHING");
    let dedup_if_won = format!("{insert} {won} ON CONFLICT DO NOTHING");
    let both = |entity: &str, dedup: &str| format!("{BEGIN}{entity}; {dedup}{COMMIT}");
    [
        [String::new(), dedup.clone(), String::new()],
        [update.clone(), both(&update, &dedup), both(&update, &dedup_if_won)],
        [create.to_owned(), both(create, &dedup), both(create, &dedup_if_won)],
    ]
});

/// The text of one write, and how many statements it has. Alone, a statement is its own transaction.
pub(super) fn one(entity: EntityPart, dedup: DedupPart) -> (&'static str, usize) {
    let alone = entity == EntityPart::None || dedup == DedupPart::None;
    (&ONE[entity as usize][dedup as usize], if alone { 1 } else { 4 })
}

/// What a group of writes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kinds {
    pub(super) updates: bool,
    pub(super) creates: bool,
    pub(super) dedup: bool,
    /// Rows of each of the two kinds of entity writes, at least as many as there are: what is left over is null.
    pub(super) rows: usize,
}

/// Columns of one entity write in a group.
pub(super) const ENTITY_COLUMNS: [&str; 8] =
    ["token", "scope", "key", "expected", "completed", "pending", "outbox", "state"];

impl Kinds {
    /// How many statements [`group`] makes of it. The second are the updates, if any.
    pub(super) fn statements(self) -> usize {
        2 + 2 * usize::from(self.updates) + usize::from(self.creates) + usize::from(self.dedup)
    }
}

/// A group of writes. The parameters are the rows of the updates, if any, then those of the creates, if any; then: now,
/// how many updates, `[token, scope, key]` of each of them; then rows and blob of the dedup entries.
///
/// Entity rows are bound one by one, which takes half the time of reading them from JSON (6 and 11 us a row), so there is
/// a text for each number of rows; the caller rounds that number up. Dedup entries are short and any number: an array of
/// `[offset, reply bytes or null, time]` and, if one is stored only with its entity's save, `token, scope, key`.
///
/// `OR ROLLBACK` changes nothing here, since any error ends the transaction; it saves SQLite a copy of every page.
pub(super) fn group(kinds: Kinds) -> String {
    let row = format!("({})", ["?"; ENTITY_COLUMNS.len()].join(","));
    let given = format!("WITH r ({}) AS (VALUES {})", ENTITY_COLUMNS.join(", "), vec![row; kinds.rows].join(","));
    let before = (usize::from(kinds.updates) + usize::from(kinds.creates)) * kinds.rows * ENTITY_COLUMNS.len();
    let [now, count, updated, dedup, blob] = [1, 2, 3, 4, 5].map(|n| format!("${}", before + n));
    let mut text = String::from(BEGIN);
    if kinds.updates {
        let pending = pending("r.pending", &now);
        // Usually all have won, and then nobody is looked up.
        text += &format!(
            "{given} UPDATE OR ROLLBACK hapax_entity INDEXED BY hapax_entity_key SET version = version + 1, \
               token = r.token, completed = r.completed, changed_at = {now}, pending = {pending}, outbox = r.outbox, \
               state = r.state \
             FROM r WHERE hapax_entity.scope = r.scope AND hapax_entity.key = r.key \
               AND hapax_entity.version = r.expected; \
             SELECT e.token, e.version FROM json_each(iif(changes() = {count}, '[]', {updated})) AS r \
               CROSS JOIN hapax_entity AS e INDEXED BY hapax_entity_key \
               ON e.scope = r.value ->> 1 AND e.key = r.value ->> 2 AND e.token = r.value ->> 0; "
        );
    }
    if kinds.creates {
        text += &format!(
            "{given} INSERT OR ROLLBACK INTO hapax_entity \
               (scope, key, version, token, completed, changed_at, pending_since, pending, outbox, state) \
             SELECT r.scope, r.key, floor.value + 1, r.token, r.completed, {now}, iif(r.pending IS NULL, NULL, {now}), \
               r.pending, r.outbox, r.state \
             FROM hapax_meta AS floor CROSS JOIN r WHERE floor.name = 'version_floor' AND r.token IS NOT NULL \
             ON CONFLICT (scope, key) DO NOTHING RETURNING token, version; "
        );
    }
    if kinds.dedup {
        text += &format!(
            "INSERT OR ROLLBACK INTO hapax_dedup (generation, key, attempt, fingerprint, time, reply) \
             SELECT newest.id, substr({blob}, r.offset + 1, 24), substr({blob}, r.offset + 25, 16), \
               substr({blob}, r.offset + 41, 16), r.time, substr({blob}, r.offset + 57, r.reply) \
             FROM (SELECT max(id) AS id FROM hapax_generation) AS newest CROSS JOIN \
               (SELECT value ->> 0 AS offset, value ->> 1 AS reply, value ->> 2 AS time, value ->> 3 AS token, \
                  value ->> 4 AS scope, value ->> 5 AS key FROM json_each({dedup})) AS r \
             WHERE r.token IS NULL OR EXISTS (SELECT 1 FROM hapax_entity AS e INDEXED BY hapax_entity_key \
               WHERE e.scope = r.scope AND e.key = r.key AND e.token = r.token) \
             ON CONFLICT DO NOTHING; "
        );
    }
    text + "COMMIT"
}

/// Load and check of one entity and at most one message, in one snapshot: $1 scope, $2 key, $3 dedup key, $4 the generation
/// from which on there may be ones without a filter.
///
/// Rows are either `request, null, version, outbox, state, null, null` or `null, generation, time, key, attempt,
/// fingerprint, reply`.
pub(super) const LOAD_ONE: &str = "\
    SELECT 0, NULL, version, outbox, state, NULL, NULL FROM hapax_entity WHERE scope = $1 AND key = $2 \
    UNION ALL \
    SELECT NULL, d.generation, d.time, d.key, d.attempt, d.fingerprint, d.reply \
    FROM hapax_generation AS g CROSS JOIN hapax_dedup AS d ON d.generation = g.id AND d.key = $3 WHERE g.id >= $4 \
    UNION ALL \
    SELECT NULL, d.generation, d.time, d.key, d.attempt, d.fingerprint, d.reply \
    FROM hapax_entity AS e CROSS JOIN json_each(e.pending) AS p CROSS JOIN hapax_generation AS g ON g.id >= $4 \
    CROSS JOIN hapax_dedup AS d ON d.generation = g.id AND d.key = unhex(p.value ->> 0) \
    WHERE e.scope = $1 AND e.key = $2 AND e.pending_since IS NOT NULL";

/// Load and check of many, in one snapshot: $1 entities `[scope, key]`, $2 offsets of the dedup keys in $3, $4 the
/// generation from which on there may be ones without a filter, $5 `[offset, generation]` of those that older ones may
/// hold.
pub(super) const LOAD_MANY: &str = "\
    SELECT r.key, NULL, e.version, e.outbox, e.state, NULL, NULL \
    FROM json_each($1) AS r CROSS JOIN hapax_entity AS e INDEXED BY hapax_entity_key \
      ON e.scope = r.value ->> 0 AND e.key = r.value ->> 1 \
    UNION ALL \
    SELECT NULL, d.generation, d.time, d.key, d.attempt, d.fingerprint, d.reply \
    FROM json_each($2) AS r CROSS JOIN hapax_generation AS g ON g.id >= $4 \
    CROSS JOIN hapax_dedup AS d ON d.generation = g.id AND d.key = substr($3, r.value + 1, 24) \
    UNION ALL \
    SELECT NULL, d.generation, d.time, d.key, d.attempt, d.fingerprint, d.reply \
    FROM json_each($5) AS r CROSS JOIN hapax_generation AS g ON g.id = r.value ->> 1 \
    CROSS JOIN hapax_dedup AS d ON d.generation = g.id AND d.key = substr($3, (r.value ->> 0) + 1, 24) \
    UNION ALL \
    SELECT NULL, d.generation, d.time, d.key, d.attempt, d.fingerprint, d.reply \
    FROM json_each($1) AS r CROSS JOIN hapax_entity AS e INDEXED BY hapax_entity_pending \
      ON e.scope = r.value ->> 0 AND e.key = r.value ->> 1 AND e.pending_since IS NOT NULL \
    CROSS JOIN json_each(e.pending) AS p CROSS JOIN hapax_generation AS g ON g.id >= $4 \
    CROSS JOIN hapax_dedup AS d ON d.generation = g.id AND d.key = unhex(p.value ->> 0)";

/// The rest of a load, when it is known whose marks the outboxes wait for: $1 `[offset, generation]` of dedup keys in $2.
/// Only of closed generations, which are the same in every snapshot until they are dropped.
pub(super) const LOAD_MARKS: &str = "\
    SELECT NULL, d.generation, d.time, d.key, d.attempt, d.fingerprint, d.reply \
    FROM json_each($1) AS r CROSS JOIN hapax_generation AS g ON g.id = r.value ->> 1 \
    CROSS JOIN hapax_dedup AS d ON d.generation = g.id AND d.key = substr($2, (r.value ->> 0) + 1, 24)";

/// $1 scope, $2 key.
pub(super) const VERSION: &str = "SELECT version FROM hapax_entity WHERE scope = $1 AND key = $2";

/// $1 scope, $2 key to begin after, $3 the oldest entry saved at or before, $4 limit, $5 skip. The list of the entries is
/// looked into by the reader, row by row: here, one that is no JSON would be the error of all rows.
pub(super) const PENDING: &str = "\
    SELECT key, pending FROM hapax_entity INDEXED BY hapax_entity_pending \
    WHERE scope = $1 AND key > $2 AND pending_since IS NOT NULL AND pending_since <= $3 \
    ORDER BY key LIMIT $4 OFFSET $5";

/// $1 scope, $2 completed at or before, $3 limit. The last but one statement tells how many.
///
/// The floor is raised first, so that an entity that comes again never has a version that was used before.
pub(super) const PURGE: &str = "\
    BEGIN IMMEDIATE; \
    UPDATE hapax_meta SET value = max(value, (SELECT coalesce(max(version), 0) FROM hapax_entity WHERE id IN \
      (SELECT id FROM hapax_entity INDEXED BY hapax_entity_completed WHERE scope = $1 AND completed = 1 \
       AND pending_since IS NULL AND changed_at <= $2 ORDER BY changed_at, id LIMIT $3))) WHERE name = 'version_floor'; \
    DELETE FROM hapax_entity WHERE id IN \
      (SELECT id FROM hapax_entity INDEXED BY hapax_entity_completed WHERE scope = $1 AND completed = 1 \
       AND pending_since IS NULL AND changed_at <= $2 ORDER BY changed_at, id LIMIT $3); \
    COMMIT";

/// $1 endpoint, $2 saga.
pub(super) const SCOPE: &str = "\
    BEGIN IMMEDIATE; \
    INSERT INTO hapax_scope (endpoint, saga) VALUES ($1, $2) ON CONFLICT DO NOTHING; \
    SELECT id FROM hapax_scope WHERE endpoint = $1 AND saga = $2; \
    COMMIT";

/// $1 endpoint, $2 saga.
pub(super) const SCOPE_ID: &str = "SELECT id FROM hapax_scope WHERE endpoint = $1 AND saga = $2";

/// What the clock says under the lock. Who waited for it has an older time, by which entries of others would be forgotten
/// too early.
const LOCKED_NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// When a generation is closed: a millisecond after this one, so that rounding shortens nothing, and after its latest entry,
/// whose clock may have been set back since (S44); `latest` is that, or null. A clock that was ahead and is right now
/// looks the same, so one retention ahead is believed and no more (a week before any was asked for): nothing stays for
/// ever.
fn closed_at(latest: &str) -> String {
    format!(
        "max({LOCKED_NOW}, $1, min(coalesce({latest}, 0), {LOCKED_NOW} + min(31536000000000, \
           coalesce((SELECT value FROM hapax_meta WHERE name = 'retention_ms'), 604800000)))) + 1"
    )
}

/// $1 now, $2 retention in milliseconds: the time of the latest entry in the newest generation, if that is old enough to be
/// closed by [`EVICT`].
pub(super) const LATEST_IF_OLD: &str = "\
    SELECT (SELECT max(d.time) FROM hapax_dedup AS d WHERE d.generation = g.id) FROM hapax_generation AS g \
    WHERE g.id = (SELECT max(id) FROM hapax_generation) AND g.opened_at <= $1 - \
      max($2, coalesce((SELECT value FROM hapax_meta WHERE name = 'retention_ms'), 0)) / 3";

/// $1 generation: the time of its latest entry.
pub(super) const LATEST: &str = "SELECT max(time) FROM hapax_dedup WHERE generation = $1";

/// $1 now, $2 retention in milliseconds, $3 how many entries may be removed, $4 what [`LATEST_IF_OLD`] says, or null. The
/// last but one statement tells how many.
///
/// 1. The longest retention that anybody asked for is kept, and goes for all: entries do not say whose they are.
/// 2. The newest generation is closed and another opened, if it is old and holds anything: a third of the retention,
///    so that entries live up to a third longer than asked for, and a check looks into four or five generations. See
///    [`closed_at`].
/// 3. One that was closed long enough ago, and of which nothing has to stay ([`long::NOTHING_STAYS`]), ceases to exist: from here on
///    no check finds its entries. The newest never does, so nothing is inserted into one that is about to go.
/// 4. Entries of generations that do not exist are removed, a bounded number, and all their filters.
pub(super) static EVICT: LazyLock<String> = LazyLock::new(|| {
    let (closed, stays) = (closed_at("$4"), long::NOTHING_STAYS);
    format!(
        "\
    BEGIN IMMEDIATE; \
    INSERT INTO hapax_meta (name, value) VALUES ('retention_ms', $2) \
      ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > value; \
    INSERT INTO hapax_generation (id, opened_at) \
      SELECT g.id + 1, $1 FROM hapax_generation AS g WHERE g.id = (SELECT max(id) FROM hapax_generation) \
      AND g.opened_at <= $1 - (SELECT value FROM hapax_meta WHERE name = 'retention_ms') / 3 \
      AND $4 IS NOT NULL; \
    UPDATE hapax_generation SET closed_at = {closed} \
      WHERE closed_at IS NULL AND id < (SELECT max(id) FROM hapax_generation); \
    DELETE FROM hapax_generation \
      WHERE closed_at <= $1 - (SELECT value FROM hapax_meta WHERE name = 'retention_ms') AND {stays}; \
    DELETE FROM hapax_dedup WHERE (generation, key) IN (SELECT generation, key FROM hapax_dedup \
      WHERE generation < (SELECT min(id) FROM hapax_generation) ORDER BY generation, key LIMIT $3); \
    DELETE FROM hapax_generation_filter WHERE generation < (SELECT min(id) FROM hapax_generation); \
    COMMIT"
    )
});
pub(super) const EVICT_STATEMENTS: usize = 8;

/// Those that exist, the oldest first. All but the last are closed.
pub(super) const GENERATIONS: &str = "SELECT id FROM hapax_generation ORDER BY id";

/// $1 generation, $2 at most.
pub(super) const COUNT_GENERATION: &str =
    "SELECT count(*) FROM (SELECT 1 FROM hapax_dedup WHERE generation = $1 LIMIT $2)";

/// $1 now, $2 the generation that is full; another process may have closed it already; $3 the time of its latest entry, or
/// null. See [`closed_at`].
pub(super) static CLOSE_GENERATION: LazyLock<String> = LazyLock::new(|| {
    let closed = closed_at("$3");
    format!(
        "\
    BEGIN IMMEDIATE; \
    INSERT INTO hapax_generation (id, opened_at) SELECT max(id) + 1, $1 FROM hapax_generation HAVING max(id) = $2; \
    UPDATE hapax_generation SET closed_at = {closed} \
      WHERE closed_at IS NULL AND id < (SELECT max(id) FROM hapax_generation); \
    COMMIT"
    )
});
pub(super) const CLOSE_GENERATION_STATEMENTS: usize = 4;

/// $1 generation, $2 key to begin after, $3 limit: how many, the last sixteen bytes of each key in hex, the last key.
pub(super) const SCAN_GENERATION: &str = "\
    SELECT count(*), group_concat(hex(substr(key, 9)), ''), max(key) \
    FROM (SELECT key FROM hapax_dedup WHERE generation = $1 AND key > $2 ORDER BY key LIMIT $3)";

/// $1 generation.
pub(super) const FILTER: &str = "SELECT filter FROM hapax_generation_filter WHERE generation = $1";

/// $1 generation, $2 its filter. One that could not be read is replaced.
pub(super) const FILTER_ADD: &str = "\
    INSERT INTO hapax_generation_filter (generation, filter) \
    SELECT $1, $2 WHERE EXISTS (SELECT 1 FROM hapax_generation WHERE id = $1) \
    ON CONFLICT (generation) DO UPDATE SET filter = excluded.filter";

/// $1 endpoint, $2 message id, $3 saga or empty, $4 destination or empty, $5 fingerprint, $6 attempts, $7 time, $8 reason,
/// $9 envelope.
pub(super) const LETTER_ADD: &str = "\
    INSERT INTO hapax_dead_letter \
      (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";

/// $1 endpoint, $2 message id, $3 saga or empty, $4 destination or empty, $5 fingerprint.
pub(super) const LETTER_DISCARD: &str = "DELETE FROM hapax_dead_letter \
    WHERE endpoint = $1 AND message_id = $2 AND saga = $3 AND destination = $4 AND fingerprint = $5";

/// $1 endpoint, $2 message id or null, $3 limit, $4 skip.
pub(super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope FROM hapax_dead_letter \
    WHERE endpoint = $1 AND ($2 IS NULL OR message_id = $2) ORDER BY id LIMIT $3 OFFSET $4";

/// Tables that are not SQLite's own, and whether ours is among them.
pub(super) const TABLES: &str = "\
    SELECT count(*), coalesce(sum(name = 'hapax_migration'), 0) FROM sqlite_schema \
    WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

/// Whether there are tables of ours, the store's or others', and the name of one that is neither ours nor SQLite's.
pub(super) const FOREIGN: &str = "\
    SELECT coalesce(max(name LIKE 'hapax\\_%' ESCAPE '\\'), 0), \
      min(name) FILTER (WHERE name NOT LIKE 'hapax\\_%' ESCAPE '\\') \
    FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

/// The newest migration in the file.
pub(super) const SCHEMA_VERSION: &str = "SELECT coalesce(max(version), 0) FROM hapax_migration";

/// Every text with a few words on it, for the test that prepares them.
#[cfg(test)]
pub(super) fn all() -> Vec<&'static str> {
    let mut all: Vec<&'static str> = ONE.iter().flatten().map(String::as_str).collect();
    for bits in 1..8 {
        let (updates, creates, dedup) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        all.push(group(Kinds { updates, creates, dedup, rows: 2 }).leak());
    }
    all.extend([
        LOAD_ONE,
        LOAD_MANY,
        VERSION,
        PENDING,
        PURGE,
        SCOPE,
        SCOPE_ID,
        &EVICT,
        LETTER_ADD,
        LETTER_LIST,
        LETTER_DISCARD,
        TABLES,
    ]);
    all.extend([FOREIGN, SCHEMA_VERSION, LOAD_MARKS, GENERATIONS, COUNT_GENERATION, &CLOSE_GENERATION]);
    all.extend([SCAN_GENERATION, FILTER, FILTER_ADD, LATEST, LATEST_IF_OLD]);
    all.extend(schedule::ALL);
    all.extend(long::ALL);
    all.extend(bodies::ALL);
    all.extend(survey::ALL);
    all
}
