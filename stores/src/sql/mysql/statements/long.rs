//! What is remembered of dedup entries that are gone.

use super::{
    super::super::long::{FOLDED_AT_ONCE, MOVED_AT_ONCE},
    NOW,
};

/// Of what [`recall`] shows: the place of a key that is in a run among those that were asked for.
pub(in super::super) const FOLDED: i64 = -3;

/// Those that begin as [`DedupKey::NUMBERED`](hapax_core::ids::DedupKey::NUMBERED) says, and as `KEYED`.
const NUMBERED: &str = "`key` >= x'ffffffff'";
const KEYED: &str = "`key` >= x'fffffffe' AND `key` < x'ffffffff'";
const ANY: &str = "`key` >= x''";
const ENTRY: &str = "`key`, attempt, fingerprint, time, reply";

/// `?` so many dedup keys, and then each of them twice. Rows are those of a load: -1 with an entry, or [`FOLDED`] with a place.
pub(in super::super) fn recall(keys: usize) -> String {
    let list = vec!["?"; keys].join(", ");
    let run = |at: usize| {
        format!(
            " UNION ALL SELECT {FOLDED}, {at}, NULL, NULL, NULL, NULL, NULL FROM (SELECT `last` FROM hapax.long_run \
             FORCE INDEX (PRIMARY) WHERE `first` <= ? ORDER BY `first` DESC LIMIT 1) AS r WHERE r.`last` >= ?"
        )
    };
    let runs: String = (0..keys).map(run).collect();
    format!("SELECT -1, 0, {ENTRY} FROM hapax.long_key FORCE INDEX (PRIMARY) WHERE `key` IN ({list}){runs}")
}

/// The first statements of what is asked for; whoever drops a generation has the row of `long_memory`, and sees this or is done before
/// it. Numbers follow between them: whether numbers are folded, for how long idempotency keys are kept.
pub(in super::super) const ASK_FOLD: &str = "UPDATE hapax.long_memory SET fold = GREATEST(fold, ";
pub(in super::super) const ASK_KEYS: &str = "), keys_ms = GREATEST(keys_ms, ";
pub(in super::super) const ASK_END: &str = ") WHERE one = 1";
/// How old a program may be from now on. A number and [`UNLESS_NEWER`] follow.
pub(in super::super) const USABLE_FROM: &str = "INSERT INTO hapax.meta (name, value) VALUES ('usable_from', ";
pub(in super::super) const UNLESS_NEWER: &str = ") ON DUPLICATE KEY UPDATE value = GREATEST(value, VALUES(value))";
/// Endpoint, a comma, what has been shown or null, and [`UNLESS_LATER`] follow.
pub(in super::super) const SHOW: &str = "INSERT INTO hapax.long_evidence (endpoint, shown_until) VALUES (";
pub(in super::super) const UNLESS_LATER: &str = ") ON DUPLICATE KEY UPDATE shown_until = \
     GREATEST(COALESCE(shown_until, VALUES(shown_until)), COALESCE(VALUES(shown_until), shown_until))";

/// `?` endpoint.
pub(in super::super) const WITHDRAW: &str = "DELETE FROM hapax.long_evidence WHERE endpoint = ?";

/// What was asked for: whether numbers are folded, for how long idempotency keys are kept. Nobody else folds, drops or asks until
/// this transaction ends.
pub(in super::super) const LOCK: &str = "SELECT fold, keys_ms FROM hapax.long_memory WHERE one = 1 FOR UPDATE";
/// For how long idempotency keys are kept. Without a lock.
pub(in super::super) const KEYS: &str = "SELECT keys_ms FROM hapax.long_memory WHERE one = 1";

/// `?` retention in milliseconds: closed generations whose time is over, the oldest first: id, slot, whether idempotency keys in it are
/// kept for longer, whether all have shown that what is left may go. After [`LOCK`], so that it sees what was asked before.
pub(in super::super) fn due() -> String {
    format!(
        "SELECT g.id, g.slot, g.closed_at > {NOW} - (SELECT keys_ms FROM hapax.long_memory WHERE one = 1), \
           NOT EXISTS (SELECT 1 FROM hapax.long_evidence AS w WHERE w.shown_until IS NULL OR w.shown_until < g.closed_at) \
         FROM hapax.generation AS g WHERE g.dropping = 0 AND g.closed_at <= {NOW} - ? ORDER BY g.id"
    )
}

/// Nobody drops it until the transaction ends, a program that knows no long memory either. `?` generation.
pub(in super::super) const HOLD_CLOSED: &str =
    "SELECT closed_at FROM hapax.generation WHERE id = ? AND dropping = 0 AND closed_at IS NOT NULL FOR UPDATE";

/// The first of a generation's numbers.
pub(in super::super) fn numbers(slot: i16) -> String {
    format!(
        "SELECT `key` FROM hapax.dedup_{slot} FORCE INDEX (PRIMARY) WHERE {NUMBERED} ORDER BY `key` LIMIT {FOLDED_AT_ONCE}"
    )
}

