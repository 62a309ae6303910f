//! Group commit on PostgreSQL, clause by clause: in which order a group takes its rows, what its members are told, which
//! writer an entity has, and what a lone write costs.
//!
//! A third session holds a row until everybody waits for it, so that each test meets the one moment that it is about.
#![allow(clippy::unwrap_used)]

#[path = "postgres/samples.rs"]
mod samples;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hapax::{
    Postgres,
    entity::{Expected, Version},
    ports::{DedupStore, EntityStore, ErrorKind, Finished, Saved, StoreError},
};
use hapax_tests::{PostgresDatabase, PostgresSchema};
use samples::Samples;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session of somebody else, in the database of a test. `s.` in a text stands for the schema.
struct Session {
    connection: PgConnection,
    schema: String,
}

impl Session {
    async fn new(schema: &PostgresSchema) -> Self {
        Self { connection: PgConnection::connect(schema.url()).await.unwrap(), schema: schema.name().to_owned() }
    }

    async fn run(&mut self, sql: &str) {
        let text = sql.replace("s.", &format!("{}.", self.schema));
        self.connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    }

    async fn number(&mut self, sql: &str) -> i64 {
        let text = sql.replace("s.", &format!("{}.", self.schema));
        sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut self.connection).await.unwrap()
    }

    /// What each session that waits for a lock in this database runs.
    async fn who_waits(&mut self) -> Vec<String> {
        let sql = "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        sqlx::query_scalar(sql).fetch_all(&mut self.connection).await.unwrap()
    }

    /// Until `count` sessions wait for a lock in this database; what they run.
    async fn until_waiting(&mut self, count: usize) -> Vec<String> {
        let began = Instant::now();
        loop {
            let waiting = self.who_waits().await;
            if waiting.len() == count {
                return waiting;
            }
            assert!(began.elapsed() < PATIENCE, "{} sessions wait, not {count}", waiting.len());
            tokio::task::yield_now().await;
        }
    }
}

/// What both stores write at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    Updates,
    Creates,
    DedupEntries,
}

/// Two stores, as two processes would have them. Each is asked for the same three rows in one group, the one from the first
/// to the last and the other from the last to the first, and somebody holds the second. Who goes by what it was asked has
/// its first row by now, which is the other's last: when the second comes free, each waits for the other for ever.
///
/// How many deadlocks the server had to end.
async fn deadlocks(rows: Rows) -> i64 {
    const KEYS: u32 = 3;
    const MIDDLE: u32 = 1;
    let database = PostgresDatabase::new(&[]).await;
    let schema = database.schema();
    let samples = Samples::new("order");
    let stores = [schema.open().await, schema.open().await];
    let mut versions = Vec::new();
    for number in 0..KEYS {
        let saved = match rows {
            Rows::Updates => save(&stores[0], &samples, number, &Expected::Absent).await.unwrap(),
            // Another one, so that the saga has its name.
            _ => save(&stores[0], &samples, 100 + number, &Expected::Absent).await.unwrap(),
        };
        versions.push(version(saved));
    }
    for store in &stores {
        store.load(&samples.key(0), &[]).await.unwrap(); // It knows the name.
    }
    let [mut holder, mut watch] = [Session::new(&schema).await, Session::new(&schema).await];
    holder.run("BEGIN").await;
    holder.run(&held(rows, &samples, MIDDLE)).await;

    let (samples, versions) = (&samples, &versions);
    let ask = |store: Postgres, numbers: [u32; KEYS as usize]| async move {
        let commits = store.commits();
        let write = async |number: u32| match rows {
            Rows::Updates => {
                let expected = Expected::Version(versions[number as usize].clone());
                save(&store, samples, number, &expected).await.unwrap() != Saved::Conflict
            }
            Rows::Creates => save(&store, samples, number, &Expected::Absent).await.unwrap() != Saved::Conflict,
            Rows::DedupEntries => store.insert(&[samples.done(number)]).await.is_ok(),
        };
        let won = join_all(numbers.iter().map(|&number| write(number))).await;
        assert_eq!(store.commits() - commits, 1, "{rows:?}: it was no group");
        won.into_iter().filter(|won| *won).count() as u32
    };
    let [first, second] = stores.each_ref().map(Postgres::clone);
    let (forwards, backwards, ()) = futures_util::join!(ask(first, [0, 1, 2]), ask(second, [2, 1, 0]), async {
        watch.until_waiting(2).await;
        holder.run("ROLLBACK").await;
    });
    match rows {
        Rows::Updates | Rows::Creates => assert_eq!(forwards + backwards, KEYS, "{rows:?}: of two saves one wins"),
        Rows::DedupEntries => assert_eq!((forwards, backwards), (KEYS, KEYS)),
    }
    for store in stores {
        store.close().await;
    }
    drop((holder, watch, schema));
    database.deadlocks().await
}

