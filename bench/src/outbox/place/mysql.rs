//! MariaDB: a database.

use std::time::Duration;

use hapax::{Message, MySqlOutbox};
use sqlx::{Executor, MySql, Row, mysql::MySqlPoolOptions};
use uuid::Uuid;

use super::{Options, Place, SINK, Shop, Sold, TABLES, Tx, Waiting, broker, mark_each, usual};
use crate::{AnyError, mysql::Database, outbox::by_hand::BATCH, sql::Place as _};

pub(in crate::outbox) struct MySqlPlace {
    shop: Shop<Self>,
    database: Database,
}

impl Place for MySqlPlace {
    type Driver = MySql;
    type Outbox = MySqlOutbox;

    usual!("(?, ?)", "hapax_outbox");
    mark_each!("hapax_outbox");

    async fn new(options: &Options, connections: u32) -> Result<Self, AnyError> {
        let server = options.mysql.as_deref().ok_or("there is no MariaDB: name one with --mysql")?;
        let database = Database::create(server, "outbox").await?;
        let options_of_all = MySqlOutbox::options().migrate(true).route(Sold::TYPE, SINK);
        let outbox = options_of_all.open_database(hapax::MySql::options(&database.at.url)).await?;
        let pool = MySqlPoolOptions::new().max_connections(connections).connect(&database.at.url).await?;
        for table in TABLES {
            pool.execute(table).await?;
        }
        Ok(Self { shop: Shop { pool, outbox, broker: broker(options).await? }, database })
    }

    async fn remove(self) -> Result<(), AnyError> {
        self.shop.pool.close().await;
        self.database.remove().await
    }

    async fn claim(tx: &mut Tx<Self>) -> Result<Vec<Waiting>, AnyError> {
        let claim = "SELECT number, id, body FROM hapax_outbox WHERE status = 0 AND ready_at <= ? ORDER BY ready_at LIMIT ? \
                     FOR UPDATE SKIP LOCKED";
        let rows = sqlx::query(claim).bind(i64::MAX).bind(BATCH).fetch_all(&mut **tx).await?;
        let waiting = rows.iter().map(|row| {
            let id = Uuid::from_slice(&row.try_get::<Vec<u8>, _>(1)?)?;
            Ok(Waiting { number: row.try_get(0)?, id, body: row.try_get(2)? })
        });
        waiting.collect()
    }

    /// MariaDB tells it; with a pool of threads a session has none.
    async fn thread(tx: &mut Tx<Self>) -> Result<Option<i64>, AnyError> {
        let ask = "SELECT CAST(tid AS SIGNED), @@thread_handling = 'one-thread-per-connection' \
                   FROM information_schema.processlist WHERE id = CONNECTION_ID()";
        let Ok(row) = sqlx::query(ask).fetch_one(&mut **tx).await else { return Ok(None) };
        let own = row.try_get_unchecked::<i64, _>(1)? == 1;
        let thread: i64 = row.try_get(0)?;
        let near = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        Ok(Some(thread).filter(|_| own && near.contains("Name:\tmariadbd")))
    }

    /// What the general log has of them: a line for each, however many statements are in it.
    async fn queries_during(&self, time: Duration) -> Result<Option<i64>, AnyError> {
        let pool = &self.shop.pool;
        pool.execute("SET GLOBAL log_output = 'TABLE'").await?;
        pool.execute("SET GLOBAL general_log = 1").await?;
        let count = "SELECT COUNT(*) FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')";
        let (before,): (i64,) = sqlx::query_as(count).fetch_one(pool).await?;
        tokio::time::sleep(time).await;
        pool.execute("SET GLOBAL general_log = 0").await?;
        let (after,): (i64,) = sqlx::query_as(count).fetch_one(pool).await?;
        pool.execute("SET GLOBAL log_output = DEFAULT").await?;
        // Less the statement that ends it; these two counts make one more or less.
        Ok(Some(after - before - 1))
    }
}
