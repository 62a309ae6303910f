//! Handlers in transactions, in processes that are killed, with copies of every message.

use std::{sync::Arc, time::Duration};

use hapax::{
    MessageId, RabbitMq,
    envelope::{Destination, Envelope, Outgoing},
    ids::TypeName,
    ports::{Dispatcher, Transport},
};
use sqlx::{Connection, Executor, PgConnection};

use super::{
    audit::{PATIENCE, Seen},
    crew::{Worker, program},
    market::Market,
    shops::{OnPostgres, Shop},
};

/// As `process/charges.rs` names them.
const BILLING: &str = "billing";
const BILL: &str = "billing.bill";

const ORDERS: i32 = 1500;
const COPIES: usize = 3;
const KILLS: i32 = 10;

fn bill(order: i32) -> Outgoing {
    let body = serde_json::to_vec(&serde_json::json!({ "order": order })).unwrap();
    let envelope = Envelope::new(MessageId::random(), TypeName::parse(BILL).unwrap(), body);
    Outgoing { destination: Destination::parse(&format!("endpoint:{BILLING}")).unwrap(), envelope: Arc::new(envelope) }
}

#[tokio::test]
async fn handlers_in_transactions_outlive_kills_and_each_message_counts_once() {
    let mut market = Market::<OnPostgres>::open(false).await;
    let mut server = PgConnection::connect(&market.url).await.unwrap();
    // Nothing in the table keeps a second row out.
    server.execute("CREATE TABLE hapax.charge (id int NOT NULL)").await.unwrap();
    let transport = RabbitMq::open(market.broker.url()).await.unwrap();
    drop(transport.connect(&BILLING.parse().unwrap(), &[]).await.unwrap()); // The queue is there.
    let folder = market.scratch.folder().to_owned();
    let charging = || Worker::run_task(&folder, ["charge", "none"], &mut program());
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut crew: Vec<Worker> = (0..2).map(|_| charging()).collect();
    let mut seen = Seen::default();
    for round in 0..KILLS {
        let orders = round * (ORDERS / KILLS)..(round + 1) * (ORDERS / KILLS);
        let mut bills: Vec<Outgoing> = orders.flat_map(|order| vec![bill(order); COPIES]).collect();
        random.shuffle(&mut bills);
        for sent in transport.dispatch(&bills).await {
            sent.unwrap();
        }
        // In the middle of them.
        let some = seen.orders.len() + random.usize(20..100);
        while seen.orders.len() < some {
            if tokio::time::timeout(PATIENCE, seen.receive_some(&mut market.told)).await.is_err() {
                let logs: Vec<String> = crew.iter().map(Worker::log).collect();
                let left = transport.backlog(&BILLING.parse().unwrap()).await;
                panic!("nothing is told in round {round}: {} were, {left:?} are left; {logs:?}", seen.orders.len());
            }
        }
        crew.swap_remove(random.usize(..crew.len())).kill();
        crew.push(charging());
    }
    let handling = async {
        while market.shop.number("SELECT count(DISTINCT id) FROM hapax.charge").await < i64::from(ORDERS) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Also the copies that are left.
        while transport.backlog(&BILLING.parse().unwrap()).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, handling).await.expect("all is charged");
    seen.receive_all(&mut market.told, &mut market.shop).await;
    for what in ["charge", "inbox", "outbox"] {
        let rows = market.shop.number(&format!("SELECT count(*) FROM hapax.{what}")).await;
        assert_eq!(rows, i64::from(ORDERS), "{what}");
    }
    // Each order came under one id, which `seen` looks at.
    seen.orders.sort_unstable();
    assert_eq!(seen.orders, Vec::from_iter(0..ORDERS));
    let ids: std::collections::HashSet<&MessageId> = seen.ids.values().collect();
    assert_eq!(ids.len(), seen.ids.len());
    crew.into_iter().for_each(Worker::stop);
}
