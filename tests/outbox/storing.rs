//! What is stored, and what goes out by being pushed alone.

use std::{sync::Arc, time::Duration};

use hapax::{
    MessageId,
    envelope::{Destination, Envelope, Outgoing},
    time::Timestamp,
};

use super::{
    rig::{EnqueueError, Outbox, Place},
    sink::{NOWHERE, Placed, Sink, patient, quick, relay},
};

#[tokio::test]
async fn what_is_committed_is_sent_without_a_look_at_the_table() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, patient());
    place.orders(&outbox, 0..100).await;
    sink.until_all(0..100).await;
    assert_eq!(sink.orders(), Vec::from_iter(0..100), "each once, in the order of their commits");
    relay.stop().await.unwrap();
    assert_eq!(
        place.number("SELECT count(*) FROM hapax.outbox WHERE status = 1").await,
        100,
        "a stop stores every status"
    );
    assert_eq!(place.number("SELECT max(attempts) FROM hapax.outbox").await, 1);
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox_relay").await, 0);
}

#[tokio::test]
async fn many_are_stored_in_one_statement() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, patient());
    let mut tx = place.begin().await;
    let messages: Vec<Outgoing> = (0..1000).map(|order| outbox.outgoing(&Placed { order }).unwrap()).collect();
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    let one = outbox.enqueue(&mut tx, &Placed { order: 1000 }).await.unwrap();
    outbox.commit(tx, ticket.and(one)).await.unwrap();
    sink.until_all(0..1001).await;
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn ghost() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    // Rolled back with its ticket dropped; and one whose ticket nobody looks at is no different.
    for order in 0..50 {
        let (tx, ticket) = place.order(&outbox, order).await;
        if order % 2 == 0 {
            tx.rollback().await.unwrap();
        } else {
            drop(tx);
        }
        drop(ticket);
    }
    place.orders(&outbox, 50..100).await;
    sink.until_all(50..100).await;
    // Leases of what never was are over by now, if there were any.
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 0", 0).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.distinct(), Vec::from_iter(50..100), "what was rolled back is never sent");
}

#[tokio::test]
async fn what_can_never_be_sent_is_refused_before_it_is_stored() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, patient());
    let mut tx = place.begin().await;
    let refused = |error: EnqueueError| match error {
        EnqueueError::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    let message = outbox.outgoing(&Placed { order: 1 }).unwrap();
    let large = Envelope { body: vec![b' '; 2 << 20].into(), ..(*message.envelope).clone() };
    let foreign = Envelope { message_id: "not-a-uuid".parse().unwrap(), ..(*message.envelope).clone() };
    let with = |envelope| Outgoing { envelope: Arc::new(envelope), destination: message.destination.clone() };
    let too_large = outbox.enqueue_all(&mut tx, &[message.clone(), with(large)]).await.unwrap_err();
    assert!(refused(too_large).contains("1048576"));
    let not_uuid = outbox.enqueue_all(&mut tx, &[with(foreign)]).await.unwrap_err();
    assert!(refused(not_uuid).contains("not-a-uuid"));
    let nowhere = outbox.enqueue_to(&mut tx, NOWHERE, &Placed { order: 2 }).await.unwrap_err();
    assert!(refused(nowhere).contains("nobody is there"));
    let address = outbox.enqueue_to(&mut tx, "no address", &Placed { order: 2 }).await.unwrap_err();
    assert!(refused(address).contains("no address"));
    // The transaction goes on.
    let ticket = outbox.enqueue(&mut tx, &Placed { order: 0 }).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    sink.until_all(0..1).await;
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 1);
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn messages_go_where_their_type_does() {
    let place = Place::new().await;
    let to = |outbox: &Outbox| outbox.outgoing(&Placed { order: 1 }).unwrap().destination.to_string();
    assert_eq!(to(&place.outbox().await), "topic:shop.placed");
    let options = place.options().route_all("audit");
    assert_eq!(to(&options.clone().open_database(place.database()).await.unwrap()), "endpoint:audit");
    let options = options.route("shop.placed", "billing");
    assert_eq!(to(&options.clone().open_database(place.database()).await.unwrap()), "endpoint:billing");
    let error = options.route("shop.placed", "no address").open_database(place.database()).await.unwrap_err();
    assert!(error.to_string().contains("no address"), "{error}");
}

#[tokio::test]
async fn what_is_due_later_waits_and_what_has_expired_is_not_sent() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    // Looks that come by themselves come too late: it is told when the next row is due.
    let relay = relay(&outbox, &sink, patient());
    let message = |order, change: &dyn Fn(&mut Envelope)| {
        let Outgoing { destination, envelope } = outbox.outgoing(&Placed { order }).unwrap();
        let mut envelope = (*envelope).clone();
        change(&mut envelope);
        Outgoing { destination, envelope: Arc::new(envelope) }
    };
    let now = Timestamp::now();
    let due = now.after(Duration::from_millis(700));
    let messages = [
        message(0, &|_| {}),
        message(1, &|envelope| envelope.due = Some(due)),
        message(2, &|envelope| envelope.expires = Some(now)),
        message(3, &|envelope| {
            envelope.due = Some(due);
            envelope.expires = Some(due);
        }),
    ];
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    sink.until_all(0..2).await;
    assert!(Timestamp::now() >= due, "nothing is sent before its time");
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 3", 2).await;
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE status = 2").await, 0);
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn everything_about_a_message_arrives_from_the_table_as_well() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let mut envelope = (*outbox.outgoing(&Placed { order: 0 }).unwrap().envelope).clone();
    envelope.message_id = MessageId::random();
    envelope.headers.set("b", "\u{0}1".trim_start_matches('\0')).unwrap();
    envelope.headers.set("a", "2 é").unwrap();
    envelope.tenant = Some("tenant".parse().unwrap());
    let outgoing = Outgoing { destination: Destination::parse("endpoint:x").unwrap(), envelope: Arc::new(envelope) };
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue_all(&mut tx, std::slice::from_ref(&outgoing)).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    // No relay was there: it is claimed.
    let relay = relay(&outbox, &sink, quick());
    sink.until_all(0..1).await;
    assert_eq!(sink.taken()[0].0, outgoing.envelope.message_id);
    relay.stop().await.unwrap();
}
