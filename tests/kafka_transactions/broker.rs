//! On a broker: who reads what is committed, what nobody is given, and who is refused. Tansu 0.6 lets transactions begin and end, keeps back what is open
//! and refuses who was taken over from; it gives readers what was aborted, so that all or nothing is tested on kfake, and on a broker that
//! `HAPAX_TEST_KAFKA` names.

use hapax::{
    Kafka,
    ids::EndpointName,
    ports::{Connected, DispatchError, Dispatcher, ErrorKind, Settlement, Transport},
    transports::kafka::Transactions,
};
use rdkafka::{
    consumer::{BaseConsumer, Consumer},
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};

use crate::{raw, rig::*};

/// An endpoint that is given what is committed, and its topic, which has one partition.
async fn reader(url: &str) -> (Kafka, EndpointName, Connected, String) {
    let queue = options().partitions(1).read_committed(true).open(url).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let topic = format!("{PREFIX}.queue.{here}");
    (queue, here, ends, topic)
}

async fn passes(ends: &Connected, mark: &hapax::ports::Mark) {
    let marks = ends.marks.clone().unwrap();
    let passed = async {
        while !marks.passed(mark).await.unwrap() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, passed).await.expect("the mark never passes");
}

#[tokio::test]
async fn who_reads_what_is_committed_is_given_what_belongs_to_no_transaction() {
    let (queue, here) = (options().read_committed(true).open(url()).await.unwrap(), endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    for name in ["1", "2", "3"] {
        send(&queue, &[to(&here, keyed("a", name))]).await;
        let came = next(&ends).await;
        assert_eq!(body(&came), name);
        ack(&ends, &came).await;
    }
    let mark = ends.marks.clone().unwrap().end().await.unwrap();
    passes(&ends, &mark).await;
    assert_eq!(queue.backlog(&here).await.unwrap(), 0);
}

/// By another program, in the protocol itself, or by a transaction where the broker takes no end from a client: no message comes behind it.
#[tokio::test]
async fn a_mark_behind_the_end_of_a_transaction_passes_though_nothing_comes_behind_it() {
    for committed in [false, true] {
        let queue = options().partitions(1).read_committed(committed).open(url()).await.unwrap();
        let here = endpoint();
        let ends = queue.connect(&here, &[]).await.unwrap();
        send(&queue, &[to(&here, envelope("the last"))]).await;
        let topic = format!("{PREFIX}.queue.{here}");
        let server = url().trim_start_matches("kafka://").to_owned();
        let end = move || {
            if raw::put_end(&server, &topic) {
                return vec!["the last"];
            }
            open_transaction(&url(), &topic, "committed").commit_transaction(PATIENCE).unwrap();
            vec!["the last", "committed"]
        };
        let expected = tokio::task::spawn_blocking(end).await.unwrap();
        let mark = ends.marks.clone().unwrap().end().await.unwrap();
        for expected in expected {
            let came = next(&ends).await;
            assert_eq!(body(&came), expected);
            settle(&ends, &came, Settlement::Ack).await;
        }
        passes(&ends, &mark).await;
        assert_eq!(queue.backlog(&here).await.unwrap(), 0);
    }
}

async fn transacting(name: &str) -> Kafka {
    options().transactions(Transactions::of(name)).open(url()).await.unwrap()
}

/// Another program with something in a transaction that is open.
fn open_transaction(url: &str, topic: &str, what: &str) -> ThreadedProducer<DefaultProducerContext> {
    let mut config = config_of(url);
    let producer: ThreadedProducer<DefaultProducerContext> =
        config.set("transactional.id", unique("other")).create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    producer.begin_transaction().unwrap();
    let record: BaseRecord<'_, str, str> = BaseRecord::to(topic).partition(0).key("a").payload(what).headers(
        OwnedHeaders::new()
            .insert(Header { key: "hapax-message-id", value: Some(what) })
            .insert(Header { key: "hapax-type", value: Some("shop.added") }),
    );
    producer.send(record).map_err(|(e, _)| e).unwrap();
    producer.flush(PATIENCE).unwrap();
    producer
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_sends_comes_in_order_and_the_mark_behind_it_passes() {
    let (queue, here) = (transacting(&unique("process")).await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    for _ in 0..3 {
        send(&queue, &[to(&here, keyed("a", "1")), to(&here, keyed("a", "2"))]).await;
        for name in ["1", "2"] {
            let came = next(&ends).await;
            assert_eq!(body(&came), name);
            ack(&ends, &came).await;
        }
    }
    let mark = ends.marks.clone().unwrap().end().await.unwrap();
    passes(&ends, &mark).await;
    assert_eq!(queue.backlog(&here).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_start_takes_over_and_who_had_the_name_is_refused() {
    let (name, here) = (unique("process"), endpoint());
    let before = transacting(&name).await;
    let ends = before.connect(&here, &[]).await.unwrap();
    send(&before, &[to(&here, keyed("a", "by the first"))]).await;
    let now = transacting(&name).await;
    for _ in 0..2 {
        let result = before.dispatch(&[to(&here, keyed("a", "late"))]).await.pop().unwrap();
        let Err(DispatchError::Transient(error)) = result else { panic!("{result:?}") };
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(error.to_string().contains("has taken over its name"), "{error:?}");
    }
    send(&now, &[to(&here, keyed("a", "by the second"))]).await;
    for expected in ["by the first", "by the second"] {
        let came = next(&ends).await;
        assert_eq!(body(&came), expected);
        ack(&ends, &came).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_is_given_once_it_is_committed_and_no_mark_passes_before() {
    let (_queue, _, ends, topic) = reader(&url()).await;
    let other = tokio::task::spawn_blocking(move || open_transaction(&url(), &topic, "open")).await.unwrap();
    let mark = ends.marks.clone().unwrap().end().await.unwrap();
    let soon = tokio::time::timeout(SESSION * 2, ends.receiver.receive(1)).await;
    assert!(soon.is_err(), "it is given before it is committed: {soon:?}");
    assert!(!ends.marks.clone().unwrap().passed(&mark).await.unwrap());
    tokio::task::spawn_blocking(move || other.commit_transaction(PATIENCE).unwrap()).await.unwrap();
    let came = next(&ends).await;
    assert_eq!(body(&came), "open");
    ack(&ends, &came).await;
    passes(&ends, &mark).await;
}

/// Leaves in the topic what another program has sent and taken back.
async fn aborted(url: &str, topic: &str) {
    let (url, topic) = (url.to_owned(), topic.to_owned());
    let abort = move || {
        let end = || {
            let mut config = config_of(&url);
            let asker: BaseConsumer = config.set("isolation.level", "read_uncommitted").create().unwrap();
            asker.fetch_watermarks(&topic, 0, PATIENCE).unwrap().1
        };
        let before = end();
        open_transaction(&url, &topic, "aborted").abort_transaction(PATIENCE).unwrap();
        assert!(end() > before, "nothing was sent");
    };
    tokio::task::spawn_blocking(abort).await.unwrap();
}

/// Tansu 0.6 gives it all the same, and its end with it. What is asked here of any other broker is asked of kfake each time.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_aborted_is_not_given_by_a_broker_that_tells_what_was() {
    let (queue, here, ends, topic) = reader(&url()).await;
    aborted(&url(), &topic).await;
    send(&queue, &[to(&here, keyed("a", "behind it"))]).await;
    let came = next(&ends).await;
    if body(&came) == "aborted" {
        eprintln!(
            "SKIPPED: this broker gives readers what was aborted; name another with HAPAX_TEST_KAFKA: kfake, or Apache Kafka"
        );
        return;
    }
    assert_eq!(body(&came), "behind it");
}

/// The name of this module is in the names of its tests, by which they are left out where there is no kfake.
mod kfake {
    use hapax_tests::KfakeServer;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_aborted_is_given_to_nobody_who_reads_what_is_committed() {
        let Some(server) = KfakeServer::start().await else { return };
        let (queue, here, ends, topic) = reader(&server.url()).await;
        aborted(&server.url(), &topic).await;
        send(&queue, &[to(&here, keyed("a", "behind it"))]).await;
        aborted(&server.url(), &topic).await;
        send(&queue, &[to(&here, keyed("a", "the last"))]).await;
        for expected in ["behind it", "the last"] {
            let came = next(&ends).await;
            assert_eq!(body(&came), expected);
            ack(&ends, &came).await;
        }
        assert_eq!(queue.backlog(&here).await.unwrap(), 0);
    }

    /// So that what is seen above is what transactions do: who does not ask for it is given all.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_aborted_is_given_to_who_reads_everything() {
        let Some(server) = KfakeServer::start().await else { return };
        let queue = options().partitions(1).read_committed(false).open(server.url()).await.unwrap();
        let here = endpoint();
        let ends = queue.connect(&here, &[]).await.unwrap();
        aborted(&server.url(), &format!("{PREFIX}.queue.{here}")).await;
        assert_eq!(body(&next(&ends).await), "aborted");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_mark_behind_what_was_aborted_passes_though_nothing_comes_behind_it() {
        let Some(server) = KfakeServer::start().await else { return };
        let (queue, here, ends, topic) = reader(&server.url()).await;
        send(&queue, &[to(&here, keyed("a", "the last"))]).await;
        ack(&ends, &next(&ends).await).await;
        aborted(&server.url(), &topic).await;
        let mark = ends.marks.clone().unwrap().end().await.unwrap();
        passes(&ends, &mark).await;
        let more = tokio::time::timeout(SESSION, ends.receiver.receive(1)).await;
        assert!(more.is_err(), "{more:?}");
    }
}
