//! hapax on PostgreSQL.

use hapax::Postgres;
use sqlx::{Connection, Executor, Row};

use super::server::Schema;
use crate::{
    AnyError,
    candidate::effects_of,
    sql::{
        Address,
        candidate::{Candidate, Left, Tuning},
    },
};

impl Candidate for Schema {
    type Store = Postgres;

    fn address(&self) -> &Address {
        &self.at
    }

    async fn open(at: &Address, tuning: Tuning, migrates: bool) -> Result<Postgres, AnyError> {
        let mut options = Postgres::options(&at.url).schema(&at.name).migrate(migrates);
        if tuning.group_max > 0 {
            options = options.group_max(tuning.group_max);
        }
        if tuning.writers > 0 {
            options = options.writers(tuning.writers).readers(tuning.readers);
        }
        Ok(options.open().await?)
    }

    async fn close(store: Postgres) {
        store.close().await;
    }

    fn commits(store: &Postgres) -> u64 {
        store.commits()
    }

    async fn effects(&self) -> Result<u64, AnyError> {
        let (mut connection, mut effects) = (self.connect().await?, 0);
        for row in sqlx::query(self.text("SELECT state FROM {s}.entity")).fetch_all(&mut connection).await? {
            effects += effects_of(row.try_get(0)?)?;
        }
        connection.close().await?;
        Ok(effects)
    }

    async fn left(&self) -> Result<Left, AnyError> {
        let mut connection = self.connect().await?;
        let counts = "SELECT (SELECT count(*) FROM {s}.dedup_0) + (SELECT count(*) FROM {s}.dedup_1), \
                      (SELECT count(*) FROM {s}.entity WHERE pending_since IS NOT NULL)";
        let row = sqlx::query(self.text(counts)).fetch_one(&mut connection).await?;
        let count = |column: usize| -> Result<u64, AnyError> { Ok(row.try_get::<i64, _>(column)?.try_into()?) };
        let left = Left { dedup_entries: count(0)?, waiting: count(1)? };
        connection.close().await?;
        Ok(left)
    }

    async fn is_filled(&self) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        // As if all had been saved just now: the sweeper is not to take them in the middle of the window.
        let young = "UPDATE {s}.entity SET pending_since = (date_part('epoch', clock_timestamp()) * 1000)::bigint";
        connection.execute(sqlx::raw_sql(self.text("VACUUM ANALYZE {s}.entity"))).await?;
        connection.execute(sqlx::raw_sql(self.text(young))).await?;
        connection.execute("CHECKPOINT").await?;
        Ok(connection.close().await?)
    }
}
