//! What is not there, or is there in another way: told at the start, with what to do.

use aws_sdk_sqs::types::QueueAttributeName as Attribute;
use hapax::{
    ids::TypeName,
    ports::{ErrorKind, Transport, TransportError},
};
use hapax_tests::SqsQueues;
use std::time::Duration;

use super::rig::*;

fn misconfigured<T: std::fmt::Debug>(result: Result<T, TransportError>, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn who_may_not_declare_works_with_what_is_there_and_is_told_what_is_missing() {
    let queues = SqsQueues::new();
    let (here, missing, topic) = (endpoint(), endpoint(), message_type());
    let owner = open(&queues).await;
    owner.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let guest = queues.open(options(&queues).declare(false)).await;
    misconfigured(guest.connect(&missing, &[]).await, "SqsOptions::declare");
    let unheard = TypeName::parse(unique("shop.unheard")).unwrap();
    misconfigured(guest.connect(&here, &[unheard]).await, "subscribes");
    let ends = guest.connect(&here, &[topic]).await.unwrap();
    send(&guest, &[to(&here, envelope("by a guest"))]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "by a guest");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn an_endpoint_that_has_a_queue_of_the_other_kind_is_refused() {
    let queues = SqsQueues::new();
    let (plain, ordered) = (open(&queues).await, queues.open(options(&queues).ordered_keys(true)).await);
    let (here, there) = (endpoint(), endpoint());
    plain.connect(&here, &[]).await.unwrap();
    misconfigured(ordered.connect(&here, &[]).await, "SqsOptions::ordered_keys");
    ordered.connect(&there, &[]).await.unwrap();
    misconfigured(plain.connect(&there, &[]).await, "SqsOptions::ordered_keys");
}

/// Such a queue would lose messages, refuse them, or take them away unheard.
#[tokio::test]
async fn a_queue_that_was_made_in_another_way_is_refused_unless_that_is_accepted() {
    let queues = SqsQueues::new();
    let client = queues.client();
    let letters = client.create_queue().queue_name(format!("{}-theirs", queues.prefix())).send().await.unwrap();
    let asked = client.get_queue_attributes().queue_url(letters.queue_url().unwrap());
    let found = asked.attribute_names(Attribute::QueueArn).send().await.unwrap();
    let arn = &found.attributes().unwrap()[&Attribute::QueueArn];
    let redrive = |count: u32| format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"{count}"}}"#);
    let long = Duration::from_secs(14 * 24 * 3600).as_secs().to_string();
    let size = (1 << 20).to_string();
    let make = async |more: &[(Attribute, String)]| {
        let here = endpoint();
        let mut make = client.create_queue().queue_name(queue_of(&queues, &here));
        for (name, value) in
            [(Attribute::MessageRetentionPeriod, long.clone()), (Attribute::MaximumMessageSize, size.clone())]
        {
            let value = more.iter().find(|(other, _)| *other == name).map_or(value, |(_, value)| value.clone());
            make = make.attributes(name, value);
        }
        for (name, value) in more.iter().filter(|(name, _)| *name == Attribute::RedrivePolicy) {
            make = make.attributes(name.clone(), value);
        }
        make.send().await.unwrap();
        here
    };
    let sqs = open(&queues).await;
    let short = make(&[(Attribute::MessageRetentionPeriod, "345600".into())]).await;
    misconfigured(sqs.connect(&short, &[]).await, "SqsOptions::retention");
    let four_days = queues.open(options(&queues).retention(Duration::from_secs(345_600))).await;
    four_days.connect(&short, &[]).await.unwrap();
    let small = make(&[(Attribute::MaximumMessageSize, (256 << 10).to_string())]).await;
    misconfigured(sqs.connect(&small, &[]).await, "SqsOptions::message_bytes_max");
    let smaller = queues.open(options(&queues).message_bytes_max(192 << 10)).await;
    smaller.connect(&small, &[]).await.unwrap();
    let hasty = make(&[(Attribute::RedrivePolicy, redrive(5))]).await;
    misconfigured(sqs.connect(&hasty, &[]).await, "redrive policy");
    queues.open(options(&queues).redrive_min(5)).await.connect(&hasty, &[]).await.unwrap();
    sqs.connect(&make(&[(Attribute::RedrivePolicy, redrive(1000))]).await, &[]).await.unwrap();
    // One that was made by hapax is what it asks for.
    let again = endpoint();
    for _ in 0..2 {
        sqs.connect(&again, &[]).await.unwrap();
    }
}

/// A tag is a place, and a queue has fifty.
#[tokio::test]
async fn more_subscribers_of_a_type_than_there_are_tags_are_refused() {
    let queues = SqsQueues::new();
    let (sqs, client) = (open(&queues).await, queues.client());
    let topic = TypeName::parse(unique("shop-full")).unwrap();
    let name = format!("{}_topic_{topic}", queues.prefix());
    let url = client.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let mut tag = client.tag_queue().queue_url(url);
    for number in 0..50 {
        tag = tag.tags(format!("queue-{number}"), "subscribed");
    }
    tag.send().await.unwrap();
    misconfigured(sqs.connect(&endpoint(), &[topic]).await, "Sqs::unsubscribe");
}
