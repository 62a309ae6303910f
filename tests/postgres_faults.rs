//! A PostgreSQL store whose server is killed, whose connections are ended in the middle of a commit, which meets locks that
//! others hold, and other stores that write the same rows in another order: what was confirmed is there, what was refused is
//! not, and nothing needs to be opened again.
#![allow(clippy::unwrap_used)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hapax::{
    Postgres, PostgresQueue,
    entity::{DedupEntry, Expected, Version},
    ids::EntityKey,
    ports::{DedupStore, EntityStore, ErrorKind, Saved, StoreError},
};
use hapax_tests::{PostgresSchema, PostgresServer, Samples, Saves, Told};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgConnectOptions};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_postgres_server_that_is_killed_loses_nothing_that_it_has_confirmed() {
    // A kill may come between two commits, so there are more of them until one was cut.
    const KILLS: u32 = 3;
    const KILLS_MAX: u32 = 30;
    let mut server = PostgresServer::start(&[]).await;
    let store: Arc<dyn EntityStore> = Arc::new(Postgres::open(server.url()).await.unwrap());
    let saves = Saves::begin(&store, &Samples::new("killed"));
    saves.go_on(300).await;
    let mut kills = 0;
    while kills < KILLS || kills < KILLS_MAX && saves.unknown() == 0 {
        server.kill();
        server.restart().await;
        kills += 1;
        // By itself: nothing is opened again.
        saves.go_on(300).await;
    }
    let [saved, refused, unknown] = saves.end(&*store).await;
    println!("{kills} kills: {saved} saved, {refused} refused, {unknown} unknown");
    assert!(saved >= 1200 && refused > 0 && unknown > 0, "{saved} {refused} {unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_postgres_commit_whose_connection_is_ended_is_unknown_and_never_called_rolled_back() {
    const ROUNDS_MAX: u32 = 20;
    let schema = PostgresSchema::new();
    let cut: Arc<dyn EntityStore> = schema.open_and_cut(Arc::new).await;
    let saves = Saves::begin(&cut, &Samples::new("cut"));
    drop(cut);
    // A fast machine may need some more until one is cut.
    for _ in 0..ROUNDS_MAX {
        saves.go_on(500).await;
        if saves.unknown() > 0 {
            break;
        }
    }
    let [saved, refused, unknown] = saves.end(&schema.open().await).await;
    println!("cut: {saved} saved, {refused} refused, {unknown} unknown");
    assert!(unknown > 0, "no commit was cut: {saved} {refused}");
}

/// The one moment that can be held: the commit is on the disk, and the server waits for a standby before it says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_commit_that_is_made_and_not_told_is_unknown_and_found_by_loading() {
    let server = PostgresServer::start(&[]).await;
    let schema = PostgresSchema::on(&server.url());
    let store = schema.open().await;
    let samples = Samples::new("untold");
    assert!(matches!(first_save(&store, &samples, 0).await, Saved::At(_)));
    let standbys = async |names: &str| {
        schema.run(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).await.unwrap();
        schema.run("SELECT pg_reload_conf()").await.unwrap();
    };
    standbys("nobody").await;
    let mut number = 0;
    // Until the server has read its settings, commits are told.
    let error = loop {
        number += 1;
        let (key, entity, done) = (samples.key(number), samples.entity(number), [samples.done(number)]);
        let mut save = store.save(&key, &Expected::Absent, &entity, &done);
        let answer = tokio::select! {
            answer = &mut save => answer,
            () = end_whoever_waits(&server) => save.await,
        };
        if let Err(error) = answer {
            break error;
        }
    };
    standbys("").await;
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:?}");
    assert!(error.to_string().contains("load again"), "{error}");
    let stored = store.load(&samples.key(number), &[samples.done(number).key]).await.unwrap().stored.unwrap();
    assert_eq!(stored.entity, samples.entity(number));
    assert!(matches!(first_save(&store, &samples, number + 1).await, Saved::At(_)));
}

