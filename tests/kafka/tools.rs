//! A producer and a consumer of another make: `kafka-python`, which speaks the protocol by itself. (Debian's `kcat` does not understand the first
//! answer of the broker of the tests.)

use std::{
    path::Path,
    process::{Command, Stdio},
};

use hapax::{
    envelope::{ContentType, cloudevents::Source},
    ports::{DeadLetters, Page, Settlement, Transport},
    transports::kafka::WrittenAs,
};

use super::rig::*;

/// Where `cargo xtask test kafka` installs it, below the target folder.
const CLIENT: &str = "xtask/kafka-python-3.0.12";
/// Broker, topic, key, body, then headers as NAME=VALUE.
const PUT: &str = "
import sys
from kafka import KafkaProducer
broker, topic, key, body, *headers = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=broker)
headers = [(name, value.encode()) for name, value in (header.split('=', 1) for header in headers)]
producer.send(topic, body.encode(), key=key.encode(), headers=headers).get(timeout=30)
producer.close()
";
/// Broker, topic, how many: of each from its beginning key, headers and body.
const READ: &str = "
import sys
from kafka import KafkaConsumer, TopicPartition
broker, topic, count = sys.argv[1:]
consumer = KafkaConsumer(bootstrap_servers=broker, consumer_timeout_ms=30000)
consumer.assign([TopicPartition(topic, 0)])
consumer.seek_to_beginning()
for _, message in zip(range(int(count)), consumer):
    headers = ','.join(name + '=' + value.decode() for name, value in message.headers)
    print((message.key or b'').decode(), headers, message.value.decode(), sep='|')
";

/// What the script says; `None` where it is not installed.
async fn python(script: &'static str, arguments: Vec<String>) -> Option<String> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(usual, Into::into);
    let folder = target.join(CLIENT);
    let mut python = Command::new(folder.join("python/bin/python3"));
    python.env("PYTHONPATH", folder.join("packages")).args(["-c", script]);
    python.arg(url().trim_start_matches("kafka://")).args(arguments);
    let said = move || python.stdin(Stdio::null()).output();
    match tokio::task::spawn_blocking(said).await.unwrap() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(_) => {
            eprintln!("SKIPPED: there is no kafka-python: `cargo xtask test kafka` installs it, with Python and pip");
            None
        }
    }
}

async fn put(topic: &str, key: &str, body: &str, headers: &[&str]) -> Option<String> {
    let arguments = [&[topic, key, body], headers].concat();
    python(PUT, arguments.into_iter().map(str::to_owned).collect()).await
}

async fn read(topic: &str, count: usize) -> Option<String> {
    python(READ, vec![topic.to_owned(), count.to_string()]).await
}

#[tokio::test]
async fn kafka_python_sends_to_an_endpoint_plain_and_as_a_cloud_event() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let topic = format!("{PREFIX}.queue.{here}");
    let json = "content-type=application/json";
    let plain = ["hapax-message-id=tool 7", "hapax-type=shop.added", json, "shop=corner"];
    let binary = ["ce_specversion=1.0", "ce_id=7", "ce_source=/tool", "ce_type=shop.added", json];
    let structured = ["content-type=application/cloudevents+json"];
    let event = r#"{"specversion":"1.0","id":"8","source":"/tool","type":"shop.added","data":{"n": 7}}"#;
    for (headers, body_sent, id) in [
        (&plain[..], r#"{"n": 7}"#, "tool 7"),
        (&binary[..], r#"{"n": 7}"#, "/tool 7"),
        (&structured[..], event, "/tool 8"),
    ] {
        let Some(_) = put(&topic, "order-7", body_sent, headers).await else { return };
        let delivery = next(&ends).await;
        let envelope = &delivery.envelope;
        assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), (id, "shop.added"));
        assert_eq!((&envelope.content_type, body(&delivery).as_str()), (&ContentType::JSON, r#"{"n": 7}"#));
        assert_eq!(envelope.partition_key.as_ref().map(ToString::to_string).as_deref(), Some("order-7"));
        ack(&ends, &delivery).await;
    }
}

/// It chooses partitions as Java's clients do, of itself: what has a key is where hapax sends it.
#[tokio::test]
async fn kafka_python_sends_to_the_partition_that_hapax_sends_to() {
    let (queue, here) = (open().await, endpoint());
    drop(queue.connect(&here, &[]).await.unwrap());
    let topic = format!("{PREFIX}.queue.{here}");
    let keys: Vec<String> = (0..8).map(|n| format!("order-{n}")).collect();
    for key in &keys {
        send(&queue, &[to(&here, keyed(key, "ours"))]).await;
        let id = format!("hapax-message-id=tool {key}");
        let Some(_) = put(&topic, key, "theirs", &[&id, "hapax-type=shop.added"]).await else { return };
    }
    let mut places = 0;
    for partition in 0..4 {
        let topic = topic.clone();
        let found = tokio::task::spawn_blocking(move || records(&topic, partition)).await.unwrap();
        places += usize::from(!found.is_empty());
        for key in &keys {
            let count = found.iter().filter(|(of, _, _)| of == key.as_bytes()).count();
            assert!(count == 0 || count == 2, "{key}: {count} in partition {partition}");
        }
    }
    assert!(places > 1, "all keys are in one partition, which shows nothing");
}

#[tokio::test]
async fn kafka_python_reads_what_is_sent_and_what_is_set_aside() {
    let here = endpoint();
    let options = options().partitions(1);
    let plain = options.clone().open(url()).await.unwrap();
    let ends = plain.connect(&here, &[]).await.unwrap();
    send(&plain, &[to(&here, keyed("order 7", "plain"))]).await;
    let source = Source::parse("/shop").unwrap();
    for (written_as, body) in
        [(WrittenAs::CloudEvents(source.clone()), "event"), (WrittenAs::StructuredCloudEvents(source), "structured")]
    {
        let events = options.clone().written_as(written_as).open(url()).await.unwrap();
        send(&events, &[to(&here, keyed("order 7", body))]).await;
    }
    let Some(sent) = read(&format!("{PREFIX}.queue.{here}"), 3).await else { return };
    let [first, second, third] = sent.lines().collect::<Vec<_>>()[..] else { panic!("{sent}") };
    assert!(first.starts_with("order 7|") && first.ends_with("|plain"), "{sent}");
    assert!(first.contains("hapax-type=shop.added") && first.contains("hapax-message-id="), "{sent}");
    assert!(second.starts_with("order 7|") && second.ends_with("|event"), "{sent}");
    assert!(second.contains("ce_type=shop.added") && second.contains("ce_source=/shop"), "{sent}");
    let event = third.strip_prefix("order 7|content-type=application/cloudevents+json|").expect(&sent);
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    assert_eq!((&event["source"], &event["type"]), (&"/shop".into(), &"shop.added".into()));
    assert_eq!(event["partitionkey"], "order 7");
    let held = next(&ends).await;
    settle(&ends, &held, Settlement::DeadLetter { reason: "nobody wants it".into() }).await;
    let letters = read(&format!("{PREFIX}.dead-letters.{here}"), 1).await.unwrap();
    assert!(letters.contains("x-hapax-reason=nobody wants it") && letters.trim_end().ends_with("|plain"), "{letters}");
    assert_eq!(plain.list(&here, &Page::first(1)).await.unwrap().len(), 1);
}
