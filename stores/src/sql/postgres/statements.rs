//! All SQL of the store. `hapax.` in a text stands for the schema and the prefix of the tables' names.
//!
//! What is written together is one statement, which the server runs in a transaction of its own: one round trip, one commit.
//! Its parts change rows in the same order everywhere (updates, then new entities, then dedup entries, each sorted by key),
//! so that groups of several processes do not lock each other out.
//!
//! What is asked for drives each access: a plan that was made while a table was small must not turn that round and go through
//! all of it, nor lock rows in another order. Reads say `LATERAL .. OFFSET 0`. Writes ask for the scope as the one element of
//! an array ([`of`]): that is an index's business and no join's, so that nothing is left but to take rows one by one.
//!
//! Locks on tables are taken before the statement's snapshot (the plan's, and before that the parser's). So whoever waits
//! for a rotation or a purge, which take a table for themselves, sees what it has done.

/// Which entity `e` is that of a row `r`; see above.
fn of(r: &str) -> String {
    format!("e.scope = ANY (ARRAY[{r}.scope]) AND e.key = {r}.key")
}

use super::super::rows::COUNTED_MAX;

/// The server's time in milliseconds since 1970: for what a rotation decides, after it has waited for its lock.
const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000)::bigint";
/// The same for the whole of a statement, so that an index can be asked for what is older.
const NOW_ONCE: &str = "(date_part('epoch', statement_timestamp()) * 1000)::bigint";

/// What the entity part of a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum EntityPart {
    None,
    Update,
    Create,
}

/// What the dedup part of a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DedupPart {
    None,
    Always,
    /// Only if the entity part won.
    IfWon,
}

/// What becomes of a dedup entry that is there already: the older one counts, and stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Known {
    /// The whole statement fails. Every other insert costs less.
    Refused,
    /// It is left out.
    Skipped,
}

impl Known {
    const fn clause(self) -> &'static str {
        match self {
            Self::Refused => "",
            Self::Skipped => " ON CONFLICT DO NOTHING",
        }
    }
}

/// What a group of writes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kinds {
    pub(super) updates: bool,
    pub(super) creates: bool,
    pub(super) dedup: bool,
}

/// [`NOW_ONCE`] where many rows ask for it: worked out with the first of them, and then a number.
fn now_for_all() -> String {
    format!("(SELECT {NOW_ONCE})")
}

/// `FROM` of arrays of one length, taken apart side by side. As functions in `FROM` each of them would be kept in a store of
/// its own first, which costs as much as finding the rows.
fn side_by_side(arrays: &[String], columns: &[&str]) -> String {
    let list: Vec<String> =
        arrays.iter().zip(columns).map(|(array, name)| format!("unnest({array}) AS {name}")).collect();
    format!("(SELECT {}) AS r", list.join(", "))
}

/// How many outbox entries a write gives. What few need costs every plan that has it some microseconds, so single writes have
/// texts without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Waiting {
    None,
    One,
    Any,
}

/// Entries that are taken apart without a subquery, where none waited before: nearly all there are.
const FEW: usize = 3;

