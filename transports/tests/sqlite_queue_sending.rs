//! Sending: topics, limits, dead letters, and what happens when the file refuses.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use std::time::Duration;

use common::*;
use futures_util::future::join_all;
use hapax_core::{
    ports::{DeadLetters, DispatchError, Dispatcher, ErrorKind, Page, Settled, Transport},
    time::Timestamp,
};
use hapax_stores::Sqlite;
use hapax_transports::SqliteQueue;

#[tokio::test]
async fn what_is_published_goes_to_who_subscribes_wherever_that_is() {
    let place = Place::new();
    let (here, there) = (place.open().await, place.open().await);
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
    let place = Place::new();
    let queue = SqliteQueue::options().message_bytes_max(1000).open(place.file()).await.unwrap();
    let outgoing = [to("shop", envelope("a")), to("shop", envelope(&"x".repeat(1000))), to("shop", envelope("b"))];
    assert!(queue.check(&outgoing[1]).unwrap_err().0.contains("more than the 1000"));
    let results = queue.dispatch(&outgoing).await;
    assert!(matches!(&results[..], [Ok(()), Err(DispatchError::Permanent(_)), Ok(())]), "{results:?}");
    assert_eq!(bodies(&receive(&shop(&queue).await, 10).await), ["a", "b"]);
}

#[tokio::test]
async fn many_messages_of_one_call_are_written_in_their_order() {
    let place = Place::new();
    let queue = place.open().await;
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
    let place = Place::new();
    let queue = place.open().await;
    place
        .run(
            "CREATE TRIGGER picky BEFORE INSERT ON hapax_queue_message WHEN length(new.envelope) > 1000 \
             BEGIN SELECT raise(ABORT, 'too long for me'); END",
        )
        .await;
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
async fn a_file_with_too_many_messages_takes_no_more_until_some_are_settled() {
    let place = Place::new();
    let queue = SqliteQueue::options().messages_max(50).open(place.file()).await.unwrap();
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
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while queue.dispatch(&[to("shop", envelope("a"))]).await.remove(0).is_err() {
        assert!(tokio::time::Instant::now() < deadline, "it stays full");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_dead_letter_keeps_its_reason_and_its_history_until_it_is_purged() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    let before = Timestamp::now();
    send_bodies(&queue, &["a", "b"]).await;
    for _ in 0..2 {
        for delivery in receive(&ends, 2).await {
            assert_eq!(settle(&ends, &delivery, retry(Duration::ZERO)).await, Settled::Done);
        }
    }
    let given = receive(&ends, 2).await;
    for delivery in &given {
        assert_eq!(settle(&ends, delivery, dead("no such item")).await, Settled::Done);
    }
    assert_eq!(queue.messages().await.unwrap(), 0);

    let all = queue.set_aside(&endpoint("shop"), &Page::first(10)).await.unwrap();
    assert_eq!(all.len(), 2);
    for (set_aside, delivery) in all.iter().zip(&given) {
        let letter = &set_aside.letter;
        assert_eq!((letter.attempts, letter.reason.as_str()), (3, "no such item"));
        assert_eq!(letter.envelope, delivery.envelope);
        let (sent, first) = (set_aside.sent_at.unwrap(), set_aside.first_given_at.unwrap());
        assert!(before <= sent && sent <= first && first <= letter.time && letter.time <= Timestamp::now());
    }
    let letters = ends.dead_letters.as_ref().unwrap();
    assert_eq!(letters.list(&endpoint("shop"), &Page::first(1)).await.unwrap(), [all[0].letter.clone()]);

    assert_eq!(queue.purge(Duration::from_secs(60), 10).await.unwrap(), 0, "a young one was removed");
    place.run("UPDATE hapax_queue_dead_letter SET time = time - 100000").await;
    assert_eq!(queue.purge(Duration::from_secs(60), 1).await.unwrap(), 1);
    let left = queue.list(&endpoint("shop"), &Page::first(10)).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].envelope, all[1].letter.envelope, "not the oldest was removed");
}

/// Goal: a letter that cannot be read hides no other. Method: one whose row is damaged, before one that is sound, on one page and on a page of
/// its own.
#[tokio::test]
async fn a_dead_letter_that_cannot_be_read_hides_no_other() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    for reason in ["damaged", "sound"] {
        send_bodies(&queue, &[reason]).await;
        let delivery = next(&ends).await;
        assert_eq!(settle(&ends, &delivery, dead(reason)).await, Settled::Done);
    }
    place.run("UPDATE hapax_queue_dead_letter SET attempts = -1 WHERE reason = 'damaged'").await;
    for limit in [10, 1] {
        let listed = queue.list(&endpoint("shop"), &Page::first(limit)).await.unwrap();
        assert_eq!(listed.iter().map(|letter| letter.reason.as_str()).collect::<Vec<_>>(), ["sound"], "{limit}");
    }
}

