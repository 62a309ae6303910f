//! What group commit promises, clause by clause, on any server. Somebody else's session holds a row until everybody waits for
//! it, so that each body meets the one moment that it is about.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hapax::{
    entity::{Expected, Version},
    ports::{DedupStore, EntityStore, Finished, Saved, StoreError},
};
use hapax_tests::{Backend, Samples};

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Updates,
    Creates,
    DedupEntries,
}

/// A server with a store on it, and sessions of somebody else.
pub(crate) trait Place {
    type Store: Backend;

    fn store(&self) -> &Self::Store;
    /// On the same tables, with one writer, as another process would have it.
    async fn another(&self) -> Self::Store;
    fn commits(store: &Self::Store) -> u64;
    /// Keeps a row of `samples` from the store until it is [released](Self::release).
    async fn hold(&mut self, rows: Rows, samples: &Samples, number: u32);
    async fn release(&mut self);
    /// Until `count` sessions of stores wait for a row.
    async fn until_waiting(&mut self, count: usize);
}

pub(crate) async fn save<S: EntityStore>(
    store: &S,
    samples: &Samples,
    number: u32,
    expected: &Expected,
) -> Result<Saved, StoreError> {
    store.save(&samples.key(number), expected, &samples.entity(number), &[]).await
}

pub(crate) fn version(saved: Saved) -> Version {
    match saved {
        Saved::At(version) => version,
        Saved::Conflict => panic!("somebody else has written it"),
    }
}

/// As [`save`], of what is not there.
pub(crate) async fn begin<S: EntityStore>(store: &S, samples: &Samples, number: u32) -> Version {
    version(save(store, samples, number, &Expected::Absent).await.unwrap())
}

/// Two stores, as two processes would have them. Each is asked for the same three rows in one group, the one from the first
/// to the last and the other from the last to the first, and somebody holds the second. Who goes by what it was asked has
/// its first row by now, which is the other's last: when the second comes free, each waits for the other for ever.
///
/// How many deadlocks the server had to end is for the caller to ask. `sagas`: over how many the rows are spread.
pub(crate) async fn contend<P: Place>(place: &mut P, rows: Rows, sagas: usize) {
    const NUMBERS: [u32; 3] = [10, 20, 30];
    let all: Vec<Samples> = (0..sagas).map(|saga| Samples::new(&format!("order-{saga}"))).collect();
    let samples = |number: u32| &all[(number / 10 - 1) as usize % sagas];
    let stores = [place.another().await, place.another().await];
    let mut versions = Vec::new();
    for number in NUMBERS {
        // Beside those that are to begin: what is held between these two is the second alone.
        let there = if rows == Rows::Updates { number } else { number + 5 };
        versions.push(begin(&stores[0], samples(number), there).await);
    }
    for store in &stores {
        for number in NUMBERS {
            store.load(&samples(number).key(0), &[]).await.unwrap(); // It knows the names.
        }
    }
    place.hold(rows, samples(NUMBERS[1]), NUMBERS[1]).await;

    let versions = &versions;
    let ask = |store: P::Store, numbers: [u32; 3]| async move {
        let commits = P::commits(&store);
        let write = async |number: u32| match rows {
            Rows::Updates => {
                let expected = Expected::Version(versions[(number / 10 - 1) as usize].clone());
                save(&store, samples(number), number, &expected).await.unwrap() != Saved::Conflict
            }
            Rows::Creates => save(&store, samples(number), number, &Expected::Absent).await.unwrap() != Saved::Conflict,
            Rows::DedupEntries => store.insert(&[samples(number).done(number)]).await.is_ok(),
        };
        let won = join_all(numbers.iter().map(|&number| write(number))).await;
        // What was there already may be on no disk yet: on MariaDB a commit of the store's own comes after it.
        let own = u64::from(rows == Rows::DedupEntries);
        assert!(P::commits(&store) - commits <= 1 + own, "{rows:?}: it was no group");
        won.into_iter().filter(|won| *won).count()
    };
    let [first, second] = stores;
    let backwards = NUMBERS.map(|number| 40 - number);
    let (forwards, backwards, ()) = futures_util::join!(ask(first, NUMBERS), ask(second, backwards), async {
        place.until_waiting(2).await;
        place.release().await;
    });
    match rows {
        Rows::Updates | Rows::Creates => assert_eq!(forwards + backwards, 3, "{rows:?}: of two saves one wins"),
        Rows::DedupEntries => assert_eq!((forwards, backwards), (3, 3)),
    }
}

