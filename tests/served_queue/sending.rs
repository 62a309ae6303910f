//! Sending: topics, limits, dead letters, groups, and what happens when the server refuses.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    ports::{DeadLetters, DispatchError, Dispatcher, ErrorKind, Page, Settled, Settlement, Transport},
    time::Timestamp,
};
use tokio::time::Instant;

use super::{common::*, rig::*};

#[tokio::test]
async fn what_is_published_goes_to_who_subscribes_wherever_that_is() {
    let tables = Tables::new();
    let (here, there) = (tables.open_queue(options()).await, tables.open_queue(options()).await);
    let subscribed = [message_type()];
    let one = here.connect(&endpoint("one"), &subscribed).await.unwrap();
    let other = there.connect(&endpoint("other"), &subscribed).await.unwrap();
    there.connect(&endpoint("deaf"), &[]).await.unwrap();
    send(&here, &[published("a"), to("other", envelope("b"))]).await;
    assert_eq!(bodies(&receive(&one, 10).await), ["a"]);
    assert_eq!(bodies(&receive(&other, 10).await), ["a", "b"]);
    assert_eq!(here.backlog(&endpoint("deaf")).await.unwrap(), 0);

    // One who is away still is a subscriber, until it is said that it is not.
    drop(other);
    there.close().await;
    send(&here, &[published("c")]).await;
    assert_eq!(here.backlog(&endpoint("other")).await.unwrap(), 3);
    here.unsubscribe(&endpoint("other"), &subscribed).await.unwrap();
    send(&here, &[published("d")]).await;
    assert_eq!(here.backlog(&endpoint("other")).await.unwrap(), 3);
    assert_eq!(here.backlog(&endpoint("one")).await.unwrap(), 3);

    assert_eq!(here.abandon(&endpoint("one"), 2).await.unwrap(), 2);
    assert_eq!(here.abandon(&endpoint("one"), 2).await.unwrap(), 1);
    send(&here, &[published("e")]).await;
    assert_eq!(here.abandon(&endpoint("one"), 2).await.unwrap(), 0);
    assert_eq!(here.messages().await.unwrap(), 3, "those of another endpoint were removed");
}

#[tokio::test]
async fn what_is_too_large_is_refused_alone_and_before_it_is_written() {
    let tables = Tables::new();
    let queue = tables.open_queue(options().message_bytes_max(1000)).await;
    let outgoing = [to("shop", envelope("a")), to("shop", envelope(&"x".repeat(1000))), to("shop", envelope("b"))];
    assert!(queue.check(&outgoing[1]).unwrap_err().0.contains("more than the 1000"));
    let results = queue.dispatch(&outgoing).await;
    assert!(matches!(&results[..], [Ok(()), Err(DispatchError::Permanent(_)), Ok(())]), "{results:?}");
    assert_eq!(bodies(&receive(&shop(&queue).await, 10).await), ["a", "b"]);
}