/// Ends the connection that waits for a standby, once there is one.
async fn end_whoever_waits(server: &PostgresServer) {
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let began = Instant::now();
    while sqlx::query_scalar::<_, i64>(end).fetch_one(&mut other).await.unwrap() == 0 {
        assert!(began.elapsed() < PATIENCE, "nobody waits for a standby");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_store_whose_tables_are_locked_says_so_in_time_and_goes_on_afterwards() {
    const LIMIT: Duration = Duration::from_millis(300);
    let schema = PostgresSchema::new();
    drop(schema.open().await);
    let server: PgConnectOptions = schema.url().parse().unwrap();
    let options = Postgres::with(server.application_name(schema.name())).schema(schema.name()).writers(1);
    let store = options.write_limit(LIMIT).read_limit(LIMIT).open().await.unwrap();
    let samples = Samples::new("locked");
    let save = async |number: u32| {
        store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &[samples.done(number)]).await
    };
    assert_eq!(Told::by(&save(0).await), Told::Saved);
    let mut other = PgConnection::connect(schema.url()).await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE {}.entity IN ACCESS EXCLUSIVE MODE", schema.name());
    other.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.unwrap();

    let began = Instant::now();
    let answer = save(1).await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:?}");
    assert!(error.to_string().contains("longer than its limit"), "{error}");
    let error = store.load(&samples.key(0), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert!(began.elapsed() < PATIENCE / 6, "{:?}", began.elapsed());

    // The server gives up too, although the lock is still held: nothing heaps up there.
    let began = Instant::now();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waiting).bind(schema.name()).fetch_one(&mut other).await.unwrap() > 0 {
        assert!(began.elapsed() < PATIENCE / 6, "the server still waits for the lock");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.execute("ROLLBACK").await.unwrap();
    let began = Instant::now();
    for number in 2.. {
        if Told::by(&save(number).await) == Told::Saved {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the store does not go on");
    }
    let known = store.load(&samples.key(0), &[samples.done(0).key]).await.unwrap();
    assert_eq!(known.stored.unwrap().entity, samples.entity(0));
}

/// Two stores, as two processes would have them, write the same entities and the same dedup entries in groups, one from the
/// first to the last and the other from the last to the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_postgres_stores_that_write_the_same_rows_in_opposite_orders_get_in_nobodys_way() {
    const KEYS: u32 = 50;
    const ROUNDS: u32 = 40;
    let schema = PostgresSchema::new();
    let samples = Samples::new("orders");
    let hammer = |store: Postgres, backwards: bool| {
        let samples = samples.clone();
        tokio::spawn(async move {
            let mut wins = vec![0; KEYS as usize];
            for round in 0..ROUNDS {
                let mut numbers: Vec<u32> = (0..KEYS).collect();
                if backwards {
                    numbers.reverse();
                }
                let saves = numbers.iter().map(|&number| {
                    // The same one of all of this round, so that stores meet there too.
                    let done = [samples.done(round * KEYS + number)];
                    increment(&store, samples.key(number), &samples, done)
                });
                let inserts = numbers.iter().map(|number| {
                    let (store, done) = (&store, [samples.done(1_000_000 + round * KEYS + number)]);
                    async move { store.insert(&done).await.unwrap() }
                });
                let (won, _) = futures_util::join!(join_all(saves), join_all(inserts));
                for (number, won) in numbers.into_iter().zip(won) {
                    wins[number as usize] += u32::from(won);
                }
            }
            wins
        })
    };
    let [first, second] = [schema.open().await, schema.open().await];
    let [forwards, backwards] = [hammer(first.clone(), false), hammer(second, true)];
    let (forwards, backwards) = (forwards.await.unwrap(), backwards.await.unwrap());
    for number in 0..KEYS {
        let stored = first.load(&samples.key(number), &[]).await.unwrap().stored.unwrap();
        let wins = forwards[number as usize] + backwards[number as usize];
        assert_eq!(Samples::number(&stored.entity), wins, "{number}");
        assert!(wins >= ROUNDS, "{number}: of two that write at once, one wins");
    }
    println!("{} and {} wins", forwards.iter().sum::<u32>(), backwards.iter().sum::<u32>());
}

/// Counts one more in an entity, unless somebody else does at that moment. Any error is one too many.
async fn increment(store: &Postgres, key: EntityKey, samples: &Samples, done: [DedupEntry; 1]) -> bool {
    let stored = store.load(&key, &[]).await.unwrap().stored;
    let (expected, count): (Option<Version>, u32) = match stored {
        Some(stored) => (Some(stored.version), Samples::number(&stored.entity)),
        None => (None, 0),
    };
    let expected = expected.map_or(Expected::Absent, Expected::Version);
    store.save(&key, &expected, &samples.entity(count + 1), &done).await.unwrap() != Saved::Conflict
}

/// One row that the database refuses, and one that cannot be read, among others that are written and read with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisoned_postgres_row_hurts_nobody_in_its_group() {
    const KEYS: u32 = 40;
    const POISONED: u32 = 17;
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    let samples = Samples::new("poisoned");
    let name = schema.name();
    let trigger = format!(
        "CREATE FUNCTION {name}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON {name}.entity FOR EACH ROW WHEN (NEW.key = 'key-{POISONED}') \
         EXECUTE FUNCTION {name}.refuse()"
    );
    schema.run(&trigger).await.unwrap();
    let saves = (0..KEYS).map(|number| {
        let (store, key, entity, done) = (&store, samples.key(number), samples.entity(number), [samples.done(number)]);
        async move { store.save(&key, &Expected::Absent, &entity, &done).await }
    });
    // The first is told the name of the saga. The others queue up while it is locked out, and so are a group or two.
    assert!(matches!(first_save(&store, &samples, KEYS).await, Saved::At(_)));
    let mut other = PgConnection::connect(schema.url()).await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE {name}.entity IN SHARE MODE");
    other.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.unwrap();
    let before = store.commits();
    let (saves, _) = futures_util::join!(join_all(saves), async { other.execute("ROLLBACK").await.unwrap() });
    for (number, saved) in (0..KEYS).zip(saves) {
        match saved {
            Err(e) if number == POISONED => {
                assert_eq!(e.kind(), ErrorKind::Misconfigured, "{e:?}");
                assert!(e.to_string().contains("a trigger or constraint on hapax's tables"), "{e}");
            }
            saved => assert!(matches!(saved, Ok(Saved::At(_))), "{number}: {saved:?}"),
        }
    }
    // The group that it was in was taken apart: that of those before it, or that of those behind it.
    let commits = store.commits() - before;
    assert!(commits >= u64::from(POISONED), "{commits}");

    let damage = format!("UPDATE {name}.entity SET outbox = '\\xdeadbeef' WHERE key = 'key-3'");
    schema.run(&damage).await.unwrap();
    let keys: Vec<EntityKey> = (0..KEYS).map(|number| samples.key(number)).collect();
    let loads = join_all(keys.iter().map(|key| store.load(key, &[]))).await;
    for (number, loaded) in (0..KEYS).zip(loads) {
        match number {
            3 => assert_eq!(loaded.unwrap_err().kind(), ErrorKind::Malformed),
            POISONED => assert!(loaded.unwrap().stored.is_none()),
            _ => assert_eq!(loaded.unwrap().stored.unwrap().entity, samples.entity(number)),
        }
    }
}

