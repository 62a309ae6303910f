//! Partitions are dropped when all in them is over, and never before; nobody waits long for that.

use std::time::{Duration, Instant};

use hapax::ports::{Care, Cared, OutboxTable};
use sqlx::types::Uuid;

use super::{
    MINUTE, Part, id, message, now, parts,
    rig::{Outbox, Place},
    sink::{PATIENCE, Sink, quick, relay},
};

const WAITING: &str = "\
    SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = 'hapax.outbox'::regclass";

const CARE: Care = Care { keep: Duration::from_secs(300), archive: None, rows: 100 };

fn care(minutes: u32) -> Care {
    Care { keep: MINUTE * minutes, archive: None, rows: 100 }
}

/// All in `part` might have been gone for so long.
fn due_for(part: Part, seconds: u64) -> Care {
    let keep = Duration::from_millis(now() - part.from) - MINUTE - Duration::from_secs(seconds);
    Care { keep, archive: None, rows: 100 }
}

/// By another program, which was not in anybody's way before.
async fn cared(place: &Place, care: Care) -> Cared {
    place.outbox().await.care(&care).await.unwrap()
}

#[tokio::test]
async fn what_is_over_goes_with_its_partition_and_what_waits_or_failed_keeps_it() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    // The one that is written to, and two ahead; a minute may end meanwhile.
    assert!((3..=4).contains(&parts(&place).await));
    let all = [30, 20, 15, 10].map(|ago| Part::new(&place, ago));
    let [over, failed, waiting, late] = futures_util::future::join_all(all).await.try_into().unwrap();
    for part in [over, failed, waiting, late] {
        part.fill(&place, &outbox, 0..3).await;
        part.sent(&place).await;
    }
    failed.one(&place, 2).await;
    waiting.one(&place, 0).await;
    assert_eq!(outbox.care(&care(5)).await.unwrap(), Cared { ended: 4, archived: 0 }, "beside those that keep theirs");
    assert!(!over.is_there(&place).await && !late.is_there(&place).await, "nothing else goes row by row");
    assert_eq!((failed.rows(&place).await, waiting.rows(&place).await), (1, 1));
    let state = outbox.state().await.unwrap();
    assert_eq!((state.failed, state.stored), (1, 1));
    // A person decides, the other one is sent; and when that was long ago:
    let kept = outbox.failed(&hapax::ports::Page::first(1)).await.unwrap();
    assert_eq!(outbox.discard(&[kept[0].message_id.clone()]).await.unwrap(), 1);
    waiting.sent(&place).await;
    assert_eq!(outbox.care(&care(5)).await.unwrap().ended, 0);
    assert!(failed.is_there(&place).await && !waiting.is_there(&place).await, "it was given up a moment ago");
    failed.sent(&place).await;
    assert_eq!(outbox.care(&care(5)).await.unwrap().ended, 0);
    assert!((3..=4).contains(&parts(&place).await), "all four are gone");
}

#[tokio::test]
async fn what_was_sent_lately_or_is_to_be_archived_stays_in_its_partition() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let part = Part::new(&place, 20).await;
    part.fill(&place, &outbox, 0..3).await;
    part.sent(&place).await;
    place.run(&format!("UPDATE {} SET ended_at = {} - 60000", part.table(), now())).await;
    assert_eq!(outbox.care(&care(5)).await.unwrap().ended, 0);
    assert_eq!(part.rows(&place).await, 3, "it was sent a minute ago");
    part.sent(&place).await;
    let archive = Care { archive: Some(MINUTE * 30), ..care(5) };
    assert_eq!(outbox.care(&archive).await.unwrap().ended, 0);
    assert_eq!((part.rows(&place).await, place.number("SELECT count(*) FROM hapax.outbox_archive").await), (3, 0));
    outbox.care(&Care { archive: Some(MINUTE * 10), ..care(5) }).await.unwrap();
    assert!(!part.is_there(&place).await);
}

/// Or a drop a moment later would be for nothing.
#[tokio::test]
async fn rows_beside_one_that_failed_go_one_by_one_only_when_their_partition_is_late() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let part = Part::new(&place, 20).await;
    part.fill(&place, &outbox, 0..3).await;
    part.sent(&place).await;
    part.one(&place, 2).await;
    assert_eq!(outbox.care(&due_for(part, 20)).await.unwrap().ended, 0);
    assert_eq!(part.rows(&place).await, 3);
    assert_eq!(outbox.care(&due_for(part, 70)).await.unwrap().ended, 2);
    assert_eq!(part.rows(&place).await, 1);
}

