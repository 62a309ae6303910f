//! A take where order is asked for.

use std::sync::Arc;

use super::{
    super::{
        super::served::asks::Wanted,
        arguments::{bytes, list},
    },
    LIST_MAX, MESSAGE_BY_ID, NOW, SET_NOW, candidates, given, row,
};

/// Messages that one look of an ordered take goes through at most: a long line behind one key is passed in a few steps, and
/// none of them holds up other processes for long.
pub(in super::super) const WINDOW: usize = 1000;

/// Messages of keys of which something was settled here that one take looks at, if each key has so many: they are listed in a
/// text, which must not outgrow what the smallest server takes.
const FREED_ROWS: usize = 2048;

/// The first texts of a take in the order of keys. Takes in one queue are made one after the other: each sees what those before
/// have given. Then come the candidates: the first behind the place where the take begins and, of each key of which something
/// was settled here, as many as are wanted, or its share.
pub(in super::super) fn ordered_candidates(wanted: Wanted, freed: &[Arc<str>]) -> Vec<String> {
    const COLUMNS: &str = "m.id, m.due_at, m.bytes, m.partition_key";
    let Wanted { queue, from, max, .. } = wanted;
    let share = max.min(FREED_ROWS / freed.len().max(1)).max(1);
    let window = format!(
        "SELECT {}, {COLUMNS} FROM {} ORDER BY m.due_at, m.id LIMIT {WINDOW}",
        row::CANDIDATE,
        candidates(queue, from, "@now")
    );
    let of_key = |key: &Arc<str>| {
        format!(
            "SELECT {}, {COLUMNS} FROM {MESSAGE_KEYED} WHERE m.queue = {queue} AND m.partition_key = {} \
             AND m.due_at <= @now AND m.leased_until <= @now ORDER BY m.id LIMIT {share}",
            row::FREED,
            bytes(&**key)
        )
    };
    let mut texts = vec![order_lock(queue), SET_NOW.to_owned(), window];
    texts.extend(freed.iter().map(of_key));
    texts.push(format!("SELECT {}, @now, 0, {NOW} - @now", row::LOOKED));
    texts
}

/// Held until the commit, and taken in a statement of its own, since one sees what was committed before it began.
pub(in super::super) fn order_lock(queue: i64) -> String {
    format!("SELECT q.id INTO @queue FROM hapax.queue AS q WHERE q.id = {queue} FOR UPDATE")
}

const MESSAGE_KEYED: &str = "hapax.queue_message AS m FORCE INDEX (keyed)";

/// Of the keys of the messages `heads`: whether one is under a lease (who has that one may be at work, though it was sent
/// later than one that has become due since), and the first that holds up those behind it: open and none of `candidates`.
/// What was never given and is not due yet holds up nobody.
pub(in super::super) fn ordered_keys(queue: i64, heads: &[i64], candidates: &[i64]) -> Vec<String> {
    let others: String = candidates.chunks(LIST_MAX).map(|ids| format!(" AND m.id NOT IN ({})", list(ids))).collect();
    let of = |heads: &[i64]| {
        format!(
            "SELECT {}, k.partition_key, EXISTS (SELECT 1 FROM hapax.queue_given AS f FORCE INDEX (keyed) \
               STRAIGHT_JOIN hapax.queue_message AS g FORCE INDEX (PRIMARY) ON g.id = f.id WHERE f.queue = {queue} \
               AND f.partition_key = k.partition_key AND g.leased_until > @now), \
             (SELECT m.id FROM {MESSAGE_KEYED} WHERE m.queue = {queue} AND m.partition_key = k.partition_key \
               AND NOT (m.first_at = 0 AND m.due_at > @now){others} ORDER BY m.id LIMIT 1) \
             FROM hapax.queue_message AS k FORCE INDEX (PRIMARY) WHERE k.id IN ({})",
            row::KEY,
            list(heads)
        )
    };
    heads.chunks(LIST_MAX).map(of).collect()
}

/// Locks those of `ids`, in any order, that still may be given and that nobody else has locked.
pub(in super::super) fn ordered_lock(ids: &[i64], token: i64) -> Vec<String> {
    let of = |ids: &[i64]| {
        format!(
            "SELECT {}, {token}, m.id, m.deliveries + 1, m.due_at, m.envelope, m.partition_key FROM {MESSAGE_BY_ID} \
             WHERE m.id IN ({}) AND m.due_at <= @now AND m.leased_until <= @now FOR UPDATE SKIP LOCKED",
            row::GIVEN,
            list(ids)
        )
    };
    ids.chunks(LIST_MAX).map(of).collect()
}

/// The last: gives those of `ids`, which are locked, and writes down which of them have keys.
pub(in super::super) fn ordered_give(wanted: Wanted, ids: &[i64], keyed: &[(i64, &[u8])]) -> Vec<String> {
    let Wanted { queue, token, lease, .. } = wanted;
    let of = |ids: &[i64]| format!("UPDATE {MESSAGE_BY_ID} SET {} WHERE m.id IN ({})", given(token, lease), list(ids));
    let mut texts: Vec<String> = ids.chunks(LIST_MAX).map(of).collect();
    if !keyed.is_empty() {
        let rows = keyed.iter().map(|(id, key)| format!("({id}, {queue}, {})", bytes(key)));
        texts.push(format!(
            "INSERT INTO hapax.queue_given (id, queue, partition_key) VALUES {} ON DUPLICATE KEY UPDATE id = id",
            list(rows)
        ));
    }
    texts
}
