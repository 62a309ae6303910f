//! Connections that end in the middle of something.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use hapax::ports::{DispatchError, Dispatcher, Settled, Settlement};
use tokio::time::Instant;

use super::{common::*, rig::*};

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_of_sending_leaves_the_message_to_be_sent_again() {
    let tables = Tables::new();
    let name = format!("send_{}", name_of(&tables));
    let queue = open_named(&tables, &name, options()).await;
    let ends = shop(&queue).await;
    send(&queue, &[to("elsewhere", envelope("first"))]).await; // Before which messages are counted.
    let outgoing = [to("shop", envelope("a"))];
    let (mut lock, mut other) = (beside(&tables).await, beside(&tables).await);
    run(&mut lock, LOCK_MESSAGES).await;
    let (mut results, ()) = tokio::join!(queue.dispatch(&outgoing), cut_while_it_waits(&mut other, &name));
    run(&mut lock, UNLOCK).await;
    let Err(DispatchError::Transient(e)) = results.remove(0) else { panic!("nobody can have confirmed it") };
    assert!(e.is_unknown_outcome() || !CUT_IS_UNKNOWN, "{e}");
    send(&queue, &outgoing).await;
    assert_eq!(next(&ends).await.envelope, outgoing[0].envelope);
    forget(&tables, &name).await;
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_of_a_claim_loses_nothing() {
    for ordered_keys in [false, true] {
        let tables = Tables::new();
        let name = format!("take_{}", name_of(&tables));
        let queue = open_named(&tables, &name, options().ordered_keys(ordered_keys)).await;
        let ends = shop(&queue).await;
        send(&queue, &[keyed("k", "a"), keyed("k", "b")]).await;
        let (mut lock, mut other) = (beside(&tables).await, beside(&tables).await);
        run(&mut lock, LOCK_MESSAGES).await;
        let (failed, ()) = tokio::join!(ends.receiver.receive(1), cut_while_it_waits(&mut other, &name));
        run(&mut lock, UNLOCK).await;
        failed.unwrap_err();
        let delivery = next(&ends).await;
        assert_eq!((body(&delivery).as_str(), delivery.attempts), ("a", 1));
        ack(&ends, &delivery).await;
        assert_eq!(body(&next(&ends).await), "b");
        forget(&tables, &name).await;
    }
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_of_settling_leaves_the_lease_as_it_was() {
    let tables = Tables::new();
    let name = format!("settle_{}", name_of(&tables));
    let queue = open_named(&tables, &name, options()).await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["a"]).await;
    let delivery = next(&ends).await;
    let (mut lock, mut other) = (beside(&tables).await, beside(&tables).await);
    for settlement in [Settlement::Ack, retry(Duration::ZERO), dead("no")] {
        run(&mut lock, "BEGIN; SELECT id FROM hapax.queue_message FOR UPDATE").await;
        let settling = ends.receiver.settle(&delivery.receipt, settlement);
        let (failed, ()) = tokio::join!(settling, cut_while_it_waits(&mut other, &name));
        run(&mut lock, "ROLLBACK").await;
        let failed = failed.unwrap_err();
        assert!(failed.is_unknown_outcome() || !CUT_IS_UNKNOWN, "{failed}");
    }
    ack(&ends, &delivery).await;
    assert_eq!(number(&mut other, "SELECT count(*) FROM hapax.queue_dead_letter").await, 0);
    forget(&tables, &name).await;
}

/// A settle that waits for a row's lock sees the row as it is when it gets it: another has taken it meanwhile.
#[tokio::test]
async fn a_settle_that_waited_while_another_took_the_message_is_late() {
    let tables = Tables::new();
    let name = format!("fence_{}", name_of(&tables));
    let queue = open_named(&tables, &name, options()).await;
    let ends = shop(&queue).await;
    let (mut lock, mut other) = (beside(&tables).await, beside(&tables).await);
    for settlement in [Settlement::Ack, retry(Duration::ZERO), dead("no")] {
        send_bodies(&queue, &["a"]).await;
        let delivery = next(&ends).await;
        // As if the lease had run out and somebody had taken it.
        let take = "BEGIN; UPDATE hapax.queue_message SET token = token + 1000, deliveries = deliveries + 1";
        run(&mut lock, take).await;
        let waits = waits(&name);
        let (settled, ()) = tokio::join!(settle(&ends, &delivery, settlement), async {
            wait_for(&mut other, &waits).await;
            run(&mut lock, "COMMIT").await;
        });
        assert_eq!(settled, Settled::LeaseLost);
        assert_eq!(number(&mut other, "SELECT count(*) FROM hapax.queue_message WHERE deliveries = 2").await, 1);
        run(&mut other, "DELETE FROM hapax.queue_message").await;
    }
}

/// Connections of one of two processes are ended all the time; every message is handled at least once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_connections_end_again_and_again_handles_all_it_is_given() {
    const MESSAGES: usize = 200;
    for ordered_keys in [false, true] {
        let tables = Tables::new();
        let name = format!("cut_{}", name_of(&tables));
        let options = options().ordered_keys(ordered_keys).lease(Duration::from_millis(500));
        let cut = open_named(&tables, &name, options.clone()).await;
        let whole = tables.open_queue(options).await;
        let over = Arc::new(AtomicBool::new(false));
        let cutter = tokio::spawn({
            let (over, mut connection) = (over.clone(), beside(&tables).await);
            async move {
                let mut cuts = 0;
                while !over.load(Ordering::Relaxed) {
                    cuts += cut_all(&mut connection, &name).await;
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                cuts
            }
        });
        let handled = Arc::new(Mutex::new(HashSet::new()));
        let receivers = [cut.clone(), whole.clone()].map(|queue| {
            let (handled, over) = (handled.clone(), over.clone());
            tokio::spawn(async move {
                let Ok(ends) = open_shop(&queue, &over).await else { return };
                while !over.load(Ordering::Relaxed) {
                    let given = tokio::time::timeout(Duration::from_millis(100), ends.receiver.receive(10)).await;
                    let Ok(Ok(deliveries)) = given else { continue };
                    join_all(deliveries.iter().map(|delivery| async {
                        if let Ok(Settled::Done) = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await {
                            handled.lock().unwrap().insert(body(delivery));
                        }
                    }))
                    .await;
                }
            })
        });
        for number in 0..MESSAGES {
            let outgoing = [keyed(&format!("k{}", number % 7), &number.to_string())];
            while cut.dispatch(&outgoing).await.remove(0).is_err() {}
        }
        let deadline = Instant::now() + PATIENCE;
        // An ack whose answer was lost took effect all the same: so what is left in the queue tells.
        while whole.messages().await.unwrap() > 0 {
            assert!(Instant::now() < deadline, "{} messages never came", whole.messages().await.unwrap());
            tokio::task::yield_now().await;
        }
        over.store(true, Ordering::Relaxed);
        for receiver in receivers {
            receiver.await.unwrap();
        }
        assert!(cutter.await.unwrap() > 5, "no connection was cut, so nothing was tried");
        assert!(handled.lock().unwrap().len() > MESSAGES / 2);
    }
}

async fn open_shop(queue: &Queue, over: &AtomicBool) -> Result<hapax::ports::Connected, ()> {
    use hapax::ports::Transport;
    while !over.load(Ordering::Relaxed) {
        if let Ok(ends) = queue.connect(&endpoint("shop"), &[]).await {
            return Ok(ends);
        }
    }
    Err(())
}
