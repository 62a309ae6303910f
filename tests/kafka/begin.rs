//! Where reading begins: nowhere but where the endpoint was.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax::ports::{ErrorKind, Transport};
use rdkafka::{admin::AdminOptions, producer::BaseRecord};

use super::rig::*;

/// As a broker does after a week without anybody of the group.
async fn forget_offsets(group: &str) {
    admin().delete_groups(&[group], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
}

#[tokio::test]
async fn what_came_while_the_broker_has_forgotten_where_the_endpoint_was_is_given() {
    let (queue, here, topic) = (open().await, endpoint(), topic());
    let types = std::slice::from_ref(&topic);
    let ends = queue.connect(&here, types).await.unwrap();
    send(&queue, &[event(&topic, "before")]).await;
    ack(&ends, &next(&ends).await).await;
    drop(ends);
    send(&queue, &[event(&topic, "while it was away"), to(&here, envelope("to itself"))]).await;
    forget_offsets(&format!("{PREFIX}.{here}")).await;
    let ends = queue.connect(&here, types).await.unwrap();
    let (one, two) = (next(&ends).await, next(&ends).await);
    let mut came = [body(&one), body(&two)];
    came.sort();
    assert_eq!(came, ["to itself", "while it was away"], "neither is left out, nor does what was settled come again");
}

/// Nothing is known of the endpoint but that it was there: it is given all there is.
#[tokio::test]
async fn an_endpoint_that_was_there_before_its_notes_begins_at_the_beginning() {
    let (queue, here, topic) = (open().await, endpoint(), topic());
    make_topic(&format!("{PREFIX}.queue.{here}"), 2).await;
    send(&queue, &[event(&topic, "early")]).await;
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    assert_eq!(body(&next(&ends).await), "early");
}

#[tokio::test]
async fn a_new_subscription_begins_with_what_is_published_from_now_on_and_that_is_noted() {
    let (queue, here, topic) = (open().await, endpoint(), topic());
    send(&queue, &[event(&topic, "early")]).await;
    // It never receives: where it begins does not wait for that.
    drop(queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap());
    send(&queue, &[event(&topic, "late")]).await;
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    assert_eq!(body(&next(&ends).await), "late");
}

/// The end of the log never comes then.
#[tokio::test(flavor = "multi_thread")]
async fn notes_are_read_though_others_write_all_the_time() {
    let (queue, here) = (open().await, endpoint());
    drop(queue.connect(&here, &[]).await.unwrap());
    let ends = Arc::new(AtomicBool::new(false));
    let (notes, stops) = (format!("{PREFIX}.notes.{here}"), ends.clone());
    let writer = tokio::task::spawn_blocking(move || {
        let producer = producer();
        while !stops.load(Ordering::Relaxed) {
            let record: BaseRecord<'_, str, str> = BaseRecord::to(&notes).partition(0).key("nobody's").payload("x");
            drop(producer.send(record)); // As fast as it takes them.
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let busy = options().patience(Duration::from_secs(5)).open(url()).await.unwrap();
    let read = async {
        for _ in 0..5 {
            let connected = busy.connect(&here, &[]).await.unwrap();
            connected.marks.unwrap().end().await.unwrap();
        }
    };
    let read = tokio::time::timeout(PATIENCE, read).await;
    ends.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    read.expect("it waits for an end that never comes");
}

#[tokio::test]
async fn a_log_that_went_back_is_told_and_read_from_its_beginning() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    for name in ["1", "2", "3"] {
        send(&queue, &[to(&here, keyed("a", name))]).await;
        ack(&ends, &next(&ends).await).await;
    }
    let marks = ends.marks.clone().unwrap();
    drop(ends);
    let log = format!("{PREFIX}.queue.{here}");
    admin().delete_topics(&[&log], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
    make_topic(&log, 4).await;
    send(&queue, &[to(&here, keyed("a", "new"))]).await;
    assert!(marks.end().await.unwrap_err().to_string().contains("went back"), "no mark is shown meanwhile");
    let ends = queue.connect(&here, &[]).await.unwrap();
    let error = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it is silent").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("went back"), "{error}");
    let delivery = next(&ends).await;
    assert_eq!((body(&delivery).as_str(), delivery.attempts), ("new", 1));
    ack(&ends, &delivery).await;
}
