//! All SQL of the store. `hapax.` in a text stands for the prefix of the tables' names.
//!
//! What is written together is one transaction. Of a few rows it has two round trips: the first one locks the entities, in the
//! order of their keys, and shows their versions, so that it is known who wins; the second one writes all that is to be written,
//! and commits. Of many rows it is written as if everybody won ([`IF_EXPECTED`]), in prepared statements, and looks only where
//! that fails.
//! A transaction locks in the same order everywhere (the newest generation, the floor, entities by key, then dedup entries by
//! key), so that groups of several processes do not lock each other out as a rule. At read committed, rows are locked and
//! never the gaps between them. Entities are looked up by their primary key, however few the server takes them to be: by
//! another index it would look at, and wait for, rows that are none of the statement's business.
//!
//! Only what MariaDB and MySQL have in common is used: `VALUES(column)` for the row that could not be inserted, which MySQL
//! 8.0.20 calls deprecated and takes, instead of its row alias, which MariaDB does not know; no `RETURNING`; and no `INSERT
//! IGNORE`, which cuts off what is too long and says nothing.

pub(super) mod long;
pub(super) mod schedule;
pub(super) mod survey;

use super::super::rows::COUNTED_MAX;

/// The server's time in milliseconds since 1970, the same for the whole of a statement.
pub(super) const NOW: &str = "CAST(FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000) AS SIGNED)";

/// The entries' list, `?` given twice more than once: new ones as of now, known ones as they were. Of one entry.
const PENDING_ONE: &str = "CONCAT(?, IF(LOCATE(?, e.pending) > 0, SUBSTR(e.pending, LOCATE(?, e.pending) + 40, 8), \
     UNHEX(LPAD(HEX(CAST(FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000) AS SIGNED)), 16, '0'))))";

/// One update, by itself a transaction, of an entity with no outbox entry. `?`: completed, outbox, state or null, scope, key,
/// expected version. It found its row if it won.
pub(super) fn update_one() -> String {
    format!(
        "UPDATE hapax.entity AS e FORCE INDEX (PRIMARY) SET e.version = e.version + 1, e.changed_at = {NOW}, \
           e.completed_at = IF(?, COALESCE(e.completed_at, {NOW}), NULL), e.pending_since = NULL, e.pending = NULL, \
           e.outbox = ?, e.state = COALESCE(?, e.state) \
         WHERE e.scope = ? AND e.`key` = ? AND e.version = ?"
    )
}

/// The same with one outbox entry. `?`: completed, entry three times, outbox, state or null, scope, key, expected version.
pub(super) fn update_one_waiting() -> String {
    format!(
        "UPDATE hapax.entity AS e FORCE INDEX (PRIMARY) SET e.version = e.version + 1, e.changed_at = {NOW}, \
           e.completed_at = IF(?, COALESCE(e.completed_at, {NOW}), NULL), \
           e.pending_since = COALESCE(e.pending_since, {NOW}), e.watched = 1, e.pending = {PENDING_ONE}, \
           e.outbox = ?, e.state = COALESCE(?, e.state) \
         WHERE e.scope = ? AND e.`key` = ? AND e.version = ?"
    )
}

/// One dedup entry, by itself a transaction, into the newest generation, which lies in `slot`. `?`: key, attempt, fingerprint,
/// time, reply, generation. No row at all: the generation is not the newest any more; or, to a driver that asks for rows
/// changed, the entry was there. [`WAS_THERE`]: the entry was there.
pub(super) fn insert_one(slot: i16) -> String {
    format!(
        "INSERT INTO hapax.dedup_{slot} (`key`, attempt, fingerprint, time, reply) \
         SELECT ?, ?, ?, ?, ? FROM hapax.generation AS g WHERE g.id = ? AND g.closed_at IS NULL LOCK IN SHARE MODE \
         ON DUPLICATE KEY UPDATE hapax.dedup_{slot}.time = IF(LAST_INSERT_ID({WAS_THERE}), hapax.dedup_{slot}.time, 0)"
    )
}

