//! A handler that writes the user's own table: it takes orders, writes a row into `charge` and says that it was charged, all in
//! one transaction. Nothing has to be installed; all is in one SQLite file.
//!
//! ```sh
//! cargo run --example inbox_handler --features sqlite-queue -- billing.db
//! ```
//!
//! Ten orders are sent three times each. Each is charged once, and the shop hears of each under one id. Run it again with the
//! same file: nothing is charged any more, since the inbox remembers.

use std::{collections::BTreeSet, time::Duration};

use hapax::{
    Context, Endpoint, HandlerError, Message, Relay, Sqlite, SqliteOutbox, SqliteQueue,
    inbox::TransactionHandler,
    ports::{Receiver, Settlement, Transport},
    stores::sqlite::outbox::{SqliteInbox, SqliteTransaction},
};
use serde::{Deserialize, Serialize};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

const ORDERS: i64 = 10;

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order: i64,
}

impl Message for OrderPlaced {
    const TYPE: &'static str = "shop.order-placed";
}

#[derive(Serialize, Deserialize)]
struct Charged {
    order: i64,
}

impl Message for Charged {
    const TYPE: &'static str = "billing.charged";
}

struct Charge;

impl TransactionHandler<OrderPlaced, SqliteInbox> for Charge {
    const NAME: &'static str = "charge";

    async fn handle(
        &self,
        placed: OrderPlaced,
        cx: &mut Context,
        tx: &mut SqliteTransaction,
    ) -> Result<(), HandlerError> {
        // No unique key keeps a second charge out of this table: the inbox does.
        sqlx::query("INSERT INTO charge (placed) VALUES (?)").bind(placed.order).execute(&mut **tx).await?;
        cx.publish(Charged { order: placed.order })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "billing.db".to_owned());
    let queue = SqliteQueue::open(&file).await?;
    let outbox = SqliteOutbox::open(&file).await?;
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&file)).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS charge (id INTEGER PRIMARY KEY, placed INTEGER NOT NULL)")
        .execute(&pool)
        .await?;

    // The shop wants to hear what was charged; it is another program as a rule.
    let shop = queue.connect(&"shop".parse()?, &[Charged::TYPE.parse()?]).await?;
    for order in 1..=ORDERS {
        for _ in 0..3 {
            let id = format!("order-{order}").parse()?;
            queue.sender().send_as(id, "billing", &OrderPlaced { order }).await?;
        }
    }

    let relay = Relay::to(queue.clone()).table(outbox.clone()).start()?; // What the handler sends leaves by it.
    let mut heard = Vec::new();
    Endpoint::builder("billing")
        .transport(queue)
        .dead_letters(Sqlite::open(&file).await?)
        .in_transaction(&outbox.inbox(pool.clone()), Charge)
        .run_until(async { heard = listen(&*shop.receiver).await })
        .await?;
    relay.stop().await?;

    let count = "SELECT count(*), count(DISTINCT placed) FROM charge";
    let (rows, orders): (i64, i64) = sqlx::query_as(count).fetch_one(&pool).await?;
    let ids: BTreeSet<&String> = heard.iter().collect();
    println!("sent {} messages of {ORDERS} orders", 3 * ORDERS);
    println!("charges {rows}, of {orders} orders");
    println!("the shop heard {}, with {} ids", heard.len(), ids.len());
    Ok(())
}

/// The ids of what arrives, until nothing comes for three seconds.
async fn listen(receiver: &dyn Receiver) -> Vec<String> {
    let mut heard = Vec::new();
    while let Ok(Ok(deliveries)) = tokio::time::timeout(Duration::from_secs(3), receiver.receive(100)).await {
        for delivery in deliveries {
            if let Err(error) = receiver.settle(&delivery.receipt, Settlement::Ack).await {
                eprintln!("{error}"); // It comes again.
                continue;
            }
            heard.push(delivery.envelope.message_id.to_string());
        }
    }
    heard
}