/// The outbox entries with the times since when they wait, and the earliest of these: new ones as of `now`, known ones as
/// they were. `given` holds 40 bytes of each entry, `old` 48.
fn pending(waiting: Waiting, now: &str, given: &str, old: &str, since: &str) -> [String; 2] {
    let at = |entry: &str| {
        format!(
            "{entry} || CASE WHEN position({entry} in {old}) > 0 THEN substr({old}, position({entry} in {old}) + 40, 8) \
             ELSE int8send({now}) END"
        )
    };
    let list = match waiting {
        Waiting::None => "NULL".to_owned(),
        Waiting::One => at(given),
        Waiting::Any => {
            let few = |count: usize| -> String {
                let entry = |n: usize| format!("substr({given}, {}, 40) || int8send({now})", n * 40 + 1);
                let all: Vec<String> = (0..count).map(entry).collect();
                format!("WHEN {old} IS NULL AND length({given}) = {} THEN {} ", count * 40, all.join(" || "))
            };
            let (one, few): (_, String) = (at(given), (2..=FEW).map(few).collect());
            let each = at("w.entry");
            format!(
                "CASE WHEN {given} IS NULL THEN NULL WHEN length({given}) = 40 THEN {one} {few}\
                 ELSE (SELECT string_agg({each}, ''::bytea ORDER BY w.i) \
                   FROM (SELECT i, substr({given}, i * 40 + 1, 40) AS entry \
                     FROM generate_series(0, length({given}) / 40 - 1) AS i) AS w) END"
            )
        }
    };
    let since = match waiting {
        Waiting::None => "NULL".to_owned(),
        Waiting::One => format!("coalesce({since}, {now})"),
        Waiting::Any => format!("CASE WHEN {given} IS NOT NULL THEN coalesce({since}, {now}) END"),
    };
    [list, since]
}

/// `SET` of an update by a row `r`. A clean-up has no state: it stays.
fn set(waiting: Waiting, now: &str, r: &dyn Fn(&str) -> String) -> String {
    let [list, since] = pending(waiting, now, &r("pending"), "e.pending", "e.pending_since");
    let [token, completed, given, outbox, state] = ["token", "completed", "pending", "outbox", "state"].map(r);
    format!(
        "version = e.version + 1, token = {token}, changed_at = {now}, \
         completed_at = CASE WHEN {completed} THEN coalesce(e.completed_at, {now}) END, \
         pending_since = {since}, watched = e.watched OR {given} IS NOT NULL, pending = {list}, \
         outbox = {outbox}, state = coalesce({state}, e.state)"
    )
}

/// `SELECT` of a new entity by a row `r`, with the floor `f`.
fn new(waiting: Waiting, now: &str, r: &dyn Fn(&str) -> String) -> String {
    let [list, since] = pending(waiting, now, &r("pending"), "NULL::bytea", "NULL::bigint");
    let [scope, key, token, completed, given, outbox, state] =
        ["scope", "key", "token", "completed", "pending", "outbox", "state"].map(r);
    format!(
        "SELECT {scope}, {key}, f.version + 1, {token}, {now}, CASE WHEN {completed} THEN {now} END, {since}, \
           {given} IS NOT NULL, {list}, {outbox}, coalesce({state}, ''::bytea)"
    )
}

const COLUMNS: &str =
    "(scope, key, version, token, changed_at, completed_at, pending_since, watched, pending, outbox, state)";

