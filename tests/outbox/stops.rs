//! Relays that stop, stall and are overtaken.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax::{
    ports::{Claim, Claiming, Ended, Instance, OutboxTable, Outcome, Tick},
    relay::RelayOptions,
};

use super::{
    rig::Place,
    sink::{Fate, Placed, Sink, patient, quick, relay},
};

#[tokio::test]
async fn a_stop_gives_back_what_was_not_sent() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::with(|_| Fate::Refused));
    let stops = relay(&outbox, &sink, patient());
    place.orders(&outbox, 0..100).await;
    sink.until(|sink| sink.asked() > 0).await;
    stops.stop().await.unwrap();
    assert_eq!(
        place.number("SELECT count(*) FROM hapax.outbox WHERE token <> 0").await,
        0,
        "nothing is claimed any more"
    );
    place.free().await; // What was tried has a back-off.
    let (other, sink) = (place.outbox().await, Sink::new());
    let next = relay(&other, &sink, patient());
    sink.until_all(0..100).await;
    next.stop().await.unwrap();
}

/// All senders wait for answers that never come, and the rest waits for them.
#[tokio::test]
async fn a_stop_gives_back_what_waits_for_a_sender() {
    let place = Place::new().await;
    let stuck = |order| if order % 50 == 0 { Fate::Silent } else { Fate::Taken };
    let (outbox, first) = (place.outbox().await, Sink::with(stuck));
    let stops = relay(&outbox, &first, patient().senders(2, 1).stop_limit(Duration::from_millis(300)));
    place.orders(&outbox, 0..1).await;
    first.until(|sink| sink.asked() == 1).await;
    let mut tx = place.begin().await;
    let rest: Vec<_> = (1..100).map(|order| outbox.outgoing(&Placed { order }).unwrap()).collect();
    let ticket = outbox.enqueue_all(&mut tx, &rest).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    first.until(|sink| sink.asked() == 51).await;
    stops.stop().await.unwrap();
    assert_eq!(first.distinct(), Vec::from_iter(1..50));
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE status = 0 AND token = 0").await, 49);
    let (other, second) = (place.outbox().await, Sink::new());
    let next = relay(&other, &second, patient());
    second.until(|sink| sink.distinct() == Vec::from_iter(51..100)).await;
    next.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_stored_after_a_stop_waits_for_a_claim() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let first = relay(&outbox, &sink, patient());
    let (tx, ticket) = place.order(&outbox, 0).await;
    first.stop().await.unwrap();
    // Born to a relay that is gone: it is free when the lease of its birth is over.
    outbox.commit(tx, ticket).await.unwrap();
    place.free().await;
    place.orders(&outbox, 1..10).await;
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE token = 0").await, 9);
    let second = relay(&outbox, &sink, patient());
    sink.until_all(0..10).await;
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_is_long_in_use_is_renewed() {
    let place = Place::new().await;
    let stuck = Arc::new(AtomicBool::new(true));
    let is_stuck = stuck.clone();
    let fate = move |order| if order == 0 && is_stuck.load(Ordering::Relaxed) { Fate::Silent } else { Fate::Taken };
    let (outbox, sink) = (place.outbox().await, Sink::with(fate));
    // It does not look: what it has lost it would take again, perhaps before the other.
    let lease = Duration::from_millis(300);
    let keeps = relay(&outbox, &sink, patient().lease(lease).birth_lease(lease).senders(8, 1));
    place.orders(&outbox, 0..1).await;
    sink.until(|sink| sink.asked() == 1).await;
    // Another one would take it if it could.
    let (other, others) = (place.outbox().await, Sink::new());
    let waits = relay(&other, &others, quick());
    tokio::time::sleep(Duration::from_millis(1500)).await; // Several leases.
    assert_eq!(others.asked(), 0);
    drop(keeps);
    others.until_all(0..1).await;
    waits.stop().await.unwrap();
}

#[tokio::test]
async fn a_transport_that_never_answers_keeps_no_message() {
    let place = Place::new().await;
    let asked = AtomicU64::new(0);
    let first = move |order| {
        if order == 0 && asked.fetch_add(1, Ordering::Relaxed) == 0 { Fate::Silent } else { Fate::Taken }
    };
    let (outbox, sink) = (place.outbox().await, Sink::with(first));
    let options = quick().senders(8, 1).send_limit(Duration::from_millis(300));
    let relay = relay(&outbox, &sink, options);
    place.orders(&outbox, 0..20).await;
    sink.until_all(0..20).await;
    place.until("SELECT attempts FROM hapax.outbox ORDER BY attempts DESC LIMIT 1", 2).await;
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn no_time_is_too_long() {
    let place = Place::new().await;
    let (outbox, sink) =
        (place.outbox().await, Sink::with(|order| if order == 1 { Fate::Refused } else { Fate::Taken }));
    let ever = Duration::MAX;
    let options = RelayOptions::default().lease(ever).birth_lease(ever).stale(ever).backoff(ever, ever);
    let options = options.polls(ever, ever).status_batch(1, ever).stop_limit(ever).keep(ever, Some(ever)).care(ever, 1);
    let relay = relay(&outbox, &sink, options.send_limit(ever));
    place.orders(&outbox, [0, 1, 2]).await;
    sink.until(|sink| sink.distinct() == [0, 2]).await;
    relay.stop().await.unwrap();
}

fn tick(instance: i64, ended: Vec<Ended>, claiming: Option<Claiming>, lease: Duration) -> Tick {
    let instance = Instance { id: instance, service: "test".into(), host: String::new(), process: 1 };
    let stale = Duration::from_secs(600);
    Tick { instance: Arc::new(instance), joins: false, stale, ended, renewed: Vec::new(), lease, claiming }
}

fn claiming(token: i64) -> Option<Claiming> {
    Some(Claiming { token, rows: 100, bytes: 1 << 20, again: false })
}

#[tokio::test]
async fn a_stalled_owner_changes_nothing_any_more() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place.orders(&outbox, 0..10).await;
    let short = Duration::from_millis(20);
    let first = outbox.tick(&tick(1, Vec::new(), claiming(11), short)).await.unwrap();
    assert_eq!(first.claimed.len(), 10);
    tokio::time::sleep(short * 3).await;
    let second = outbox.tick(&tick(2, Vec::new(), claiming(22), Duration::from_secs(60))).await.unwrap();
    assert_eq!(second.claimed.len(), 10);
    assert!(second.claimed.iter().all(|row| row.attempts == 2));
    let outcomes = [Outcome::Sent, Outcome::Failed("no".into()), Outcome::GivenBack, Outcome::Expired];
    let claims = || first.claimed.iter().map(|row| row.claim.clone());
    for outcome in outcomes {
        let ended = claims().map(|claim| Ended { claim, outcome: outcome.clone() }).collect();
        let told = outbox.tick(&tick(1, ended, None, short)).await.unwrap();
        assert_eq!(told.ended, 0, "{outcome:?}");
    }
    let renewal = Tick { renewed: claims().collect(), ..tick(1, Vec::new(), None, short) };
    assert_eq!(outbox.tick(&renewal).await.unwrap().renewed, Vec::<Claim>::new());
    let ended = second.claimed.iter().map(|row| Ended { claim: row.claim.clone(), outcome: Outcome::Sent }).collect();
    assert_eq!(outbox.tick(&tick(2, ended, None, short)).await.unwrap().ended, 10);
}

#[tokio::test]
async fn a_lease_that_is_over_is_ended_or_claimed_anew_and_never_both() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place.orders(&outbox, 0..1).await;
    let short = Duration::from_millis(20);
    let first = outbox.tick(&tick(1, Vec::new(), claiming(11), short)).await.unwrap();
    tokio::time::sleep(short * 3).await;
    // Nobody has taken it; the same call would both end it and claim it.
    let ended = || first.claimed.iter().map(|row| Ended { claim: row.claim.clone(), outcome: Outcome::Sent }).collect();
    let both = outbox.tick(&tick(1, ended(), claiming(12), short)).await.unwrap();
    assert_eq!(both.ended + both.claimed.len(), 1);
    // It was not taken by somebody else meanwhile: but by itself.
    assert_eq!(outbox.tick(&tick(1, ended(), None, short)).await.unwrap().ended, 0);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_asked_for_again() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place.orders(&outbox, 0..10).await;
    let lease = Duration::from_secs(60);
    let first = outbox.tick(&tick(1, Vec::new(), claiming(11), lease)).await.unwrap();
    let again = claiming(11).map(|claiming| Claiming { again: true, ..claiming });
    let second = outbox.tick(&tick(1, Vec::new(), again, lease)).await.unwrap();
    let ids = |claimed: &[hapax::ports::Claimed]| {
        let mut ids: Vec<Claim> = claimed.iter().map(|row| row.claim.clone()).collect();
        ids.sort_by(|a, b| a.id.cmp(&b.id));
        ids
    };
    assert_eq!(ids(&first.claimed), ids(&second.claimed));
    assert!(second.claimed.iter().all(|row| row.attempts == 1), "it is the same attempt");
}
