//! What the shared tests need to know of MariaDB.

use std::time::{Duration, Instant};

use hapax_core::ports::{ErrorKind, StoreError};

use super::{
    super::{server, start, wire::Schema},
    Place,
};

pub(super) use super::super::MySql as Store;

/// Where the store's own functions are.
pub(super) const PROGRAM: &str = "MySql";

/// What the first table of dedup entries is kept by; what that is told as; and what lets it go.
pub(super) const KEEP_FIRST: &str =
    "CREATE TABLE hapax.refers (`key` BINARY(24), FOREIGN KEY (`key`) REFERENCES hapax.dedup_0 (`key`))";
pub(super) const KEPT: ErrorKind = ErrorKind::Unavailable;
pub(super) const LET_FIRST_GO: &str = "DROP TABLE hapax.refers";

/// Lets the first `races` rows that are written to `table` be the victims of a deadlock, as far as the store can tell. What
/// counts them is no part of the transaction.
pub(super) fn losing(table: &str, event: &str, races: u32) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS hapax.lost (n INT) ENGINE = MyISAM; DELETE FROM hapax.lost; \
         INSERT INTO hapax.lost VALUES (0); \
         CREATE OR REPLACE TRIGGER hapax.lose_{table}_{event} BEFORE {event} ON hapax.{table} FOR EACH ROW BEGIN \
           UPDATE hapax.lost SET n = n + 1; \
           IF (SELECT n FROM hapax.lost) <= {races} THEN \
             SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; \
           END IF; \
         END"
    )
}

/// How many there were, one more than were lost.
pub(super) const LOST: &str = "SELECT CAST(n AS SIGNED) FROM hapax.lost";

/// An entity of which `state` and `outbox`, in hexadecimal digits, are stored.
pub(super) fn entity(state: &str, outbox: &str) -> String {
    format!(
        "INSERT INTO hapax.entity (scope, `key`, version, changed_at, watched, outbox, state) \
         VALUES (1, 'one', 1, 0, 0, X'{outbox}', X'{state}')"
    )
}

/// Refuses one entity.
pub(super) const REFUSE: &str = "ALTER TABLE hapax.entity ADD CHECK (`key` <> 'refused')";
/// Keeps the row of another one.
pub(super) const HOLD: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; \
    SELECT * FROM hapax.entity WHERE `key` = 'held' FOR UPDATE";

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Until a group with `key` in it waits for a lock.
pub(super) async fn until_a_group_waits(place: &Place, key: &str) {
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist \
                   WHERE INSTR(info, ?) AND INSTR(info, ?) AND time_ms > 500 AND id <> CONNECTION_ID()";
    let (mut looking, began) = (place.connect().await, Instant::now());
    let mut count = async || -> i64 {
        let query = sqlx::query_scalar(waiting).bind(place.names.prefix()).bind(&hex);
        query.fetch_one(&mut looking).await.unwrap()
    };
    while count().await == 0 {
        assert!(began.elapsed() < PATIENCE, "the group does not wait for the row that is held");
        tokio::task::yield_now().await;
    }
}

/// What the old does not know and can live with. `NEXT` stands for the number of the step. All of it may be repeated.
pub(super) const ADDS: &str = "\
    ALTER TABLE hapax.entity ADD COLUMN IF NOT EXISTS to_come BIGINT NOT NULL DEFAULT 7; \
    ALTER TABLE hapax.dedup_0 ADD COLUMN IF NOT EXISTS to_come BLOB; \
    ALTER TABLE hapax.dedup_1 ADD COLUMN IF NOT EXISTS to_come BLOB; \
    ALTER TABLE hapax.dedup_2 ADD COLUMN IF NOT EXISTS to_come BLOB; \
    ALTER TABLE hapax.dedup_3 ADD COLUMN IF NOT EXISTS to_come BLOB; \
    CREATE INDEX IF NOT EXISTS to_come ON hapax.entity (to_come); \
    CREATE TABLE IF NOT EXISTS hapax.to_come (one BIGINT) ENGINE = InnoDB; \
    INSERT INTO hapax.meta (name, value) VALUES ('usable_from', 1) ON DUPLICATE KEY UPDATE value = value; \
    INSERT INTO hapax.migration (version, name) VALUES (NEXT, 'adds') ON DUPLICATE KEY UPDATE version = version";
/// What the old must not go on with: so it takes away what they write.
pub(super) const BREAKS: &str = "\
    ALTER TABLE hapax.entity CHANGE COLUMN state body LONGBLOB NOT NULL; \
    INSERT INTO hapax.meta (name, value) VALUES ('usable_from', NEXT) ON DUPLICATE KEY UPDATE value = NEXT; \
    INSERT INTO hapax.migration (version, name) VALUES (NEXT, 'breaks')";

/// What a program with `schema` does when it starts.
pub(super) async fn starts(place: &Place, schema: &Schema, may_migrate: bool) -> Result<(), StoreError> {
    let mut dial = place.dial();
    let (mut connection, _) = server::connect(&dial).await.unwrap();
    dial.tables = Some(start::check_tables(&mut connection, &place.names, schema, may_migrate, &dial.place).await?);
    server::connect(&dial).await.map_err(|failure| failure.store_error("connecting", &dial.place))?;
    Ok(())
}
