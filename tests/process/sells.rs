//! A program that keeps business tables and an outbox: it sells without end, and relays what it has sold.

use std::{path::Path, time::Duration};

use hapax::{
    Message, PostgresOutbox, RabbitMq, Relay,
    envelope::Outgoing,
    ports::StoreError,
    relay::{RelayHandle, RelayOptions},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, Executor, PgConnection};

use crate::{log, serve::input_closed, stored::server_of};

/// Who is told.
pub(crate) const AUDIT: &str = "audit";
/// What is stored for one key is sent in order.
const KEYS: i32 = 7;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sold {
    pub(crate) order: i32,
}

impl Message for Sold {
    const TYPE: &'static str = "shop.sold";
}

/// Sells until whoever has started this process closes its standard input; servers may be away. `ordered` or `unordered`; with
/// `-relay` behind it only relays.
pub(crate) async fn sell(folder: &Path, mode: &str) {
    log::begin();
    let (url, schema) = server_of(folder).unwrap();
    let broker = std::fs::read_to_string(folder.join("broker")).unwrap();
    let (ordered, relays_only) = (mode.starts_with("ordered"), mode.ends_with("-relay"));
    let mut closed = std::pin::pin!(input_closed());
    let mut relay = None;
    let selling = async {
        loop {
            let sold = try_to_sell(&url, &schema, &broker, ordered, &mut relay, relays_only).await;
            if let Err(error) = sold {
                eprintln!("begins again: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    tokio::select! {
        () = selling => {}
        () = &mut closed => {}
    }
    if let Some((_, relay)) = relay {
        RelayHandle::stop(relay).await.unwrap();
    }
}

type Running = Option<(PostgresOutbox, RelayHandle)>;

async fn try_to_sell(
    url: &str,
    schema: &str,
    broker: &str,
    ordered: bool,
    relay: &mut Running,
    relays_only: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    if relay.is_none() {
        *relay = Some(begin(url, schema, broker, ordered).await?);
        eprintln!("started");
    }
    let Some((outbox, _)) = relay else { return Ok(()) };
    if relays_only {
        std::future::pending::<()>().await;
    }
    let mut connection = PgConnection::connect(url).await?;
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(format!("SET search_path = {schema}")))).await?;
    loop {
        let mut tx = connection.begin().await?;
        let (order,): (i32,) = sqlx::query_as("SELECT nextval('orders_seen')::int").fetch_one(&mut *tx).await?;
        let key = order % KEYS;
        let Outgoing { destination, envelope } = outbox.outgoing(&Sold { order })?;
        let mut envelope = (*envelope).clone();
        envelope.partition_key = Some(format!("key-{key}").parse()?);
        let sold = Outgoing { destination, envelope: envelope.into() };
        let ticket = outbox.enqueue_all(&mut tx, &[sold]).await?;
        // Where order is kept, whoever sells for the same key waits by now: this is the order of commits.
        let insert = "INSERT INTO orders (id, key) VALUES ($1, $2)";
        sqlx::query(insert).bind(order).bind(key).execute(&mut *tx).await?;
        if order % 11 == 0 {
            tx.rollback().await?; // A ghost, if it is ever seen.
            continue;
        }
        tx.commit().await?;
        ticket.committed();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn begin(
    url: &str,
    schema: &str,
    broker: &str,
    ordered: bool,
) -> Result<(PostgresOutbox, RelayHandle), Box<dyn std::error::Error>> {
    let database = hapax::Postgres::options(url).schema(schema);
    let options = PostgresOutbox::options().migrate(true).ordered(ordered).route(Sold::TYPE, AUDIT);
    let outbox = options.open_database(database).await.map_err(|error: StoreError| format!("{error:?}"))?;
    let broker = RabbitMq::open(broker).await?;
    let options = RelayOptions::default()
        .polls(Duration::from_millis(50), Duration::from_millis(300))
        .lease(Duration::from_millis(1500))
        .birth_lease(Duration::from_millis(1000))
        .status_batch(10_000, Duration::from_millis(100))
        .attempts_max(1_000_000)
        .backoff(Duration::from_millis(50), Duration::from_millis(500));
    let relay = Relay::to(broker).table_with(outbox.clone(), options).start()?;
    Ok((outbox, relay))
}
