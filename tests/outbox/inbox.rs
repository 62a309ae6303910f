//! Handlers that work in a transaction of their own database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    Context, Endpoint, HandlerError, InProcess, Message,
    deliver::Recoverability,
    endpoint::Settings,
    envelope::{Destination, Envelope, Outgoing},
    inbox::{Inbox, TransactionHandler},
    ports::{Dispatcher, Transport},
};
use serde::{Deserialize, Serialize};

use super::{
    rig::{BREAKS, BREAKS_AND_GOES_ON, INBOX_ROWS, Outbox, Place, Transaction, Transactions},
    sink::{PATIENCE, Placed, Sink, quick, relay},
};

#[derive(Debug, Serialize, Deserialize)]
struct Charged {
    order: u32,
}

impl Message for Charged {
    const TYPE: &'static str = "billing.charged";
}

/// Charges an order; what goes wrong with which is said by its number.
#[derive(Clone)]
struct Charge {
    place: Arc<Place>,
    runs: Arc<AtomicU32>,
    failures: Arc<AtomicU32>,
    panics: Arc<AtomicU32>,
}

impl Charge {
    fn of(place: &Arc<Place>) -> Self {
        Self { place: place.clone(), runs: Arc::default(), failures: Arc::default(), panics: Arc::default() }
    }
}

impl TransactionHandler<Placed, Transactions> for Charge {
    const NAME: &'static str = "charge";

