//! What shows that copies are gone, of what was published: the suite knows of queues alone.

use std::{sync::Arc, time::Duration};

use hapax::{
    envelope::{Destination, Envelope, Outgoing},
    ids::TypeName,
    ports::{ErrorKind, Mark, Marks, Transport},
};

use super::rig::*;

#[path = "../broker/evidence.rs"]
mod broker;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_is_forgotten_when_the_queue_has_shown_that_it_is_gone() {
    for ordered in [false, true] {
        let queue = options().ordered_keys(ordered).open(url()).await.unwrap();
        broker::entries_go_when_the_queue_has_shown_that_their_messages_are_gone(queue, endpoint()).await;
    }
}

fn topic() -> TypeName {
    TypeName::parse(unique("shop.told")).unwrap()
}

fn event(topic: &TypeName, body: &str) -> Outgoing {
    let envelope = Envelope { message_type: topic.clone(), ..envelope(body) };
    Outgoing { destination: Destination::Topic(topic.clone()), envelope: Arc::new(envelope) }
}

async fn passes(marks: &dyn Marks, mark: &Mark) {
    let passing = async {
        while !marks.passed(mark).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, passing).await.expect("it never passes");
}

#[tokio::test]
async fn an_event_holds_the_mark_of_each_subscriber_until_it_has_settled_it() {
    for ordered in [false, true] {
        let queue = options().ordered_keys(ordered).lease(PATIENCE).open(url()).await.unwrap();
        let (topic, other_topic) = (topic(), topic());
        let one = queue.connect(&endpoint(), &[topic.clone(), other_topic.clone()]).await.unwrap();
        let other = queue.connect(&endpoint(), std::slice::from_ref(&topic)).await.unwrap();
        let (marks, others) = (one.marks.clone().unwrap(), other.marks.clone().unwrap());
        send(&queue, &[event(&topic, "told")]).await;
        let (mark, of_other) = (marks.end().await.unwrap(), others.end().await.unwrap());
        // What comes behind it holds nothing up, whether it waits or is given.
        send(&queue, &[event(&topic, "behind"), event(&other_topic, "behind too")]).await;
        let (mut given, mut behind) = (next(&one).await, Vec::new());
        while body(&given) != "told" {
            behind.push(std::mem::replace(&mut given, next(&one).await));
        }
        assert!(!marks.passed(&mark).await.unwrap(), "it is given and not settled");
        assert!(!others.passed(&of_other).await.unwrap(), "it waits");
        ack(&one, &given).await;
        passes(&*marks, &mark).await;
        assert!(!others.passed(&of_other).await.unwrap(), "another has settled it, not this one");
        let given = next(&other).await;
        assert_eq!(body(&given), "told");
        ack(&other, &given).await;
        passes(&*others, &of_other).await;
    }
}

/// Two programs of one endpoint, an older one and a newer one: what only the newer subscribes to is not gone for the older.
#[tokio::test]
async fn what_another_program_of_the_endpoint_subscribes_to_holds_the_mark_too() {
    let (queue, here, topic) = (open().await, endpoint(), topic());
    let newer = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let older = open().await.connect(&here, &[]).await.unwrap();
    let marks = older.marks.clone().unwrap();
    send(&queue, &[event(&topic, "told")]).await;
    let mark = marks.end().await.unwrap();
    assert!(!marks.passed(&mark).await.unwrap());
    tokio::time::sleep(Duration::from_millis(400)).await; // Longer than evidence waits here.
    assert!(!marks.passed(&mark).await.unwrap());
    ack(&newer, &next(&newer).await).await;
    passes(&*marks, &mark).await;
}

#[tokio::test]
async fn a_mark_of_another_transport_is_refused() {
    let ends = open().await.connect(&endpoint(), &[]).await.unwrap();
    let error = ends.marks.unwrap().passed(&Mark::new([1])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error:?}");
}