/// Two writers with the same entity would meet in the database, each with a group behind it. `place`: its store has four
/// writers; `waits`: how long it waits for a row that is held, at least.
pub(crate) async fn one_writer_an_entity<P: Place>(mut place: P, waits: Duration) {
    const WRITES: usize = 4;
    const OTHERS: u32 = 32;
    let samples = Samples::new("writers");
    let first = begin(place.store(), &samples, 0).await;
    place.hold(Rows::Updates, &samples, 0).await;
    let write = |number: u32, expected: Expected, ended: &Arc<AtomicUsize>| {
        let (store, samples, ended) = (place.store().clone(), samples.clone(), ended.clone());
        tokio::spawn(async move {
            let saved = save(&store, &samples, number, &expected).await.unwrap();
            ended.fetch_add(1, Ordering::Relaxed);
            saved
        })
    };
    let [hot, free] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let mut writes = Vec::new();
    for _ in 0..WRITES {
        // One after the other, so that no group has room for two.
        writes.push(write(0, Expected::Version(first.clone()), &hot));
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (1..=OTHERS).map(|number| write(number, Expected::Absent, &free)).collect();
    // Of four writers, three have about three quarters of them. Would one of these wait, all behind it would, until the
    // server ends what waits.
    let began = Instant::now();
    while free.load(Ordering::Relaxed) < OTHERS as usize / 2 {
        assert!(began.elapsed() < waits / 2, "{free:?} of {OTHERS} were written beside an entity that is held");
        tokio::task::yield_now().await;
    }
    place.until_waiting(1).await;
    assert_eq!(hot.load(Ordering::Relaxed), 0);
    place.release().await;
    let mut won = 0;
    for write in writes {
        won += usize::from(write.await.unwrap() != Saved::Conflict);
    }
    assert_eq!(won, 1);
    for other in others {
        version(other.await.unwrap());
    }
}

/// Whatever is asked for together is one commit; a clean-up beside a save of its entity leaves it to the save, and its dedup
/// entry goes in all the same.
pub(crate) async fn a_finish_shares_and_gives_way<P: Place>(place: P) {
    let (store, samples) = (place.store(), Samples::new("finish"));
    let waiting = async |number: u32| {
        let entity = samples.entity_with(number, samples.entry(number));
        version(store.save(&samples.key(number), &Expected::Absent, &entity, &[]).await.unwrap())
    };
    let [both, quiet] = [waiting(0).await, waiting(1).await];
    let commits = P::commits(store);
    let finish = async |number: u32, at: &Version| {
        let (done, emptied) = ([samples.done(number)], samples.entity(number));
        store.finish(&samples.key(number), &done, Some((at, &emptied))).await.unwrap().unwrap()
    };
    let done = [samples.done(2)];
    let (next, kept) = (samples.entity_with(7, samples.entry(0)), Expected::Version(both.clone()));
    let (key, new) = (samples.key(0), samples.key(2));
    let entity = samples.entity(2);
    let inserted = [samples.done(3)];
    let (given_way, saved, cleaned, begun, marked) = futures_util::join!(
        finish(0, &both),
        store.save(&key, &kept, &next, &[]),
        finish(1, &quiet),
        store.save(&new, &Expected::Absent, &entity, &done),
        store.insert(&inserted),
    );
    assert_eq!(P::commits(store) - commits, 1);
    assert_eq!(given_way, Finished::Left);
    version(saved.unwrap());
    version(begun.unwrap());
    assert!(matches!(cleaned, Finished::Cleaned(Some(_))), "{cleaned:?}");
    marked.unwrap();
    assert_eq!(store.load(&key, &[]).await.unwrap().stored.unwrap().entity, next);
    for number in 0..4 {
        assert!(is_marked(store, &samples, number).await, "{number}");
    }
}

/// A clean-up beside two saves of its entity, of which the second waits for the next group: it goes in with the first, and is
/// answered while somebody keeps the next group from its end.
pub(crate) async fn a_finish_never_waits_for_the_next_group<P: Place>(mut place: P) {
    let (store, samples) = (place.store().clone(), Samples::new("never"));
    let entity = samples.entity_with(0, samples.entry(0));
    let key = samples.key(0);
    let first = version(store.save(&key, &Expected::Absent, &entity, &[]).await.unwrap());
    let second = Version::number(first.as_number().unwrap() + 1);
    place.hold(Rows::DedupEntries, &samples, 20).await;
    let commits = P::commits(&store);
    let (finished, held) = (Cell::new(false), [samples.done(20)]);
    let at = |version: &Version| Expected::Version(version.clone());
    let (begun, next) = (at(&first), at(&second));
    let (before, behind, finish, ()) = futures_util::join!(
        store.save(&key, &begun, &entity, &[]),
        store.save(&key, &next, &entity, &held),
        async {
            let emptied = samples.entity(0);
            let finish = store.finish(&key, &[samples.done(0)], Some((&first, &emptied))).await;
            finished.set(true);
            finish
        },
        async {
            place.until_waiting(1).await;
            assert!(finished.get(), "it waits with the save that is not in its group");
            assert_eq!(P::commits(&store) - commits, 1);
            place.release().await;
        },
    );
    version(before.unwrap());
    version(behind.unwrap());
    assert_eq!(finish.unwrap(), Some(Finished::Left));
    assert!(is_marked(&store, &samples, 0).await);
}

/// One member that comes too late among others: it is told, nothing of it is written, and nobody else hears of it.
pub(crate) async fn a_conflict_is_of_its_member_alone<P: Place>(place: P) {
    const MEMBERS: u32 = 6;
    const LATE: u32 = 2;
    let (store, samples) = (place.store(), Samples::new("late"));
    let mut versions = Vec::new();
    for number in 0..MEMBERS {
        versions.push(begin(store, &samples, number).await);
    }
    let won = version(save(store, &samples, LATE, &Expected::Version(versions[LATE as usize].clone())).await.unwrap());
    let commits = P::commits(store);
    let saved = join_all((0..MEMBERS).map(async |number| {
        // Half of them begin a new one, and the last one finds that another has.
        let expected = match number % 2 {
            0 => Expected::Version(versions[number as usize].clone()),
            _ => Expected::Absent,
        };
        let new = if number == MEMBERS - 1 { number } else { number + number % 2 * MEMBERS };
        let done = [samples.done(number), samples.done(100 + number)];
        store.save(&samples.key(new), &expected, &samples.entity(50 + number), &done).await.unwrap()
    }));
    let saved = saved.await;
    assert_eq!(P::commits(store) - commits, 1);
    for (number, saved) in (0..MEMBERS).zip(saved) {
        let late = number == LATE || number == MEMBERS - 1;
        assert_eq!(saved == Saved::Conflict, late, "{number}: {saved:?}");
        for done in [number, 100 + number] {
            assert_eq!(is_marked(store, &samples, done).await, !late, "{number}, {done}");
        }
    }
    for (number, expected) in [(LATE, &won), (MEMBERS - 1, &versions[MEMBERS as usize - 1])] {
        let stored = store.load(&samples.key(number), &[]).await.unwrap().stored.unwrap();
        assert_eq!((&stored.version, stored.entity), (expected, samples.entity(number)));
    }
}

/// Three saves of an entity, each on top of the one before, are three groups, although they are asked for at once; what is
/// beside them goes with the first.
pub(crate) async fn one_write_an_entity_in_a_group<P: Place>(place: P) {
    let (store, samples) = (place.store(), Samples::new("thrice"));
    let first = begin(store, &samples, 0).await;
    let commits = P::commits(store);
    let on_top = |above: i64| Expected::Version(Version::number(first.as_number().unwrap() + above));
    let save_at = async |above: i64| save(store, &samples, 0, &on_top(above)).await.unwrap();
    let (one, two, beside, three) = futures_util::join!(save_at(0), save_at(1), begin(store, &samples, 1), save_at(2));
    assert_eq!(P::commits(store) - commits, 3);
    for (above, saved) in (1..).zip([one, two, three]) {
        assert_eq!(Expected::Version(version(saved)), on_top(above));
    }
    drop(beside);
}

pub(crate) async fn is_marked<S: DedupStore>(store: &S, samples: &Samples, number: u32) -> bool {
    let done = samples.done(number);
    store.contains(&[done.key]).await.unwrap().entry(&done.key).is_some()
}
