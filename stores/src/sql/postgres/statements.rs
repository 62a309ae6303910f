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

pub(super) mod bodies;
pub(super) mod long;
pub(super) mod schedule;
pub(super) mod survey;
mod upkeep;
mod writes;

pub(super) use upkeep::{
    PURGE_LOCK, RETENTION, begin, close, count, drop_generation, generations, holds_any, may_purge, purge,
    rotation_lock, truncate,
};
pub(super) use writes::{DedupPart, EntityPart, IfThere, Kinds, Waiting, group, one};

/// The server's time in milliseconds since 1970: for what a rotation decides, after it has waited for its lock.
const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000)::bigint";
/// The same for the whole of a statement, so that an index can be asked for what is older.
const NOW_ONCE: &str = "(date_part('epoch', statement_timestamp()) * 1000)::bigint";

/// Which entity `e` is that of a row `r`; see above.
fn of(r: &str) -> String {
    format!("e.scope = ANY (ARRAY[{r}.scope]) AND e.key = {r}.key")
}

/// `FROM` of arrays of one length, taken apart side by side. As functions in `FROM` each of them would be kept in a store of
/// its own first, which costs as much as finding the rows.
fn side_by_side(arrays: &[String], columns: &[&str]) -> String {
    let list: Vec<String> =
        arrays.iter().zip(columns).map(|(array, name)| format!("unnest({array}) AS {name}")).collect();
    format!("(SELECT {}) AS r", list.join(", "))
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

/// Load and check of one entity and at most one message, in one snapshot: `$1` scope, `$2` key, `$3` dedup key, `$4` the
/// version that is shown without its outbox, or null. What is known
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
        "SELECT 0::bigint, version, CASE WHEN version = $4 THEN NULL ELSE outbox END, state, NULL::bytea, NULL::bigint, NULL::bytea FROM hapax.entity \
         WHERE scope = $1 AND key = $2{entries}{GENERATION_ROWS}"
    )
}

/// Load and check of many, in one snapshot: `$1` scopes, `$2` keys, `$3` numbers of the requests, `$4` dedup keys,
/// `$5` versions that are shown without their outboxes, or nulls.
pub(super) fn load_many(slots: &[(i64, i16)]) -> String {
    let arrays = ["$1::bigint[]", "$2::text[]", "$3::bigint[]", "$5::bigint[]"].map(str::to_owned);
    let requests = side_by_side(&arrays, &["scope", "key", "i", "over"]);
    format!(
        "WITH e AS MATERIALIZED (SELECT r.i, e.version, e.state, \
                 CASE WHEN e.version = r.over THEN NULL ELSE e.outbox END AS outbox, \
                 CASE WHEN e.version = r.over THEN NULL ELSE e.pending END AS pending FROM {requests} CROSS JOIN LATERAL \
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

/// `$1` scope, `$2` key to begin after, `$3` how many rows to look at, `$4` age in milliseconds, `$5` how many to list. Rows:
/// key, what waits in it, the server's time, the last key that was looked at, how many were; where nothing is as old, one row
/// with no key. What is younger stays on the server: of a million that wait, all may be. What has nothing waiting and has not been changed for as long is not looked at
/// any more until it is saved with an outbox entry again.
pub(super) fn pending_page() -> String {
    format!(
        "WITH p AS MATERIALIZED (SELECT scope, key, pending_since, changed_at, \
               CASE WHEN pending_since <= {NOW_ONCE} - $4 THEN pending END AS pending FROM hapax.entity \
             WHERE scope = $1 AND watched AND key > $2 ORDER BY key LIMIT $3), \
           u AS (UPDATE hapax.entity AS e SET watched = false FROM p WHERE {} AND p.pending_since IS NULL \
             AND p.changed_at <= {NOW_ONCE} - $4 AND e.pending_since IS NULL) \
         SELECT w.key, w.pending, {NOW_ONCE}, l.last, l.looked_at \
         FROM (SELECT max(key) AS last, count(*) AS looked_at FROM p) AS l LEFT JOIN \
           (SELECT key, pending FROM p WHERE pending IS NOT NULL ORDER BY key LIMIT $5) AS w ON true ORDER BY w.key",
        of("p")
    )
}

/// Changes nothing, and is a commit nevertheless that is waited for as all are. No table and no right of its own is needed.
pub(super) const SETTLE: &str = "SELECT pg_logical_emit_message(true, 'hapax', '')::text";

/// `$1` endpoint, `$2` saga.
pub(super) const SCOPE_ID: &str = "SELECT id FROM hapax.scope WHERE endpoint = $1 AND saga = $2";
pub(super) const SCOPE_ADD: &str = "INSERT INTO hapax.scope (endpoint, saga) VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// `$1` endpoint, `$2` message id, `$3` saga or empty, `$4` destination or empty, `$5` fingerprint, `$6` attempts, `$7` time,
/// `$8` reason, `$9` envelope.
pub(super) const LETTER_ADD: &str = "INSERT INTO hapax.dead_letter \
       (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";

/// `$1` endpoint, `$2` message id, `$3` saga or empty, `$4` destination or empty, `$5` fingerprint. One row: how many.
pub(super) const LETTER_DISCARD: &str = "WITH gone AS (DELETE FROM hapax.dead_letter \
     WHERE endpoint = $1 AND message_id = $2 AND saga = $3 AND destination = $4 AND fingerprint = $5 RETURNING 1) \
     SELECT count(*) FROM gone";

/// `$1` endpoint, `$2` message id or null, `$3` limit, `$4` skip.
pub(super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope FROM hapax.dead_letter \
    WHERE endpoint = $1 AND ($2::text IS NULL OR message_id = $2) ORDER BY id LIMIT $3 OFFSET $4";

/// The newest migration, or no row. `usable_from`: how old a program may be that goes on with a newer schema.
pub(super) const SCHEMA_VERSION: &str = "SELECT coalesce(max(version), 0), \
     (SELECT value FROM hapax.meta WHERE name = 'usable_from') FROM hapax.migration";
