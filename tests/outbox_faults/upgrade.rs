//! Programs are replaced one by one while others go on, beside tables that a later version has added something to.

use super::{
    audit::{PATIENCE, Seen},
    crew::Worker,
    market::Market,
    shops::{OnMySql, OnPostgres},
    sites::Site,
};

/// The next version's step, which older programs go on beside.
const ADDS: &str = "\
    ALTER TABLE hapax.outbox ADD COLUMN remark INT NOT NULL DEFAULT 0; \
    INSERT INTO hapax.outbox_meta (name, value) VALUES ('usable_from', 1); \
    INSERT INTO hapax.outbox_migration (version, name) VALUES (2, 'adds')";

async fn programs_are_replaced_one_by_one<S: Site>(mode: &str) {
    let mut market = Market::<S>::open(mode == "ordered").await;
    let (folder, mut seen) = (market.scratch.folder().to_owned(), Seen::default());
    let mut crew: Vec<Worker> = (0..3).map(|_| Worker::selling(&folder, mode)).collect();
    goes_on(&mut market, &mut seen).await;
    // Whoever comes first of the next version adds to the tables, under everybody's hands.
    market.shop.run(ADDS).await;
    goes_on(&mut market, &mut seen).await;
    for _ in 0..3 {
        crew.push(Worker::selling(&folder, mode).started().await);
        crew.remove(0).stop();
        goes_on(&mut market, &mut seen).await;
    }
    // Who sells has stopped; what is stored is sent by one that relays alone.
    crew.into_iter().for_each(Worker::stop);
    let relay = Worker::selling(&folder, &format!("{mode}-relay")).started().await;
    seen.receive_all(&mut market.told, &mut market.shop).await;
    seen.check(market.shop.sold().await, mode);
    relay.stop();
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status <> 1 OR remark <> 0").await, 0);
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox_migration WHERE version = 2").await, 1);
}

/// Until so much is told that had not come before.
pub(super) async fn goes_on<S: Site>(market: &mut Market<S>, seen: &mut Seen) {
    while !market.told.is_empty() {
        seen.receive_some(&mut market.told).await;
    }
    let enough = seen.orders.len() + 100;
    while seen.orders.len() < enough {
        tokio::time::timeout(PATIENCE, seen.receive_some(&mut market.told)).await.expect("what is sold is told");
    }
}

#[tokio::test]
async fn programs_on_postgres_are_replaced_one_by_one_beside_newer_tables() {
    programs_are_replaced_one_by_one::<OnPostgres>("unordered").await;
}

#[tokio::test]
async fn programs_on_postgres_that_keep_order_are_replaced_one_by_one() {
    programs_are_replaced_one_by_one::<OnPostgres>("ordered").await;
}

#[tokio::test]
async fn programs_on_mysql_are_replaced_one_by_one_beside_newer_tables() {
    programs_are_replaced_one_by_one::<OnMySql>("ordered").await;
}