async fn first_save(store: &Postgres, samples: &Samples, number: u32) -> Saved {
    store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &[]).await.unwrap()
}

/// As after a fail-over: another server behind the same address, or one that was set otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_server_that_is_not_as_it_was_is_refused_when_it_is_reached_again() {
    let mut server = PostgresServer::start(&[]).await;
    let store = Postgres::open(server.url()).await.unwrap();
    let queue = PostgresQueue::on(&store).await.unwrap();
    let (samples, endpoint) = (Samples::new("replaced"), "replaced".parse().unwrap());
    assert!(matches!(first_save(&store, &samples, 0).await, Saved::At(_)));
    let mut number = 0;
    for (settings, standby, words) in [
        (["fsync=off"].as_slice(), false, ["`fsync` is off", "`fsync = on`"]),
        (&["full_page_writes=off"], false, ["`full_page_writes` is off", "on"]),
        (&["synchronous_commit=off"], false, ["`synchronous_commit` is off", "ALTER ROLE"]),
        (&["default_transaction_read_only=on"], false, ["`default_transaction_read_only` is on", "ALTER ROLE"]),
        (&[], true, ["a standby", "connect to the primary"]),
    ] {
        server.kill();
        server.settings(settings);
        if standby {
            server.standby(true);
        }
        server.restart().await;
        number += 1;
        let key = samples.key(number);
        let done = [samples.done(number)];
        let entity = samples.entity(number);
        refused(&words, async || store.save(&key, &Expected::Absent, &entity, &[]).await.map(drop)).await;
        refused(&words, async || store.load(&samples.key(0), &[]).await.map(drop)).await;
        refused(&words, async || store.insert(&done).await).await;
        refused(&words, async || store.evict(Duration::from_millis(1)).await.map(drop)).await;
        refused(&words, async || queue.abandon(&endpoint, 1).await.map(drop)).await;

        server.kill();
        server.settings(&[]);
        if standby {
            server.standby(false);
        }
        server.restart().await;
        // By itself: nothing is opened again. What was refused was not written.
        let began = Instant::now();
        let saved = loop {
            match store.save(&key, &Expected::Absent, &entity, &done).await {
                Ok(saved) => break saved,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error:?}"),
            }
        };
        assert!(matches!(saved, Saved::At(_)), "{saved:?}");
        assert_eq!(store.load(&samples.key(0), &[]).await.unwrap().stored.unwrap().entity, samples.entity(0));
    }
}

/// Whoever met the kill is told of that, and then of what is wrong with the server: with all of `words`.
async fn refused(words: &[&str], call: impl AsyncFn() -> Result<(), StoreError>) {
    let began = Instant::now();
    let error = loop {
        match call().await {
            Err(error) if error.is_transient() => assert!(began.elapsed() < PATIENCE, "{error:?}"),
            told => break told.expect_err("it was not refused"),
        }
    };
    let line = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
}
