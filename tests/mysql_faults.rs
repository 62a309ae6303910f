//! A MariaDB store whose server is killed, whose connections are ended in the middle of a commit, which meets locks that
//! others hold, and other stores that write the same rows in another order: what was confirmed is there, what was refused is
//! not, and nothing needs to be opened again.
#![allow(clippy::unwrap_used)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hapax::{
    MySql, MySqlQueue,
    entity::{DedupEntry, Expected, Version},
    ids::EntityKey,
    ports::{DedupStore, EntityStore, ErrorKind, Saved, StoreError},
};
use hapax_tests::{MySqlServer, MySqlTables, Samples, Saves, Told};
use sqlx::{AssertSqlSafe, Executor};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_mysql_server_that_is_killed_loses_nothing_that_it_has_confirmed() {
    // A kill may come between two commits, so there are more of them until one was cut.
    const KILLS: u32 = 3;
    const KILLS_MAX: u32 = 30;
    let mut server = MySqlServer::start(&[]).await;
    let store: Arc<dyn EntityStore> = Arc::new(MySql::open(server.url()).await.unwrap());
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
async fn a_mysql_commit_whose_connection_is_ended_is_unknown_and_never_called_rolled_back() {
    const ROUNDS_MAX: u32 = 20;
    let tables = MySqlTables::new();
    let cut: Arc<dyn EntityStore> = tables.open_and_cut(Arc::new).await;
    let saves = Saves::begin(&cut, &Samples::new("cut"));
    drop(cut);
    // A fast machine may need some more until one is cut.
    for _ in 0..ROUNDS_MAX {
        saves.go_on(500).await;
        if saves.unknown() > 0 {
            break;
        }
    }
    let [saved, refused, unknown] = saves.end(&tables.open().await).await;
    println!("cut: {saved} saved, {refused} refused, {unknown} unknown");
    assert!(unknown > 0, "no commit was cut: {saved} {refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_store_whose_tables_are_locked_says_so_in_time_and_goes_on_afterwards() {
    const LIMIT: Duration = Duration::from_millis(300);
    let tables = MySqlTables::new();
    let patient = tables.open().await;
    let store = tables.options().writers(1).write_limit(LIMIT).read_limit(LIMIT).open().await.unwrap();
    let samples = Samples::new("locked");
    let save = async |number: u32| {
        store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &[samples.done(number)]).await
    };
    assert!(matches!(first_save(&patient, &samples, 0).await, Saved::At(_)));
    let mut other = tables.connection().await;
    let lock = tables.with_names("LOCK TABLES hapax.entity WRITE");
    other.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.unwrap();

    let began = Instant::now();
    let error = save(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:?}");
    assert!(error.to_string().contains("longer than its limit"), "{error}");
    let error = store.load(&samples.key(0), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert!(began.elapsed() < PATIENCE / 6, "{:?}", began.elapsed());

    // The server gives up too, although the lock is still held: nothing heaps up there.
    let began = Instant::now();
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE INSTR(info, ?) AND id <> CONNECTION_ID()";
    while sqlx::query_scalar::<_, i64>(waiting).bind(tables.prefix()).fetch_one(&mut other).await.unwrap() > 0 {
        assert!(began.elapsed() < PATIENCE / 3, "the server still waits for the lock");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.execute("UNLOCK TABLES").await.unwrap();
    let began = Instant::now();
    for number in 2.. {
        if Told::by(&save(number).await) == Told::Saved {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the store does not go on");
    }
    let loaded = patient.load(&samples.key(0), &[]).await.unwrap();
    assert_eq!(loaded.stored.unwrap().entity, samples.entity(0));
}

/// Somebody holds one row for longer than the store waits: who writes it is told, and the others of its group are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_row_that_somebody_holds_hurts_only_who_writes_it() {
    const KEYS: u32 = 20;
    let tables = MySqlTables::new();
    let store = tables.open().await;
    let samples = Samples::new("held");
    let held = first_save(&store, &samples, 0).await;
    let Saved::At(version) = held else { panic!("{held:?}") };
    let mut other = tables.connection().await;
    // At the server's usual level it would hold the gaps beside it too, and with these whoever begins an entity there.
    let hold = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; \
                SELECT * FROM hapax.entity WHERE `key` = 'key-0' FOR UPDATE";
    let hold = tables.with_names(hold);
    other.execute(sqlx::raw_sql(AssertSqlSafe(hold))).await.unwrap();
    let saves = (0..KEYS).map(|number| {
        let (store, key, entity, done) = (&store, samples.key(number), samples.entity(number), [samples.done(number)]);
        let expected = if number == 0 { Expected::Version(version.clone()) } else { Expected::Absent };
        async move { store.save(&key, &expected, &entity, &done).await }
    });
    for (number, saved) in (0..KEYS).zip(join_all(saves).await) {
        match number {
            0 => {
                let error = saved.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.to_string().contains("has kept a lock for too long"), "{error}");
            }
            _ => assert!(matches!(saved, Ok(Saved::At(_))), "{number}: {saved:?}"),
        }
    }
}

/// Two stores, as two processes would have them, write the same entities and the same dedup entries in groups, one from the
/// first to the last and the other from the last to the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_mysql_stores_that_write_the_same_rows_in_opposite_orders_get_in_nobodys_way() {
    const KEYS: u32 = 50;
    const ROUNDS: u32 = 40;
    let tables = MySqlTables::new();
    let samples = Samples::new("orders");
    let hammer = |store: MySql, backwards: bool| {
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
    let [first, second] = [tables.open().await, tables.open().await];
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
async fn increment(store: &MySql, key: EntityKey, samples: &Samples, done: [DedupEntry; 1]) -> bool {
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
async fn a_poisoned_mysql_row_hurts_nobody_in_its_group() {
    const KEYS: u32 = 40;
    const POISONED: u32 = 17;
    let tables = MySqlTables::new();
    let store = tables.open().await;
    let samples = Samples::new("poisoned");
    let trigger = format!(
        "CREATE TRIGGER {}refuse BEFORE INSERT ON hapax.entity FOR EACH ROW \
         IF NEW.`key` = 'key-{POISONED}' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF",
        tables.prefix()
    );
    tables.run(&trigger).await.unwrap();
    let saves = (0..KEYS).map(|number| {
        let (store, key, entity, done) = (&store, samples.key(number), samples.entity(number), [samples.done(number)]);
        async move { store.save(&key, &Expected::Absent, &entity, &done).await }
    });
    // The first is told the name of the saga. The others queue up while it is locked out, and so are a group or two.
    assert!(matches!(first_save(&store, &samples, KEYS).await, Saved::At(_)));
    let mut other = tables.connection().await;
    let lock = tables.with_names("LOCK TABLES hapax.entity READ");
    other.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.unwrap();
    let before = store.commits();
    let (saves, _) = futures_util::join!(join_all(saves), async { other.execute("UNLOCK TABLES").await.unwrap() });
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

    tables.run("UPDATE hapax.entity SET outbox = x'deadbeef' WHERE `key` = 'key-3'").await.unwrap();
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

/// The server ends sessions that are idle for a second, but not ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_store_that_has_been_idle_for_long_goes_on_as_if_it_had_not() {
    let server = MySqlServer::start(&["wait-timeout=1"]).await;
    let tables = MySqlTables::on(&server.url());
    let store = tables.open().await;
    let samples = Samples::new("idle");
    assert!(matches!(first_save(&store, &samples, 1).await, Saved::At(_)));
    let mut other = tables.connection().await;
    other.execute("SET SESSION wait_timeout = 600").await.unwrap();
    let sessions = "SELECT id, CAST(time AS SIGNED) FROM information_schema.processlist \
                    WHERE command <> 'Daemon' AND id <> CONNECTION_ID() ORDER BY id";
    let ours: Vec<(i64, i64)> = sqlx::query_as(sessions).fetch_all(&mut other).await.unwrap();
    assert!(ours.len() >= 3, "those that write, read and do what is rare");
    let began = Instant::now();
    loop {
        let now: Vec<(i64, i64)> = sqlx::query_as(sessions).fetch_all(&mut other).await.unwrap();
        assert!(ours.iter().all(|(id, _)| now.iter().any(|(other, _)| other == id)), "the server has ended one");
        if now.iter().all(|(_, seconds)| *seconds >= 3) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "they are not idle");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for number in 2..10 {
        assert!(matches!(first_save(&store, &samples, number).await, Saved::At(_)));
    }
    store.evict(Duration::from_secs(3600)).await.unwrap();
}

async fn first_save(store: &MySql, samples: &Samples, number: u32) -> Saved {
    store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &[]).await.unwrap()
}

/// As after a fail-over: another server behind the same address, or one that was set otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_server_that_is_not_as_it_was_is_refused_when_it_is_reached_again() {
    let mut server = MySqlServer::start(&[]).await;
    let store = MySql::open(server.url()).await.unwrap();
    let queue = MySqlQueue::on(&store).await.unwrap();
    let (samples, endpoint) = (Samples::new("replaced"), "replaced".parse().unwrap());
    assert!(matches!(
        store.save(&samples.key(0), &Expected::Absent, &samples.entity(0), &[]).await.unwrap(),
        Saved::At(_)
    ));
    let mut number = 0;
    for (settings, words) in [
        (["innodb-flush-log-at-trx-commit=2"].as_slice(), ["`innodb_flush_log_at_trx_commit` is not 1", "set it to 1"]),
        (&["log-bin=log", "server-id=1", "sync-binlog=0"], ["`sync_binlog` is not 1", "set it to 1"]),
        (&["innodb-flush-method=nosync"], ["`innodb_flush_method` is nosync", "O_DIRECT"]),
        (&["innodb-flush-method=littlesync"], ["`innodb_flush_method` is littlesync", "O_DIRECT"]),
        (&["read-only=1"], ["`read_only` is on", "connect to the primary"]),
    ] {
        server.kill();
        server.settings(settings);
        server.restart().await;
        number += 1;
        let (key, done, entity) = (samples.key(number), [samples.done(number)], samples.entity(number));
        refused(&words, async || store.save(&key, &Expected::Absent, &entity, &[]).await.map(drop)).await;
        refused(&words, async || store.load(&samples.key(0), &[]).await.map(drop)).await;
        refused(&words, async || store.insert(&done).await).await;
        refused(&words, async || store.evict(Duration::from_millis(1)).await.map(drop)).await;
        refused(&words, async || queue.abandon(&endpoint, 1).await.map(drop)).await;

        server.kill();
        server.settings(&[]);
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
