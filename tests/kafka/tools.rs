//! Producers and consumers of another make: `kcat`, which is librdkafka 2.0's own program.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use hapax::{
    envelope::{ContentType, cloudevents::Source},
    ports::{DeadLetters, Page, Settlement, Transport},
};

use super::rig::*;

/// What the program says when it is given `input`; `None` where it is not installed.
async fn kcat(arguments: &[&str], input: &str) -> Option<String> {
    let (server, input) = (url().trim_start_matches("kafka://").to_owned(), input.to_owned());
    let mut command = Command::new("kcat");
    // No file of whoever runs the tests has a say.
    command.args(["-q", "-F", "/dev/null", "-b", &server]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("SKIPPED: there is no kcat to speak to Kafka with: `apt-get install kcat`");
        return None;
    };
    let said = move || {
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = tokio::task::spawn_blocking(said).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Sends one message.
async fn put(topic: &str, arguments: &[&str], headers: &[&str], body: &str) -> Option<String> {
    let headers = headers.iter().flat_map(|header| ["-H", header]);
    let arguments: Vec<&str> =
        ["-P", "-t", topic].into_iter().chain(arguments.iter().copied()).chain(headers).collect();
    kcat(&arguments, body).await
}

/// The first messages of one partition: key, headers and body.
async fn read(topic: &str, count: usize) -> Option<String> {
    let count = count.to_string();
    kcat(&["-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", &count, "-f", "%k|%h|%s\n"], "").await
}

#[tokio::test]
async fn kcat_sends_to_an_endpoint_plain_and_as_a_cloud_event() {
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
        let Some(_) = put(&topic, &["-k", "order-7"], headers, body_sent).await else { return };
        let delivery = next(&ends).await;
        let envelope = &delivery.envelope;
        assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), (id, "shop.added"));
        assert_eq!((&envelope.content_type, body(&delivery).as_str()), (&ContentType::JSON, r#"{"n": 7}"#));
        assert_eq!(envelope.partition_key.as_ref().map(ToString::to_string).as_deref(), Some("order-7"));
        ack(&ends, &delivery).await;
    }
}

/// As the chapter says it: with the partitioner of Java's clients, what has a key is where hapax sends it.
#[tokio::test]
async fn kcat_sends_to_the_partition_that_hapax_sends_to() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let topic = format!("{PREFIX}.queue.{here}");
    let keys: Vec<String> = (0..8).map(|n| format!("order-{n}")).collect();
    for key in &keys {
        send(&queue, &[to(&here, keyed(key, "ours"))]).await;
        let id = format!("hapax-message-id=tool {key}");
        let java = ["-k", key, "-X", "partitioner=murmur2_random"];
        let Some(_) = put(&topic, &java, &[&id, "hapax-type=shop.added"], "theirs").await else { return };
    }
    let all = async {
        for _ in 0..2 * keys.len() {
            ack(&ends, &next(&ends).await).await;
        }
    };
    all.await;
    let mut places = 0;
    for partition in 0..4 {
        let topic = topic.clone();
        let found = tokio::task::spawn_blocking(move || records(&topic, partition)).await.unwrap();
        places += usize::from(!found.is_empty());
        for key in &keys {
            let count = found.iter().filter(|(k, _, _)| k == key.as_bytes()).count();
            assert!(count == 0 || count == 2, "{key}: {count} in partition {partition}");
        }
    }
    assert!(places > 1, "all keys are in one partition, which shows nothing");
}

#[tokio::test]
async fn kcat_reads_what_is_sent_and_what_is_set_aside() {
    let here = endpoint();
    let options = options().partitions(1);
    let plain = options.clone().open(url()).await.unwrap();
    let ends = plain.connect(&here, &[]).await.unwrap();
    send(&plain, &[to(&here, keyed("order 7", "plain"))]).await;
    let events = options.cloud_events(Source::parse("/shop").unwrap()).open(url()).await.unwrap();
    send(&events, &[to(&here, keyed("order 7", "event"))]).await;
    let Some(sent) = read(&format!("{PREFIX}.queue.{here}"), 2).await else { return };
    let [first, second] = sent.lines().collect::<Vec<_>>()[..] else { panic!("{sent}") };
    assert!(first.starts_with("order 7|") && first.ends_with("|plain"), "{sent}");
    assert!(first.contains("hapax-type=shop.added") && first.contains("hapax-message-id="), "{sent}");
    assert!(second.starts_with("order 7|") && second.ends_with("|event"), "{sent}");
    assert!(second.contains("ce_type=shop.added") && second.contains("ce_source=/shop"), "{sent}");
    let held = next(&ends).await;
    let reason = Settlement::DeadLetter { reason: "nobody wants it".into() };
    settle(&ends, &held, reason).await;
    let letters = read(&format!("{PREFIX}.dead-letters.{here}"), 1).await.unwrap();
    assert!(letters.contains("x-hapax-reason=nobody wants it") && letters.trim_end().ends_with("|plain"), "{letters}");
    assert_eq!(plain.list(&here, &Page::first(1)).await.unwrap().len(), 1);
}
