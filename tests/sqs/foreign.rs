//! Producers and consumers that are not hapax: the SDK alone, and Python's.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use aws_sdk_sqs::{Client, types::MessageAttributeValue};
use hapax::{
    Sqs,
    envelope::{ContentType, cloudevents::Source},
    ids::{EndpointName, TypeName},
    ports::{Connected, DeadLetters, Page, Settlement, Transport},
    time::Timestamp,
    transports::sqs::WrittenAs,
};
use hapax_tests::SqsQueues;

use super::rig::*;

struct Setting {
    queues: SqsQueues,
    sqs: Sqs,
    here: EndpointName,
    ends: Connected,
    client: Client,
    url: String,
}

async fn connected() -> Setting {
    let queues = SqsQueues::new();
    let (sqs, here, client) = (open(&queues).await, endpoint(), queues.client());
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let url = queue_url(&client, &queue_of(&queues, &here)).await;
    Setting { queues, sqs, here, ends, client, url }
}

fn text(value: &str) -> MessageAttributeValue {
    MessageAttributeValue::builder().data_type("String").string_value(value).build().unwrap()
}

/// As any program would, to the queue by its name.
async fn put(client: &Client, url: &str, attributes: &[(&str, &str)], body: &str) {
    let mut put = client.send_message().queue_url(url).message_body(body);
    for (name, value) in attributes {
        put = put.message_attributes(*name, text(value));
    }
    put.send().await.unwrap();
}

#[tokio::test]
async fn another_producer_needs_an_id_and_a_type_and_nothing_else() {
    let Setting { client, url, ends, .. } = connected().await;
    let attributes = [
        ("hapax-message-id", "order 7"),
        ("hapax-type", "shop.added"),
        ("Content-Type", "application/json"),
        ("hapax-correlation-id", "process 1"),
        ("Shop", "corner"),
    ];
    let mut put = client.send_message().queue_url(&url).message_body("{}");
    for (name, value) in attributes {
        put = put.message_attributes(name, text(value));
    }
    let number = MessageAttributeValue::builder().data_type("Number").string_value("7").build().unwrap();
    put.message_attributes("count", number).send().await.unwrap();
    let delivery = next(&ends).await;
    let envelope = &delivery.envelope;
    assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), ("order 7", "shop.added"));
    assert_eq!(envelope.content_type, ContentType::JSON);
    assert_eq!(envelope.correlation_id.as_ref().unwrap().as_str(), "process 1");
    assert_eq!((envelope.headers.value("shop"), envelope.headers.value("count")), (Some("corner"), Some("7")));
    assert_eq!(&envelope.body[..], b"{}");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn another_producer_sends_cloud_events_in_both_modes() {
    let Setting { client, url, ends, .. } = connected().await;
    let json = r#"{"specversion":"1.0","id":"7","source":"/x","type":"shop.added","subject":"tea","data":{"n":7}}"#;
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "7"),
        ("ce-source", "/x"),
        ("ce-type", "shop.added"),
        ("ce-subject", "tea"),
        ("content-type", "application/json"),
    ];
    let forms = [(&[("content-type", "application/cloudevents+json")][..], json), (&binary, "{\"n\":7}")];
    for (attributes, sent) in forms {
        put(&client, &url, attributes, sent).await;
        let delivery = next(&ends).await;
        let envelope = &delivery.envelope;
        assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), ("/x 7", "shop.added"));
        assert_eq!((&envelope.content_type, body(&delivery).as_str()), (&ContentType::JSON, "{\"n\":7}"));
        assert_eq!(envelope.headers.value("subject"), Some("tea"));
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn another_consumer_finds_what_was_sent_as_it_was_asked_for() {
    let Setting { queues, here, client, url, ends, .. } = connected().await;
    drop(ends);
    let source = Source::parse("/shop").unwrap();
    for written_as in
        [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)]
    {
        let sqs = queues.open(options(&queues).written_as(written_as.clone())).await;
        let sent = envelope("{\"n\":7}");
        send(&sqs, &[to(&here, sent.clone())]).await;
        let message = take(&client, &url).await.unwrap();
        let (said, id) = (attributes(&message), sent.message_id.to_string());
        match written_as {
            WrittenAs::Plain => {
                assert_eq!((said["hapax-message-id"], said["hapax-type"]), (id.as_str(), "shop.added"));
                assert_eq!(message.body(), Some("{\"n\":7}"));
            }
            WrittenAs::CloudEvents(_) => {
                assert_eq!((said["ce-id"], said["ce-source"], said["ce-type"]), (id.as_str(), "/shop", "shop.added"));
                assert_eq!(message.body(), Some("{\"n\":7}"));
            }
            _ => {
                let event: serde_json::Value = serde_json::from_str(message.body().unwrap()).unwrap();
                assert_eq!((event["id"].as_str(), event["data"]["n"].as_u64()), (Some(id.as_str()), Some(7)));
                assert_eq!(said["content-type"], "application/cloudevents+json");
            }
        }
        let handle = message.receipt_handle().unwrap();
        client.delete_message().queue_url(&url).receipt_handle(handle).send().await.unwrap();
    }
}

