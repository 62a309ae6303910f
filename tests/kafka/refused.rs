//! What the broker does not have, and what cannot be opened.

use hapax::{
    Kafka,
    ids::EndpointName,
    ports::{DispatchError, Dispatcher, ErrorKind, Transport, TransportError},
};

use hapax_tests::LogLines;

use super::{proxy::Proxied, rig::*};

#[tokio::test]
async fn what_goes_nowhere_is_told_of_itself_and_of_no_other() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let nowhere = EndpointName::parse(unique("nobody")).unwrap();
    let sent = [to(&nowhere, envelope("lost")), to(&here, envelope("found")), to(&nowhere, envelope("lost too"))];
    let results = queue.dispatch(&sent).await;
    let [Err(DispatchError::Transient(first)), Ok(()), Err(DispatchError::Transient(last))] = &results[..] else {
        panic!("{results:?}")
    };
    for why in [first, last] {
        assert!(why.to_string().contains(&format!("has no topic `{PREFIX}.queue.{nowhere}`")), "{why}");
    }
    ack(&ends, &next(&ends).await).await;
    // Once it is there it is found.
    queue.connect(&nowhere, &[]).await.unwrap();
    send(&queue, &[to(&nowhere, envelope("found"))]).await;
}

fn misconfigured<T: std::fmt::Debug>(result: Result<T, TransportError>, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn who_may_not_declare_works_with_what_is_there_and_is_told_what_is_missing() {
    let (here, missing) = (endpoint(), endpoint());
    open().await.connect(&here, &[]).await.unwrap();
    let guest = options().declare(false).open(url()).await.unwrap();
    misconfigured(guest.connect(&missing, &[]).await, "KafkaOptions::declare");
    misconfigured(guest.connect(&here, &[topic()]).await, "KafkaOptions::declare");
    let results = guest.dispatch(&[event(&topic(), "unheard")]).await;
    assert!(matches!(results[..], [Err(DispatchError::Transient(_))]), "{results:?}");
    let ends = guest.connect(&here, &[]).await.unwrap();
    send(&guest, &[to(&here, envelope("by a guest"))]).await;
    ack(&ends, &next(&ends).await).await;
}

/// It is not asked again and again what it never tells.
#[tokio::test]
async fn a_broker_that_does_not_tell_how_topics_are_configured_is_taken_on_trust() {
    let (broker, here) = (Proxied::start().await, endpoint());
    let made_before = options().open(broker.url()).await.unwrap();
    drop(made_before.connect(&here, &[]).await.unwrap());
    broker.tells_no_terms();
    let log = LogLines::here();
    let queue = options().open(broker.url()).await.unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("on trust"))]).await;
    ack(&ends, &next(&ends).await).await;
    assert_ne!(log.with("does not tell how topics are configured"), Vec::<String>::new());
}

/// Made by somebody else, otherwise than they have to be: each in turn, beside others that will do.
#[tokio::test]
async fn topics_that_lose_messages_or_take_none_are_refused_by_name_and_with_a_remedy() {
    let queue = open().await;
    for (of, configured, remedy) in [
        ("queue", ("cleanup.policy", "compact"), "set it to `delete`"),
        ("queue", ("retention.ms", "60000"), "raise `retention.ms`, or lower KafkaOptions::redelivery_max"),
        (
            "queue",
            ("max.message.bytes", "65536"),
            "raise `max.message.bytes`, or lower KafkaOptions::message_bytes_max",
        ),
        ("queue", ("min.insync.replicas", "2"), "Lower `min.insync.replicas`, or raise its replication factor"),
        ("dead-letters", ("cleanup.policy", "delete"), "set it to `compact`"),
        ("notes", ("cleanup.policy", "compact,delete"), "set it to `compact`"),
        ("topic", ("cleanup.policy", "compact"), "set it to `delete`"),
    ] {
        let (here, published) = (endpoint(), topic());
        let name = if of == "topic" { format!("{PREFIX}.topic.{published}") } else { format!("{PREFIX}.{of}.{here}") };
        make_topic_with(&name, 1, &[configured]).await;
        let error = queue.connect(&here, std::slice::from_ref(&published)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        let told = error.to_string();
        assert!(told.contains(&format!("topic `{name}`")) && told.contains(remedy), "{configured:?}: {told}");
    }
    // What is only less than would be declared will do: fewer partitions, and a retention that is as long as an endpoint may fall behind.
    let here = endpoint();
    let day = (24 * 3600 * 1000).to_string();
    make_topic_with(&format!("{PREFIX}.queue.{here}"), 1, &[("cleanup.policy", "delete"), ("retention.ms", &day)])
        .await;
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("taken"))]).await;
    ack(&ends, &next(&ends).await).await;
}

