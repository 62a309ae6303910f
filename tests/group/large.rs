//! Groups that MariaDB is given as if everybody won.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use hapax::{
    entity::{Entity, Expected, Version},
    ports::{EntityStore, Finished, Saved},
};

use super::{Place, Samples, counted, save, version};

/// Prepared for sixteen and for eight of them; the rest is a text.
const MEMBERS: u32 = 27;

const LATE: u32 = 3;
const LATE_CLEAN_UP: u32 = 20;
const MISSING: u32 = 1000;

async fn begun(place: &Place, samples: &Samples) -> Vec<Version> {
    let entity = |number: u32| samples.entity_with(number, samples.entry(number));
    join_all((0..MEMBERS).map(async |number| {
        let saved = place.store.save(&samples.key(number), &Expected::Absent, &entity(number), &[]).await.unwrap();
        version(saved)
    }))
    .await
}

#[tokio::test]
async fn a_large_mysql_group_that_everybody_wins_in_is_written_without_a_look() {
    let mut place = Place::private(1).await;
    let samples = Samples::new("large");
    let versions = begun(&place, &samples).await;
    let Place { store, watch, .. } = &mut place;
    // Every third is a clean-up with a dedup entry, the others are saves with two.
    let write = async |number: u32| -> Version {
        let (at, key) = (&versions[number as usize], samples.key(number));
        let done = [samples.done(number), samples.done(100 + number)];
        if number.is_multiple_of(3) {
            match store.finish(&key, &done[..1], Some((at, &samples.entity(number)))).await.unwrap() {
                Some(Finished::Cleaned(Some(version))) => version,
                other => panic!("{number}: {other:?}"),
            }
        } else {
            version(
                store.save(&key, &Expected::Version(at.clone()), &samples.entity(50 + number), &done).await.unwrap(),
            )
        }
    };
    let mut written = Vec::new();
    let counts = counted(watch, async { written = join_all((0..MEMBERS).map(write)).await }).await;
    // The newest generation and the time are looked at. Of 27 entities, 16 and 8 are prepared, and 3 a text; of 45 dedup
    // entries, 32 and 8, and 5.
    let expected = [("begin", 1), ("commit", 1), ("select", 2), ("insert", 6), ("stmt_execute", 4)];
    let expected: BTreeMap<String, i64> = expected.map(|(kind, n)| (kind.to_owned(), n)).into();
    assert_eq!(counts, expected);
    for (number, written) in (0..MEMBERS).zip(written) {
        let loaded = store.load(&samples.key(number), &[samples.done(number).key]).await.unwrap();
        let stored = loaded.stored.unwrap();
        let entity = if number.is_multiple_of(3) { samples.entity(number) } else { samples.entity(50 + number) };
        assert_eq!((stored.version, stored.entity), (written, entity));
        assert!(loaded.known.unwrap().entry(&samples.done(number).key).is_some(), "{number}");
    }
}

#[tokio::test]
async fn whoever_loses_in_a_large_mysql_group_is_told_alone_and_nothing_of_it_is_written() {
    for losers in [&[LATE][..], &[LATE_CLEAN_UP], &[MISSING], &[LATE, LATE_CLEAN_UP, MISSING]] {
        lose(losers).await; // Each by itself, since one is enough for all to be looked at.
    }
}