#[tokio::test]
async fn what_another_consumer_takes_and_leaves_comes_here_and_counts() {
    let Setting { sqs, here, client, url, ends, .. } = connected().await;
    send(&sqs, &[to(&here, envelope("left"))]).await;
    let asked = client.receive_message().queue_url(&url).visibility_timeout(1).wait_time_seconds(5).send().await;
    assert_eq!(asked.unwrap().messages().len(), 1);
    // It dies.
    let delivery = next(&ends).await;
    assert_eq!((body(&delivery).as_str(), delivery.attempts), ("left", 2));
    ack(&ends, &delivery).await;
}

/// Another program, which knows nothing of delays: the endpoint puts it off itself.
#[tokio::test]
async fn a_message_that_comes_before_it_is_due_is_put_off() {
    let Setting { client, url, ends, .. } = connected().await;
    let due = Timestamp::now().after(Duration::from_millis(1300));
    let said = due.to_string();
    put(&client, &url, &[("hapax-message-id", "m"), ("hapax-type", "shop.added"), ("hapax-due", &said)], "{}").await;
    let delivery = next(&ends).await;
    assert!(Timestamp::now().after(Duration::from_millis(20)) >= due, "it comes before it is due");
    assert_eq!((delivery.envelope.due, delivery.attempts), (Some(due), 1));
    ack(&ends, &delivery).await;
}