#[tokio::test]
async fn what_is_asked_for_at_once_shares_commits() {
    let place = Place::new();
    let store = Sqlite::open(place.file()).await.unwrap();
    let queue = SqliteQueue::on(&store).await.unwrap();
    let ends = shop(&queue).await;
    let before = store.commits();
    join_all((0..200).map(|number| {
        let queue = &queue;
        async move { send_bodies(queue, &[&number.to_string()]).await }
    }))
    .await;
    let given = receive(&ends, 256).await;
    assert_eq!(given.len(), 200);
    join_all(given.iter().map(|delivery| ack(&ends, delivery))).await;
    let commits = store.commits() - before;
    assert!(commits < 20, "400 writes and a claim took {commits} commits");
}

#[tokio::test]
async fn a_member_that_the_file_refuses_hurts_only_itself() {
    let place = Place::new();
    let queue = place.open().await;
    let ends = shop(&queue).await;
    place
        .run(
            "CREATE TRIGGER picky BEFORE INSERT ON hapax_queue_message WHEN length(new.envelope) > 1000 \
             BEGIN SELECT raise(ABORT, 'too long for me'); END",
        )
        .await;
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
async fn a_write_that_takes_too_long_may_have_been_sent_and_is_sent_again() {
    let place = Place::new();
    let file = Sqlite::options(place.file()).create_if_missing(true).write_limit(Duration::from_millis(50));
    let queue = SqliteQueue::options().open_database(file).await.unwrap();
    let ends = shop(&queue).await;
    let mut other = place.beside().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let outgoing = [to("shop", envelope("a"))];
    let late = queue.dispatch(&outgoing).await.remove(0);
    let Err(DispatchError::Transient(late)) = late else { panic!("{late:?}") };
    assert!(late.is_unknown_outcome(), "{late}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while queue.dispatch(&outgoing).await.remove(0).is_err() {
        assert!(tokio::time::Instant::now() < deadline, "it is never sent");
    }
    let first = next(&ends).await;
    assert_eq!(first.envelope, outgoing[0].envelope);
    ack(&ends, &first).await;
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_is_gone_with_it() {
    let place = Place::new();
    let mount = place.directory().to_string_lossy().into_owned();
    let run = |command: &str, arguments: &[&str]| {
        std::process::Command::new(command).args(arguments).status().is_ok_and(|status| status.success())
    };
    if !run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", &mount]) {
        eprintln!("SKIPPED: a small file system cannot be mounted here, so a full disk was not tested");
        return;
    }
    let unmount = Unmount(mount.clone());
    let queue = place.open().await;
    let ends = shop(&queue).await;
    let large = "x".repeat(20_000);
    let mut sent = 0;
    let full = loop {
        // A group of three, so that the others of a commit are tried one by one.
        let outgoing: Vec<_> = (0..3).map(|_| [to("shop", envelope(&large))]).collect();
        let results = join_all(outgoing.iter().map(|outgoing| queue.dispatch(outgoing))).await;
        let results: Vec<_> = results.into_iter().flatten().collect();
        sent += results.iter().filter(|result| result.is_ok()).count();
        if let Some(failed) = results.into_iter().find_map(Result::err) {
            break failed;
        }
        assert!(sent < 1000, "the disk was never full");
    };
    let DispatchError::Transient(full) = full else { panic!("{full:?}") };
    assert!(full.to_string().contains("the disk is full"), "{full}");
    assert!(run("mount", &["-o", "remount,size=32m", &mount]));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while queue.dispatch(&[to("shop", envelope("after"))]).await.remove(0).is_err() {
        assert!(tokio::time::Instant::now() < deadline, "it stays full");
    }
    let mut left = sent + 1;
    while left > 0 {
        for delivery in receive(&ends, 256).await {
            ack(&ends, &delivery).await;
            left -= 1;
        }
    }
    assert_eq!(queue.messages().await.unwrap(), 0);
    queue.close().await;
    drop(unmount);
}

/// A mount must not outlive its test, whatever becomes of that.
struct Unmount(String);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l", &self.0]).status();
    }
}
