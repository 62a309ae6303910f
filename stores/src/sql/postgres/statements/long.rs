//! What is remembered of dedup entries that are gone.

use super::{
    super::super::long::{FOLDED_AT_ONCE, MOVED_AT_ONCE},
    DEDUP, NOW, NOW_ONCE,
};

/// Of what [`recall`] shows: a key that is in a run.
pub(in super::super) const FOLDED: i64 = -3;

/// What is taken out of a generation: its numbers, which begin as
/// [`DedupKey::NUMBERED`](hapax_core::ids::DedupKey::NUMBERED) says; its idempotency keys, as `KEYED`; or anything. Where it is noted how
/// far that has come, what all of them are above, and below.
const NUMBERS: [&str; 3] = ["folded_to", r"'\xffffffff'::bytea", ""];
const KEYS: [&str; 3] = ["kept_to", r"'\xfffffffe'::bytea", r" AND key < '\xffffffff'::bytea"];
const ANY: [&str; 3] = ["merged_to", r"'\x'::bytea", ""];
const ENTRY: &str = "key, attempt, fingerprint, time, reply";

/// `$1` dedup keys. Rows as those of a load: [`FOLDED`] with a key and nothing else, or [`DEDUP`] with an entry.
pub(in super::super) fn recall() -> String {
    format!(
        "WITH k AS MATERIALIZED (SELECT unnest($1::bytea[]) AS key) \
         SELECT {FOLDED}::bigint, 0::bigint, k.key, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea \
         FROM k CROSS JOIN LATERAL (SELECT r.last FROM hapax.long_run AS r WHERE r.first <= k.key \
           ORDER BY r.first DESC LIMIT 1) AS r WHERE r.last >= k.key \
         UNION ALL SELECT {DEDUP}::bigint, 0::bigint, d.key, d.attempt, d.fingerprint, d.time, d.reply \
         FROM k CROSS JOIN LATERAL (SELECT * FROM hapax.long_key AS d WHERE d.key = k.key OFFSET 0) AS d"
    )
}

/// The server's time, by which generations are closed.
pub(in super::super) fn moment() -> String {
    format!("SELECT {NOW}")
}

/// `$1` whether numbers are folded, `$2` for how long idempotency keys are kept, in milliseconds, `$3` endpoint, `$4` what has been
/// shown, or null, `$5` whether it has to show anything, `$6` how old a program may be from now on. The row of `long_memory` first:
/// whoever drops a generation has it, and sees this or is done before it.
pub(in super::super) const ASK: &str = "\
    WITH m AS (UPDATE hapax.long_memory SET fold = fold OR $1, keys_ms = greatest(keys_ms, $2) RETURNING one), \
      u AS (INSERT INTO hapax.meta AS o (name, value) SELECT 'usable_from', $6::bigint FROM m \
        ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE o.value < excluded.value) \
    INSERT INTO hapax.long_evidence AS e (endpoint, shown_until) SELECT $3::text, $4::bigint FROM m WHERE $5::boolean \
    ON CONFLICT (endpoint) DO UPDATE SET shown_until = greatest(e.shown_until, excluded.shown_until)";

/// `$1` endpoint.
pub(in super::super) const WITHDRAW: &str = "DELETE FROM hapax.long_evidence WHERE endpoint = $1";

/// What was asked for: whether numbers are folded, for how long idempotency keys are kept. Nobody else folds, drops or asks until
/// this transaction ends.
pub(in super::super) const LOCK: &str = "SELECT fold, keys_ms FROM hapax.long_memory FOR UPDATE";

/// `$1` retention in milliseconds: closed generations whose time is over, the oldest first: id, slot, closed at, whether idempotency
/// keys in it are kept for longer, whether all have shown that what is left may go. Sent after [`LOCK`], so that it sees what was
/// asked before.
pub(in super::super) fn due() -> String {
    format!(
        "SELECT g.id, g.slot, g.closed_at > {NOW} - (SELECT keys_ms FROM hapax.long_memory), \
           NOT EXISTS (SELECT FROM hapax.long_evidence AS w WHERE w.shown_until IS NULL OR w.shown_until < g.closed_at) \
         FROM hapax.generation AS g WHERE g.closed_at <= {NOW} - $1 ORDER BY g.id FOR SHARE OF g"
    )
}