async fn lose(losers: &[u32]) {
    let place = Place::new().await;
    let samples = Samples::new("large-late");
    let versions = begun(&place, &samples).await;
    let store = &place.store;
    let mut won = BTreeMap::new();
    for late in losers.iter().copied().filter(|late| *late != MISSING) {
        let expected = Expected::Version(versions[late as usize].clone());
        won.insert(late, version(save(store, &samples, late, &expected).await.unwrap()));
    }
    let commits = store.commits();
    let clean_up = async {
        let (at, emptied) = (&versions[LATE_CLEAN_UP as usize], samples.entity(90));
        let done = [samples.done(LATE_CLEAN_UP)];
        store.finish(&samples.key(LATE_CLEAN_UP), &done, Some((at, &emptied))).await.unwrap().unwrap()
    };
    let update = async |number: u32| {
        let expected = Expected::Version(versions.get(number as usize).unwrap_or(&versions[0]).clone());
        let done = [samples.done(number)];
        store.save(&samples.key(number), &expected, &samples.entity(50 + number), &done).await.unwrap()
    };
    let numbers: Vec<u32> = (0..MEMBERS)
        .filter(|number| *number != LATE_CLEAN_UP)
        .chain(losers.contains(&MISSING).then_some(MISSING))
        .collect();
    let (saved, cleaned) = futures_util::join!(join_all(numbers.iter().map(|number| update(*number))), clean_up);
    assert_eq!(store.commits() - commits, 1);
    let cleans = !losers.contains(&LATE_CLEAN_UP);
    assert_eq!(matches!(cleaned, Finished::Cleaned(Some(_))), cleans, "{cleaned:?}");
    for (number, saved) in numbers.into_iter().zip(saved) {
        let loses = losers.contains(&number);
        let loaded = store.load(&samples.key(number), &[samples.done(number).key]).await.unwrap();
        assert_eq!(loaded.known.unwrap().entry(&samples.done(number).key).is_none(), loses, "{number}");
        match (saved, loaded.stored) {
            (Saved::Conflict, None) => assert_eq!(number, MISSING),
            (Saved::Conflict, Some(stored)) => {
                assert_eq!((number, &stored.version, stored.entity), (LATE, &won[&LATE], samples.entity(LATE)));
            }
            (Saved::At(at), stored) => assert_eq!(stored.map(|stored| (stored.version, loses)), Some((at, false))),
        }
    }
    let late = store.load(&samples.key(LATE_CLEAN_UP), &[samples.done(LATE_CLEAN_UP).key]).await.unwrap();
    assert!(late.known.unwrap().entry(&samples.done(LATE_CLEAN_UP).key).is_some(), "its dedup entry goes in");
    let entity = late.stored.unwrap().entity;
    assert_eq!(entity, samples.entity(LATE_CLEAN_UP), "a clean-up has changed the state, or has not been made");
}

/// The times since when an entry waits and an entity is complete, and whether the sweeper looks at it.
#[tokio::test]
async fn a_large_mysql_group_keeps_the_times_of_what_waits_and_what_is_complete() {
    let mut place = Place::new().await;
    let samples = Samples::new("large-times");
    let complete = |number: u32, entity: Entity| Entity { completed: number.is_multiple_of(2), ..entity };
    let versions = join_all((0..MEMBERS).map(async |number| {
        let entity = complete(number, samples.entity_with(number, samples.entry(number)));
        version(place.store.save(&samples.key(number), &Expected::Absent, &entity, &[]).await.unwrap())
    }))
    .await;
    let endpoint = samples.key(0).scope().endpoint.to_string();
    let times = format!(
        "SELECT GROUP_CONCAT(CONCAT_WS(' ', `key`, completed_at, pending_since, watched, HEX(pending)) ORDER BY `key`), \
           MAX(changed_at) FROM hapax.entity WHERE scope = (SELECT id FROM hapax.scope WHERE endpoint = '{endpoint}')"
    );
    let before = place.watch.row(&times).await;
    while place.watch.row("SELECT x'', CAST(FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000) AS SIGNED)").await.1 <= before.1 {
        tokio::task::yield_now().await; // Until it is later.
    }
    // The same wait; the others wait for a new one from now on.
    let store = &place.store;
    let saved = join_all((0..MEMBERS).map(async |number| {
        let entity = complete(number, samples.entity_with(50 + number, samples.entry(number)));
        let expected = Expected::Version(versions[number as usize].clone());
        version(store.save(&samples.key(number), &expected, &entity, &[]).await.unwrap())
    }))
    .await;
    let after = place.watch.row(&times).await;
    assert_eq!(after.0, before.0);
    assert!(after.1 > before.1);
    let saved = join_all((0..MEMBERS).map(async |number| {
        let entity = samples.entity_with(number, samples.entry(200 + number));
        let expected = Expected::Version(saved[number as usize].clone());
        version(store.save(&samples.key(number), &expected, &entity, &[]).await.unwrap())
    }))
    .await;
    for (number, version) in (0..MEMBERS).zip(saved) {
        let stored = store.load(&samples.key(number), &[]).await.unwrap().stored.unwrap();
        assert_eq!(stored.version, version);
    }
    let last = place.watch.row(&times).await;
    // Nothing is complete any more, the outbox was never empty, and each list holds its new entry, with a time of its own.
    let (now, pending): (Vec<&str>, Vec<&str>) = {
        let words = last.0.split(',').map(|row| row.split(' ').collect::<Vec<_>>());
        words.map(|words| (words[words.len() - 3], words[words.len() - 1])).unzip()
    };
    let since: Vec<&str> = before.0.split(',').map(|row| row.split(' ').rev().nth(2).unwrap()).collect();
    assert_eq!(now, since);
    for list in pending {
        let time = i64::from_str_radix(&list[80..], 16).unwrap();
        assert!(list.len() == 96 && time > before.1, "{list}");
    }
}
