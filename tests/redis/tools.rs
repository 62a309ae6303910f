//! Producers and consumers of another make: `redis-cli`.

use std::process::{Command, Output, Stdio};

use hapax::{
    envelope::ContentType,
    ports::{DeadLetters, Page, Settlement, Transport},
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
