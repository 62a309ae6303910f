//! What is committed late, where transactions write beside each other.

use super::{
    rig::Place,
    sink::{Sink, quick, relay},
};

#[tokio::test]
async fn invisible() {
    let place = Place::new().await;
    let (writer, relaying, sink) = (place.outbox().await, place.outbox().await, Sink::new());
    let options = quick();
    let relay = relay(&relaying, &sink, options);
    // Stored first, committed last; what is stored meanwhile goes out, and the relay has looked past it many times.
    let (late, ticket) = place.order(&writer, 0).await;
    place.orders(&writer, 1..50).await;
    sink.until(|sink| sink.distinct().len() == 49).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 0", 0).await;
    late.commit().await.unwrap();
    drop(ticket); // Nobody is told either.
    sink.until_all(0..50).await;
    relay.stop().await.unwrap();
}
