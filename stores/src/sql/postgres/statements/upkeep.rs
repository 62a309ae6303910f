//! Tombstones that go, and generations of dedup entries that come and go.

use super::{super::super::rows::COUNTED_MAX, NOW, NOW_ONCE, of};

/// Whether there is anything to purge: `$1` scope, `$2` age in milliseconds.
pub(in super::super) fn may_purge() -> String {
    format!(
        "SELECT coalesce((SELECT true FROM hapax.entity WHERE scope = $1 AND completed_at <= {NOW_ONCE} - $2 \
         AND pending_since IS NULL ORDER BY completed_at LIMIT 1), false)"
    )
}

/// Nobody begins an entity while it lasts: who waits for the lock sees the new floor.
pub(in super::super) const PURGE_LOCK: &str = "LOCK TABLE hapax.floor IN ACCESS EXCLUSIVE MODE";

/// `$1` scope, `$2` age in milliseconds, `$3` limit. Sent after the lock is there, so that its time is of later. `coalesce`, so
/// that no row is looked for by what is only looked at again.
pub(in super::super) fn purge() -> String {
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

/// Those that exist, the oldest first: id, slot, opened at, closed at, the server's time, the longest retention asked
/// for, the longest for idempotency keys.
pub(in super::super) fn generations() -> String {
    format!(
        "SELECT id, slot, opened_at, closed_at, {NOW}, (SELECT value FROM hapax.meta WHERE name = 'retention_ms'), \
           coalesce((SELECT keys_ms FROM hapax.long_memory), 0) \
         FROM hapax.generation ORDER BY id"
    )
}

/// `$1` the retention in milliseconds: the longest is kept.
pub(in super::super) const RETENTION: &str = "INSERT INTO hapax.meta AS m (name, value) VALUES ('retention_ms', $1) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > m.value";

/// All who insert into the newest generation have finished, and nobody begins, until this transaction ends.
pub(in super::super) fn rotation_lock(slot: i16) -> String {
    format!("LOCK TABLE hapax.dedup_{slot} IN SHARE MODE")
}

pub(in super::super) fn holds_any(slot: i16) -> String {
    format!("SELECT EXISTS (SELECT FROM hapax.dedup_{slot})")
}

/// `$1` the generation to close. A millisecond later than it is, so that rounding shortens nothing.
pub(in super::super) fn close() -> String {
    format!("UPDATE hapax.generation SET closed_at = {NOW} + 1 WHERE id = $1 AND closed_at IS NULL")
}

/// `$1` id, `$2` slot, which must be free.
pub(in super::super) fn begin() -> String {
    format!("INSERT INTO hapax.generation (id, slot, opened_at) VALUES ($1, $2, {NOW})")
}

/// `$1` generation, `$2` retention in milliseconds.
pub(in super::super) fn drop_generation() -> String {
    format!("DELETE FROM hapax.generation WHERE id = $1 AND closed_at <= {NOW} - $2")
}

/// Of more than [`COUNTED_MAX`], so many.
pub(in super::super) fn count(slot: i16) -> String {
    format!("SELECT count(*) FROM (SELECT FROM hapax.dedup_{slot} LIMIT {COUNTED_MAX}) AS d")
}

pub(in super::super) fn truncate(slot: i16) -> String {
    format!("TRUNCATE hapax.dedup_{slot}")
}