#[tokio::test]
async fn an_open_transaction_is_waited_for_a_moment_and_others_behind_it_no_longer() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let part = Part::new(&place, 20).await;
    part.fill(&place, &outbox, 0..3).await;
    part.sent(&place).await;
    let (open, ticket) = place.order(&outbox, 1).await;
    let care = due_for(part, 10);
    let began = Instant::now();
    let caring = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.care(&care).await }
    });
    let mut order = 2;
    while !caring.is_finished() {
        place.orders(&outbox, [order]).await;
        order += 1;
    }
    // The session's own limit for locks is 3 s.
    assert!(began.elapsed() < Duration::from_secs(2), "waited for {:?}", began.elapsed());
    caring.await.unwrap().unwrap();
    assert_eq!(part.rows(&place).await, 3);
    // Nobody waits again at once.
    let began = Instant::now();
    for _ in 0..20 {
        outbox.care(&care).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(2), "waited again and again: {:?}", began.elapsed());
    assert_eq!(part.rows(&place).await, 3);
    outbox.commit(open, ticket).await.unwrap();
    cared(&place, care).await;
    assert!(!part.is_there(&place).await);
}

/// A message whose id is of long ago is committed while the lock is waited for.
#[tokio::test]
async fn what_is_stored_until_the_lock_is_had_keeps_its_partition() {
    let place = Place::new().await;
    let writer = place.outbox().await;
    let part = Part::new(&place, 20).await;
    let mut waited = 0;
    for round in 0..200 {
        if waited == 3 {
            return;
        }
        let mut tx = place.begin().await;
        let message = message(&writer, round, id(part.from));
        let ticket = writer.enqueue_all(&mut tx, &[message]).await.unwrap();
        let outbox = place.outbox().await;
        let caring = tokio::spawn(async move { outbox.care(&care(5)).await });
        while !caring.is_finished() && place.number(WAITING).await == 0 {}
        waited += i32::from(!caring.is_finished());
        writer.commit(tx, ticket).await.unwrap();
        caring.await.unwrap().unwrap();
        assert!(part.is_there(&place).await, "round {round}: a message was dropped with its partition");
        assert_eq!(part.rows(&place).await, 1, "round {round}");
        place.run(&format!("DELETE FROM {}", part.table())).await;
    }
    panic!("the lock was never waited for");
}

#[tokio::test]
async fn what_no_partition_is_for_is_sent_and_removed_row_by_row() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let hour = 3_600_000;
    let ids = [
        id(now() + 1000 * hour),
        id(now() - 1000 * hour),
        Uuid::nil(),
        Uuid::max(),
        Uuid::from_u128(fastrand::u128(..)),
    ];
    let messages: Vec<_> = (0..).zip(ids).map(|(order, id)| message(&outbox, order, id)).collect();
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    // Nobody has made any for days: all are gone, and what comes now has none either.
    let table = "SELECT string_agg(inhrelid::regclass::text, ', ') FROM pg_inherits \
                 WHERE inhparent = 'hapax.outbox'::regclass AND inhrelid <> 'hapax.outbox_rest'::regclass";
    place.run(&format!("DO $$ BEGIN EXECUTE 'DROP TABLE ' || ({table}); END $$")).await;
    place.orders(&outbox, 5..10).await;
    let relay = relay(&outbox, &sink, quick());
    sink.until_all(0..10).await;
    place.until("SELECT count(*) FROM hapax.outbox_rest WHERE status = 1", 10).await;
    relay.stop().await.unwrap();
    // Only those ahead: what comes next would belong to two partitions.
    cared(&place, care(5)).await;
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox_rest").await, 10);
    let before = parts(&place).await;
    assert!((2..=3).contains(&before), "{before}");
    assert_eq!(cared(&place, Care { rows: 7, ..care(0) }).await.ended, 7);
    assert_eq!(cared(&place, Care { rows: 7, ..care(0) }).await.ended, 3);
    cared(&place, care(5)).await;
    assert!(parts(&place).await >= 3);
    place.orders(&outbox, 10..11).await;
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox_rest").await, 0);
}

#[tokio::test]
async fn programs_that_care_at_once_are_in_nobodys_way() {
    let place = Place::new().await;
    let outboxes: Vec<Outbox> = futures_util::future::join_all((0..4).map(|_| place.outbox())).await;
    // From the oldest on: where a minute ends meanwhile, none is made twice.
    for ago in (10..20).rev() {
        let part = Part::new(&place, ago).await;
        part.fill(&place, &outboxes[0], 0..3).await;
        part.sent(&place).await;
    }
    let sink = Sink::new();
    let relay = relay(&outboxes[0], &sink, quick());
    let caring = async {
        for cared in futures_util::future::join_all(outboxes.iter().map(|outbox| outbox.care(&CARE))).await {
            cared.unwrap();
        }
    };
    tokio::join!(caring, place.orders(&outboxes[0], 0..100));
    sink.until_all(0..100).await;
    relay.stop().await.unwrap();
    // Those that were in each other's way, or in the writer's, drop the rest later.
    let began = Instant::now();
    while parts(&place).await > 4 {
        assert!(began.elapsed() < PATIENCE, "{} partitions are left", parts(&place).await);
        cared(&place, CARE).await;
    }
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE ended_at < stored_at").await, 0);
}
