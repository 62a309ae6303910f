//! Messages in transactions of the user's own.

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    error::ProvideErrorMetadata,
    types::{AttributeValue, Put, TransactWriteItem},
};
use hapax::{
    Endpoint, Enqueued, InProcess,
    endpoint::Settings,
    ids::{EntityKey, Scope},
    ports::{EntityStore, ErrorKind},
};

use hapax_tests::samples::outgoing;

use crate::{
    calls::{Add, Order},
    rig::{Rig, TRANSACTION_BYTES_MAX, item_bytes, rows},
};

/// A row of the user's own, which must not be there yet.
fn row(rig: &Rig, name: &str) -> TransactWriteItem {
    let text = |text: &str| AttributeValue::S(text.into());
    let put = Put::builder().table_name(rig.table.name()).item("pk", text(name)).item("sk", text("row"));
    let put = put.condition_expression("attribute_not_exists(pk)").build().unwrap();
    TransactWriteItem::builder().put(put).build()
}

async fn commit(rig: &Rig, name: &str, enqueued: &Enqueued) -> bool {
    let request = rig.table.client().transact_write_items().transact_items(row(rig, name));
    request.transact_items(rig.plain.enqueue(enqueued).unwrap()).send().await.is_ok()
}

#[tokio::test]
async fn what_a_transaction_of_dynamodb_enqueues_is_sent_if_the_transaction_is_done() {
    let rig = Rig::new().await;
    let add = |order: &str| Enqueued::message("front", "shop", &Add { order: order.into() }).unwrap();
    let (done, undone) = (add("done"), add("undone"));
    assert!(commit(&rig, "row", &done).await);
    assert!(!commit(&rig, "row", &undone).await, "the row is there");
    assert!(!commit(&rig, "another row", &done).await, "the message is there");

    let queue = InProcess::new("enqueued");
    let soon = Settings { enqueued_interval: Duration::from_millis(50), ..Settings::default() };
    let front = Endpoint::builder("front").store(rig.plain.clone()).transport(queue.clone()).settings(soon);
    let front = front.sends_enqueued().start().await.unwrap();
    let front = tokio::spawn(front.run_until(std::future::pending::<()>()));
    let order = |key: &str| {
        let scope = Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() };
        EntityKey::new(Arc::new(scope), key.parse().unwrap())
    };
    let handled = async {
        while rig.plain.version(&order("done")).await.unwrap().is_none()
            || !rig.plain.pending(done.key().scope(), Duration::ZERO, None, 1).await.unwrap().is_empty()
        {
            tokio::task::yield_now().await;
        }
    };
    let shop = Endpoint::builder("shop").store(rig.plain.clone()).transport(queue.clone());
    shop.saga::<Order>(|order| order.starts::<Add>()).run_until(handled).await.unwrap();
    assert_eq!(rig.plain.version(&order("undone")).await.unwrap(), None);
    assert!(rig.plain.load(done.key(), &[]).await.unwrap().stored.unwrap().entity.outbox.is_empty());
    front.abort();
}

#[tokio::test]
async fn messages_below_at_and_above_what_fits_into_an_item_of_dynamodb() {
    let rig = Rig::new().await;
    let of = |bytes: usize| Enqueued::new("front", outgoing(vec![b'x'; bytes])).unwrap();
    let (mut at, mut above) = (380 * 1024, 390 * 1024);
    while above - at > 1 {
        let bytes = (at + above) / 2;
        if rig.plain.enqueue(&of(bytes)).is_ok() { at = bytes } else { above = bytes }
    }
    assert_eq!(rig.plain.enqueue(&of(above)).unwrap_err().kind(), ErrorKind::TooLarge);
    for bytes in [at - 1, at] {
        let enqueued = of(bytes);
        assert!(commit(&rig, &format!("row of {bytes}"), &enqueued).await);
        let stored = rig.plain.load(enqueued.key(), &[]).await.unwrap().stored.unwrap();
        assert_eq!(&stored.entity, enqueued.entity());
        assert_eq!(rig.items(enqueued.key()).await, 1);
    }
}

/// As many messages as are nearly as large as an item, and rows of the user's own for the rest of what a transaction takes.
#[tokio::test]
async fn transactions_with_messages_below_at_and_above_what_dynamodb_takes_in_one() {
    let rig = Rig::new().await;
    for bytes in [TRANSACTION_BYTES_MAX - 1, TRANSACTION_BYTES_MAX, TRANSACTION_BYTES_MAX + 1] {
        let enqueued = [(); 10].map(|()| Enqueued::new("front", outgoing(vec![b'x'; 380 * 1024])).unwrap());
        let mut actions = enqueued.each_ref().map(|enqueued| rig.plain.enqueue(enqueued).unwrap()).to_vec();
        let held: usize = actions.iter().map(|action| item_bytes(action.put().unwrap().item())).sum();
        actions.extend(rows(&rig.table, &format!("{bytes}"), bytes - held));
        let request = rig.table.client().transact_write_items().set_transact_items(Some(actions));
        let fits = bytes <= TRANSACTION_BYTES_MAX;
        match request.send().await {
            Ok(_) => assert!(fits, "{bytes}"),
            Err(error) => assert_eq!((error.code(), fits), (Some("ValidationException"), false), "{error:?}"),
        }
        for enqueued in &enqueued {
            let stored = rig.plain.load(enqueued.key(), &[]).await.unwrap().stored;
            assert_eq!(stored.as_ref().map(|stored| &stored.entity), fits.then(|| enqueued.entity()), "{bytes}");
        }
    }
}
