//! Producers and consumers of another make: AWS's own `aws`, by the commands that the chapter shows.

use std::process::{Command, Output, Stdio};

use hapax::{
    envelope::{ContentType, cloudevents::Source},
    ids::TypeName,
    ports::Transport,
    transports::sqs::WrittenAs,
};
use hapax_tests::{
    SqsQueues,
    real::{self, AWS},
};
use serde_json::Value;

use super::rig::*;

/// What `aws sqs` does with these arguments; `None` where it is not installed. The service itself it finds as the SDK does.
async fn run(queues: &SqsQueues, arguments: &[&str]) -> Option<Output> {
    let mut aws = Command::new("aws");
    aws.args(["--output", "json"]);
    if !real::is_asked(AWS) {
        aws.args(["--endpoint-url", queues.url(), "--region", "us-east-1"]);
        aws.env("AWS_ACCESS_KEY_ID", "any").env("AWS_SECRET_ACCESS_KEY", "any");
        // What whoever runs the tests has for the service is not for the emulator.
        aws.env_remove("AWS_PROFILE").env_remove("AWS_SESSION_TOKEN");
    }
    aws.env("AWS_PAGER", "").arg("sqs").args(arguments);
    aws.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match aws.spawn() {
        Ok(child) => Some(tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap()),
        Err(_) => {
            eprintln!("SKIPPED: there is no `aws` to speak to SQS with: `apt-get install awscli`");
            None
        }
    }
}

/// What it says, as JSON; null where it says nothing.
fn said(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    if output.stdout.trim_ascii().is_empty() { Value::Null } else { serde_json::from_slice(&output.stdout).unwrap() }
}

/// The URL of a queue by its name.
async fn url_of(queues: &SqsQueues, name: &str) -> Option<String> {
    let found = run(queues, &["get-queue-url", "--queue-name", name]).await?;
    Some(said(&found)["QueueUrl"].as_str().unwrap().to_owned())
}

/// Takes one message, and deletes it.
async fn taken(queues: &SqsQueues, url: &str) -> Option<Value> {
    // Programs take their time to start on a busy machine: it is hidden for as long.
    let waits = ["--wait-time-seconds", "20", "--visibility-timeout", "600", "--message-attribute-names", "All"];
    let given = said(&run(queues, &[&["receive-message", "--queue-url", url][..], &waits].concat()).await?);
    let message = given["Messages"][0].clone();
    let handle = message["ReceiptHandle"].as_str().unwrap_or_else(|| panic!("nothing came: {given}"));
    said(&run(queues, &["delete-message", "--queue-url", url, "--receipt-handle", handle]).await?);
    Some(message)
}

/// As `--message-attributes` takes them.
fn attributes_of(all: &[(&str, &str)]) -> String {
    let all = all
        .iter()
        .map(|(name, value)| ((*name).to_owned(), serde_json::json!({ "DataType": "String", "StringValue": value })));
    Value::Object(all.collect()).to_string()
}

/// What a message says in an attribute.
fn attribute<'m>(message: &'m Value, name: &str) -> Option<&'m str> {
    message["MessageAttributes"][name]["StringValue"].as_str()
}