/// One write, without arrays, into the newest generation, which lies in `slot`.
///
/// Of the entity part: `$1` token, `$2` scope, `$3` key, `$4` expected version, `$5` completed, `$6` pending, `$7` outbox,
/// `$8` state. Of the dedup part: the next six, generation, key, attempt, fingerprint, time, reply.
///
/// Rows are `token, version`, and of a dedup part `null, generation`; where that is missing, the generation is not the
/// newest any more and nothing was written.
pub(super) fn one(entity: EntityPart, waiting: Waiting, dedup: DedupPart, known: Known, slot: i16) -> String {
    let types = |column: &str| {
        let (at, kind) = match column {
            "token" => (1, "bigint"),
            "scope" => (2, "bigint"),
            "key" => (3, "text"),
            "expected" => (4, "bigint"),
            "completed" => (5, "boolean"),
            "pending" => (6, "bytea"),
            "outbox" => (7, "bytea"),
            _ => (8, "bytea"),
        };
        format!("${at}::{kind}")
    };
    let first = if entity == EntityPart::None { 1 } else { 9 };
    let (mut parts, mut rows) = (Vec::new(), Vec::new());
    let gate = if dedup == DedupPart::None { "" } else { "EXISTS (SELECT FROM g)" };
    if dedup != DedupPart::None {
        parts.push(format!(
            "g AS MATERIALIZED (SELECT id FROM hapax.generation WHERE id = ${first} AND closed_at IS NULL)"
        ));
    }
    match entity {
        EntityPart::None => {}
        EntityPart::Update => {
            let and_gate = if gate.is_empty() { String::new() } else { format!(" AND {gate}") };
            let set = set(waiting, NOW_ONCE, &types);
            let update = format!(
                "UPDATE hapax.entity AS e SET {set} \
                 WHERE e.scope = $2 AND e.key = $3 AND e.version = $4{and_gate} RETURNING e.token, e.version"
            );
            if gate.is_empty() {
                return update;
            }
            parts.push(format!("u AS ({update})"));
            rows.push("SELECT token, version FROM u");
        }
        EntityPart::Create => {
            let where_gate = if gate.is_empty() { String::new() } else { format!(" WHERE {gate}") };
            let new = new(waiting, NOW_ONCE, &types);
            // The expected version is null here, and has a place all the same.
            parts.push(format!(
                "u AS (INSERT INTO hapax.entity AS e {COLUMNS} {new} FROM hapax.floor AS f{where_gate} \
                 ON CONFLICT (scope, key) DO NOTHING RETURNING e.token, e.version), x AS (SELECT $4::bigint)"
            ));
            rows.push("SELECT token, version FROM u");
        }
    }
    if dedup != DedupPart::None {
        let [key, attempt, fingerprint, time, reply] = [1, 2, 3, 4, 5].map(|n| first + n);
        let won = if dedup == DedupPart::IfWon { " WHERE EXISTS (SELECT FROM u)" } else { "" };
        parts.push(format!(
            "d AS (INSERT INTO hapax.dedup_{slot} (key, attempt, fingerprint, time, reply) \
             SELECT ${key}::bytea, ${attempt}::bytea, ${fingerprint}::bytea, ${time}::bigint, ${reply}::bytea \
             FROM g{won}{})",
            known.clause()
        ));
        rows.push("SELECT NULL::bigint, id FROM g");
    }
    format!("WITH {} {}", parts.join(", "), rows.join(" UNION ALL "))
}