/// What keeps a row of `samples` from others until it is rolled back.
fn held(rows: Rows, samples: &Samples, number: u32) -> String {
    let key = samples.key(number);
    let key = key.key();
    let bytes = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let done = samples.done(number);
    match rows {
        Rows::Updates => format!("SELECT FROM s.entity WHERE key = '{key}' FOR UPDATE"),
        Rows::Creates => format!(
            "INSERT INTO s.entity (scope, key, version, token, changed_at, watched, outbox, state) \
             SELECT max(id), '{key}', 1, 0, 0, false, '', '' FROM s.scope"
        ),
        Rows::DedupEntries => format!(
            "INSERT INTO s.dedup_0 VALUES ('\\x{}', '\\x{}', '\\x{}', 0)",
            bytes(done.key.as_bytes()),
            bytes(done.attempt.as_bytes()),
            bytes(done.fingerprint.as_bytes())
        ),
    }
}

async fn save(store: &Postgres, samples: &Samples, number: u32, expected: &Expected) -> Result<Saved, StoreError> {
    store.save(&samples.key(number), expected, &samples.entity(number), &[]).await
}

fn version(saved: Saved) -> Version {
    match saved {
        Saved::At(version) => version,
        Saved::Conflict => panic!("somebody else has written it"),
    }
}

#[tokio::test]
async fn groups_of_two_postgres_stores_update_the_same_entities_in_one_order_whatever_order_they_were_asked_in() {
    assert_eq!(deadlocks(Rows::Updates).await, 0);
}

#[tokio::test]
async fn groups_of_two_postgres_stores_create_the_same_entities_in_one_order_whatever_order_they_were_asked_in() {
    assert_eq!(deadlocks(Rows::Creates).await, 0);
}

#[tokio::test]
async fn groups_of_two_postgres_stores_insert_the_same_marks_in_one_order_whatever_order_they_were_asked_in() {
    assert_eq!(deadlocks(Rows::DedupEntries).await, 0);
}

/// A schema in a database of its own, a store in it that knows the names, and somebody else's sessions.
struct Place {
    // Before the database.
    holder: Session,
    watch: Session,
    store: Postgres,
    _schema: PostgresSchema,
    _database: PostgresDatabase,
    samples: Samples,
}

impl Place {
    /// With `writers`, and the first `entities` of the samples at their first versions.
    async fn new(writers: usize, entities: u32) -> (Self, Vec<Version>) {
        let _database = PostgresDatabase::new(&[]).await;
        let _schema = _database.schema();
        let store = _schema.options().writers(writers).open().await.unwrap();
        let samples = Samples::new("group");
        version(save(&store, &samples, 1000, &Expected::Absent).await.unwrap());
        let mut versions = Vec::new();
        for number in 0..entities {
            versions.push(version(save(&store, &samples, number, &Expected::Absent).await.unwrap()));
        }
        let [holder, watch] = [Session::new(&_schema).await, Session::new(&_schema).await];
        (Self { holder, watch, store, _schema, _database, samples }, versions)
    }

    /// Keeps `number` of `rows` from the store until the holder's transaction ends.
    async fn hold(&mut self, rows: Rows, number: u32) {
        self.holder.run(&format!("BEGIN; {}", held(rows, &self.samples, number))).await;
    }
}

/// The commit may have been made, and what is written again could meet what was written before.
#[tokio::test]
async fn a_postgres_commit_of_unknown_outcome_is_unknown_to_every_member_of_its_group() {
    const MEMBERS: u32 = 5;
    let (mut place, _) = Place::new(1, 0).await;
    place.hold(Rows::Creates, 1).await;
    let Place { store, samples, watch, .. } = &mut place;
    let commits = store.commits();
    let saves = join_all((0..MEMBERS).map(async |number| save(store, samples, number, &Expected::Absent).await));
    let (answers, ()) = futures_util::join!(saves, async {
        watch.until_waiting(1).await;
        watch
            .run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .await;
    });
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::UnknownOutcome, "{number}");
    }
    assert_eq!(store.commits(), commits, "something was written again");
    place.holder.run("ROLLBACK").await;
    assert_eq!(place.watch.number("SELECT count(*) FROM s.entity").await, 1);
    for number in 0..MEMBERS {
        version(save(&place.store, &place.samples, number, &Expected::Absent).await.unwrap());
    }
}