/// Holds the newest generation in place until the transaction ends. A number follows.
pub(super) const HOLD_GENERATION: &str = "SELECT id FROM hapax.generation WHERE closed_at IS NULL AND id = ";
pub(super) const SHARED: &str = " LOCK IN SHARE MODE";
/// Nobody purges until the transaction ends.
pub(super) const HOLD_FLOOR: &str = "SELECT version FROM hapax.floor WHERE one = 1 LOCK IN SHARE MODE";
/// Locks entities, in the order of their keys. The scope's number, [`AND_KEYS`], the keys, and [`FOR_UPDATE`] follow.
pub(super) const LOCK_ENTITIES: &str = "SELECT scope, `key`, version, completed_at, pending_since, watched, pending \
     FROM hapax.entity FORCE INDEX (PRIMARY) WHERE scope = ";
pub(super) const AND_KEYS: &str = " AND `key` IN (";
pub(super) const FOR_UPDATE: &str = ") FOR UPDATE";
/// The server's time, once all locks are held.
pub(super) fn now() -> String {
    format!("SELECT {NOW}")
}

/// New entities, whose keys must not be there; and locked ones that are there, of which the row that cannot be inserted is
/// taken over: of a save all, of a clean-up all but the state. Rows of [`ROW`] follow, then [`TAKE_ALL`] or [`TAKE_OUTBOX`].
pub(super) const PUT_ENTITIES: &str = "INSERT INTO hapax.entity \
     (scope, `key`, version, changed_at, completed_at, pending_since, watched, pending, outbox, state) VALUES ";
pub(super) const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
pub(super) const TAKE_ALL: &str = " ON DUPLICATE KEY UPDATE version = VALUES(version), changed_at = VALUES(changed_at), \
     completed_at = VALUES(completed_at), pending_since = VALUES(pending_since), watched = VALUES(watched), \
     pending = VALUES(pending), outbox = VALUES(outbox), state = VALUES(state)";
pub(super) const TAKE_OUTBOX: &str = " ON DUPLICATE KEY UPDATE version = VALUES(version), changed_at = VALUES(changed_at), \
     completed_at = VALUES(completed_at), pending_since = VALUES(pending_since), watched = VALUES(watched), \
     pending = VALUES(pending), outbox = VALUES(outbox)";

/// Updates of locked or unlocked entities over the versions that they are expected to have, one below those that are given: with
/// another one, the whole statement fails, since no version is null. Of what is given as waiting, an entry with its time, an
/// entry that waited before keeps its own. What is given as [`CLEANS`] keeps its state.
///
/// Two rows affected for each; one for what was not there, and is now.
pub(super) const IF_EXPECTED: &str = " ON DUPLICATE KEY UPDATE \
     version = IF(version = VALUES(version) - 1, VALUES(version), NULL), changed_at = VALUES(changed_at), \
     completed_at = IF(VALUES(completed_at) IS NULL, NULL, COALESCE(completed_at, VALUES(completed_at))), \
     pending_since = IF(VALUES(pending) IS NULL, NULL, COALESCE(pending_since, VALUES(pending_since))), \
     pending = IF(LOCATE(SUBSTR(VALUES(pending), 1, 40), pending) > 0, CONCAT(SUBSTR(VALUES(pending), 1, 40), \
       SUBSTR(pending, LOCATE(SUBSTR(VALUES(pending), 1, 40), pending) + 40, 8)), VALUES(pending)), \
     outbox = VALUES(outbox), state = IF(VALUES(watched) = 2, state, VALUES(state)), \
     watched = IF(VALUES(watched) = 2, watched, GREATEST(watched, VALUES(watched)))";
/// In place of `watched`.
pub(super) const CLEANS: i8 = 2;