/// A group of writes, as arrays: of the updates `$1` tokens, `$2` scopes, `$3` keys, `$4` expected versions, `$5` completed,
/// `$6` pending, `$7` outboxes, `$8` states; then the same of the new ones, without expected versions; then the generation,
/// and of the dedup entries keys, attempts, fingerprints, times, replies, and the token of the write that has to win, or
/// null. What there is none of has no place.
///
/// One row: the generation, where there is a dedup part and it still is the newest; tokens of the updates that won, in their
/// order, each one version above what was expected; tokens and versions of the new ones.
pub(super) fn group(kinds: Kinds, known: Known, slot: i16) -> String {
    const UPDATES: [&str; 8] = ["token", "scope", "key", "expected", "completed", "pending", "outbox", "state"];
    const CREATES: [&str; 7] = ["token", "scope", "key", "completed", "pending", "outbox", "state"];
    const ENTRIES: [&str; 6] = ["key", "attempt", "fingerprint", "time", "reply", "token"];
    let column = |name: &str| format!("r.{name}");
    let now = now_for_all();
    let mut next = 1;
    let mut arrays = |types: &[&str], columns: &[&str]| {
        let list: Vec<String> = types.iter().zip(next..).map(|(kind, at)| format!("${at}::{kind}[]")).collect();
        next += types.len();
        side_by_side(&list, columns)
    };
    let (mut updates, mut creates) = (String::new(), String::new());
    if kinds.updates {
        updates = arrays(&["bigint", "bigint", "text", "bigint", "boolean", "bytea", "bytea", "bytea"], &UPDATES);
    }
    if kinds.creates {
        creates = arrays(&["bigint", "bigint", "text", "boolean", "bytea", "bytea", "bytea"], &CREATES);
    }
    let (mut parts, mut winners) = (Vec::new(), Vec::new());
    let mut row = ["NULL::bigint", "NULL::bigint[]", "NULL::bigint[]", "NULL::bigint[]"];
    let (mut gate, mut from_gate) = ("", "");
    let mut entries = String::new();
    if kinds.dedup {
        let generation = next;
        let types = ["bytea", "bytea", "bytea", "bigint", "bytea", "bigint"];
        let list: Vec<String> = types.iter().zip(next + 1..).map(|(kind, at)| format!("${at}::{kind}[]")).collect();
        entries = side_by_side(&list, &ENTRIES);
        parts.push(format!(
            "g AS MATERIALIZED (SELECT id FROM hapax.generation WHERE id = ${generation} AND closed_at IS NULL)"
        ));
        (gate, from_gate) = (" AND EXISTS (SELECT FROM g)", " WHERE EXISTS (SELECT FROM g)");
        row[0] = "(SELECT id FROM g)";
    }
    if kinds.updates {
        let set = set(Waiting::Any, &now, &column);
        parts.push(format!(
            "u AS (UPDATE hapax.entity AS e SET {set} FROM {updates} \
             WHERE {} AND e.version = r.expected{gate} RETURNING e.token)",
            of("r")
        ));
        winners.push("SELECT token FROM u");
        row[1] = "(SELECT array_agg(token) FROM u)";
    }
    if kinds.creates {
        let new = new(Waiting::Any, &now, &column);
        parts.push(format!(
            "c AS (INSERT INTO hapax.entity AS e {COLUMNS} {new} FROM hapax.floor AS f CROSS JOIN {creates}{from_gate} \
             ON CONFLICT (scope, key) DO NOTHING RETURNING e.token, e.version)"
        ));
        winners.push("SELECT token FROM c");
        (row[2], row[3]) = ("(SELECT array_agg(token) FROM c)", "(SELECT array_agg(version) FROM c)");
    }
    if kinds.dedup {
        let won = match winners.is_empty() {
            true => String::new(),
            false => format!(" OR r.token IN ({})", winners.join(" UNION ALL ")),
        };
        let known = known.clause();
        parts.push(format!(
            "d AS (INSERT INTO hapax.dedup_{slot} (key, attempt, fingerprint, time, reply) \
             SELECT r.key, r.attempt, r.fingerprint, r.time, r.reply FROM g CROSS JOIN {entries} \
             WHERE r.token IS NULL{won}{known})"
        ));
    }
    format!("WITH {} SELECT {}", parts.join(", "), row.join(", "))
}

/// Of what a load shows. Rows are `i, version, outbox, state, null ..`, or [`DEDUP`], generation, `key, attempt, fingerprint,
/// time, reply`, or [`GENERATION`], id.
pub(super) const DEDUP: i64 = -1;
pub(super) const GENERATION: i64 = -2;

fn entries_of(slots: &[(i64, i16)], keys: &str) -> String {
    let look = |(id, slot): &(i64, i16)| {
        // `OFFSET 0` keeps it a look into the index for each key: a plan made while the table was small would read all of it.
        format!(
            " UNION ALL SELECT {DEDUP}, {id}::bigint, d.key, d.attempt, d.fingerprint, d.time, d.reply \
             FROM {keys} CROSS JOIN LATERAL (SELECT * FROM hapax.dedup_{slot} AS d WHERE d.key = k.key OFFSET 0) AS d"
        )
    };
    slots.iter().map(look).collect()
}

const GENERATION_ROWS: &str = " UNION ALL SELECT -2::bigint, id, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea FROM hapax.generation";

/// Load and check of one entity and at most one message, in one snapshot: `$1` scope, `$2` key, `$3` dedup key. What is known
/// of the entity's own outbox entries is asked for afterwards, if there are any: that may be of a later moment.
pub(super) fn load_one(slots: &[(i64, i16)]) -> String {
    let look = |(id, slot): &(i64, i16)| {
        format!(
            " UNION ALL SELECT {DEDUP}, {id}::bigint, d.key, d.attempt, d.fingerprint, d.time, d.reply \
             FROM hapax.dedup_{slot} AS d WHERE d.key = $3"
        )
    };
    let entries: String = slots.iter().map(look).collect();
    format!(
        "SELECT 0::bigint, version, outbox, state, NULL::bytea, NULL::bigint, NULL::bytea FROM hapax.entity \
         WHERE scope = $1 AND key = $2{entries}{GENERATION_ROWS}"
    )
}

