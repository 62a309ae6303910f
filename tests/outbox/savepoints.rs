//! What was rolled back to a savepoint, where a commit looks for its messages.

use super::{
    rig::Place,
    sink::{Placed, Sink, quick, relay},
};

#[tokio::test]
async fn what_was_rolled_back_to_a_savepoint_is_no_ghost() {
    for place in [Place::new().await, Place::ordered().await] {
        rolled_back_to_a_savepoint(&place).await;
    }
}

async fn rolled_back_to_a_savepoint(place: &Place) {
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    let mut tx = place.begin().await;
    place.within(&mut tx, "SAVEPOINT begun").await;
    let gone = outbox.enqueue(&mut tx, &Placed { order: 0 }).await.unwrap();
    place.within(&mut tx, "ROLLBACK TO SAVEPOINT begun").await;
    let ticket = outbox.enqueue(&mut tx, &Placed { order: 1 }).await.unwrap();
    let error = outbox.commit(tx, gone.and(ticket)).await.unwrap_err();
    assert!(!error.is_unknown_outcome(), "{error:?}");
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue(&mut tx, &Placed { order: 2 }).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    sink.until(|sink| sink.distinct() == [2]).await;
    relay.stop().await.unwrap();
}
