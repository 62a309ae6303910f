//! Producers and consumers of another make: `redis-cli`.

use std::process::{Command, Output, Stdio};

use hapax::{
    envelope::{ContentType, cloudevents::Source},
    ports::{DeadLetters, Page, Settlement, Transport},
    transports::redis::WrittenAs,
};

use super::rig::*;

/// What the program says; `None` where it is not installed.
async fn run(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("redis-cli");
    command.arg("-u").arg(url()).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => Some(tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap()),
        Err(_) => {
            eprintln!("SKIPPED: there is no redis-cli to speak to Redis with: `apt-get install redis-tools`");
            None
        }
    }
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test]
async fn redis_cli_sends_to_an_endpoint_plain_and_as_a_cloud_event() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let key = queue_of(&here);
    let json = "application/json";
    let plain = ["hapax-message-id", "tool 7", "hapax-type", "shop.added", "content-type", json, "shop", "corner"];
    let binary =
        ["ce-specversion", "1.0", "ce-id", "7", "ce-source", "/tool", "ce-type", "shop.added", "content-type", json];
    let event = r#"{"specversion":"1.0","id":"8","source":"/tool","type":"shop.added","data":{"n": 7}}"#;
    let structured = ["content-type", "application/cloudevents+json", "body", event];
    for (fields, id) in [
        ([&plain[..], &["body", "{\"n\": 7}"]].concat(), "tool 7"),
        ([&binary[..], &["body", "{\"n\": 7}"]].concat(), "/tool 7"),
        (structured.to_vec(), "/tool 8"),
    ] {
        let Some(sent) = run(&[&["XADD", &key, "*"][..], &fields].concat()).await else { return };
        said(&sent);
        let delivery = next(&ends).await;
        let envelope = &delivery.envelope;
        assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), (id, "shop.added"));
        assert_eq!((&envelope.content_type, body(&delivery).as_str()), (&ContentType::JSON, "{\"n\": 7}"));
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn redis_cli_takes_from_a_queue_and_shows_what_is_under_way_and_set_aside() {
    // Programs take their time to start on a busy machine.
    let queue = options().lease(PATIENCE).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let key = queue_of(&here);
    send(&queue, &["held", "for a tool"].map(|body| to(&here, envelope(body)))).await;
    let held = next(&ends).await;
    let read = ["XREADGROUP", "GROUP", "hapax", "tool", "COUNT", "1", "STREAMS", &key, ">"];
    let Some(taken) = run(&read).await else { return };
    let taken = said(&taken);
    assert!(taken.contains("for a tool") && !taken.contains("held"), "{taken}");
    let pending = said(&run(&["XPENDING", &key, "hapax"]).await.unwrap());
    assert!(pending.starts_with("2\n") && pending.contains("tool\n") && pending.contains("hapax-"), "{pending}");
    let id = taken.lines().find(|line| line.ends_with("-0") || line.ends_with("-1")).unwrap();
    assert_eq!(said(&run(&["XACK", &key, "hapax", id]).await.unwrap()), "1\n");
    let reason = Settlement::DeadLetter { reason: "nobody wants it".into() };
    ends.receiver.settle(&held.receipt, reason).await.unwrap();
    let letters = said(&run(&["XRANGE", &format!("hapax-test:dead-letters:{here}"), "-", "+"]).await.unwrap());
    assert!(letters.contains("nobody wants it") && letters.contains("held"), "{letters}");
    assert_eq!(queue.list(&here, &Page::first(1)).await.unwrap().len(), 1);
}

/// It prints a field and its value on a line each.
#[tokio::test]
async fn redis_cli_reads_events_in_both_modes() {
    let source = Source::parse("/shop").unwrap();
    for written_as in [WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)] {
        let queue = options().written_as(written_as.clone()).open(url()).await.unwrap();
        let here = endpoint();
        queue.connect(&here, &[]).await.unwrap();
        let sent = envelope("{\"n\":7}");
        send(&queue, &[to(&here, sent.clone())]).await;
        let Some(read) = run(&["XRANGE", &queue_of(&here), "-", "+"]).await else { return };
        let read = said(&read);
        let lines: Vec<&str> = read.lines().collect();
        let field = |name: &str| lines.iter().position(|line| *line == name).map(|at| lines[at + 1]);
        let id = sent.message_id.to_string();
        if matches!(written_as, WrittenAs::CloudEvents(_)) {
            assert_eq!((field("ce-specversion"), field("ce-id")), (Some("1.0"), Some(id.as_str())), "{read}");
            assert_eq!((field("ce-source"), field("ce-type")), (Some("/shop"), Some("shop.added")), "{read}");
            assert_eq!(field("body"), Some("{\"n\":7}"), "{read}");
        } else {
            assert_eq!((field("content-type"), field("ce-id")), (Some("application/cloudevents+json"), None), "{read}");
            let event: serde_json::Value = serde_json::from_str(field("body").unwrap()).unwrap();
            assert_eq!((&event["specversion"], &event["id"]), (&"1.0".into(), &id.into()), "{read}");
            assert_eq!((&event["type"], &event["data"]["n"]), (&"shop.added".into(), &7.into()), "{read}");
        }
    }
}
