//! SQLite: a file.

use std::time::Duration;

use hapax::{Message, SqliteOutbox};
use sqlx::{
    Executor, Row, Sqlite,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use uuid::Uuid;

use super::{Options, Place, SINK, Shop, Sold, TABLES, Tx, Waiting, broker, mark_each, usual};
use crate::{AnyError, Scratch, outbox::by_hand::BATCH};

pub(in crate::outbox) struct SqlitePlace {
    shop: Shop<Self>,
    /// With the file in it.
    _scratch: Scratch,
}

impl Place for SqlitePlace {
    type Driver = Sqlite;
    type Outbox = SqliteOutbox;

    usual!("(?, ?)", "hapax_outbox");
    mark_each!("hapax_outbox");

    async fn new(options: &Options, connections: u32) -> Result<Self, AnyError> {
        let scratch = Scratch::within(&options.dir)?;
        let file = scratch.0.join("shop.db");
        let outbox = SqliteOutbox::options().migrate(true).route(Sold::TYPE, SINK).open(&file).await?;
        // As safe as the outbox is.
        let user = SqliteConnectOptions::new().filename(&file).journal_mode(SqliteJournalMode::Wal);
        let user = user.synchronous(SqliteSynchronous::Full);
        let pool = SqlitePoolOptions::new().max_connections(connections).connect_with(user).await?;
        for table in TABLES {
            pool.execute(table).await?;
        }
        Ok(Self { shop: Shop { pool, outbox, broker: broker(options).await? }, _scratch: scratch })
    }

    async fn remove(self) -> Result<(), AnyError> {
        self.shop.pool.close().await;
        Ok(())
    }

    async fn claim(tx: &mut Tx<Self>) -> Result<Vec<Waiting>, AnyError> {
        let claim =
            "SELECT number, id, body FROM hapax_outbox WHERE status = 0 AND ready_at <= ? ORDER BY ready_at LIMIT ?";
        let rows = sqlx::query(claim).bind(i64::MAX).bind(BATCH).fetch_all(&mut **tx).await?;
        let waiting = rows.iter().map(|row| {
            let id = Uuid::from_slice(&row.try_get::<Vec<u8>, _>(1)?)?;
            Ok(Waiting { number: row.try_get(0)?, id, body: row.try_get(2)? })
        });
        waiting.collect()
    }

    /// There is no server.
    async fn thread(_tx: &mut Tx<Self>) -> Result<Option<i64>, AnyError> {
        Ok(None)
    }

    async fn queries_during(&self, time: Duration) -> Result<Option<i64>, AnyError> {
        tokio::time::sleep(time).await;
        Ok(None)
    }
}