/// What an insert of dedup entries says that it has inserted, whose tables number no rows, if any of them was there: then it
/// may have changed nothing.
pub(super) const WAS_THERE: u64 = 1;
/// Dedup entries into the newest generation, which lies in `slot`. Rows of [`DEDUP_ROW`] follow, then [`AS_THEY_ARE`].
pub(super) fn put_dedup(slot: i16) -> String {
    format!("INSERT INTO hapax.dedup_{slot} (`key`, attempt, fingerprint, time, reply) VALUES ")
}
pub(super) const DEDUP_ROW: &str = "(?, ?, ?, ?, ?)";
pub(super) const AS_THEY_ARE: &str = " ON DUPLICATE KEY UPDATE time = IF(LAST_INSERT_ID(1), time, 0)";

/// A write that changes something, whatever else the transaction does. The last one before a commit: its row is everybody's.
pub(super) const SETTLE: &str = "UPDATE hapax.settled SET times = times + 1 WHERE one = 1";

/// Of what a load shows. Rows are 0, `version, outbox, state, key, scope, null`, or [`DEDUP`], generation, `key,
/// attempt, fingerprint, time, reply`, or [`GENERATION`], id.
pub(super) const DEDUP: i64 = -1;
pub(super) const GENERATION: i64 = -2;

pub(super) const UNION_ALL: &str = " UNION ALL ";
pub(super) const LOOK_GENERATIONS: &str =
    " UNION ALL SELECT -2, id, NULL, NULL, NULL, NULL, NULL FROM hapax.generation WHERE dropping = 0";

pub(super) const LOOK_ENTITIES: &str =
    "SELECT 0, version, outbox, state, `key`, scope, NULL FROM hapax.entity FORCE INDEX (PRIMARY) WHERE scope = ";

pub(super) fn look_dedup((id, slot): (i64, i16)) -> String {
    format!(
        "SELECT -1, {id}, `key`, attempt, fingerprint, time, reply FROM hapax.dedup_{slot} FORCE INDEX (PRIMARY) WHERE `key`"
    )
}

/// Load and check of one entity and at most one message, in one snapshot: `?` the version that is shown without its outbox or
/// null, scope, key, then for each generation the dedup
/// key. One plain `SELECT`: with a lock it would show the entity as it is by then beside dedup entries as they were before.
/// What is known of the entity's own outbox entries is asked for afterwards, if there are any: that may be of a later moment.
pub(super) fn load_one(slots: &[(i64, i16)]) -> String {
    let looks: String = slots.iter().map(|slot| format!(" UNION ALL {} = ?", look_dedup(*slot))).collect();
    let entity = LOOK_ENTITIES.replacen("outbox", "IF(version = ?, NULL, outbox)", 1);
    format!("{entity}? AND `key` = ?{looks}{LOOK_GENERATIONS}")
}

/// `?` scope, key.
pub(super) const VERSION: &str = "SELECT version FROM hapax.entity WHERE scope = ? AND `key` = ?";

/// `?` age in milliseconds, scope, key to begin after, how many rows to look at. Rows: key, what waits in it if anything is as
/// old, the server's time, whether nothing waits and nothing has been changed for as long.
pub(super) fn pending_page() -> String {
    format!(
        "SELECT `key`, IF(pending_since <= {NOW} - ?, pending, NULL), {NOW}, \
           pending_since IS NULL AND changed_at <= {NOW} - ? \
         FROM hapax.entity WHERE scope = ? AND watched = 1 AND `key` > ? ORDER BY `key` LIMIT ?"
    )
}

/// What has nothing waiting, and has not been changed for so long, is not looked at any more until it is saved with an outbox
/// entry again. The age in milliseconds, [`OF_SCOPE`], scope, [`AND_KEYS`], keys and `)` follow.
pub(super) fn unwatch() -> String {
    format!(
        "UPDATE hapax.entity FORCE INDEX (PRIMARY) SET watched = 0 WHERE pending_since IS NULL AND changed_at <= {NOW} - "
    )
}