/// Nobody could tell a copy of it from another message; it is kept, and what comes after it is given.
#[tokio::test]
async fn a_message_without_an_id_or_a_type_is_set_aside_with_the_reason() {
    let Setting { queues, sqs, here, client, url, ends } = connected().await;
    put(&client, &url, &[("hapax-type", "shop.added"), ("only", "this")], "nameless").await;
    put(&client, &url, &[("hapax-message-id", "m"), ("hapax-type", "shop.added")], "good").await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "good");
    ack(&ends, &delivery).await;
    // The letters have a queue from the first on.
    let name = format!("{}_dead-letters_{here}", queues.prefix());
    let looking = async {
        loop {
            if let Ok(found) = client.get_queue_url().queue_name(&name).send().await
                && let Some(letter) = take(&client, found.queue_url().unwrap()).await
            {
                break letter;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let letter = tokio::time::timeout(PATIENCE, looking).await.expect("it is not set aside");
    let said = attributes(&letter);
    assert_eq!((letter.body(), said["only"]), (Some("nameless"), "this"));
    assert!(said["x-hapax-letter"].contains("hapax-message-id"), "{said:?}");
    // What is no message is not in the list, and does not keep the list from being read.
    assert_eq!(sqs.list(&here, &Page::first(10)).await.unwrap(), []);
    let gone = async {
        while sqs.backlog(&here).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it is still in the queue");
}

/// By a tag of a queue of its own, of any name.
#[tokio::test]
async fn another_program_subscribes_to_a_type() {
    let queues = SqsQueues::new();
    let (sqs, client) = (open(&queues).await, queues.client());
    let topic = TypeName::parse(unique("shop-told")).unwrap();
    let name = format!("{}-theirs", queues.prefix());
    let url = client.create_queue().queue_name(&name).send().await.unwrap().queue_url.unwrap();
    let of_topic = format!("{}_topic_{topic}", queues.prefix());
    let of_topic = client.create_queue().queue_name(of_topic).send().await.unwrap().queue_url.unwrap();
    client.tag_queue().queue_url(of_topic).tags(&name, "subscribed").send().await.unwrap();
    send(&sqs, &[event(&topic, "an event")]).await;
    assert_eq!(take(&client, &url).await.unwrap().body(), Some("an event"));
}

/// By an operator, or with a service that has kept nothing.
#[tokio::test]
async fn a_queue_that_is_deleted_under_its_receiver_is_declared_anew() {
    let Setting { sqs, here, client, url, ends, queues } = connected().await;
    if hapax_tests::real::is_asked(hapax_tests::real::AWS) {
        return eprintln!("SKIPPED: the service takes no queue of the same name for a minute");
    }
    for round in 0..2 {
        let text = format!("round {round}");
        send(&sqs, &[to(&here, envelope(&text))]).await;
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), text);
        client.delete_queue().queue_url(&url).send().await.unwrap();
        let late = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        assert_eq!(late, hapax::ports::Settled::LeaseLost);
        let failed = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it waits for ever");
        failed.unwrap_err();
        // The next call makes the queue again, if it is given the time.
        let again = async {
            while client.get_queue_url().queue_name(queue_of(&queues, &here)).send().await.is_err() {
                nothing(&ends, Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("the queue is not declared again");
    }
}

/// The Python that the emulator runs on has AWS's own library.
fn boto3(script: &str, arguments: &[&str]) -> Option<Output> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(usual, Into::into);
    let mut python = Command::new(target.join("xtask/moto-5.2.5/bin/python3"));
    python.arg("-c").arg(script).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match python.spawn() {
        Ok(child) => Some(child.wait_with_output().unwrap()),
        Err(_) => {
            eprintln!("SKIPPED: there is no Python with boto3: `cargo xtask test sqs` installs it");
            None
        }
    }
}

const BEGIN: &str = "
import boto3, json, sys
sqs = boto3.client('sqs', endpoint_url=sys.argv[1], region_name='us-east-1', aws_access_key_id='any', aws_secret_access_key='any')
url = sqs.get_queue_url(QueueName=sys.argv[2])['QueueUrl']
";

#[tokio::test]
async fn boto3_sends_to_an_endpoint_and_takes_what_it_is_sent() {
    if hapax_tests::real::is_asked(hapax_tests::real::AWS) {
        return eprintln!("SKIPPED: boto3 speaks to the emulator alone: by the SDK and `aws` the service is asked too");
    }
    let Setting { queues, sqs, here, ends, .. } = connected().await;
    let name = queue_of(&queues, &here);
    let sends = "
text = lambda value: {'DataType': 'String', 'StringValue': value}
sqs.send_message(QueueUrl=url, MessageBody=json.dumps({'n': 7}), MessageAttributes={
    'hapax-message-id': text('tool 7'), 'hapax-type': text('shop.added'), 'content-type': text('application/json')})
";
    let Some(sent) = boto3(&format!("{BEGIN}{sends}"), &[queues.url(), &name]) else { return };
    assert!(sent.status.success(), "{sent:?}");
    let delivery = next(&ends).await;
    assert_eq!(delivery.envelope.message_id.to_string(), "tool 7");
    assert_eq!(body(&delivery), "{\"n\": 7}");
    ack(&ends, &delivery).await;

    let there = endpoint();
    drop(sqs.connect(&there, &[]).await.unwrap());
    let sent = envelope("{\"n\": 8}");
    send(&sqs, &[to(&there, sent.clone())]).await;
    let takes = "
message = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5, MessageAttributeNames=['All'])['Messages'][0]
print(message['MessageAttributes']['hapax-message-id']['StringValue'], json.loads(message['Body'])['n'])
sqs.delete_message(QueueUrl=url, ReceiptHandle=message['ReceiptHandle'])
";
    let taken = boto3(&format!("{BEGIN}{takes}"), &[queues.url(), &queue_of(&queues, &there)]).unwrap();
    assert!(taken.status.success(), "{taken:?}");
    assert_eq!(String::from_utf8(taken.stdout).unwrap().trim(), format!("{} 8", sent.message_id));
    assert_eq!(sqs.backlog(&there).await.unwrap(), 0);
}