/// Load and check of many, in one snapshot: `$1` scopes, `$2` keys, `$3` numbers of the requests, `$4` dedup keys.
pub(super) fn load_many(slots: &[(i64, i16)]) -> String {
    let arrays = ["$1::bigint[]", "$2::text[]", "$3::bigint[]", "$5::bigint[]"].map(str::to_owned);
    let requests = side_by_side(&arrays, &["scope", "key", "i", "over"]);
    format!(
        "WITH e AS MATERIALIZED (SELECT r.i, e.version, e.outbox, e.state, CASE WHEN e.version = r.over THEN NULL ELSE e.pending END AS pending FROM {requests} CROSS JOIN LATERAL \
               (SELECT * FROM hapax.entity AS e WHERE e.scope = r.scope AND e.key = r.key OFFSET 0) AS e), \
           k AS MATERIALIZED (SELECT unnest($4::bytea[]) AS key UNION ALL \
             SELECT substr(e.pending, w.at * 48 + 1, 24) \
             FROM e CROSS JOIN LATERAL generate_series(0, length(e.pending) / 48 - 1) AS w (at) WHERE e.pending IS NOT NULL) \
         SELECT i, version, outbox, state, NULL::bytea, NULL::bigint, NULL::bytea FROM e{}{GENERATION_ROWS}",
        entries_of(slots, "k")
    )
}

/// `$1` scope, `$2` key.
pub(super) const VERSION: &str = "SELECT version FROM hapax.entity WHERE scope = $1 AND key = $2";

/// `$1` scope, `$2` key to begin after, `$3` how many rows to look at, `$4` age in milliseconds. Rows: key, what waits in it
/// if anything is as old, the server's time. What has nothing waiting and has not been changed for as long is not looked at
/// any more until it is saved with an outbox entry again.
pub(super) fn pending_page() -> String {
    format!(
        "WITH p AS MATERIALIZED (SELECT scope, key, pending_since, pending, changed_at FROM hapax.entity \
             WHERE scope = $1 AND watched AND key > $2 ORDER BY key LIMIT $3), \
           u AS (UPDATE hapax.entity AS e SET watched = false FROM p WHERE {} AND p.pending_since IS NULL \
             AND p.changed_at <= {NOW_ONCE} - $4 AND e.pending_since IS NULL) \
         SELECT key, CASE WHEN pending_since <= {NOW_ONCE} - $4 THEN pending END, {NOW_ONCE} FROM p ORDER BY key",
        of("p")
    )
}

/// Whether there is anything to purge: `$1` scope, `$2` age in milliseconds.
pub(super) fn may_purge() -> String {
    format!(
        "SELECT coalesce((SELECT true FROM hapax.entity WHERE scope = $1 AND completed_at <= {NOW_ONCE} - $2 \
         AND pending_since IS NULL ORDER BY completed_at LIMIT 1), false)"
    )
}

/// Nobody begins an entity while it lasts: who waits for the lock sees the new floor.
pub(super) const PURGE_LOCK: &str = "LOCK TABLE hapax.floor IN ACCESS EXCLUSIVE MODE";