/// Tombstones that may be purged: `?` scope, age in milliseconds, limit.
pub(super) fn to_purge() -> String {
    format!(
        "SELECT `key` FROM hapax.entity WHERE scope = ? AND completed_at <= {NOW} - ? AND pending_since IS NULL \
         ORDER BY completed_at LIMIT ?"
    )
}

/// Nobody begins an entity while it is held: who waits sees the new floor.
pub(super) const PURGE_LOCK: &str = "SELECT version FROM hapax.floor WHERE one = 1 FOR UPDATE";
/// Locks those that still are tombstones as old. The age in milliseconds, [`OF_SCOPE`], scope, [`AND_KEYS`], keys,
/// [`FOR_UPDATE`] follow.
pub(super) fn lock_tombstones() -> String {
    format!(
        "SELECT `key`, version FROM hapax.entity FORCE INDEX (PRIMARY) \
         WHERE pending_since IS NULL AND completed_at <= {NOW} - "
    )
}
pub(super) const OF_SCOPE: &str = " AND scope = ";
/// Scope, [`AND_KEYS`], keys and `)` follow.
pub(super) const PURGE: &str = "DELETE FROM hapax.entity WHERE scope = ";
/// The version, and `)` and [`OF_THE_FLOOR`] follow.
pub(super) const RAISE_FLOOR: &str = "UPDATE hapax.floor SET version = GREATEST(version, ";
pub(super) const OF_THE_FLOOR: &str = ") WHERE one = 1";

/// `?` endpoint, saga.
pub(super) const SCOPE_ID: &str = "SELECT id FROM hapax.scope WHERE endpoint = ? AND saga = ?";
pub(super) const SCOPE_ADD: &str =
    "INSERT INTO hapax.scope (endpoint, saga) VALUES (?, ?) ON DUPLICATE KEY UPDATE id = id";

/// Those that exist, the oldest first: id, slot, opened at, closed at, whether it is being dropped, the server's time, the
/// longest retention asked for.
pub(super) fn generations() -> String {
    format!(
        "SELECT id, slot, opened_at, closed_at, dropping, {NOW}, \
           (SELECT value FROM hapax.meta WHERE name = 'retention_ms') FROM hapax.generation ORDER BY id"
    )
}
/// All who insert into the newest generation have finished, and nobody begins, until this transaction ends. After
/// [`generations`], which is a plain read.
pub(super) const ROTATION_LOCK: &str = "SELECT id FROM hapax.generation ORDER BY id FOR UPDATE";

/// `?` the retention in milliseconds: the longest is kept.
pub(super) const RETENTION: &str = "INSERT INTO hapax.meta (name, value) VALUES ('retention_ms', ?) \
     ON DUPLICATE KEY UPDATE value = GREATEST(value, VALUES(value))";

pub(super) fn holds_any(slot: i16) -> String {
    format!("SELECT EXISTS (SELECT 1 FROM hapax.dedup_{slot})")
}

/// `?` the generation to close. A millisecond later than it is, so that rounding shortens nothing.
pub(super) fn close() -> String {
    format!("UPDATE hapax.generation SET closed_at = {NOW} + 1 WHERE id = ? AND closed_at IS NULL")
}

/// `?` id, slot, which must be free.
pub(super) fn begin() -> String {
    format!("INSERT INTO hapax.generation (id, slot, opened_at) VALUES (?, ?, {NOW})")
}

/// From then on it does not count any more. `?` generation, retention in milliseconds.
pub(super) fn drop_generation() -> String {
    format!("UPDATE hapax.generation SET dropping = 1 WHERE id = ? AND closed_at <= {NOW} - ?")
}

/// Of more than [`COUNTED_MAX`], so many.
pub(super) fn count(slot: i16) -> String {
    format!("SELECT COUNT(*) FROM (SELECT 1 FROM hapax.dedup_{slot} LIMIT {COUNTED_MAX}) AS d")
}

/// Commits by itself, and cannot be undone.
pub(super) fn truncate(slot: i16) -> String {
    format!("TRUNCATE TABLE hapax.dedup_{slot}")
}

