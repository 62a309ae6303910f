//! hapax on MariaDB.

use futures_util::TryStreamExt;
use hapax::MySql;
use sqlx::{Connection, Executor, Row};

use super::server::{Database, clean};
use crate::{
    AnyError,
    candidate::effects_of,
    sql::{
        Address,
        candidate::{Candidate, Left, Tuning},
    },
};

impl Candidate for Database {
    type Store = MySql;

    fn address(&self) -> &Address {
        &self.at
    }

    async fn open(at: &Address, tuning: Tuning, migrates: bool) -> Result<MySql, AnyError> {
        let mut options = MySql::options(&at.url).migrate(migrates);
        if tuning.group_max > 0 {
            options = options.group_max(tuning.group_max);
        }
        if tuning.writers > 0 {
            options = options.writers(tuning.writers).readers(tuning.readers);
        }
        Ok(options.open().await?)
    }

    async fn close(store: MySql) {
        store.close().await;
    }

    fn commits(store: &MySql) -> u64 {
        store.commits()
    }

    async fn effects(&self) -> Result<u64, AnyError> {
        let (mut connection, mut effects) = (self.connect().await?, 0);
        {
            let mut states = sqlx::query("SELECT state FROM hapax_entity").fetch(&mut connection);
            while let Some(row) = states.try_next().await? {
                effects += effects_of(row.try_get(0)?)?;
            }
        }
        connection.close().await?;
        Ok(effects)
    }

    async fn left(&self) -> Result<Left, AnyError> {
        let mut connection = self.connect().await?;
        let counts = "SELECT (SELECT COUNT(*) FROM hapax_dedup_0) + (SELECT COUNT(*) FROM hapax_dedup_1) \
                        + (SELECT COUNT(*) FROM hapax_dedup_2) + (SELECT COUNT(*) FROM hapax_dedup_3), \
                      (SELECT COUNT(*) FROM hapax_entity WHERE pending_since IS NOT NULL)";
        let row = sqlx::query(counts).fetch_one(&mut connection).await?;
        let count = |column: usize| -> Result<u64, AnyError> { Ok(row.try_get::<i64, _>(column)?.try_into()?) };
        let left = Left { dedup_entries: count(0)?, waiting: count(1)? };
        connection.close().await?;
        Ok(left)
    }

    async fn is_filled(&self) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        // As if all had been saved just now: the sweeper is not to take them in the middle of the window.
        let young = "UPDATE hapax_entity SET pending_since = FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000)";
        connection.execute(sqlx::raw_sql(young)).await?;
        clean(&mut connection).await?;
        Ok(connection.close().await?)
    }
}