/// `$1` scope, `$2` age in milliseconds, `$3` limit. Sent after the lock is there, so that its time is of later. `coalesce`, so
/// that no row is looked for by what is only looked at again.
pub(super) fn purge() -> String {
    format!(
        "WITH p AS MATERIALIZED (SELECT scope, key FROM hapax.entity WHERE scope = $1 \
             AND completed_at <= {NOW_ONCE} - $2 AND pending_since IS NULL ORDER BY completed_at LIMIT $3), \
           gone AS (DELETE FROM hapax.entity AS e USING p WHERE {} \
             AND coalesce(e.completed_at <= {NOW_ONCE} - $2, false) AND e.pending_since IS NULL RETURNING e.version), \
           f AS (UPDATE hapax.floor SET version = greatest(version, (SELECT max(version) FROM gone))) \
         SELECT count(*) FROM gone",
        of("p")
    )
}

/// Changes nothing, and is a commit nevertheless that is waited for as all are. No table and no right of its own is needed.
pub(super) const SETTLE: &str = "SELECT pg_logical_emit_message(true, 'hapax', '')::text";

/// `$1` endpoint, `$2` saga.
pub(super) const SCOPE_ID: &str = "SELECT id FROM hapax.scope WHERE endpoint = $1 AND saga = $2";
pub(super) const SCOPE_ADD: &str = "INSERT INTO hapax.scope (endpoint, saga) VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// Those that exist, the oldest first: id, slot, opened at, closed at, the server's time, the longest retention asked for.
pub(super) fn generations() -> String {
    format!(
        "SELECT id, slot, opened_at, closed_at, {NOW}, (SELECT value FROM hapax.meta WHERE name = 'retention_ms') \
         FROM hapax.generation ORDER BY id"
    )
}

/// `$1` the retention in milliseconds: the longest is kept.
pub(super) const RETENTION: &str = "INSERT INTO hapax.meta AS m (name, value) VALUES ('retention_ms', $1) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > m.value";

/// All who insert into the newest generation have finished, and nobody begins, until this transaction ends.
pub(super) fn rotation_lock(slot: i16) -> String {
    format!("LOCK TABLE hapax.dedup_{slot} IN SHARE MODE")
}

pub(super) fn holds_any(slot: i16) -> String {
    format!("SELECT EXISTS (SELECT FROM hapax.dedup_{slot})")
}

/// `$1` the generation to close. A millisecond later than it is, so that rounding shortens nothing.
pub(super) fn close() -> String {
    format!("UPDATE hapax.generation SET closed_at = {NOW} + 1 WHERE id = $1 AND closed_at IS NULL")
}

/// `$1` id, `$2` slot, which must be free.
pub(super) fn begin() -> String {
    format!("INSERT INTO hapax.generation (id, slot, opened_at) VALUES ($1, $2, {NOW})")
}

/// `$1` generation, `$2` retention in milliseconds.
pub(super) fn drop_generation() -> String {
    format!("DELETE FROM hapax.generation WHERE id = $1 AND closed_at <= {NOW} - $2")
}

/// Of more than [`COUNTED_MAX`], so many.
pub(super) fn count(slot: i16) -> String {
    format!("SELECT count(*) FROM (SELECT FROM hapax.dedup_{slot} LIMIT {COUNTED_MAX}) AS d")
}

pub(super) fn truncate(slot: i16) -> String {
    format!("TRUNCATE hapax.dedup_{slot}")
}

/// `$1` endpoint, `$2` message id, `$3` saga or empty, `$4` destination or empty, `$5` fingerprint, `$6` attempts, `$7` time,
/// `$8` reason, `$9` envelope.
pub(super) const LETTER_ADD: &str = "INSERT INTO hapax.dead_letter \
       (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";

/// `$1` endpoint, `$2` message id or null, `$3` limit, `$4` skip.
pub(super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope FROM hapax.dead_letter \
    WHERE endpoint = $1 AND ($2::text IS NULL OR message_id = $2) ORDER BY id LIMIT $3 OFFSET $4";

/// The newest migration, or no row. `usable_from`: how old a program may be that goes on with a newer schema.
pub(super) const SCHEMA_VERSION: &str = "SELECT coalesce(max(version), 0), \
     (SELECT value FROM hapax.meta WHERE name = 'usable_from') FROM hapax.migration";
