//! Claim check: bodies that are too large to travel come all the same, and are collected when nobody needs them any more, and not before.
//! Time is paused, and that of the bodies in memory with it.

use hapax::{
    InProcess, Memory,
    claim::{BODY_IN, Claim},
    deliver::Recoverability,
    endpoint::{Settings, office::Filter},
    envelope::{Destination, Envelope},
    ports::ErrorKind,
    testing::Harness,
};
use tokio::time::sleep;

use crate::{
    depot::*,
    work::{Cut, WayOut},
};

/// The message that waits in the outbox of the only entity that has one.
fn outgoing(store: &Memory) -> Vec<Envelope> {
    let entities = store.entities();
    let entries = entities.iter().flat_map(|(_, entity)| &entity.outbox);
    entries.flat_map(|entry| &entry.outgoing).map(|outgoing| (*outgoing.envelope).clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_large_body_waits_elsewhere_its_handler_sees_all_of_it_and_then_it_is_gone() {
    let (hub, store, depot, mood) = (InProcess::new("claims"), Memory::new(), Depot::default(), Mood::default());
    let cut = Cut::new(&hub);
    let _front = run(writer(&store, WayOut(hub.clone(), cut.clone()), &depot)).await;
    let _archive = run(reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE)).await;
    write(&hub, &to(&["archive"])).await;
    sleep(MINUTE).await;
    let waiting = outgoing(&store);
    assert!(waiting.len() == 1 && waiting[0].body.len() < 250, "{waiting:+?}");
    assert_eq!(waiting[0].headers.value(BODY_IN), Some("depot"));
    assert!(Claim::of(&waiting[0]).unwrap().unwrap().bytes() > 5000);
    assert!(depot.size().1 > 5000);
    cut.mend();
    sleep(MINUTE).await;
    assert_eq!(read(&store, "archive", "shelf"), [5000]);
    assert_eq!(depot.size(), (1, 0), "the body is gone, and it is known that it is over");
    assert!(depot.seen().ends_with(&["get", "release"]), "{:?}", depot.seen());

    // A late copy is one, and fetches nothing.
    let to_archive = Destination::parse("endpoint:archive").unwrap();
    hub.sender().send_envelope(to_archive.clone(), waiting[0].clone()).await.unwrap();
    sleep(MINUTE).await;
    assert_eq!((read(&store, "archive", "shelf"), letters(&store, "archive").await), (vec![5000], vec![]));
    sleep(RETENTION - 10 * MINUTE).await;
    assert_eq!(depot.size(), (1, 0));
    sleep(20 * MINUTE).await;
    assert_eq!(depot.size(), (0, 0), "retention is over");

    // Later than that nobody knows. It has no effect, and is not dropped in silence.
    hub.sender().send_envelope(to_archive, waiting[0].clone()).await.unwrap();
    sleep(MINUTE).await;
    let letters = letters(&store, "archive").await;
    assert!(letters.len() == 1 && letters[0].reason.contains("is not in depot"), "{letters:?}");
    assert_eq!(read(&store, "archive", "shelf"), [5000]);
}

#[tokio::test(start_paused = true)]
async fn small_bodies_travel_and_so_do_those_in_a_harness() {
    let (hub, store, depot, mood) = (InProcess::new("small"), Memory::new(), Depot::default(), Mood::default());
    let _front = run(writer(&store, hub.clone(), &depot)).await;
    let _archive = run(reader("archive", &store, &hub, &mood)).await;
    write(&hub, &Write { bytes: 900, ..to(&["archive"]) }).await;
    sleep(MINUTE).await;
    assert_eq!((read(&store, "archive", "shelf"), depot.seen()), (vec![900], vec![]));

    let mut harness = Harness::start(writer(&Memory::new(), hub, &depot)).await.unwrap();
    harness.send(&to(&["archive"])).await.unwrap();
    assert_eq!(harness.sent::<Text>().unwrap()[0].text.len(), 5000);
    assert_eq!(depot.seen(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn a_body_for_two_endpoints_is_put_once_and_stays_until_the_second_is_done() {
    let (hub, store, depot, mood) = (InProcess::new("two"), Memory::new(), Depot::default(), Mood::default());
    let reader = |name| reader(name, &store, &hub, &mood).bodies(depot.clone(), ABOVE);
    let _front = run(writer(&store, hub.clone(), &depot)).await;
    let _first = run(reader("first")).await;
    write(&hub, &to(&["first", "second"])).await;
    sleep(3 * HOUR).await;
    assert_eq!(depot.seen().iter().filter(|call| **call == "put").count(), 1);
    assert_eq!((read(&store, "first", "shelf"), depot.size().0), (vec![5000], 1));
    assert!(depot.size().1 > 5000, "the second has not come");
    let _second = run(reader("second")).await;
    sleep(MINUTE).await;
    assert_eq!((read(&store, "second", "shelf"), depot.size()), (vec![5000], (1, 0)));
}

/// Goal: what is wrong with one body holds up no other. Method: one that was staged for a lost save cannot be removed, for long.
#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_removed_holds_up_no_other() {
    let (hub, store, depot, mood) = (InProcess::new("held-up"), Memory::new(), Depot::default(), Mood::default());
    write(&hub, &to(&["archive"])).await;
    depot.light(Fuse::AfterCall("put"));
    let front = run(writer(&store, hub.clone(), &depot)).await;
    assert_eq!(depot.died().await, Some("put"));
    drop(front);
    depot.fails("unstage", ErrorKind::Unavailable);
    let _front = run(writer(&store, hub.clone(), &depot)).await;
    let archive = run(reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE)).await;
    sleep(MINUTE).await;
    drop(archive); // It would collect for both.
    sleep(3 * RETENTION).await;
    assert_eq!((read(&store, "archive", "shelf"), depot.size().0), (vec![5000], 1), "what was read is gone");
    depot.mend();
    sleep(RETENTION).await;
    assert_eq!(depot.size(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_published_body_stays_for_its_time_whoever_has_read_it_and_not_for_longer() {
    let (hub, store, depot, mood) = (InProcess::new("published"), Memory::new(), Depot::default(), Mood::default());
    let reader = |name| reader(name, &store, &hub, &mood).bodies(depot.clone(), ABOVE);
    let _front = run(writer(&store, hub.clone(), &depot)).await;
    let _first = run(reader("first")).await;
    let second = run(reader("second")).await; // It subscribes, and dies.
    drop(second);
    write(&hub, &to(&[])).await;
    sleep(PUBLISHED - 10 * MINUTE).await;
    assert_eq!(read(&store, "first", "shelf"), [5000]);
    let _second = run(reader("second")).await;
    sleep(5 * MINUTE).await;
    assert_eq!(read(&store, "second", "shelf"), [5000]);
    assert!(depot.size().1 > 5000, "its time has not come");
    sleep(10 * MINUTE).await;
    assert_eq!(depot.size(), (0, 0));
    assert!(letters(&store, "first").await.is_empty() && letters(&store, "second").await.is_empty());
}

/// Goal: a store of bodies that is away holds up nothing for good, loses nothing and blames no message. Method: each call fails for hours,
/// before or after it has had its effect.
#[tokio::test(start_paused = true)]
async fn a_message_waits_for_a_store_of_bodies_that_is_away() {
    for call in ["put", "keep", "get", "release"] {
        for kind in [ErrorKind::Unavailable, ErrorKind::UnknownOutcome] {
            let (hub, store, depot, mood) = (InProcess::new("away"), Memory::new(), Depot::default(), Mood::default());
            let _front = run(writer(&store, hub.clone(), &depot)).await;
            let _archive = run(reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE)).await;
            depot.fails(call, kind);
            write(&hub, &to(&["archive"])).await;
            // What is not kept for longer than retention is not collected, since its entry waits.
            sleep(if call == "keep" { 2 * RETENTION } else { 10 * MINUTE }).await;
            write(&hub, &Write { bytes: 10, ..to(&["archive"]) }).await;
            sleep(MINUTE).await;
            if call == "get" || call == "release" {
                assert!(read(&store, "archive", "shelf").contains(&10), "{call}: others are not held up");
            }
            depot.mend();
            sleep(5 * MINUTE).await;
            let mut read = read(&store, "archive", "shelf");
            read.sort_unstable();
            assert_eq!(read, [10, 5000], "{call} {kind:?}");
            for endpoint in ["front", "archive"] {
                assert_eq!(letters(&store, endpoint).await, [], "{call} {kind:?}");
            }
            sleep(2 * RETENTION).await;
            assert_eq!(depot.size(), (0, 0), "{call} {kind:?}");
        }
    }
}

/// Goal: whoever dies at whatever call of the store of bodies, no body is lost and none is left. Method: all of both endpoints dies, before
/// and after each call that a message with two readers makes, and is started anew; one of the readers sets it aside first. The order of calls
/// is not always the same, so each of the messages' own is died of by its name, too.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_call_loses_no_body_and_leaves_none() {
    for number in 0.. {
        let (before, after) = (dies_of(Fuse::Before(number)).await, dies_of(Fuse::After(number)).await);
        if before.is_none() && after.is_none() {
            break;
        }
    }
    for call in ["put", "keep", "get", "release"] {
        assert_eq!(dies_of(Fuse::AfterCall(call)).await, Some(call));
    }
}

/// At which call somebody has died.
async fn dies_of(fuse: Fuse) -> Option<&'static str> {
    let (hub, store, depot, mood) = (InProcess::new("crash"), Memory::new(), Depot::default(), Mood::default());
    mood.refuses("index", 1);
    let archive = || {
        let archive = reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE);
        archive.saga::<Index>(|index| index.starts::<Text>())
    };
    write(&hub, &to(&["archive"])).await;
    depot.light(fuse);
    let endpoints = (run(writer(&store, hub.clone(), &depot)).await, run(archive()).await);
    let died_of = depot.died().await;
    drop(endpoints);
    let _endpoints = (run(writer(&store, hub.clone(), &depot)).await, run(archive()).await);
    sleep(5 * MINUTE).await;
    let office = archive().start().await.unwrap().dead_letter_office("alice");
    assert_eq!(office.retry_all(&Filter::default()).await.unwrap().done, 1, "{fuse:?}");
    sleep(MINUTE).await;
    for saga in ["shelf", "index"] {
        assert_eq!(read(&store, "archive", saga), [5000], "{fuse:?}, {saga}: {:?}", depot.seen());
    }
    assert_eq!(letters(&store, "archive").await, [], "{fuse:?}");
    sleep(2 * RETENTION).await;
    assert_eq!(depot.size(), (0, 0), "{fuse:?}: {:?}", depot.seen());
    died_of
}

/// Goal: what a lost attempt has put goes, and not before any save of it could still land. Method: the sender dies after each of some puts.
#[tokio::test(start_paused = true)]
async fn what_lost_attempts_have_put_goes_after_retention_and_not_before() {
    const LOST: usize = 3;
    let (hub, store, depot, mood) = (InProcess::new("lost"), Memory::new(), Depot::default(), Mood::default());
    write(&hub, &to(&["archive"])).await;
    for _ in 0..LOST {
        depot.light(Fuse::AfterCall("put"));
        let front = run(writer(&store, hub.clone(), &depot)).await;
        assert_eq!(depot.died().await, Some("put"));
        drop(front);
    }
    let lost = depot.size().0;
    assert_eq!(lost, LOST);
    let _front = run(writer(&store, hub.clone(), &depot)).await;
    let _archive = run(reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE)).await;
    sleep(RETENTION - 10 * MINUTE).await;
    assert_eq!(read(&store, "archive", "shelf"), [5000]);
    assert_eq!(depot.size().0, lost + 1, "a save of theirs could still land, for all anybody knows");
    sleep(2 * RETENTION).await;
    assert_eq!(depot.size(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_reader_without_a_store_of_bodies_says_what_to_add() {
    let (hub, store, depot, mood) = (InProcess::new("without"), Memory::new(), Depot::default(), Mood::default());
    let _front = run(writer(&store, hub.clone(), &depot)).await;
    let without = run(reader("archive", &store, &hub, &mood)).await;
    write(&hub, &to(&["archive"])).await;
    sleep(HOUR).await;
    let said = letters(&store, "archive").await;
    assert!(said.len() == 1 && said[0].reason.contains("endpoint archive has none; add .bodies(..)"), "{said:?}");
    drop(without);
    let archive = || reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE);
    let _archive = run(archive()).await;
    let office = archive().start().await.unwrap().dead_letter_office("alice");
    assert_eq!(office.retry_all(&Filter::default()).await.unwrap().done, 1);
    sleep(MINUTE).await;
    assert_eq!(read(&store, "archive", "shelf"), [5000]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_fetched_and_may_kill_the_process_stops_nothing_else() {
    let (hub, store, depot, mood) = (InProcess::new("suspect"), Memory::new(), Depot::default(), Mood::default());
    let _front = run(writer(&store, hub.clone(), &depot)).await;
    // The last delivery is one of a suspect.
    let recoverability = Recoverability { attempts_max: 5, poison_above: 5, ..Recoverability::default() };
    let settings = Settings { recoverability, ..settings() };
    let _without = run(reader("archive", &store, &hub, &mood).settings(settings)).await;
    write(&hub, &to(&["archive"])).await;
    sleep(HOUR).await;
    let said = letters(&store, "archive").await;
    assert!(said.len() == 1 && said[0].attempts == 5 && said[0].reason.contains("add .bodies(..)"), "{said:?}");
    write(&hub, &Write { bytes: 900, ..to(&["archive"]) }).await;
    sleep(MINUTE).await;
    assert_eq!(read(&store, "archive", "shelf"), [900]);
}

#[tokio::test(start_paused = true)]
async fn how_large_a_claim_says_that_its_body_is_moves_no_bound() {
    let (hub, store, depot, mood) = (InProcess::new("huge"), Memory::new(), Depot::default(), Mood::default());
    let cut = Cut::new(&hub);
    let _front = run(writer(&store, WayOut(hub.clone(), cut.clone()), &depot)).await;
    write(&hub, &to(&["archive"])).await;
    sleep(MINUTE).await;
    let mut forged = outgoing(&store).remove(0);
    let mut claim: serde_json::Value = serde_json::from_slice(&forged.body).unwrap();
    claim["bytes"] = u64::MAX.into();
    forged.body = claim.to_string().into();
    drop(run(reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE)).await); // Its queue is there.
    let to_archive = Destination::parse("endpoint:archive").unwrap();
    for id in ["one", "two"] {
        let forged = Envelope { message_id: id.parse().unwrap(), ..forged.clone() };
        hub.sender().send_envelope(to_archive.clone(), forged).await.unwrap();
    }
    for key in 0..3 {
        let text = Text { key: format!("{key}"), text: "small".into() };
        hub.sender().send("archive", &text).await.unwrap();
    }
    // All of them come at once.
    let _archive = run(reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE)).await;
    sleep(MINUTE).await;
    assert_eq!((read(&store, "archive", "shelf"), letters(&store, "archive").await.len()), (vec![5; 3], 2));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_what_was_put_is_set_aside() {
    let (hub, store, depot, mood) = (InProcess::new("other"), Memory::new(), Depot::default(), Mood::default());
    let cut = Cut::new(&hub);
    let _front = run(writer(&store, WayOut(hub.clone(), cut.clone()), &depot)).await;
    let _archive = run(reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE)).await;
    write(&hub, &to(&["archive"])).await;
    sleep(MINUTE).await;
    let mut forged = outgoing(&store).remove(0);
    let claim = String::from_utf8(forged.body.to_vec()).unwrap();
    let at = claim.find("sha256").unwrap() + 12;
    let digit = if &claim[at..=at] == "0" { "1" } else { "0" };
    forged.body = format!("{}{digit}{}", &claim[..at], &claim[at + 1..]).into();
    let to_archive = Destination::parse("endpoint:archive").unwrap();
    hub.sender().send_envelope(to_archive, forged).await.unwrap();
    sleep(MINUTE).await;
    let letters = letters(&store, "archive").await;
    assert!(letters.len() == 1 && letters[0].reason.contains("is not what was put"), "{letters:?}");
    cut.mend();
    sleep(MINUTE).await;
    assert_eq!(read(&store, "archive", "shelf"), [5000], "the true one is handled all the same");
}

#[tokio::test(start_paused = true)]
async fn published_bodies_that_would_go_before_their_copies_are_refused_at_the_start() {
    let (hub, store, depot) = (InProcess::new("start"), Memory::new(), Depot::default());
    let settings = Settings { published_retention: RETENTION, ..settings() };
    let error = writer(&store, hub, &depot).settings(settings).start().await.unwrap_err();
    assert!(error.to_string().contains("raise published_retention"), "{error}");
}
