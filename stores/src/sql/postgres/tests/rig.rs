//! What the shared tests need to know of PostgreSQL.

use std::time::{Duration, Instant};

use hapax_core::ports::{ErrorKind, StoreError};

use super::{
    super::{server, start, wire::Schema},
    Place,
};

pub(super) use super::super::Postgres as Store;

/// Where the store's own functions are.
pub(super) const PROGRAM: &str = "Postgres";

/// What the first table of dedup entries is kept by; what that is told as; and what lets it go.
pub(super) const KEEP_FIRST: &str = "\
    CREATE FUNCTION hapax.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept'; END $$; \
    CREATE TRIGGER refuse BEFORE TRUNCATE ON hapax.dedup_0 EXECUTE FUNCTION hapax.refuse()";
pub(super) const KEPT: ErrorKind = ErrorKind::Misconfigured;
pub(super) const LET_FIRST_GO: &str = "DROP TRIGGER refuse ON hapax.dedup_0";

/// Lets the first `races` rows that are written to `table` be the victims of a deadlock, as far as the store can tell. What
/// counts them is no part of the transaction.
pub(super) fn losing(table: &str, event: &str, races: u32) -> String {
    format!(
        "DROP SEQUENCE IF EXISTS hapax.lost; CREATE SEQUENCE hapax.lost; \
         CREATE OR REPLACE FUNCTION hapax.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF nextval('hapax.lost') <= {races} THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF; \
           IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; \
           RETURN NEW; \
         END $$; \
         DROP TRIGGER IF EXISTS lose ON hapax.{table}; \
         CREATE TRIGGER lose BEFORE {event} ON hapax.{table} FOR EACH ROW EXECUTE FUNCTION hapax.lose()"
    )
}

/// How many there were, one more than were lost.
pub(super) const LOST: &str = "SELECT last_value FROM hapax.lost";

/// An entity of which `state` and `outbox`, in hexadecimal digits, are stored.
pub(super) fn entity(state: &str, outbox: &str) -> String {
    format!(
        "INSERT INTO hapax.entity (scope, key, version, token, changed_at, watched, outbox, state) \
         VALUES (1, 'one', 1, 1, 0, false, decode('{outbox}', 'hex'), decode('{state}', 'hex'))"
    )
}

/// Refuses one entity.
pub(super) const REFUSE: &str = "ALTER TABLE hapax.entity ADD CHECK (key <> 'refused')";
/// Keeps the row of another one.
pub(super) const HOLD: &str = "BEGIN; SELECT * FROM hapax.entity WHERE key = 'held' FOR UPDATE";

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Until a group, which may have `_key` in it, waits for a lock.
pub(super) async fn until_a_group_waits(place: &Place, _key: &str) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND position('UPDATE hapax.entity' IN query) > 0 AND pid <> pg_backend_pid()";
    let (mut looking, began) = (place.connect().await, Instant::now());
    while sqlx::query_scalar::<_, i64>(place.text(waiting)).fetch_one(&mut looking).await.unwrap() == 0 {
        assert!(began.elapsed() < PATIENCE, "the group does not wait for the row that is held");
        tokio::task::yield_now().await;
    }
}

/// What the old does not know and can live with. `NEXT` stands for the number of the step.
pub(super) const ADDS: &str = "\
    ALTER TABLE hapax.entity ADD COLUMN to_come bigint NOT NULL DEFAULT 7; \
    ALTER TABLE hapax.dedup_0 ADD COLUMN to_come bytea; ALTER TABLE hapax.dedup_1 ADD COLUMN to_come bytea; \
    ALTER TABLE hapax.dedup_2 ADD COLUMN to_come bytea; ALTER TABLE hapax.dedup_3 ADD COLUMN to_come bytea; \
    CREATE INDEX ON hapax.entity (to_come); CREATE TABLE hapax.to_come (one bigint); \
    INSERT INTO hapax.meta (name, value) VALUES ('usable_from', 1) ON CONFLICT DO NOTHING; \
    INSERT INTO hapax.migration (version, name) VALUES (NEXT, 'adds')";
/// What the old must not go on with: so it takes away what they write.
pub(super) const BREAKS: &str = "\
    ALTER TABLE hapax.entity RENAME COLUMN state TO body; \
    INSERT INTO hapax.meta AS m (name, value) VALUES ('usable_from', NEXT) ON CONFLICT (name) DO UPDATE SET value = NEXT; \
    INSERT INTO hapax.migration (version, name) VALUES (NEXT, 'breaks')";

/// What a program with `schema` does when it starts.
pub(super) async fn starts(place: &Place, schema: &Schema, may_migrate: bool) -> Result<(), StoreError> {
    let mut dial = place.dial();
    let mut connection = server::connect(&dial).await.unwrap();
    dial.tables = Some(start::check_tables(&mut connection, &place.names, schema, may_migrate, &dial.place).await?);
    server::connect(&dial).await.map_err(|failure| failure.store_error("connecting", &dial.place))?;
    Ok(())
}