/// `?` the last key that was read: these numbers go.
pub(in super::super) fn drop_numbers(slot: i16) -> String {
    format!("DELETE FROM hapax.dedup_{slot} WHERE {NUMBERED} AND `key` <= ?")
}

/// Runs that are stored and overlap one: its first key, [`OR_THIS`], the first key again, [`AND_TO`], and its last key, one that is
/// touched counted, follow.
pub(in super::super) const RUNS_FROM: &str = "SELECT `first`, `last` FROM hapax.long_run FORCE INDEX (PRIMARY) WHERE `first` >= \
     COALESCE((SELECT b.`first` FROM hapax.long_run AS b FORCE INDEX (PRIMARY) WHERE b.`first` <= ";
pub(in super::super) const OR_THIS: &str = " ORDER BY b.`first` DESC LIMIT 1), ";
pub(in super::super) const AND_TO: &str = ") AND `first` <= ";

/// First keys and `)` follow.
pub(in super::super) const DROP_RUNS: &str = "DELETE FROM hapax.long_run WHERE `first` IN (";
/// Rows of first and last keys, and [`LONGER`], follow.
pub(in super::super) const PUT_RUNS: &str = "INSERT INTO hapax.long_run (`first`, `last`) VALUES ";
pub(in super::super) const LONGER: &str = " ON DUPLICATE KEY UPDATE `last` = VALUES(`last`)";

/// `?` when the generation was closed: some of its entries of idempotency keys are put by; [`drop_keys`] removes the same. Of two
/// entries of a key the older one stays, for as long as the later one has to.
pub(in super::super) fn keep_keys(slot: i16) -> String {
    format!(
        "INSERT INTO hapax.long_key ({ENTRY}, inserted_at) SELECT {ENTRY}, ? FROM hapax.dedup_{slot} FORCE INDEX (PRIMARY) \
         WHERE {KEYED} ORDER BY `key` LIMIT {MOVED_AT_ONCE} \
         ON DUPLICATE KEY UPDATE inserted_at = GREATEST(inserted_at, VALUES(inserted_at))"
    )
}
pub(in super::super) fn drop_keys(slot: i16) -> String {
    format!("DELETE FROM hapax.dedup_{slot} WHERE {KEYED} ORDER BY `key` LIMIT {MOVED_AT_ONCE}")
}

/// `?` for how long, in milliseconds, as [`LOCK`] says: some of those whose time is over go.
pub(in super::super) fn forget_keys() -> String {
    format!("DELETE FROM hapax.long_key WHERE inserted_at < {NOW} - ? ORDER BY inserted_at LIMIT {MOVED_AT_ONCE}")
}

/// Some of what is in `later` goes into `earlier` too; [`drop_some`] removes the same. Where both have an entry the earlier one's
/// counts, and stays.
pub(in super::super) fn merge(earlier: i16, later: i16) -> String {
    format!(
        "INSERT INTO hapax.dedup_{earlier} ({ENTRY}) SELECT d.`key`, d.attempt, d.fingerprint, d.time, d.reply \
         FROM hapax.dedup_{later} AS d FORCE INDEX (PRIMARY) WHERE {} ORDER BY d.`key` LIMIT {MOVED_AT_ONCE} \
         ON DUPLICATE KEY UPDATE hapax.dedup_{earlier}.time = hapax.dedup_{earlier}.time",
        ANY.replace("`key`", "d.`key`")
    )
}
pub(in super::super) fn drop_some(slot: i16) -> String {
    format!("DELETE FROM hapax.dedup_{slot} WHERE {ANY} ORDER BY `key` LIMIT {MOVED_AT_ONCE}")
}

/// `?` when a later generation was closed, a generation: what comes from there goes no earlier than it would have.
pub(in super::super) const STAY_AS_LONG: &str =
    "UPDATE hapax.generation SET closed_at = GREATEST(closed_at, ?) WHERE id = ?";

/// Every text that is sent as it is, for the test that prepares them.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    let mut all = vec![recall(2), due(), numbers(0), drop_numbers(0), keep_keys(0), drop_keys(0)];
    all.extend([forget_keys(), merge(0, 3), drop_some(0)]);
    all.extend([WITHDRAW, LOCK, KEYS, HOLD_CLOSED, STAY_AS_LONG].map(str::to_owned));
    all.extend([
        format!("{ASK_FOLD}1{ASK_KEYS}1{ASK_END}"),
        format!("{USABLE_FROM}1{UNLESS_NEWER}"),
        format!("{SHOW}x'00', NULL{UNLESS_LATER}"),
        format!("{RUNS_FROM}x'00'{OR_THIS}x'00'{AND_TO}x'00'"),
        format!("{DROP_RUNS}x'00')"),
        format!("{PUT_RUNS}(x'00', x'00'){LONGER}"),
    ]);
    all
}
