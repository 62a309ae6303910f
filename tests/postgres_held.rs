//! A PostgreSQL store beside others who use its tables and rows, as a dump, a `VACUUM` or a forgotten transaction does; whose
//! transactions the server rolls back for the sake of others; and whose server is told to keep less while it runs.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use futures_util::{future::join_all, join};
use hapax::{
    Postgres, PostgresQueue,
    entity::{Entity, Expected},
    ports::{DeadLetters, DedupStore, EntityStore, ErrorKind, Page, Saved},
};
use hapax_tests::{PostgresDatabase, PostgresSchema, PostgresServer, Samples};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Less than a statement may take, and more than anything that does not wait for others in vain.
const SOON: Duration = Duration::from_secs(20);

/// A session of somebody else. `s.` in a text stands for the schema.
struct Session {
    connection: PgConnection,
    schema: String,
}

impl Session {
    async fn new(schema: &PostgresSchema) -> Self {
        Self { connection: PgConnection::connect(schema.url()).await.unwrap(), schema: schema.name().to_owned() }
    }

    fn text(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("s.", &format!("{}.", self.schema)))
    }

    async fn run(&mut self, sql: &str) {
        let text = self.text(sql);
        self.connection.execute(sqlx::raw_sql(text)).await.unwrap();
    }

    async fn number(&mut self, sql: &str) -> i64 {
        let text = self.text(sql);
        sqlx::query_scalar(text).fetch_one(&mut self.connection).await.unwrap()
    }

    async fn until(&mut self, what: &str, sql: &str) {
        let began = Instant::now();
        while self.number(sql).await == 0 {
            assert!(began.elapsed() < PATIENCE, "{what}");
            tokio::task::yield_now().await;
        }
    }
}

const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