#[tokio::test]
async fn aws_sends_to_an_endpoint_plain_and_as_a_cloud_event_in_both_forms() {
    let queues = SqsQueues::new();
    let (sqs, here) = (open(&queues).await, endpoint());
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let Some(url) = url_of(&queues, &queue_of(&queues, &here)).await else { return };
    let json = ("content-type", "application/json");
    let plain = [("hapax-message-id", "tool 7"), ("hapax-type", "shop.added"), json, ("shop", "corner")];
    let binary = [("ce-specversion", "1.0"), ("ce-id", "7"), ("ce-source", "/tool"), ("ce-type", "shop.added"), json];
    let structured = [("content-type", "application/cloudevents+json")];
    let event = r#"{"specversion":"1.0","id":"8","source":"/tool","type":"shop.added","data":{"n": 7}}"#;
    for (attributes, sent, id) in [
        (&plain[..], r#"{"n": 7}"#, "tool 7"),
        (&binary[..], r#"{"n": 7}"#, "/tool 7"),
        (&structured[..], event, "/tool 8"),
    ] {
        let attributes = attributes_of(attributes);
        let to: [&str; 7] =
            ["send-message", "--queue-url", &url, "--message-body", sent, "--message-attributes", &attributes];
        let Some(sent) = run(&queues, &to).await else { return };
        assert!(said(&sent)["MessageId"].is_string(), "{sent:?}");
        let delivery = next(&ends).await;
        let envelope = &delivery.envelope;
        assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), (id, "shop.added"));
        assert_eq!((&envelope.content_type, body(&delivery).as_str()), (&ContentType::JSON, r#"{"n": 7}"#));
        assert_eq!(envelope.headers.value("shop"), (id == "tool 7").then_some("corner"));
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn aws_takes_what_an_endpoint_is_sent_plain_and_as_a_cloud_event_in_both_forms() {
    let queues = SqsQueues::new();
    let (sqs, here) = (open(&queues).await, endpoint());
    drop(sqs.connect(&here, &[]).await.unwrap());
    let Some(url) = url_of(&queues, &queue_of(&queues, &here)).await else { return };
    let source = Source::parse("/shop").unwrap();
    for written_as in
        [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)]
    {
        let sends = queues.open(options(&queues).written_as(written_as.clone())).await;
        let sent = envelope(r#"{"n":7}"#);
        send(&sends, &[to(&here, sent.clone())]).await;
        let Some(message) = taken(&queues, &url).await else { return };
        let (id, text) = (sent.message_id.to_string(), message["Body"].as_str().unwrap());
        let of = |name| attribute(&message, name);
        match written_as {
            WrittenAs::Plain => {
                assert_eq!((of("hapax-message-id"), of("hapax-type")), (Some(id.as_str()), Some("shop.added")));
                assert_eq!(text, r#"{"n":7}"#);
            }
            WrittenAs::CloudEvents(_) => {
                assert_eq!((of("ce-id"), of("ce-type")), (Some(id.as_str()), Some("shop.added")));
                assert_eq!((of("ce-source"), text), (Some("/shop"), r#"{"n":7}"#));
            }
            _ => {
                let event: Value = serde_json::from_str(text).unwrap();
                assert_eq!((event["id"].as_str(), event["data"]["n"].as_u64()), (Some(id.as_str()), Some(7)));
                assert_eq!(of("content-type"), Some("application/cloudevents+json"));
            }
        }
    }
    assert_eq!(sqs.backlog(&here).await.unwrap(), 0);
}

/// By a tag of a queue of its own, which `aws` shows beside the endpoint's.
#[tokio::test]
async fn aws_subscribes_to_a_type_and_takes_its_events() {
    let queues = SqsQueues::new();
    let (sqs, here, topic) = (open(&queues).await, endpoint(), TypeName::parse(unique("shop-told")).unwrap());
    let ends = sqs.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let name = format!("{}-theirs", queues.prefix());
    let Some(made) = run(&queues, &["create-queue", "--queue-name", &name]).await else { return };
    let url = said(&made)["QueueUrl"].as_str().unwrap().to_owned();
    let of_topic = url_of(&queues, &format!("{}_topic_{topic}", queues.prefix())).await.unwrap();
    let tag = format!("{name}=subscribed");
    said(&run(&queues, &["tag-queue", "--queue-url", &of_topic, "--tags", &tag]).await.unwrap());
    let tags = said(&run(&queues, &["list-queue-tags", "--queue-url", &of_topic]).await.unwrap());
    for subscriber in [queue_of(&queues, &here), name] {
        assert_eq!(tags["Tags"][&subscriber], "subscribed", "{tags}");
    }
    // One that has not asked for the tags yet.
    send(&open(&queues).await, &[event(&topic, "an event")]).await;
    let message = taken(&queues, &url).await.unwrap();
    assert_eq!((message["Body"].as_str(), attribute(&message, "hapax-type")), (Some("an event"), Some("shop.added")));
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "an event");
    ack(&ends, &delivery).await;
}
