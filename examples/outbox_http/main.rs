//! An HTTP service that only sends: each order is a row of the shop's own table, with one message beside it in the same
//! transaction. Nothing has to be installed; all is in one SQLite file, the queue that billing reads as well.
//!
//! ```sh
//! cargo run --example outbox_http --features sqlite-queue -- shop.db 127.0.0.1:8080
//! curl -i -X POST -H 'Idempotency-Key: tea-1' -H 'Content-Type: application/json' -d '{"cups": 2}' http://127.0.0.1:8080/orders
//! curl http://127.0.0.1:8080/health
//! ```
//!
//! With the feature `rabbitmq` and an address as a third argument (`amqp://guest:guest@localhost`) the messages go to RabbitMQ.
//! The relay runs in the same process. Ctrl-C or SIGTERM stops the server first, then the relay.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use hapax::{
    Message, Relay, SqliteOutbox, SqliteQueue,
    ports::{Dispatcher, OutboxTable},
};
use serde::{Deserialize, Serialize};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order: i64,
    cups: i64,
}

impl Message for OrderPlaced {
    const TYPE: &'static str = "shop.order-placed";
}

#[derive(Deserialize)]
struct NewOrder {
    cups: i64,
}

#[derive(Clone)]
struct Shop {
    pool: SqlitePool,
    outbox: SqliteOutbox,
}

type Refused = (StatusCode, String);
type Answer = (StatusCode, Json<HashMap<&'static str, i64>>);

/// The key is unique in the shop's own table, so that the database decides which of two equal requests is the first: the second
/// finds the order, and stores no message. Both get the same answer.
async fn place(State(shop): State<Shop>, headers: HeaderMap, Json(new): Json<NewOrder>) -> Result<Answer, Refused> {
    let key = headers.get("Idempotency-Key").and_then(|key| key.to_str().ok());
    let key = key.ok_or_else(|| (StatusCode::BAD_REQUEST, "give an Idempotency-Key, one for each order".to_owned()))?;
    if new.cups < 1 {
        return Err((StatusCode::UNPROCESSABLE_ENTITY, "cups must be 1 or more".to_owned()));
    }
    let mut tx = shop.pool.begin().await.map_err(failed)?;
    let insert = "INSERT INTO shop_order (request, cups) VALUES (?, ?) ON CONFLICT (request) DO NOTHING RETURNING id";
    let inserted = sqlx::query_as(insert).bind(key).bind(new.cups).fetch_optional(&mut *tx).await.map_err(failed)?;
    let Some((order,)) = inserted else {
        let select = "SELECT id, cups FROM shop_order WHERE request = ?";
        let (order, cups): (i64, i64) = sqlx::query_as(select).bind(key).fetch_one(&mut *tx).await.map_err(failed)?;
        if cups != new.cups {
            let why = format!("this Idempotency-Key is of order {order}, which is another: use a new key");
            return Err((StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        return Ok(created(order));
    };
    let ticket = shop.outbox.enqueue(&mut tx, &OrderPlaced { order, cups: new.cups }).await.map_err(failed)?;
    let take = "UPDATE shop_stock SET cups = cups - ?1 WHERE cups >= ?1";
    if sqlx::query(take).bind(new.cups).execute(&mut *tx).await.map_err(failed)?.rows_affected() == 0 {
        // Whoever returns before the commit drops the transaction, which rolls it back: neither order nor message.
        return Err((StatusCode::CONFLICT, "sold out".to_owned()));
    }
    shop.outbox.commit(tx, ticket).await.map_err(failed)?;
    Ok(created(order))
}

fn created(order: i64) -> Answer {
    (StatusCode::CREATED, Json(HashMap::from([("order", order)])))
}

/// The client does not learn whether it was committed: it asks again with the same key.
fn failed(error: impl std::error::Error) -> Refused {
    eprintln!("an order failed: {error}");
    (StatusCode::SERVICE_UNAVAILABLE, "try again with the same Idempotency-Key".to_owned())
}

/// What waits to be sent, and for how many seconds the oldest of it has waited.
async fn health(State(shop): State<Shop>) -> Result<Json<HashMap<&'static str, u64>>, Refused> {
    let state = shop.outbox.state().await.map_err(failed)?;
    let oldest = state.oldest.map_or(0, |age| age.as_secs());
    Ok(Json(HashMap::from([("stored", state.stored), ("oldest", oldest), ("failed", state.failed)])))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_else(|| "shop.db".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let broker = broker(&file, arguments.next()).await?;

    let outbox = SqliteOutbox::options().migrate(true).route(OrderPlaced::TYPE, "billing").open(&file).await?;
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&file)).await?;
    let tables = "
        CREATE TABLE IF NOT EXISTS shop_order (id INTEGER PRIMARY KEY, request TEXT NOT NULL UNIQUE, cups INTEGER NOT NULL);
        CREATE TABLE IF NOT EXISTS shop_stock (one INTEGER PRIMARY KEY, cups INTEGER NOT NULL);
        INSERT INTO shop_stock VALUES (1, 1000000) ON CONFLICT DO NOTHING";
    sqlx::raw_sql(tables).execute(&pool).await?;

    let relay = Relay::to(broker).table(outbox.clone()).start()?;
    let shop = Router::new().route("/orders", post(place)).route("/health", get(health));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, shop.with_state(Shop { pool, outbox })).with_graceful_shutdown(told_to_stop()).await?;
    relay.stop().await?; // After the server: what the last requests have stored still leaves.
    Ok(())
}

/// The queue in the shop's own file, or RabbitMQ.
async fn broker(file: &str, address: Option<String>) -> Result<Arc<dyn Dispatcher>, Box<dyn std::error::Error>> {
    match address {
        None => Ok(Arc::new(SqliteQueue::open(file).await?)),
        #[cfg(feature = "rabbitmq")]
        Some(address) => {
            let broker = hapax::RabbitMq::open(&address).await?;
            // Declares billing's queue, which billing does as a rule: a message that no queue takes would wait.
            drop(hapax::ports::Transport::connect(&broker, &"billing".parse()?, &[]).await?);
            Ok(Arc::new(broker))
        }
        #[cfg(not(feature = "rabbitmq"))]
        Some(_) => Err("for a RabbitMQ server build with --features sqlite-queue,rabbitmq".into()),
    }
}

async fn told_to_stop() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        return;
    }
    drop(tokio::signal::ctrl_c().await);
}