/// Its table is free.
pub(super) fn forget_generation(id: i64) -> String {
    format!("DELETE FROM hapax.generation WHERE id = {id} AND dropping = 1")
}

/// The name of the lock under which tables are emptied. `prefix`: of the tables.
pub(super) fn drop_lock(prefix: &str) -> String {
    format!("CONCAT('hapax-', MD5(CONCAT(DATABASE(), '.{prefix}')), '-d')")
}

/// `?` endpoint, message id, saga or empty, destination or empty, fingerprint, attempts, time, reason, envelope.
pub(super) const LETTER_ADD: &str = "INSERT INTO hapax.dead_letter \
       (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE id = id";

/// `?` endpoint, message id, saga or empty, destination or empty, fingerprint.
pub(super) const LETTER_DISCARD: &str = "DELETE FROM hapax.dead_letter \
     WHERE endpoint = ? AND message_id = ? AND saga = ? AND destination = ? AND fingerprint = ?";

/// `?` endpoint, message id or null, the same again, limit, skip.
pub(super) const LETTER_LIST: &str = "\
    SELECT saga, destination, attempts, time, reason, envelope FROM hapax.dead_letter \
    WHERE endpoint = ? AND (? IS NULL OR message_id = ?) ORDER BY id LIMIT ? OFFSET ?";

/// The newest migration. `usable_from`: how old a program may be that goes on with a newer schema.
pub(super) const SCHEMA_VERSION: &str = "SELECT COALESCE(MAX(version), 0), \
     (SELECT value FROM hapax.meta WHERE name = 'usable_from') FROM hapax.migration";

/// Every text that is sent as it is, for the test that prepares them. The others are put together where they are sent.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    let slots = [(1, 0), (2, 3)];
    let mut all = vec![update_one(), update_one_waiting(), insert_one(1), now(), load_one(&slots), pending_page()];
    all.extend([
        unwatch() + &format!("1{OF_SCOPE}1{AND_KEYS}x'00')"),
        to_purge(),
        generations(),
        holds_any(0),
        close(),
        begin(),
        drop_generation(),
        count(0),
    ]);
    all.extend([format!("{PUT_ENTITIES}{ROW}"), format!("{PUT_ENTITIES}{ROW}{TAKE_ALL}")]);
    all.extend([
        format!("{PUT_ENTITIES}{ROW}, {ROW}{IF_EXPECTED}"),
        format!("{PUT_ENTITIES}{ROW}{TAKE_OUTBOX}"),
        put_dedup(0) + DEDUP_ROW + AS_THEY_ARE,
    ]);
    all.extend([format!("{HOLD_GENERATION}1{SHARED}"), format!("{LOCK_ENTITIES}1{AND_KEYS}x'00'{FOR_UPDATE}")]);
    all.extend([
        lock_tombstones() + &format!("1{OF_SCOPE}1{AND_KEYS}x'00'{FOR_UPDATE}"),
        format!("{PURGE}1{AND_KEYS}x'00')"),
    ]);
    all.extend([format!("{RAISE_FLOOR}1{OF_THE_FLOOR}"), truncate(0), forget_generation(0)]);
    let texts =
        [VERSION, SCOPE_ID, SCOPE_ADD, RETENTION, LETTER_ADD, LETTER_LIST, LETTER_DISCARD, SCHEMA_VERSION, HOLD_FLOOR];
    all.extend(texts.map(str::to_owned));
    all.extend([SETTLE, PURGE_LOCK, ROTATION_LOCK].map(str::to_owned));
    all.extend(schedule::all());
    all.extend(long::all());
    all.extend([survey::dedup(), survey::scheduled()]);
    all.extend(
        [survey::SCOPES, survey::ENTITIES, survey::LETTERED, survey::LETTERS, survey::SCHEDULED_MESSAGE]
            .map(str::to_owned),
    );
    all
}