/// Nothing is given before it is noted. The broker of the tests takes what is sent to a topic that is gone, and does not make it anew: so the
/// proxy before it has it be gone, until somebody makes it.
#[tokio::test(flavor = "multi_thread")]
async fn notes_that_are_gone_are_told_and_declared_anew() {
    let proxied = Proxied::start().await;
    // It is waited for so long until a topic that is not listed counts as gone.
    let soon = options().patience(std::time::Duration::from_secs(5));
    let (queue, here) = (soon.open(proxied.url()).await.unwrap(), endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("first"))]).await;
    ack(&ends, &next(&ends).await).await;
    let notes = format!("{PREFIX}.notes.{here}");
    proxied.knows_not(&notes);
    send(&queue, &[to(&here, envelope("second"))]).await;
    let received = async {
        let mut told = Vec::new();
        loop {
            match ends.receiver.receive(1).await {
                Ok(mut given) => break (given.pop().unwrap(), told),
                Err(e) => told.push(e.to_string()),
            }
        }
    };
    let (second, told) = tokio::time::timeout(PATIENCE, received).await.expect("it waits for ever");
    assert_eq!(body(&second), "second");
    assert!(!told.is_empty(), "it was never told why nothing came");
    assert!(proxied.knows_all(), "they are not declared anew");
    ack(&ends, &second).await;
}

#[tokio::test]
async fn what_cannot_be_opened_says_why_and_what_to_do_and_no_secret() {
    let expect = |opened: Result<Kafka, TransportError>, expected: ErrorKind, says: &str| {
        let error = opened.unwrap_err();
        let text = format!("{error:?}");
        assert_eq!(error.kind(), expected, "{text}");
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("hunter2"), "it tells the password: {text}");
    };
    let soon = || options().patience(std::time::Duration::from_millis(300));
    expect(Kafka::open("http://u:hunter2@x").await, ErrorKind::Misconfigured, "kafka://USER:PASSWORD@HOST:PORT");
    expect(Kafka::open("kafka://hunter2@x").await, ErrorKind::Misconfigured, "without a password");
    expect(soon().open("kafka://127.0.0.1:1").await, ErrorKind::Unavailable, "127.0.0.1:1");
    expect(soon().open("kafka://u:hunter2@127.0.0.1:1").await, ErrorKind::Unavailable, "127.0.0.1:1");
    expect(options().prefix("a_b").open(url()).await, ErrorKind::Misconfigured, "is no prefix");
    expect(soon().danger_accept_any_certificate().open(url()).await, ErrorKind::Misconfigured, "kafka+tls://");
    let key = "-----BEGIN PRIVATE KEY-----hunter2";
    let certified = || soon().client_certificate("-----BEGIN CERTIFICATE-----hunter2", key);
    expect(certified().open("kafka+tls://127.0.0.1:1").await, ErrorKind::Misconfigured, "");
    assert!(!format!("{:?}", certified()).contains("hunter2"));
    // What ends in the middle is none that the client library takes, and its own error repeats it.
    expect(soon().open("kafka://u:hunter2%00@127.0.0.1:1").await, ErrorKind::Misconfigured, "the client");
}