#[tokio::test]
async fn many_messages_of_one_call_are_written_in_their_order() {
    let tables = Tables::new();
    let queue = tables.open_queue(options()).await;
    let all: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    send_bodies(&queue, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let ends = shop(&queue).await;
    let mut came = Vec::new();
    while came.len() < all.len() {
        came.extend(bodies(&receive(&ends, 256).await));
    }
    assert_eq!(came, all);
}

#[tokio::test]
async fn what_comes_after_a_failure_in_a_call_is_not_sent_before_it() {
    let tables = Tables::new();
    let queue = tables.open_queue(options()).await;
    run(&mut beside(&tables).await, PICKY).await;
    let mut outgoing: Vec<_> = (0..3000).map(|number| to("shop", envelope(&number.to_string()))).collect();
    outgoing[1500] = to("shop", envelope(&"x".repeat(2000)));
    let results = queue.dispatch(&outgoing).await;
    assert_eq!(results.len(), 3000);
    let confirmed = results.iter().position(Result::is_err).unwrap();
    assert!((1..=1500).contains(&confirmed), "{confirmed}");
    assert!(results[confirmed..].iter().all(|result| matches!(result, Err(DispatchError::Transient(_)))));
    assert_eq!(queue.messages().await.unwrap(), confirmed as u64);
}

#[tokio::test]
async fn a_member_that_the_server_refuses_hurts_only_itself() {
    let tables = Tables::new();
    let queue = tables.open_queue(options()).await;
    let ends = shop(&queue).await;
    run(&mut beside(&tables).await, PICKY).await;
    let long = "x".repeat(2000);
    let sent = ["a", &long, "b", "c"];
    let results = join_all(sent.map(|body| {
        let queue = &queue;
        async move { queue.dispatch(&[to("shop", envelope(body))]).await.remove(0) }
    }))
    .await;
    for (body, result) in sent.iter().zip(results) {
        match result {
            Ok(()) => assert_ne!(*body, long),
            // A person may remove the trigger, so it is not given up.
            Err(DispatchError::Transient(e)) => {
                assert_eq!(*body, long);
                assert_eq!(e.kind(), ErrorKind::Misconfigured, "{e}");
            }
            Err(e) => panic!("{e:?}"),
        }
    }
    let mut came = bodies(&receive(&ends, 10).await);
    came.sort();
    assert_eq!(came, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_settlement_that_the_server_refuses_fails_alone() {
    let tables = Tables::new();
    let queue = tables.open_queue(options().writers(1)).await;
    let ends = shop(&queue).await;
    run(&mut beside(&tables).await, FRAIL).await;
    let long = "x".repeat(2000);
    send_bodies(&queue, &["a", &long, "b"]).await;
    let given = receive(&ends, 10).await;
    let settled = given.iter().map(|delivery| ends.receiver.settle(&delivery.receipt, Settlement::Ack));
    let settled = join_all(settled).await;
    assert!(matches!(&settled[..], [Ok(Settled::Done), Err(_), Ok(Settled::Done)]), "{settled:?}");
    assert_eq!(queue.messages().await.unwrap(), 1);
}

#[tokio::test]
async fn a_schema_with_too_many_messages_takes_no_more_until_some_are_settled() {
    let tables = Tables::new();
    let queue = tables.open_queue(options().messages_max(50)).await;
    let mut sent = 0;
    let refused = loop {
        match queue.dispatch(&[to("shop", envelope("a"))]).await.remove(0) {
            Ok(()) => sent += 1,
            Err(e) => break e,
        }
        assert!(sent < 100, "it is never full");
    };
    let DispatchError::Transient(refused) = refused else { panic!("{refused:?}") };
    assert!((50..55).contains(&sent) && refused.to_string().contains("50 messages"), "{sent}: {refused}");
    assert!(queue.abandon(&endpoint("shop"), 100).await.unwrap() >= 50);
    let deadline = Instant::now() + PATIENCE;
    while queue.dispatch(&[to("shop", envelope("a"))]).await.remove(0).is_err() {
        assert!(Instant::now() < deadline, "it stays full");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_dead_letter_keeps_its_reason_and_its_history_until_it_is_purged() {
    let tables = Tables::new();
    let queue = tables.open_queue(options()).await;
    let ends = shop(&queue).await;
    let before = Timestamp::now();
    send_bodies(&queue, &["a", "b"]).await;
    for _ in 0..2 {
        for delivery in [next(&ends).await, next(&ends).await] {
            assert_eq!(settle(&ends, &delivery, retry(Duration::ZERO)).await, Settled::Done);
        }
    }
    let mut given = vec![next(&ends).await, next(&ends).await];
    given.sort_by_key(body);
    for delivery in &given {
        assert_eq!(settle(&ends, delivery, dead("no such\0 item")).await, Settled::Done);
    }
    assert_eq!(queue.messages().await.unwrap(), 0);

    let all = queue.set_aside(&endpoint("shop"), &Page::first(10)).await.unwrap();
    assert_eq!(all.len(), 2);
    for (set_aside, delivery) in all.iter().zip(&given) {
        let letter = &set_aside.letter;
        assert_eq!((letter.attempts, letter.reason.as_str()), (3, &*as_kept("no such\0 item")));
        assert_eq!(letter.envelope, delivery.envelope);
        let (sent, first) = (set_aside.sent_at.unwrap(), set_aside.first_given_at.unwrap());
        // By the server's clock, which is another machine's as a rule.
        let skew = Duration::from_secs(5);
        assert!(before <= sent.after(skew) && sent <= first && first <= letter.time);
    }
    let letters = ends.dead_letters.as_ref().unwrap();
    assert_eq!(letters.list(&endpoint("shop"), &Page::first(1)).await.unwrap(), [all[0].letter.clone()]);

    assert_eq!(queue.purge(Duration::from_secs(60), 10).await.unwrap(), 0, "a young one was removed");
    run(&mut beside(&tables).await, "UPDATE hapax.queue_dead_letter SET time = time - 100000").await;
    assert_eq!(queue.purge(Duration::from_secs(60), 1).await.unwrap(), 1);
    let left = queue.list(&endpoint("shop"), &Page::first(10)).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].envelope, all[1].letter.envelope, "not the oldest was removed");
}

/// Goal: a letter that cannot be read hides no other. Method: one whose row is damaged, before one that is sound, on one page and on a page of
/// its own.
#[tokio::test]
async fn a_dead_letter_that_cannot_be_read_hides_no_other() {
    let tables = Tables::new();
    let queue = open(&tables).await;
    let ends = shop(&queue).await;
    for reason in ["damaged", "sound"] {
        send_bodies(&queue, &[reason]).await;
        let delivery = next(&ends).await;
        assert_eq!(settle(&ends, &delivery, dead(reason)).await, Settled::Done);
    }
    run(&mut beside(&tables).await, "UPDATE hapax.queue_dead_letter SET attempts = -1 WHERE reason = 'damaged'").await;
    for limit in [10, 1] {
        let listed = queue.list(&endpoint("shop"), &Page::first(limit)).await.unwrap();
        assert_eq!(listed.iter().map(|letter| letter.reason.as_str()).collect::<Vec<_>>(), ["sound"], "{limit}");
    }
}

#[tokio::test]
async fn what_is_asked_for_at_once_shares_commits() {
    let tables = Tables::new();
    let queue = tables.open_queue(options()).await;
    let ends = shop(&queue).await;
    send_bodies(&queue, &["first"]).await;
    ack(&ends, &next(&ends).await).await;
    let before = queue.commits();
    join_all((0..200).map(|number| {
        let queue = &queue;
        async move { send_bodies(queue, &[&number.to_string()]).await }
    }))
    .await;
    let mut given = Vec::new();
    while given.len() < 200 {
        given.extend(receive(&ends, 256).await);
    }
    join_all(given.iter().map(|delivery| ack(&ends, delivery))).await;
    let commits = queue.commits() - before;
    assert!(commits < 30, "400 writes and a claim took {commits} commits");
}

#[tokio::test]
async fn a_claim_gives_no_more_bytes_than_fit_into_memory_and_the_rest_comes_at_once() {
    let tables = Tables::new();
    let queue = tables.open_queue(options().polls(NEVER, NEVER)).await;
    let ends = shop(&queue).await;
    let large = "x".repeat(900 << 10);
    for _ in 0..4 {
        send_bodies(&queue, &[large.as_str(); 6]).await;
    }
    let (mut came, mut claims) = (0, 0);
    while came < 24 {
        came += receive(&ends, 100).await.len();
        claims += 1;
    }
    assert!(claims > 1, "they came all at once");
}