    async fn handle(&self, placed: Placed, cx: &mut Context, tx: &mut Transaction) -> Result<(), HandlerError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.place.try_within(tx, &format!("INSERT INTO hapax.charge VALUES ({})", placed.order)).await?;
        cx.publish(Placed { order: placed.order })?;
        if cx.incoming().reply_to.is_some() {
            cx.reply(Charged { order: placed.order })?;
        }
        match placed.order {
            13 if self.failures.fetch_add(1, Ordering::Relaxed) < 2 => {
                Err(HandlerError::transient("this time it fails"))
            }
            14 => Err(HandlerError::permanent("this cannot be charged")),
            15 if self.panics.fetch_add(1, Ordering::Relaxed) < 1 => panic!("this panics"),
            16 => {
                // It goes on as if nothing had happened, and the server does not.
                let _ = self.place.try_within(tx, BREAKS).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Another handler of the same orders, with a database of its own.
struct Book(Charge);

impl TransactionHandler<Placed, Transactions> for Book {
    const NAME: &'static str = "book";

    async fn handle(&self, placed: Placed, cx: &mut Context, tx: &mut Transaction) -> Result<(), HandlerError> {
        self.0.handle(placed, cx, tx).await
    }
}

async fn placed(outbox: &Outbox, order: u32, change: impl FnOnce(&mut Envelope)) -> Outgoing {
    let mut envelope = (*outbox.outgoing(&Placed { order }).unwrap().envelope).clone();
    change(&mut envelope);
    Outgoing { destination: Destination::parse("endpoint:billing").unwrap(), envelope: Arc::new(envelope) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handler_does_in_its_transaction_happens_once_however_often_the_message_comes() {
    let place = Arc::new(Place::new().await);
    place.run("CREATE TABLE hapax.charge (id int)").await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    // However slow the machine, no lease ends before its status is stored.
    let relay = relay(&outbox, &sink, quick().birth_lease(PATIENCE).lease(PATIENCE));
    let queue = InProcess::new("billing");
    let inbox = outbox.inbox(place.pool.clone());
    let mut messages = Vec::new();
    for order in 0..50 {
        let message = placed(&outbox, order, |_| {}).await;
        messages.extend([message.clone(), message.clone(), message]);
    }
    for result in queue.dispatch(&messages).await {
        result.unwrap();
    }
    let rest = Duration::from_millis(5);
    let recoverability = Recoverability { retry_delay: rest, retry_delay_max: rest, ..Recoverability::default() };
    let settings = Settings { recoverability, ..Settings::default() };
    let endpoint = Endpoint::builder("billing")
        .transport(queue.clone())
        .dead_letters(hapax::Memory::new())
        .in_transaction(&inbox, Charge::of(&place))
        .settings(settings);
    endpoint.run_until(queue.idle()).await.unwrap();
    // All but those that fail for good: 14, and 16, which says nothing of it.
    let expected: Vec<u32> = (0..50).filter(|order| ![14, 16].contains(order)).collect();
    assert_eq!(place.number("SELECT count(*) FROM hapax.charge").await, 48);
    assert_eq!(place.number("SELECT count(DISTINCT id) FROM hapax.charge").await, 48);
    assert_eq!(place.number("SELECT count(*) FROM hapax.inbox").await, 48);
    sink.until(|sink| sink.distinct().len() == 48).await;
    assert_eq!(sink.distinct(), expected);
    assert_eq!(sink.taken().len(), 48, "each run that counts has sent once");
    relay.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_gets_the_answer_that_was_given() {
    let place = Arc::new(Place::new().await);
    place.run("CREATE TABLE hapax.charge (id int)").await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    let (queue, charge) = (InProcess::new("billing"), Charge::of(&place));
    let asks = queue.connect(&"shop".parse().unwrap(), &[]).await.unwrap();
    let inbox = outbox.inbox(place.pool.clone());
    let message = placed(&outbox, 1, |envelope| {
        envelope.reply_to = Some(Destination::parse("endpoint:shop").unwrap());
    })
    .await;
    for result in queue.dispatch(std::slice::from_ref(&message)).await {
        result.unwrap();
    }
    let endpoint = || {
        Endpoint::builder("billing")
            .transport(queue.clone())
            .dead_letters(hapax::Memory::new())
            .in_transaction(&inbox, charge.clone())
    };
    let handled = place.until("SELECT count(*) FROM hapax.inbox WHERE reply IS NOT NULL", 1);
    endpoint().run_until(handled).await.unwrap();
    // The answer itself goes by the outbox.
    place.until("SELECT count(*) FROM hapax.outbox WHERE destination = 'endpoint:shop'", 1).await;
    for result in queue.dispatch(&[message]).await {
        result.unwrap();
    }
    let copies = async {
        let answers = asks.receiver.receive(1).await.unwrap();
        assert_eq!(answers[0].envelope.message_type.as_str(), Charged::TYPE);
        answers[0].envelope.message_id.clone()
    };
    let (answered, got) = tokio::sync::oneshot::channel();
    let listening = async {
        let _ = answered.send(copies.await);
    };
    endpoint().run_until(listening).await.unwrap();
    let stored = place.number("SELECT count(*) FROM hapax.outbox WHERE destination = 'endpoint:shop'").await;
    let id = got.await.unwrap().as_uuid().unwrap();
    assert_eq!(stored, 1);
    assert_eq!(place.number(&place.of_id(id)).await, 1, "under its old id");
    assert_eq!(charge.runs.load(Ordering::Relaxed), 1);
    relay.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handlers_with_a_database_each_both_handle_a_message_once() {
    let places = [Arc::new(Place::new().await), Arc::new(Place::new().await)];
    let [first, second] = &places;
    for place in &places {
        place.run("CREATE TABLE hapax.charge (id int)").await;
    }
    let outboxes = [first.outbox().await, second.outbox().await];
    let sinks = [Sink::new(), Sink::new()];
    let patient = || quick().birth_lease(PATIENCE).lease(PATIENCE);
    let relays = [relay(&outboxes[0], &sinks[0], patient()), relay(&outboxes[1], &sinks[1], patient())];
    let queue = InProcess::new("billing");
    // One of them fails twice, and panics once, in each of the two.
    for order in [11, 12, 13, 15] {
        let message = placed(&outboxes[0], order, |_| {}).await;
        for result in queue.dispatch(&[message.clone(), message]).await {
            result.unwrap();
        }
    }
    let rest = Duration::from_millis(5);
    let recoverability = Recoverability { retry_delay: rest, retry_delay_max: rest, ..Recoverability::default() };
    let endpoint = Endpoint::builder("billing")
        .transport(queue.clone())
        .dead_letters(hapax::Memory::new())
        .in_transaction(&outboxes[0].inbox(first.pool.clone()), Charge::of(first))
        .in_transaction(&outboxes[1].inbox(second.pool.clone()), Book(Charge::of(second)))
        .settings(Settings { recoverability, ..Settings::default() });
    endpoint.run_until(queue.idle()).await.unwrap();
    for (place, sink) in places.iter().zip(&sinks) {
        assert_eq!(place.number("SELECT count(*) FROM hapax.charge").await, 4);
        assert_eq!(place.number("SELECT count(DISTINCT id) FROM hapax.charge").await, 4);
        assert_eq!(place.number("SELECT count(*) FROM hapax.inbox").await, 4);
        // What each sends leaves by the outbox of its own database.
        sink.until(|sink| sink.distinct().len() == 4).await;
        assert_eq!((sink.distinct(), sink.taken().len()), (vec![11, 12, 13, 15], 4));
    }
    for relay in relays {
        relay.stop().await.unwrap();
    }
}

#[tokio::test]
async fn old_inbox_rows_go_in_small_batches() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let inbox = outbox.inbox(place.pool.clone());
    place.run(INBOX_ROWS).await;
    let day = Duration::from_secs(24 * 3600);
    let first = inbox.evict(day).await.unwrap();
    assert_eq!((first.entries, first.more), (1000, true));
    let second = inbox.evict(day).await.unwrap();
    assert_eq!((second.entries, second.more), (500, false));
    assert_eq!(inbox.evict(day).await.unwrap().entries, 0);
}

#[tokio::test]
async fn a_transaction_in_which_something_failed_is_not_taken_for_committed() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    let (mut tx, ticket) = place.order(&outbox, 0).await;
    let _ = place.try_within(&mut tx, BREAKS).await; // PostgreSQL calls it an error, MariaDB does not.
    let error = outbox.commit(tx, ticket).await.unwrap_err();
    assert_eq!(error.is_unknown_outcome(), BREAKS_AND_GOES_ON, "{error:?}");
    place.orders(&outbox, 1..2).await;
    sink.until(|sink| sink.distinct() == [1]).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.distinct(), [1], "no ghost");
}
