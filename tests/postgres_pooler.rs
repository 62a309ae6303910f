//! A PostgreSQL store behind pgbouncer that gives each transaction another session: one that was not told so is not opened,
//! however much pgbouncer hides; one that was keeps every promise, whatever other clients prepare in the sessions meanwhile.
//!
//! Skipped, and said aloud, where there is no pgbouncer: `apt-get install pgbouncer`.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Postgres,
    entity::{Entity, Expected},
    ports::{DeadLetters, DedupStore, EntityStore, ErrorKind, Saved},
    stores::postgres::PostgresOptions,
    testing,
};
use hapax_tests::{Pgbouncer, PostgresSchema, Samples};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgConnectOptions};

/// A schema behind a pooler of one test.
#[derive(Debug)]
struct Pooled {
    schema: PostgresSchema,
    other: PostgresSchema,
    pooler: Pgbouncer,
}

impl Pooled {
    async fn new(settings: &[&str]) -> Option<Self> {
        let schema = PostgresSchema::new();
        let pooler = Pgbouncer::start(schema.url(), settings).await?;
        Some(Self { schema, other: PostgresSchema::new(), pooler })
    }

    fn options(&self, schema: &PostgresSchema) -> PostgresOptions {
        Postgres::options(self.pooler.url()).schema(schema.name()).migrate(true).writers(1)
    }

    async fn open(&self, schema: &PostgresSchema) -> Arc<Postgres> {
        Arc::new(self.options(schema).pooler(true).open().await.unwrap())
    }
}

#[async_trait]
impl testing::entity_store::Builder for Pooled {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        self.open(&self.schema).await
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(self.open(&self.schema).await)
    }
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        None
    }
}

#[async_trait]
impl testing::dedup_store::Builder for Pooled {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        self.open(&self.schema).await
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(self.open(&self.other).await)
    }
}

#[async_trait]
impl testing::dead_letters::Builder for Pooled {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        self.open(&self.schema).await
    }
}

/// As it comes; told to swallow what the driver asks for, as every guide says; and what the store asks for too, so that it
/// is not refused but not done either.
const HIDING: [&[&str]; 3] = [
    &[],
    &["ignore_startup_parameters = extra_float_digits"],
    &["ignore_startup_parameters = extra_float_digits, options"],
];