/// `DELETE` of so many entries of generation `$1`, in the order of their keys, with `returning`; and the part that notes how far that
/// has come.
fn taken(slot: i16, which: [&str; 3], limit: usize, returning: &str) -> String {
    let [noted, above, below] = which;
    format!(
        "d AS (DELETE FROM hapax.dedup_{slot} WHERE key = ANY (ARRAY(SELECT key FROM hapax.dedup_{slot} \
           WHERE key > coalesce((SELECT {noted} FROM hapax.generation WHERE id = $1), {above}){below} \
           ORDER BY key LIMIT {limit})) RETURNING {returning}), \
         g AS (UPDATE hapax.generation SET {noted} = coalesce((SELECT key FROM d ORDER BY key DESC LIMIT 1), {noted}) \
           WHERE id = $1)"
    )
}

/// `$1` generation: entries of numbers that go, and are told.
pub(in super::super) fn take_numbers(slot: i16) -> String {
    format!("WITH {} SELECT key FROM d", taken(slot, NUMBERS, FOLDED_AT_ONCE, "key"))
}

/// `$1` first keys and `$2` last ones of runs: those that are stored and overlap one of them. A last key that is touched counts.
pub(in super::super) const RUNS_AT: &str = "\
    SELECT DISTINCT r.first, r.last FROM (SELECT unnest($1::bytea[]) AS first, unnest($2::bytea[]) AS last) AS n \
    CROSS JOIN LATERAL (SELECT r.first, r.last FROM hapax.long_run AS r WHERE r.first <= n.last AND r.first >= coalesce(\
      (SELECT b.first FROM hapax.long_run AS b WHERE b.first <= n.first ORDER BY b.first DESC LIMIT 1), n.first) OFFSET 0) AS r";

/// `$1` first keys.
pub(in super::super) const DROP_RUNS: &str = "DELETE FROM hapax.long_run WHERE first = ANY ($1::bytea[])";

/// `$1` first keys, `$2` last ones.
pub(in super::super) const PUT_RUNS: &str = "\
    INSERT INTO hapax.long_run (first, last) SELECT unnest($1::bytea[]), unnest($2::bytea[]) \
    ON CONFLICT (first) DO UPDATE SET last = excluded.last";

/// `$1` generation: some of its entries of idempotency keys are put by. One row: how many. Of two entries of a key the older one stays,
/// for as long as the later one has to.
pub(in super::super) fn keep_keys(slot: i16) -> String {
    let taken = taken(slot, KEYS, MOVED_AT_ONCE, ENTRY);
    format!(
        "WITH {taken}, \
           k AS (INSERT INTO hapax.long_key AS k ({ENTRY}, inserted_at) \
             SELECT {ENTRY}, (SELECT closed_at FROM hapax.generation WHERE id = $1) FROM d \
             ON CONFLICT (key) DO UPDATE SET inserted_at = greatest(k.inserted_at, excluded.inserted_at)) \
         SELECT count(*) FROM d"
    )
}

/// Some of the idempotency keys go whose time is over. One row: how many.
pub(in super::super) fn forget_keys() -> String {
    format!(
        "WITH m AS MATERIALIZED (SELECT keys_ms FROM hapax.long_memory FOR SHARE), \
           d AS (DELETE FROM hapax.long_key WHERE key = ANY (ARRAY(SELECT key FROM hapax.long_key \
             WHERE inserted_at < {NOW_ONCE} - (SELECT keys_ms FROM m) ORDER BY inserted_at LIMIT {MOVED_AT_ONCE})) RETURNING 1) \
         SELECT count(*) FROM d"
    )
}

/// Some of what is in `later`, which is generation `$1`, goes into `earlier`. One row: how many. Where both have an entry the earlier one's counts, and stays.
pub(in super::super) fn merge(earlier: i16, later: i16) -> String {
    let taken = taken(later, ANY, MOVED_AT_ONCE, ENTRY);
    format!(
        "WITH {taken}, \
           p AS (INSERT INTO hapax.dedup_{earlier} ({ENTRY}) SELECT {ENTRY} FROM d ON CONFLICT DO NOTHING) \
         SELECT count(*) FROM d"
    )
}

/// `$1` generation, `$2` a later one: what comes from there into the first goes no earlier than it would have, and is not passed by. No
/// numbers to fold come: there are none where anything waits.
pub(in super::super) const STAY_AS_LONG: &str = "\
    UPDATE hapax.generation SET kept_to = NULL, merged_to = NULL, closed_at = greatest(closed_at, (SELECT closed_at FROM hapax.generation WHERE id = $2)) \
    WHERE id = $1";
