//! Several tables: of one transaction, and of one relay.

use hapax::Relay;

use super::{
    rig::{OTHER, Place},
    sink::{Fate, Placed, Sink, patient, quick, relay},
};

#[tokio::test]
async fn messages_of_one_transaction_go_each_by_the_relay_of_its_own_outbox() {
    let place = Place::new().await;
    let (shop, books) = (place.outbox().await, place.other().await);
    let (to_shop, to_books) = (Sink::new(), Sink::new());
    // Nothing is claimed: what is sent was pushed.
    let relays = [relay(&shop, &to_shop, patient()), relay(&books, &to_books, patient())];
    for order in 0..10 {
        let mut tx = place.begin().await;
        let even = shop.enqueue(&mut tx, &Placed { order: 2 * order }).await.unwrap();
        let odd = books.enqueue(&mut tx, &Placed { order: 2 * order + 1 }).await.unwrap();
        // Either of them commits.
        let committed =
            if order < 5 { shop.commit(tx, even.and(odd)).await } else { books.commit(tx, odd.and(even)).await };
        committed.unwrap();
    }
    to_shop.until(|sink| sink.taken().len() >= 10).await;
    to_books.until(|sink| sink.taken().len() >= 10).await;
    for relay in relays {
        relay.stop().await.unwrap();
    }
    assert_eq!(to_shop.orders(), Vec::from_iter((0..20).step_by(2)));
    assert_eq!(to_books.orders(), Vec::from_iter((1..20).step_by(2)));
    // Where a file has one outbox, both are in it.
    let sent = if OTHER == "hapax.outbox" { 20 } else { 10 };
    for table in ["hapax.outbox", OTHER] {
        let stored = format!("SELECT count(*) FROM {table} WHERE status = 1 AND attempts = 1");
        assert_eq!(place.number(&stored).await, sent, "{table}");
    }
}

#[tokio::test]
async fn each_table_of_a_relay_has_its_own_numbers() {
    let (quickly, patiently) = (Place::new().await, Place::new().await);
    let (gives_up, goes_on) = (quickly.outbox().await, patiently.outbox().await);
    let sink = Sink::with(|order| if order % 10 == 0 { Fate::Refused } else { Fate::Taken });
    let relay = Relay::to(sink.clone())
        .table_with(gives_up.clone(), quick().attempts_max(1))
        .table_with(goes_on.clone(), quick().attempts_max(3))
        .start()
        .unwrap();
    quickly.orders(&gives_up, 0..10).await;
    patiently.orders(&goes_on, 10..20).await;
    for (place, attempts) in [(&quickly, 1), (&patiently, 3)] {
        place.until("SELECT count(*) FROM hapax.outbox WHERE status = 2", 1).await;
        let failed = "SELECT max(attempts) FROM hapax.outbox WHERE status = 2";
        assert_eq!(place.number(failed).await, attempts);
        place.until("SELECT count(*) FROM hapax.outbox WHERE status = 1", 9).await;
    }
    relay.stop().await.unwrap();
    assert_eq!(sink.distinct(), Vec::from_iter((0..20).filter(|order| order % 10 != 0)));
}
