//! Producers and consumers of another make: the programs of rabbitmq-c (Debian's `amqp-tools`).

use std::{
    process::{Command, Output, Stdio},
    time::Duration,
};

use hapax::{
    envelope::{ContentType, Destination, Outgoing},
    ids::TypeName,
    ports::Transport,
};

use super::rig::*;

/// What the program says; `None` where it is not installed.
async fn run(program: &'static str, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(program);
    command.arg("-u").arg(url()).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => Some(tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap()),
        Err(_) => {
            eprintln!("SKIPPED: there is no {program} to speak AMQP with: `apt-get install amqp-tools`");
            None
        }
    }
}

#[tokio::test]
async fn a_program_of_another_make_sends_to_an_endpoint() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let name = format!("hapax-test.queue.{here}");
    let headers = ["-H", "hapax-message-id: tool 7", "-H", "hapax-type: shop.added", "-H", "shop: corner"];
    let arguments = [&["-r", &name, "-p", "-C", "application/json", "-b", "{\"n\": 7}"][..], &headers].concat();
    let Some(sent) = run("amqp-publish", &arguments).await else { return };
    assert!(sent.status.success(), "{sent:?}");
    let delivery = next(&ends).await;
    let envelope = &delivery.envelope;
    assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), ("tool 7", "shop.added"));
    assert_eq!((&envelope.content_type, body(&delivery).as_str()), (&ContentType::JSON, "{\"n\": 7}"));
    assert_eq!(envelope.headers.value("shop"), Some("corner"));
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn a_program_of_another_make_takes_from_a_queue() {
    let queue = open().await;
    let here = endpoint();
    queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("for a tool"))]).await;
    let name = format!("hapax-test.queue.{here}");
    let Some(taken) = run("amqp-get", &["-q", &name]).await else { return };
    assert_eq!(
        (taken.status.success(), String::from_utf8_lossy(&taken.stdout).as_ref()),
        (true, "for a tool"),
        "{taken:?}"
    );
}

/// As the outbox's chapter says: a queue of one's own, bound to the exchange of events by the type.
#[tokio::test]
async fn a_program_of_another_make_subscribes_to_a_type() {
    let queue = open().await;
    let kind = TypeName::parse(unique("shop.told")).unwrap();
    let topic = Destination::Topic(kind.clone());
    let event = || {
        let mut envelope = envelope("an event");
        envelope.message_type = kind.clone();
        Outgoing { destination: topic.clone(), envelope: envelope.into() }
    };
    let arguments = ["-e", "hapax-test.topics", "-r", kind.as_str(), "-x", "-c", "1", "cat"];
    // Nobody says when it has bound its queue; until then the events go nowhere.
    send(&queue, &[event()]).await;
    let consuming = run("amqp-consume", &arguments);
    tokio::pin!(consuming);
    let consumed = loop {
        tokio::select! {
            consumed = &mut consuming => break consumed,
            () = tokio::time::sleep(Duration::from_millis(50)) => send(&queue, &[event()]).await,
        }
    };
    let Some(consumed) = consumed else { return };
    assert_eq!(
        (consumed.status.success(), String::from_utf8_lossy(&consumed.stdout).as_ref()),
        (true, "an event"),
        "{consumed:?}"
    );
}
