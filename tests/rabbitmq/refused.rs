//! What the server does not take, gives to one alone, does not have, or has in another way.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    RabbitMq, Relay, SqliteOutbox,
    envelope::{Destination, Outgoing},
    ids::EndpointName,
    ports::{DeadLetters, DispatchError, Dispatcher, ErrorKind, Page, Transport},
    relay::RelayOptions,
};
use hapax_tests::Scratch;
use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable, ShortString},
};
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use super::rig::*;

const LOOK: Duration = Duration::from_millis(5);

async fn channel() -> (Connection, Channel) {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

fn queue_of(endpoint: &EndpointName) -> ShortString {
    format!("hapax-test.queue.{endpoint}").as_str().into()
}

/// A queue for `endpoint` that holds one message, and refuses what comes then.
async fn narrow(channel: &Channel, endpoint: &EndpointName) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue_of(endpoint), options, arguments).await.unwrap();
}

/// The id and the body of a message that is in the queue of `endpoint`.
async fn taken(channel: &Channel, endpoint: &EndpointName) -> Option<(String, Vec<u8>)> {
    let options = BasicGetOptions { no_ack: true };
    let message = channel.basic_get(queue_of(endpoint), options).await.unwrap()?.delivery;
    Some((message.properties.message_id().clone().unwrap().to_string(), message.data))
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("it never comes to it: {what}"));
}

#[tokio::test]
async fn what_the_server_refuses_is_an_error_of_that_message_alone_and_is_sent_again_once_there_is_room() {
    let (queue, full, other) = (open().await, endpoint(), endpoint());
    let (_connection, channel) = channel().await;
    narrow(&channel, &full).await;
    let ends = queue.connect(&other, &[]).await.unwrap();
    send(&queue, &[to(&full, envelope("first"))]).await;
    let beside = [to(&other, envelope("before")), to(&full, envelope("refused")), to(&other, envelope("after"))];
    let results = queue.dispatch(&beside).await;
    let [Ok(()), Err(DispatchError::Transient(why)), Ok(())] = &results[..] else { panic!("{results:?}") };
    assert!(why.to_string().contains("refused the message"), "{why}");
    for expected in ["before", "after"] {
        assert_eq!(body(&next(&ends).await), expected);
    }

    // What is in a table is tried again by itself, under its id.
    let scratch = Scratch::new("rabbitmq-refused");
    let file = SqliteConnectOptions::new().filename(scratch.file("shop.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(file.journal_mode(SqliteJournalMode::Wal)).await.unwrap();
    let database = hapax::Sqlite::options(scratch.file("shop.db"));
    let outbox = SqliteOutbox::options().migrate(true).open_database(database).await.unwrap();
    let millis = Duration::from_millis;
    let options = RelayOptions::default().polls(millis(20), millis(100)).backoff(millis(20), millis(100));
    let relay = Relay::to(queue).table_with(outbox.clone(), options.attempts_max(u32::MAX)).start().unwrap();
    let stored = to(&full, envelope("stored"));
    let mut tx = pool.begin().await.unwrap();
    let ticket = outbox.enqueue_all(&mut tx, std::slice::from_ref(&stored)).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    until("it is refused more than once", || relay.counts().later > 1).await;
    assert_eq!(relay.counts().sent, 0);
    assert_eq!(taken(&channel, &full).await.unwrap().1, b"first");
    until("it is sent", || relay.counts().sent == 1).await;
    let id = stored.envelope.message_id.to_string();
    assert_eq!(taken(&channel, &full).await.unwrap(), (id, b"stored".to_vec()));
    relay.stop().await.unwrap();
    channel.queue_delete(queue_of(&full), QueueDeleteOptions::default()).await.unwrap();
}

#[tokio::test]
async fn who_asks_for_one_at_a_time_leaves_the_others_to_others() {
    let here = endpoint();
    let receiver = async || options().prefetch(1).open(url()).await.unwrap().connect(&here, &[]).await.unwrap();
    let queue = open().await;
    let first = receiver().await;
    send(&queue, &[to(&here, envelope("1")), to(&here, envelope("2")), to(&here, envelope("3"))]).await;
    let held = next(&first).await;
    assert_eq!(body(&held), "1");
    // It came when the first had long asked for all it takes.
    let second = receiver().await;
    assert_eq!(body(&next(&second).await), "2");
    assert_eq!(queue.backlog(&here).await.unwrap(), 1, "the third is nobody's");
    ack(&first, &held).await;
    assert_eq!(body(&next(&first).await), "3");
}

/// The server ends the channel for that message, and with it the call in which all of them have gone; most are not even published then.
#[tokio::test]
async fn a_message_for_which_the_server_ends_the_channel_harms_nobody_who_has_not_asked_for_it() {
    const OTHERS: usize = 400;
    let prefix = unique("")[1..31].to_owned();
    let queue = options().prefix(&prefix).open(url()).await.unwrap();
    let here = endpoint();
    queue.connect(&here, &[]).await.unwrap();
    // Without its exchange an event is such a message.
    let (_connection, channel) = channel().await;
    let topics = ShortString::from(format!("{prefix}.topics").as_str());
    channel.exchange_delete(topics, ExchangeDeleteOptions::default()).await.unwrap();
    let event =
        Outgoing { destination: Destination::Topic(message_type()), envelope: std::sync::Arc::new(envelope("event")) };
    let others = (0..OTHERS).map(|number| to(&here, envelope(&number.to_string())));
    // On one thread all of them wait before the first call begins: the event goes first, and the others behind it.
    let calls = std::iter::once(event).chain(others).map(|outgoing| {
        let queue = queue.clone();
        async move { queue.dispatch(&[outgoing]).await.pop().unwrap() }
    });
    let results = join_all(calls).await;
    let (refused, others) = results.split_first().unwrap();
    let Err(DispatchError::Transient(why)) = refused else { panic!("{refused:?}") };
    assert!(why.to_string().contains("does not have it"), "{why}");
    for other in others {
        assert!(other.is_ok(), "{other:?}");
    }
    assert!(queue.backlog(&here).await.unwrap() as usize >= OTHERS);
    queue.remove(&[here]).await.unwrap();
}

fn misconfigured<T: std::fmt::Debug>(result: Result<T, hapax::ports::TransportError>, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn who_may_not_declare_works_with_what_is_there_and_is_told_what_is_missing() {
    let (here, missing) = (endpoint(), endpoint());
    let owner = open().await;
    owner.connect(&here, &[]).await.unwrap();
    let guest = options().declare(false).open(url()).await.unwrap();
    misconfigured(guest.connect(&missing, &[]).await, "RabbitMqOptions::declare");
    misconfigured(guest.connect(&here, &[]).await, "RabbitMqOptions::declare"); // There is no place for its letters yet.
    owner.list(&here, &Page::first(1)).await.unwrap();
    let ends = guest.connect(&here, &[]).await.unwrap();
    send(&guest, &[to(&here, envelope("by a guest"))]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "by a guest");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn an_exchange_that_was_declared_otherwise_is_an_error_that_says_so() {
    let prefix = unique("")[1..31].to_owned();
    let topics = || ShortString::from(format!("{prefix}.topics").as_str());
    let (_connection, channel) = channel().await;
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(topics(), ExchangeKind::Fanout, options, FieldTable::default()).await.unwrap();
    let opened = RabbitMq::options().prefix(&prefix).open(url()).await;
    channel.exchange_delete(topics(), ExchangeDeleteOptions::default()).await.unwrap();
    misconfigured(opened, "declared in another way");
}