#[tokio::test]
async fn a_postgres_store_that_is_not_told_of_its_pooler_is_refused_at_the_start() {
    for settings in HIDING {
        // In the other mode each connection has its session for as long as it lasts.
        for mode in [["pool_mode = transaction", ""], ["pool_mode = session", "default_pool_size = 10"]] {
            let settings = [settings, &mode].concat();
            let Some(pooled) = Pooled::new(&settings).await else { return };
            let refused = pooled.options(&pooled.schema).open().await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Misconfigured, "{settings:?}: {refused:?}");
            let line = refused.to_string();
            for word in ["a connection pooler stands before the server", "`pooler(true)`"] {
                assert!(line.contains(word), "{settings:?}: {line}");
            }
            assert!(pooled.options(&pooled.schema).pooler(true).open().await.is_ok(), "{settings:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_postgres_store_behind_a_pooler_keeps_every_promise_of_an_entity_store() {
    let Some(pooled) = Pooled::new(&[]).await else { return };
    testing::entity_store::check_all(&pooled).await.assert();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_postgres_store_behind_a_pooler_keeps_every_promise_of_a_dedup_store() {
    let Some(pooled) = Pooled::new(&[]).await else { return };
    testing::dedup_store::check_all(&pooled).await.assert();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_postgres_store_behind_a_pooler_keeps_every_promise_of_dead_letters() {
    let Some(pooled) = Pooled::new(&[]).await else { return };
    testing::dead_letters::check_all(&pooled).await.assert();
}

/// Another client's statements have as many arguments as ours, or more, and have no name either: one of them run in place of
/// ours would be an error, or worse, a wrong answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_others_prepare_behind_a_pooler_is_never_run_in_place_of_the_postgres_stores_own() {
    const ROUNDS: u32 = 60;
    const RIVALS: usize = 3;
    let Some(pooled) = Pooled::new(&[]).await else { return };
    let end = Arc::new(AtomicBool::new(false));
    let rivals: Vec<_> =
        (0..RIVALS).map(|_| tokio::spawn(prepare(pooled.pooler.url().to_owned(), end.clone()))).collect();
    let samples = Samples::new("pooled");
    for round in 0..ROUNDS {
        // Opened anew each time, for what is asked at the start is asked in the same sessions.
        let store = pooled.open(&pooled.schema).await;
        let key = samples.key(round);
        let over = Entity { completed: true, ..samples.entity(round) };
        let saved = store.save(&key, &Expected::Absent, &over, &[samples.done(round)]).await.unwrap();
        assert!(matches!(saved, Saved::At(_)), "{saved:?}");
        assert_eq!(store.load(&key, &[]).await.unwrap().stored.unwrap().entity, over);
        store.evict(Duration::from_millis(1)).await.unwrap();
        assert!(store.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap().is_empty());
        assert_eq!(store.purge(key.scope(), Duration::ZERO, 10).await.unwrap(), 1);
        store.close().await;
    }
    end.store(true, Ordering::Relaxed);
    for rival in rivals {
        rival.await.unwrap();
    }
}

/// Statements without a name, again and again, each in another session than it was prepared in, if it comes to that.
async fn prepare(url: String, end: Arc<AtomicBool>) {
    let options: PgConnectOptions = url.parse().unwrap();
    let options = options.extra_float_digits(None).statement_cache_capacity(0);
    while !end.load(Ordering::Relaxed) {
        let Ok(mut connection) = PgConnection::connect_with(&options).await else { continue };
        let sql = "SELECT 77::bigint, $1::bigint, $2::bigint";
        // Until it meets somebody else's in turn.
        while !end.load(Ordering::Relaxed)
            && sqlx::query(sql).bind(1_i64).bind(2_i64).persistent(false).execute(&mut connection).await.is_ok()
        {
        }
    }
}

/// Another client of the same sessions sets what would lose a confirmed commit in a crash, and leaves it so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_set_behind_a_pooler_makes_no_postgres_commit_asynchronous() {
    let Some(pooled) = Pooled::new(&["default_pool_size = 1"]).await else { return };
    let store = pooled.open(&pooled.schema).await;
    let samples = Samples::new("neighbour");
    store.insert(&[samples.done(0)]).await.unwrap();
    let name = pooled.schema.name();
    let note = format!(
        "CREATE TABLE {name}.noted (level text); CREATE FUNCTION {name}.note() RETURNS trigger LANGUAGE plpgsql AS $$ \
         BEGIN INSERT INTO {name}.noted SELECT current_setting('synchronous_commit'); RETURN NULL; END $$; \
         CREATE TRIGGER note AFTER INSERT ON {name}.dedup_0 FOR EACH ROW EXECUTE FUNCTION {name}.note()"
    );
    pooled.schema.run(&note).await.unwrap();
    let neighbour: PgConnectOptions = pooled.pooler.url().parse().unwrap();
    let neighbour = neighbour.extra_float_digits(None).statement_cache_capacity(0);
    let mut neighbour = PgConnection::connect_with(&neighbour).await.unwrap();
    for (number, (set, is)) in (1..).zip([("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")]) {
        let set = format!("SET synchronous_commit = {set}");
        neighbour.execute(sqlx::raw_sql(AssertSqlSafe(set.clone()))).await.unwrap();
        store.insert(&[samples.done(number)]).await.unwrap();
        // Nor is such a session taken for a server that loses what it confirms.
        pooled.open(&pooled.schema).await.insert(&[samples.done(100 + number)]).await.unwrap();
        let mut connection = PgConnection::connect(pooled.schema.url()).await.unwrap();
        let noted = format!("DELETE FROM {name}.noted RETURNING level");
        let noted: Vec<String> = sqlx::query_scalar(AssertSqlSafe(noted)).fetch_all(&mut connection).await.unwrap();
        assert_eq!(noted, [is, is], "{set}");
    }
}

/// What takes several statements has the time limit too that a session of its own would have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_postgres_store_behind_a_pooler_waits_in_the_server_for_ever() {
    const LIMIT: Duration = Duration::from_secs(2);
    const PATIENCE: Duration = Duration::from_secs(20);
    let Some(pooled) = Pooled::new(&[]).await else { return };
    let store = pooled.options(&pooled.schema).pooler(true).write_limit(LIMIT).open().await.unwrap();
    let samples = Samples::new("waiting");
    store.insert(&[samples.done(0)]).await.unwrap();
    let over = Entity { completed: true, ..samples.entity(0) };
    let saved = store.save(&samples.key(0), &Expected::Absent, &over, &[]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)));
    let name = pooled.schema.name();
    let old = format!("UPDATE {name}.generation SET opened_at = 0; UPDATE {name}.entity SET completed_at = 0");
    pooled.schema.run(&old).await.unwrap();
    let mut other = PgConnection::connect(pooled.schema.url()).await.unwrap();
    for (table, mode) in [
        ("generation", "ACCESS EXCLUSIVE"),
        ("dedup_0", "ACCESS EXCLUSIVE"),
        ("dedup_0", "ROW EXCLUSIVE"),
        ("entity", "ACCESS EXCLUSIVE"),
        ("floor", "ACCESS SHARE"),
    ] {
        let lock = format!("BEGIN; LOCK TABLE {name}.{table} IN {mode} MODE");
        other.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.unwrap();
        let purge = async || store.purge(samples.key(0).scope(), Duration::ZERO, 10).await;
        match (table, mode) {
            // Who shares the table with others is later, and no error.
            ("floor", _) => assert_eq!(purge().await.unwrap(), 0),
            ("dedup_0", "ROW EXCLUSIVE") => assert!(store.evict(Duration::from_millis(1)).await.unwrap().more),
            ("entity", _) => assert!(purge().await.unwrap_err().is_transient()),
            _ => assert!(store.evict(Duration::from_millis(1)).await.unwrap_err().is_transient()),
        }
        let waiting =
            format!("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{name}.{table}'::regclass");
        let began = std::time::Instant::now();
        while sqlx::query_scalar::<_, i64>(AssertSqlSafe(waiting.clone())).fetch_one(&mut other).await.unwrap() > 0 {
            assert!(began.elapsed() < PATIENCE, "{table}, {mode}: the server still waits");
            tokio::task::yield_now().await;
        }
        other.execute("ROLLBACK").await.unwrap();
    }
    store.evict(Duration::from_millis(1)).await.unwrap();
    assert_eq!(store.purge(samples.key(0).scope(), Duration::ZERO, 10).await.unwrap(), 1);
}