/// Two writers with the same entity would meet in the database, each with a group behind it.
#[tokio::test]
async fn all_writes_of_an_entity_go_through_one_postgres_writer_and_the_other_writers_do_not_wait_for_it() {
    const WRITERS: usize = 4;
    const WRITES: usize = 12;
    const OTHERS: u32 = 60;
    /// The default limit of a write.
    const WAITS: Duration = Duration::from_secs(30);
    let (mut place, versions) = Place::new(WRITERS, 1).await;
    place.hold(Rows::Updates, 0).await;
    let write = |number: u32, expected: Expected, ended: &Arc<AtomicUsize>| {
        let (store, samples, ended) = (place.store.clone(), place.samples.clone(), ended.clone());
        tokio::spawn(async move {
            let saved = save(&store, &samples, number, &expected).await.unwrap();
            ended.fetch_add(1, Ordering::Relaxed);
            saved
        })
    };
    let [hot, free] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let mut writes = Vec::new();
    for _ in 0..WRITES {
        writes.push(write(0, Expected::Version(versions[0].clone()), &hot));
        place.watch.until_waiting(1).await; // One after the other, so that no group has room for two.
    }
    let others: Vec<_> = (1..=OTHERS).map(|number| write(number, Expected::Absent, &free)).collect();
    // Of four writers, three have about three quarters of them. Would one of these wait, all behind it would, until the
    // server ends what waits.
    let began = Instant::now();
    while free.load(Ordering::Relaxed) < OTHERS as usize / 2 {
        assert!(began.elapsed() < WAITS / 2, "{free:?} of {OTHERS} were written beside an entity that is held");
        tokio::task::yield_now().await;
    }
    assert_eq!((place.watch.who_waits().await.len(), hot.load(Ordering::Relaxed)), (1, 0));
    place.holder.run("ROLLBACK").await;
    let mut won = 0;
    for write in writes {
        won += usize::from(write.await.unwrap() != Saved::Conflict);
    }
    assert_eq!(won, 1);
    for other in others {
        version(other.await.unwrap());
    }
}

/// Arrays cost a lone write a seventh more.
#[tokio::test]
async fn a_lone_postgres_write_is_a_statement_without_arrays_and_two_are_one_with() {
    let (mut place, versions) = Place::new(1, 2).await;
    for rows in [Rows::Updates, Rows::Creates, Rows::DedupEntries] {
        for members in [1, 2] {
            let first = if rows == Rows::Creates { 10 } else { 0 };
            place.hold(rows, first).await;
            let Place { store, samples, watch, holder, .. } = &mut place;
            let commits = store.commits();
            let write = async |number: u32| match rows {
                Rows::Updates => {
                    let expected = Expected::Version(versions[number as usize].clone());
                    drop(save(store, samples, number, &expected).await.unwrap());
                }
                Rows::Creates => drop(save(store, samples, number, &Expected::Absent).await.unwrap()),
                Rows::DedupEntries => store.insert(&[samples.done(number)]).await.unwrap(),
            };
            let writes = join_all((first..first + members).map(write));
            let (_, query) = futures_util::join!(writes, async {
                let query = watch.until_waiting(1).await.remove(0);
                holder.run("ROLLBACK").await;
                query
            });
            // The server shows the beginning only.
            let arrays = ["r.token", "r.scope", "r.key"].iter().any(|column| query.contains(column));
            assert_eq!(arrays, members > 1, "{rows:?}, {members}: {query}");
            assert_eq!(store.commits() - commits, 1, "{rows:?}, {members}");
            undo(&mut place, rows).await;
        }
    }
}

/// As it was before anything of `rows` was written.
async fn undo(place: &mut Place, rows: Rows) {
    let sql = match rows {
        Rows::Updates => "UPDATE s.entity SET version = 1",
        Rows::Creates => "DELETE FROM s.entity WHERE key LIKE 'key-1_'",
        Rows::DedupEntries => "TRUNCATE s.dedup_0",
    };
    place.holder.run(sql).await;
}

/// Whatever is asked for together is one commit; a clean-up beside a save of its entity leaves it to the save, and its dedup
/// entry goes in all the same.
#[tokio::test]
async fn a_postgres_finish_shares_the_commit_of_the_saves_beside_it_and_gives_way_to_one_of_its_own_entity() {
    let (place, versions) = Place::new(1, 0).await;
    assert!(versions.is_empty());
    let Place { store, samples, .. } = &place;
    let waiting = async |number: u32| {
        let entity = samples.entity_with(number, samples.entry(number));
        version(store.save(&samples.key(number), &Expected::Absent, &entity, &[]).await.unwrap())
    };
    let [both, quiet] = [waiting(0).await, waiting(1).await];
    let commits = store.commits();
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
    assert_eq!(store.commits() - commits, 1);
    assert_eq!(given_way, Finished::Left);
    version(saved.unwrap());
    version(begun.unwrap());
    assert!(matches!(cleaned, Finished::Cleaned(Some(_))), "{cleaned:?}");
    marked.unwrap();
    assert_eq!(store.load(&key, &[]).await.unwrap().stored.unwrap().entity, next);
    for number in 0..4 {
        let known = store.contains(&[samples.done(number).key]).await.unwrap();
        assert!(known.entry(&samples.done(number).key).is_some(), "{number}");
    }
}
