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

/// What a group of writes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kinds {
    pub(super) updates: bool,
    pub(super) creates: bool,
    pub(super) dedup: bool,
}

/// How many outbox entries a write gives. What few need costs every plan that has it some microseconds, so single writes have
/// texts without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Waiting {
    None,
    One,
    Any,
}

/// The outbox entries with the times since when they wait, and the earliest of these: new ones as of now, known ones as they
/// were. `given` holds 40 bytes of each entry, `old` 48.
fn pending(waiting: Waiting, given: &str, old: &str, since: &str) -> [String; 2] {
    let one = format!(
        "{given} || CASE WHEN position({given} in {old}) > 0 THEN substr({old}, position({given} in {old}) + 40, 8) \
         ELSE int8send({NOW_ONCE}) END"
    );
    let list = match waiting {
        Waiting::None => "NULL".to_owned(),
        Waiting::One => one,
        Waiting::Any => format!(
            "CASE WHEN {given} IS NULL THEN NULL WHEN length({given}) = 40 THEN {one} \
             ELSE (SELECT string_agg(w.entry || coalesce(o.at, int8send({NOW_ONCE})), ''::bytea ORDER BY w.i) \
               FROM (SELECT i, substr({given}, i * 40 + 1, 40) AS entry \
                 FROM generate_series(0, length({given}) / 40 - 1) AS i) AS w \
               LEFT JOIN (SELECT substr({old}, i * 48 + 1, 40) AS entry, substr({old}, i * 48 + 41, 8) AS at \
                 FROM generate_series(0, coalesce(length({old}), 0) / 48 - 1) AS i) AS o ON o.entry = w.entry) END"
        ),
    };
    let since = match waiting {
        Waiting::None => "NULL".to_owned(),
        Waiting::One => format!("coalesce({since}, {NOW_ONCE})"),
        Waiting::Any => format!("CASE WHEN {given} IS NOT NULL THEN coalesce({since}, {NOW_ONCE}) END"),
    };
    [list, since]
}

/// `SET` of an update by a row `r`. A clean-up has no state: it stays.
fn set(waiting: Waiting, r: &dyn Fn(&str) -> String) -> String {
    let [list, since] = pending(waiting, &r("pending"), "e.pending", "e.pending_since");
    let [token, completed, given, outbox, state] = ["token", "completed", "pending", "outbox", "state"].map(r);
    format!(
        "version = e.version + 1, token = {token}, changed_at = {NOW_ONCE}, \
         completed_at = CASE WHEN {completed} THEN coalesce(e.completed_at, {NOW_ONCE}) END, \
         pending_since = {since}, watched = e.watched OR {given} IS NOT NULL, pending = {list}, \
         outbox = {outbox}, state = coalesce({state}, e.state)"
    )
}

/// `SELECT` of a new entity by a row `r`, with the floor `f`.
fn new(waiting: Waiting, r: &dyn Fn(&str) -> String) -> String {
    let [list, since] = pending(waiting, &r("pending"), "NULL::bytea", "NULL::bigint");
    let [scope, key, token, completed, given, outbox, state] =
        ["scope", "key", "token", "completed", "pending", "outbox", "state"].map(r);
    format!(
        "SELECT {scope}, {key}, f.version + 1, {token}, {NOW_ONCE}, CASE WHEN {completed} THEN {NOW_ONCE} END, {since}, \
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
pub(super) fn one(entity: EntityPart, waiting: Waiting, dedup: DedupPart, slot: i16) -> String {
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
            let set = set(waiting, &types);
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
            let new = new(waiting, &types);
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
             FROM g{won} ON CONFLICT DO NOTHING)"
        ));
        rows.push("SELECT NULL::bigint, id FROM g");
    }
    format!("WITH {} {}", parts.join(", "), rows.join(" UNION ALL "))
}

