//! A broker that is away for long, with the usual numbers of a relay.

use std::time::Duration;

use hapax::{RabbitMq, Relay, relay::RelayOptions};

use super::{
    audit::{PATIENCE, Seen},
    is_thorough,
    market::Market,
    shops::{InFile, OnMySql, OnPostgres},
    sites::Site,
};

/// What was tried while it was away is tried again after its back-off, 5 min at most.
const BACK_OFF: Duration = Duration::from_secs(300);

macro_rules! away {
    ($($name:ident: $shop:ty;)*) => {$(
        #[tokio::test]
        async fn $name() {
            arrives_once_the_broker_is_back::<$shop>().await;
        }
    )*};
}

away! {
    what_is_stored_on_postgres_while_the_broker_is_away_for_minutes_arrives_and_nothing_has_failed: OnPostgres;
    what_is_stored_on_mysql_while_the_broker_is_away_for_minutes_arrives_and_nothing_has_failed: OnMySql;
    what_is_stored_in_sqlite_while_the_broker_is_away_for_minutes_arrives_and_nothing_has_failed: InFile;
}

async fn arrives_once_the_broker_is_back<S: Site>() {
    let away = Duration::from_secs(if is_thorough() { 150 } else { 15 });
    let mut market = Market::<S>::open(false).await;
    let broker = RabbitMq::open(market.broker.url()).await.unwrap();
    // For each push all is shorter, the back-off too.
    let usual = RelayOptions::default();
    let options = if is_thorough() { usual } else { usual.backoff(Duration::from_secs(4), BACK_OFF) };
    let relay = Relay::to(broker).table_with(market.outbox.clone(), options).start().unwrap();
    market.sell(100).await;
    let mut seen = Seen::default();
    while seen.orders.len() < 100 {
        tokio::time::timeout(PATIENCE, seen.receive_some(&mut market.told)).await.expect("the first arrive");
    }
    // A queue that is declared shortly before its server is killed comes back without a leader, and takes nothing any more.
    tokio::time::sleep(Duration::from_secs(2)).await;
    market.broker.kill();
    let begun = std::time::Instant::now();
    while begun.elapsed() < away {
        market.sell(10).await;
        tokio::time::sleep(away / 100).await; // How long it is away is a time.
    }
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status IN (2, 3)").await, 0);
    // What was in one call when it went has one attempt more; then one at a time was tried.
    let tried = "SELECT count(*) FROM hapax.outbox WHERE status = 0 AND attempts > 1";
    let tried = market.shop.number(tried).await;
    market.broker.restart().await;
    let arriving = async {
        while market.shop.waiting().await > 0 {
            let _ = tokio::time::timeout(Duration::from_millis(200), seen.receive_some(&mut market.told)).await;
        }
    };
    tokio::time::timeout(PATIENCE + BACK_OFF, arriving).await.expect("all arrives once the broker is back");
    seen.receive_all(&mut market.told, &mut market.shop).await;
    let sold = market.shop.sold().await;
    println!("away for {:?}: {} sold, {tried} tried more than once by then", begun.elapsed(), sold.len());
    seen.check(sold, "unordered");
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status <> 1").await, 0);
    let most = market.shop.number("SELECT count(*) FROM hapax.outbox WHERE attempts > 5").await;
    assert_eq!(most, 0, "an outage uses up few attempts of 15");
    relay.stop().await.unwrap();
}
