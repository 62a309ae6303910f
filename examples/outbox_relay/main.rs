//! Only sending: a shop keeps its own table of orders and tells others of each, by way of an outbox.
//!
//! ```sh
//! cargo run --example outbox_relay --features postgres,rabbitmq -- postgres://postgres@localhost/test amqp://guest:guest@localhost
//! ```
//!
//! It sells a hundred orders, each in a transaction of the shop's own with one message beside it, lets ten of them fail, and
//! ends once the others are at the broker, and billing has taken them from there. The relay runs in the same process; with `relay`
//! as a third argument it only relays, until it is told to stop (Ctrl-C), and with `sell` it only sells: then each is a process
//! of its own. Start `relay` several times: they share what there is, and what one that died had taken the others send later.

use std::time::Duration;

use hapax::{
    Message, Postgres, PostgresOutbox, RabbitMq, Relay,
    ports::{OutboxState, Settlement, Transport},
    relay::{RelayCounts, RelayMetrics, RelayOptions},
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order: i64,
}

impl Message for OrderPlaced {
    const TYPE: &'static str = "shop.order-placed";
}

/// Where a service would set its gauges; `docs/alerts/outbox.yml` has rules for them.
#[derive(Debug)]
struct Watch;

impl RelayMetrics for Watch {
    fn observe(&self, table: &str, state: &OutboxState, counts: &RelayCounts) {
        let (stored, failed, oldest) = (state.stored, state.failed, state.oldest.unwrap_or_default().as_secs());
        println!("{table}: {stored} wait, the oldest for {oldest} s; {failed} have failed; sent here {}", counts.sent);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (database, broker, task) = match &arguments[..] {
        [database, broker] => (database, broker, "both"),
        [database, broker, task] => (database, broker, task.as_str()),
        _ => return Err("give postgres://USER@HOST/DATABASE amqp://USER:PASSWORD@HOST [sell | relay]".into()),
    };
    let outbox = PostgresOutbox::options().migrate(true).route(OrderPlaced::TYPE, "billing").open(database).await?;
    let server = Postgres::options(database).connect_options()?; // A pool of the shop's own, with the same TLS.
    if task == "sell" {
        return sell(&PgPool::connect_with(server).await?, &outbox).await.map(drop);
    }
    let broker = RabbitMq::open(broker).await?;
    // Who is told: elsewhere, as a rule. A message that no queue takes would wait in the outbox.
    let billing = broker.connect(&"billing".parse()?, &[]).await?;
    // The usual numbers are right for most; these show how they are set.
    let options = RelayOptions::default().lease(Duration::from_secs(60)).care(Duration::from_secs(10), 1000);
    let relay = Relay::to(broker).table_with(outbox.clone(), options).metrics(Watch);
    if task == "relay" {
        println!("relaying; Ctrl-C stops");
        return Ok(relay.run_until(tokio::signal::ctrl_c()).await?);
    }
    let relay = relay.start()?;
    let sold = sell(&PgPool::connect_with(server).await?, &outbox).await?;
    while relay.counts().sent < sold {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("at the broker: {}", relay.counts().sent);
    relay.stop().await?;
    let mut told = 0;
    while let Ok(deliveries) = tokio::time::timeout(Duration::from_secs(1), billing.receiver.receive(100)).await {
        for delivery in deliveries? {
            billing.receiver.settle(&delivery.receipt, Settlement::Ack).await?;
            told += 1;
        }
    }
    println!("billing was told of {told}");
    Ok(())
}

async fn sell(pool: &PgPool, outbox: &PostgresOutbox) -> Result<u64, Box<dyn std::error::Error>> {
    sqlx::query("CREATE TABLE IF NOT EXISTS shop_order (id bigint GENERATED ALWAYS AS IDENTITY)").execute(pool).await?;
    let mut failed = 0;
    for number in 0..100 {
        let mut tx = pool.begin().await?;
        let insert = "INSERT INTO shop_order DEFAULT VALUES RETURNING id";
        let (order,) = sqlx::query_as(insert).fetch_one(&mut *tx).await?;
        let ticket = outbox.enqueue(&mut tx, &OrderPlaced { order }).await?;
        if number % 10 == 9 {
            tx.rollback().await?; // Neither order nor message.
            failed += 1;
            continue;
        }
        outbox.commit(tx, ticket).await?;
    }
    println!("sold {}, failed {failed}", 100 - failed);
    Ok(100 - failed)
}
