//! PostgreSQL: a schema.

use std::time::Duration;

use hapax::{Message, PostgresOutbox, stores::postgres::outbox::PostgresOutboxOptions};
use sqlx::{AssertSqlSafe, Executor, Postgres, Row, postgres::PgPoolOptions};
use uuid::Uuid;

use super::{Options, Place, SINK, Shop, Sold, TABLES, Tx, Waiting, broker, usual};
use crate::{AnyError, outbox::by_hand::BATCH, sql::near::new_name};

pub(in crate::outbox) struct PostgresPlace {
    shop: Shop<Self>,
    schema: String,
}

impl Place for PostgresPlace {
    type Driver = Postgres;
    type Outbox = PostgresOutbox;

    usual!("($1, $2)", "outbox");

    async fn new(options: &Options, connections: u32) -> Result<Self, AnyError> {
        Self::with(options, connections, |outbox| outbox).await
    }

    async fn remove(self) -> Result<(), AnyError> {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        self.shop.pool.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await?;
        Ok(())
    }

    async fn claim(tx: &mut Tx<Self>) -> Result<Vec<Waiting>, AnyError> {
        let claim = "SELECT id, body FROM outbox WHERE status = 0 AND ready_at <= $1 ORDER BY ready_at LIMIT $2 \
                     FOR UPDATE SKIP LOCKED";
        let rows = sqlx::query(claim).bind(i64::MAX).bind(BATCH).fetch_all(&mut **tx).await?;
        Ok(rows.iter().map(|row| Waiting { number: 0, id: row.get(0), body: row.get(1) }).collect())
    }

    async fn mark(tx: &mut Tx<Self>, sent: &[Waiting]) -> Result<(), AnyError> {
        let ids: Vec<Uuid> = sent.iter().map(|row| row.id).collect();
        let status = "UPDATE outbox SET status = 1, ended_at = 0 WHERE id = ANY ($1)";
        sqlx::query(status).bind(ids).execute(&mut **tx).await?;
        Ok(())
    }

    async fn thread(tx: &mut Tx<Self>) -> Result<Option<i64>, AnyError> {
        let (process,): (i32,) = sqlx::query_as("SELECT pg_backend_pid()").fetch_one(&mut **tx).await?;
        Ok(Some(process.into()))
    }

    /// Transactions in this database: each query of a relay that idles is one. The first question is counted when the next is
    /// asked.
    async fn queries_during(&self, time: Duration) -> Result<Option<i64>, AnyError> {
        let ask = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        let (before,): (i64,) = sqlx::query_as(ask).fetch_one(&self.shop.pool).await?;
        tokio::time::sleep(time).await;
        let (after,): (i64,) = sqlx::query_as(ask).fetch_one(&self.shop.pool).await?;
        Ok(Some(after - before - 1))
    }
}

impl PostgresPlace {
    /// One with more settings.
    pub(in crate::outbox) async fn with(
        options: &Options,
        connections: u32,
        set: impl FnOnce(PostgresOutboxOptions) -> PostgresOutboxOptions,
    ) -> Result<Self, AnyError> {
        let schema = new_name("outbox");
        let outbox = open(options, &schema, set).await?;
        let path = format!("SET search_path = {schema}");
        let pool = PgPoolOptions::new().max_connections(connections).after_connect(move |connection, _| {
            let path = path.clone();
            Box::pin(async move { connection.execute(sqlx::raw_sql(AssertSqlSafe(path))).await.map(drop) })
        });
        let pool = pool.connect(&options.postgres).await?;
        for table in TABLES {
            pool.execute(table).await?;
        }
        Ok(Self { shop: Shop { pool, outbox, broker: broker(options).await? }, schema })
    }

    /// A handle with connections of its own, as another process has it.
    pub(in crate::outbox) async fn open(
        &self,
        options: &Options,
        set: impl FnOnce(PostgresOutboxOptions) -> PostgresOutboxOptions,
    ) -> Result<PostgresOutbox, AnyError> {
        open(options, &self.schema, set).await
    }

    pub(in crate::outbox) async fn run(&self, sql: String) -> Result<(), AnyError> {
        self.shop.pool.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
        Ok(())
    }

    pub(in crate::outbox) async fn count(&self, sql: &'static str) -> Result<i64, AnyError> {
        let (count,): (i64,) = sqlx::query_as(sql).fetch_one(&self.shop.pool).await?;
        Ok(count)
    }
}

async fn open(
    options: &Options,
    schema: &str,
    set: impl FnOnce(PostgresOutboxOptions) -> PostgresOutboxOptions,
) -> Result<PostgresOutbox, AnyError> {
    let database = hapax::Postgres::options(&options.postgres).schema(schema);
    let outbox = PostgresOutbox::options().migrate(true).route(Sold::TYPE, SINK);
    Ok(set(outbox).open_database(database).await?)
}