/// A group of writes, as arrays: of the updates `$1` tokens, `$2` scopes, `$3` keys, `$4` expected versions, `$5` completed,
/// `$6` pending, `$7` outboxes, `$8` states; then the same of the new ones, without expected versions; then the generation,
/// and of the dedup entries keys, attempts, fingerprints, times, replies, and the token of the write that has to win, or
/// null. What there is none of has no place. Rows as of [`one`].
pub(super) fn group(kinds: Kinds, slot: i16) -> String {
    let column = |name: &str| format!("r.{name}");
    let (mut parts, mut rows, mut next) = (Vec::new(), Vec::new(), 1);
    let mut arrays = |types: &[&str]| {
        let list: Vec<String> = types.iter().zip(next..).map(|(kind, at)| format!("${at}::{kind}[]")).collect();
        next += types.len();
        list.join(", ")
    };
    let mut updates = String::new();
    if kinds.updates {
        updates = arrays(&["bigint", "bigint", "text", "bigint", "boolean", "bytea", "bytea", "bytea"]);
    }
    let mut creates = String::new();
    if kinds.creates {
        creates = arrays(&["bigint", "bigint", "text", "boolean", "bytea", "bytea", "bytea"]);
    }
    let (mut gate, mut from_gate) = ("", "");
    let mut entries = String::new();
    if kinds.dedup {
        let generation = next;
        next += 1;
        parts.push(format!(
            "g AS MATERIALIZED (SELECT id FROM hapax.generation WHERE id = ${generation} AND closed_at IS NULL)"
        ));
        (gate, from_gate) = (" AND EXISTS (SELECT FROM g)", " WHERE EXISTS (SELECT FROM g)");
        let types = ["bytea", "bytea", "bytea", "bigint", "bytea", "bigint"];
        let list: Vec<String> = types.iter().zip(next..).map(|(kind, at)| format!("${at}::{kind}[]")).collect();
        entries = list.join(", ");
    }
    let mut winners = Vec::new();
    if kinds.updates {
        let set = set(Waiting::Any, &column);
        parts.push(format!(
            "u AS (UPDATE hapax.entity AS e SET {set} \
             FROM unnest({updates}) AS r (token, scope, key, expected, completed, pending, outbox, state) \
             WHERE {} AND e.version = r.expected{gate} RETURNING e.token, e.version)",
            of("r")
        ));
        winners.push("SELECT token, version FROM u");
    }
    if kinds.creates {
        let new = new(Waiting::Any, &column);
        parts.push(format!(
            "c AS (INSERT INTO hapax.entity AS e {COLUMNS} {new} FROM hapax.floor AS f CROSS JOIN \
             unnest({creates}) AS r (token, scope, key, completed, pending, outbox, state){from_gate} \
             ON CONFLICT (scope, key) DO NOTHING RETURNING e.token, e.version)"
        ));
        winners.push("SELECT token, version FROM c");
    }
    rows.extend(&winners);
    if kinds.dedup {
        let won = match winners.is_empty() {
            true => String::new(),
            false => format!(" OR r.token IN (SELECT w.token FROM ({}) AS w)", winners.join(" UNION ALL ")),
        };
        parts.push(format!(
            "d AS (INSERT INTO hapax.dedup_{slot} (key, attempt, fingerprint, time, reply) \
             SELECT r.key, r.attempt, r.fingerprint, r.time, r.reply \
             FROM g CROSS JOIN unnest({entries}) AS r (key, attempt, fingerprint, time, reply, token) \
             WHERE r.token IS NULL{won} ON CONFLICT DO NOTHING)"
        ));
        rows.push("SELECT NULL::bigint, id FROM g");
    }
    format!("WITH {} {}", parts.join(", "), rows.join(" UNION ALL "))
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

/// Load and check of many, in one snapshot: `$1` scopes, `$2` keys, `$3` dedup keys.
pub(super) fn load_many(slots: &[(i64, i16)]) -> String {
    format!(
        "WITH e AS MATERIALIZED (SELECT r.i, e.version, e.outbox, e.state, e.pending \
             FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS r (scope, key, i) CROSS JOIN LATERAL \
               (SELECT * FROM hapax.entity AS e WHERE e.scope = r.scope AND e.key = r.key OFFSET 0) AS e), \
           k AS MATERIALIZED (SELECT key FROM unnest($3::bytea[]) AS k (key) UNION ALL \
             SELECT substr(e.pending, w.at * 48 + 1, 24) \
             FROM e CROSS JOIN LATERAL generate_series(0, length(e.pending) / 48 - 1) AS w (at) WHERE e.pending IS NOT NULL) \
         SELECT i - 1, version, outbox, state, NULL::bytea, NULL::bigint, NULL::bytea FROM e{}{GENERATION_ROWS}",
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

pub(super) fn count(slot: i16) -> String {
    format!("SELECT count(*) FROM hapax.dedup_{slot}")
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

/// Every text, for the test that prepares them.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    use {DedupPart as D, EntityPart as E};
    let mut all = Vec::new();
    for entity in [E::None, E::Update, E::Create] {
        for dedup in [D::None, D::Always, D::IfWon] {
            if entity == E::None && dedup == D::Always {
                all.push(one(entity, Waiting::None, dedup, 1));
            }
            if entity != E::None {
                all.extend([Waiting::None, Waiting::One, Waiting::Any].map(|waiting| one(entity, waiting, dedup, 1)));
            }
        }
    }
    for bits in 1..8 {
        let (updates, creates, dedup) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        all.push(group(Kinds { updates, creates, dedup }, 2));
    }
    let slots = [(1, 0), (2, 3)];
    all.extend([load_one(&slots), load_many(&slots), pending_page(), may_purge(), purge(), generations()]);
    all.extend([holds_any(0), close(), begin(), drop_generation(), count(0)]);
    all.extend([VERSION, SCOPE_ID, SCOPE_ADD, RETENTION, LETTER_ADD, LETTER_LIST, SCHEMA_VERSION].map(str::to_owned));
    all
}