async fn save(store: &Postgres, samples: &Samples, number: u32) -> Saved {
    store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &[]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_that_meets_a_dump_of_postgres_keeps_nobody_waiting_and_comes_later() {
    let database = PostgresDatabase::new(&[]).await;
    let schema = database.schema();
    let (store, samples) = (schema.open().await, Samples::new("dump"));
    let over = Entity { completed: true, ..samples.entity(0) };
    let _ = store.save(&samples.key(0), &Expected::Absent, &over, &[]).await.unwrap();
    let [mut dump, mut watch] = [Session::new(&schema).await, Session::new(&schema).await];
    watch.run("UPDATE s.entity SET completed_at = 0").await;
    dump.run("BEGIN; LOCK TABLE s.floor IN ACCESS SHARE MODE").await;
    let scope = samples.key(0);
    let purge = async || store.purge(scope.scope(), Duration::ZERO, 10).await.unwrap();
    let began = Instant::now();
    let (purged, ()) = join!(purge(), async {
        watch.until("the purge does not meet the dump", WAITING).await;
        assert!(matches!(save(&store, &samples, 1).await, Saved::At(_)));
    });
    assert_eq!(purged, 0);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    dump.run("ROLLBACK").await;
    assert_eq!(purge().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_that_meets_a_vacuum_of_postgres_keeps_nobody_waiting_and_comes_later() {
    let database = PostgresDatabase::new(&[]).await;
    let schema = database.schema();
    let (store, samples) = (schema.open().await, Samples::new("vacuum"));
    store.insert(&[samples.done(0)]).await.unwrap();
    let [mut vacuum, mut watch] = [Session::new(&schema).await, Session::new(&schema).await];
    watch.run("UPDATE s.generation SET opened_at = 0").await;
    vacuum.run("BEGIN; LOCK TABLE s.dedup_0 IN SHARE UPDATE EXCLUSIVE MODE").await;
    let evict = async || store.evict(Duration::from_secs(3600)).await.unwrap();
    let began = Instant::now();
    let (evicted, ()) = join!(evict(), async {
        watch.until("the rotation does not meet the vacuum", WAITING).await;
        store.insert(&[samples.done(1)]).await.unwrap();
    });
    assert!(evicted.more);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let generations = "SELECT count(*) FROM s.generation";
    assert_eq!(watch.number(generations).await, 1);
    vacuum.run("ROLLBACK").await;
    evict().await;
    assert_eq!(watch.number(generations).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_row_that_somebody_keeps_hurts_nobody_else_in_its_group() {
    const KEYS: u32 = 6;
    const KEPT: u32 = 3;
    let database = PostgresDatabase::new(&[]).await;
    let schema = database.schema();
    let (store, samples) = (schema.open().await, Samples::new("kept"));
    let mut versions = Vec::new();
    for number in 0..KEYS {
        let Saved::At(version) = save(&store, &samples, number).await else { panic!("{number} is there") };
        versions.push(version);
    }
    let [mut keeper, mut first] = [Session::new(&schema).await, Session::new(&schema).await];
    keeper.run(&format!("BEGIN; SELECT FROM s.entity WHERE key = 'key-{KEPT}' FOR UPDATE")).await;
    // What is asked for while this is there is one group.
    first.run("BEGIN; LOCK TABLE s.dedup_0 IN SHARE MODE").await;
    let (began, done) = (Instant::now(), [samples.done(0)]);
    let (blocked, saves, ()) = join!(
        store.insert(&done),
        join_all((0..KEYS).map(|number| {
            let (store, samples, version) = (&store, &samples, versions[number as usize].clone());
            async move {
                store.save(&samples.key(number), &Expected::Version(version), &samples.entity(number + 100), &[]).await
            }
        })),
        async {
            keeper.until("nobody waits for the table", WAITING).await;
            first.run("ROLLBACK").await;
        }
    );
    blocked.unwrap();
    for (number, saved) in (0..KEYS).zip(saves) {
        match saved {
            Err(error) if number == KEPT => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.to_string().contains("kept a lock for too long"), "{error}");
            }
            saved => assert!(matches!(saved, Ok(Saved::At(_))), "{number}: {saved:?}"),
        }
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    keeper.run("ROLLBACK").await;
}

/// The whole table: the members of a group do not wait for it one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_table_that_somebody_keeps_is_given_up_by_a_group_as_a_whole() {
    let database = PostgresDatabase::new(&[]).await;
    let schema = database.schema();
    let (store, samples) = (schema.open().await, Samples::new("table"));
    let _ = save(&store, &samples, 0).await;
    let mut keeper = Session::new(&schema).await;
    keeper.run("BEGIN; LOCK TABLE s.entity IN ACCESS EXCLUSIVE MODE").await;
    let began = Instant::now();
    let saves = (1..40).map(|number| {
        let (store, key, entity) = (&store, samples.key(number), samples.entity(number));
        async move { store.save(&key, &Expected::Absent, &entity, &[]).await }
    });
    for saved in join_all(saves).await {
        assert_eq!(saved.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(began.elapsed() < Duration::from_secs(27), "{:?}", began.elapsed());
    keeper.run("ROLLBACK").await;
    let _ = save(&store, &samples, 1).await;
}

/// The store waits for a row of the other's, and that one for the store's table. The server looks once for each who waits, and ends whose
/// look finds it: here the store's, which comes late enough for the other one to wait as well, on a busy machine too, and long before that
/// one's. Then the table is the other's at once; for a row it would have to race with the store's next attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_that_postgres_ends_is_tried_again_and_nobody_is_told() {
    let database = PostgresDatabase::new(&["deadlock_timeout = '2500ms'"]).await;
    let schema = database.schema();
    let (store, samples) = (schema.open().await, Samples::new("deadlock"));
    let mut entries = [samples.done(1), samples.done(2)];
    entries.sort_by_key(|entry| *entry.key.as_bytes());
    let key: String = entries[1].key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let insert = format!("INSERT INTO s.dedup_0 VALUES ('\\x{key}', '', '', 0, NULL)");
    let [mut other, mut watch] = [Session::new(&schema).await, Session::new(&schema).await];
    other.run(&format!("SET deadlock_timeout = '1min'; BEGIN; {insert}")).await;
    let (stored, ()) = join!(store.insert(&entries), async {
        watch.until("the store does not wait", WAITING).await;
        other.run("LOCK TABLE s.dedup_0 IN SHARE ROW EXCLUSIVE MODE").await; // It gets it once the store's transaction is ended.
        other.run("ROLLBACK").await;
    });
    stored.unwrap();
    let known = store.contains(&[entries[0].key, entries[1].key]).await.unwrap();
    assert!(entries.iter().all(|entry| known.entry(&entry.key) == Some(entry)));
    store.close().await;
    drop((store, other, watch));
    assert_eq!(database.deadlocks().await, 1);
}

/// The server refuses the first three of each as lost races, of either kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_races_on_postgres_are_tried_again_and_nobody_is_told() {
    let schema = PostgresSchema::new();
    let (store, samples) = (schema.open().await, Samples::new("races"));
    let mut other = Session::new(&schema).await;
    for (table, code) in [("entity", "40001"), ("scope", "40P01"), ("dead_letter", "40001"), ("dedup_0", "40P01")] {
        other
            .run(&format!(
                "CREATE SEQUENCE s.raced_{table}; CREATE FUNCTION s.race_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ \
                 BEGIN IF nextval('s.raced_{table}') <= 3 THEN RAISE 'lost' USING ERRCODE = '{code}'; END IF; \
                 RETURN NEW; END $$; CREATE TRIGGER race BEFORE INSERT ON s.{table} FOR EACH ROW EXECUTE FUNCTION \
                 s.race_{table}()"
            ))
            .await;
    }
    assert!(matches!(save(&store, &samples, 0).await, Saved::At(_)));
    store.insert(&[samples.done(0)]).await.unwrap();
    store.add(&samples.letter()).await.unwrap();
    let page = Page { message_id: None, limit: 10, skip: 0 };
    assert_eq!(store.list(&samples.letter().endpoint, &page).await.unwrap().len(), 1);
    for table in ["entity", "scope", "dead_letter", "dedup_0"] {
        let raced = format!("SELECT last_value FROM s.raced_{table}");
        assert_eq!(other.number(&raced).await, 4, "{table}");
    }
}

/// As after a fail-over that lost the last names: the number is another's by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_names_are_asked_for_anew_once_a_connection_to_postgres_was_lost() {
    let database = PostgresDatabase::new(&[]).await;
    let schema = database.schema();
    let (store, samples) = (schema.open().await, Samples::new("numbers"));
    let _ = save(&store, &samples, 0).await;
    let mut other = Session::new(&schema).await;
    other.run("UPDATE s.scope SET endpoint = 'another'").await;
    other.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").await;
    let began = Instant::now();
    while store.save(&samples.key(1), &Expected::Absent, &samples.entity(1), &[]).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "the store does not go on");
    }
    let wrong = "SELECT count(*) FROM s.entity AS e JOIN s.scope AS n ON n.id = e.scope \
                 WHERE e.key = 'key-1' AND n.endpoint = 'another'";
    assert_eq!(other.number(wrong).await, 0, "it was written under another's name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_server_that_is_told_to_keep_less_while_it_runs_is_noticed() {
    let server = PostgresServer::start(&["idle_session_timeout=300ms"]).await;
    let schema = PostgresSchema::on(&server.url());
    let (store, samples) = (schema.open().await, Samples::new("reloaded"));
    let _ = save(&store, &samples, 0).await;
    let queue = PostgresQueue::on(&store).await.unwrap();
    let endpoint = "reloaded".parse().unwrap();
    queue.abandon(&endpoint, 1).await.unwrap();
    let set = async |setting: &str| {
        schema.run(&format!("ALTER SYSTEM SET {setting}")).await.unwrap();
        schema.run("SELECT pg_reload_conf()").await.unwrap();
        let (name, value) = setting.split_once(" = ").unwrap();
        let began = Instant::now();
        loop {
            let mut fresh = PgConnection::connect(&server.url()).await.unwrap();
            let is: String =
                sqlx::query_scalar(AssertSqlSafe(format!("SHOW {name}"))).fetch_one(&mut fresh).await.unwrap();
            if is == value {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{setting}");
        }
    };
    let mut other = Session::new(&schema).await;
    other
        .run(
            "SET idle_session_timeout = 0; CREATE TABLE s.noted (level text); CREATE FUNCTION s.note() RETURNS trigger \
             LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO s.noted SELECT current_setting('synchronous_commit'); RETURN NULL; END $$; \
             CREATE TRIGGER note AFTER INSERT ON s.entity FOR EACH ROW EXECUTE FUNCTION s.note()",
        )
        .await;
    set("synchronous_commit = off").await;
    // Others are ended by now who have asked for nothing so long; the store and the queue are not.
    other
        .until(
            "nobody is idle for so long",
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hapax' \
             AND clock_timestamp() - state_change > '600 ms' AND state = 'idle'",
        )
        .await;
    let _ = save(&store, &samples, 1).await;
    assert_eq!(other.number("SELECT count(*) FROM s.noted WHERE level = 'on'").await, 1);
    queue.abandon(&endpoint, 1).await.unwrap();

    set("synchronous_commit = on").await;
    store.evict(Duration::from_secs(1)).await.unwrap();
    set("fsync = off").await;
    let error = store.evict(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("`fsync` is off"), "{error}");
}
