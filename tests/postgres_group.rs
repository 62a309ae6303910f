//! Group commit on PostgreSQL: the clauses that hold on any server, and in which statement a group is written, what its members
//! are told when its commit is cut, and what a lone write costs.
#![allow(clippy::unwrap_used)]

#[path = "group/bodies.rs"]
mod bodies;
use std::time::{Duration, Instant};

use bodies::{PATIENCE, Place as _, Rows, begin, save, version};
use futures_util::future::join_all;
use hapax::{
    Postgres,
    entity::Expected,
    ports::{DedupStore, EntityStore, ErrorKind},
};
use hapax_tests::{PostgresDatabase, PostgresSchema, PostgresServer, Samples};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

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

    /// Until commits on the server of `schema` wait for a standby. It may have read what it was told, and not yet go by it.
    async fn until_commits_wait(&mut self, schema: &PostgresSchema) {
        let began = Instant::now();
        loop {
            let mut probe = Self::new(schema).await;
            let probing = tokio::spawn(async move {
                // Its end is what is waited for, however it comes.
                drop(
                    probe.connection.execute(sqlx::raw_sql("SELECT pg_logical_emit_message(true, 'probe', '')")).await,
                );
            });
            while !probing.is_finished() {
                if self.end("%pg_logical_emit_message%").await > 0 {
                    return probing.await.unwrap();
                }
                assert!(began.elapsed() < PATIENCE, "commits do not wait");
                tokio::task::yield_now().await;
            }
        }
    }

    /// Ends who waits for a standby with a query like that; how many.
    async fn end(&mut self, query: &str) -> i64 {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE wait_event = 'SyncRep' AND query LIKE $1 AND pid <> pg_backend_pid()";
        sqlx::query_scalar(sql).bind(query).fetch_one(&mut self.connection).await.unwrap()
    }

    async fn end_who_waits_at_the_commit(&mut self, query: &str) {
        let began = Instant::now();
        while self.end(query).await == 0 {
            assert!(began.elapsed() < PATIENCE, "nobody waits at the commit");
            tokio::task::yield_now().await;
        }
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

/// What keeps a row of `samples` from others until it is rolled back.
fn held(rows: Rows, samples: &Samples, number: u32) -> String {
    let key = samples.key(number);
    let scope = format!("SELECT id FROM s.scope WHERE endpoint = '{}'", key.scope().endpoint);
    let key = key.key();
    let bytes = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let done = samples.done(number);
    match rows {
        Rows::Updates => format!("SELECT FROM s.entity WHERE scope = ({scope}) AND key = '{key}' FOR UPDATE"),
        Rows::Creates => format!(
            "INSERT INTO s.entity (scope, key, version, token, changed_at, watched, outbox, state) \
             VALUES (({scope}), '{key}', 1, 0, 0, false, '', '')"
        ),
        Rows::DedupEntries => format!(
            "INSERT INTO s.dedup_0 VALUES ('\\x{}', '\\x{}', '\\x{}', 0)",
            bytes(done.key.as_bytes()),
            bytes(done.attempt.as_bytes()),
            bytes(done.fingerprint.as_bytes())
        ),
    }
}

/// A schema in a database of its own, a store in it, and somebody else's sessions.
struct Place {
    // Before the database.
    holder: Session,
    watch: Session,
    store: Postgres,
    schema: PostgresSchema,
    database: PostgresDatabase,
}

impl Place {
    async fn new(writers: usize) -> Self {
        let database = PostgresDatabase::new(&[]).await;
        let schema = database.schema();
        let store = schema.options().writers(writers).open().await.unwrap();
        let [holder, watch] = [Session::new(&schema).await, Session::new(&schema).await];
        Self { holder, watch, store, schema, database }
    }

    /// How many deadlocks the server had to end.
    async fn deadlocks(self) -> i64 {
        let Self { holder, watch, store, schema, database } = self;
        store.close().await;
        drop((holder, watch, schema));
        database.deadlocks().await
    }
}

impl bodies::Place for Place {
    type Store = Postgres;

    fn store(&self) -> &Postgres {
        &self.store
    }

    async fn another(&self) -> Postgres {
        self.schema.open().await
    }

    fn commits(store: &Postgres) -> u64 {
        store.commits()
    }

    async fn hold(&mut self, rows: Rows, samples: &Samples, number: u32) {
        self.holder.run(&format!("BEGIN; {}", held(rows, samples, number))).await;
    }

    async fn release(&mut self) {
        self.holder.run("ROLLBACK").await;
    }

    async fn until_waiting(&mut self, count: usize) {
        self.watch.until_waiting(count).await;
    }
}

/// Two stores that are asked for the same rows in opposite orders: see [`bodies::contend`]. How many deadlocks there were.
async fn deadlocks(rows: Rows, sagas: usize) -> i64 {
    let mut place = Place::new(1).await;
    bodies::contend(&mut place, rows, sagas).await;
    place.deadlocks().await
}

#[tokio::test]
async fn groups_of_two_postgres_stores_update_the_same_entities_in_one_order_whatever_order_they_were_asked_in() {
    assert_eq!((deadlocks(Rows::Updates, 1).await, deadlocks(Rows::Updates, 3).await), (0, 0));
}

#[tokio::test]
async fn groups_of_two_postgres_stores_create_the_same_entities_in_one_order_whatever_order_they_were_asked_in() {
    assert_eq!((deadlocks(Rows::Creates, 1).await, deadlocks(Rows::Creates, 3).await), (0, 0));
}

#[tokio::test]
async fn groups_of_two_postgres_stores_insert_the_same_marks_in_one_order_whatever_order_they_were_asked_in() {
    assert_eq!(deadlocks(Rows::DedupEntries, 1).await, 0);
}

#[tokio::test]
async fn all_writes_of_an_entity_go_through_one_postgres_writer_and_the_other_writers_do_not_wait_for_it() {
    /// The default limit of a write.
    const WAITS: Duration = Duration::from_secs(30);
    bodies::one_writer_an_entity(Place::new(4).await, WAITS).await;
}

#[tokio::test]
async fn a_postgres_finish_shares_the_commit_of_the_saves_beside_it_and_gives_way_to_one_of_its_own_entity() {
    bodies::a_finish_shares_and_gives_way(Place::new(1).await).await;
}

#[tokio::test]
async fn a_postgres_finish_never_waits_for_the_next_group() {
    bodies::a_finish_never_waits_for_the_next_group(Place::new(1).await).await;
}

#[tokio::test]
async fn a_conflict_in_a_postgres_group_is_of_its_member_alone_and_writes_none_of_its_dedup_entries() {
    bodies::a_conflict_is_of_its_member_alone(Place::new(1).await).await;
}

#[tokio::test]
async fn a_postgres_group_has_at_most_one_write_of_an_entity() {
    bodies::one_write_an_entity_in_a_group(Place::new(1).await).await;
}

/// The commit may have been made, and what is written again could meet what was written before. Here it was made: its backend
/// is ended while it waits for a standby to have it.
#[tokio::test]
async fn a_postgres_commit_of_unknown_outcome_is_unknown_to_every_member_of_its_group() {
    const MEMBERS: u32 = 5;
    let server = PostgresServer::start(&[]).await;
    let schema = PostgresSchema::on(&server.url());
    let (store, samples) = (schema.open().await, Samples::new("cut"));
    begin(&store, &samples, 1000).await;
    let mut watch = Session::new(&schema).await;
    watch.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
    watch.run("SELECT pg_reload_conf()").await;
    watch.until_commits_wait(&schema).await;
    let commits = store.commits();
    let saves = join_all((0..MEMBERS).map(async |number| save(&store, &samples, number, &Expected::Absent).await));
    let (answers, ()) = futures_util::join!(saves, watch.end_who_waits_at_the_commit("%INSERT INTO%entity%"));
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::UnknownOutcome, "{number}");
    }
    assert_eq!(store.commits(), commits, "something was written again");
    watch.run("ALTER SYSTEM RESET synchronous_standby_names").await;
    watch.run("SELECT pg_reload_conf()").await;
    // Each of them was written, once.
    assert_eq!(watch.number("SELECT count(*) FROM s.entity WHERE version = 1").await, i64::from(MEMBERS) + 1);
}

/// The same where it was not made: the backend is ended before.
#[tokio::test]
async fn a_postgres_group_whose_connection_ends_is_unknown_to_every_member() {
    const MEMBERS: u32 = 5;
    let (mut place, samples) = (Place::new(1).await, Samples::new("ended"));
    begin(place.store(), &samples, 1000).await;
    place.hold(Rows::Creates, &samples, 1).await;
    let Place { store, watch, .. } = &mut place;
    let commits = store.commits();
    let saves = join_all((0..MEMBERS).map(async |number| save(store, &samples, number, &Expected::Absent).await));
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
    place.release().await;
    assert_eq!(place.watch.number("SELECT count(*) FROM s.entity").await, 1);
    for number in 0..MEMBERS {
        begin(&place.store, &samples, number).await;
    }
}

/// By the server's own log of what it is asked for.
#[tokio::test]
async fn a_postgres_group_of_every_kind_is_one_statement_and_so_is_a_lone_write() {
    let server = PostgresServer::start(&["log_statement=all"]).await;
    let schema = PostgresSchema::on(&server.url());
    let (store, samples) = (schema.open().await, Samples::new("statements"));
    let entity = |number: u32| samples.entity_with(number, samples.entry(number));
    let mut versions = Vec::new();
    for number in 0..8 {
        let saved = store.save(&samples.key(number), &Expected::Absent, &entity(number), &[]).await.unwrap();
        versions.push(version(saved));
    }
    let mut watch = Session::new(&schema).await;
    let update = async |number: u32| {
        let expected = Expected::Version(versions[number as usize].clone());
        version(store.save(&samples.key(number), &expected, &samples.entity(number), &[]).await.unwrap());
    };
    let create = async |number: u32| drop(begin(&store, &samples, number).await);
    let clean_up = async |number: u32| {
        let (at, emptied) = (&versions[number as usize], samples.entity(number));
        store.finish(&samples.key(number), &[samples.done(number)], Some((at, &emptied))).await.unwrap();
    };
    let insert = async |number: u32| store.insert(&[samples.done(number)]).await.unwrap();
    watch.run("SELECT 'from here'").await;
    futures_util::join!(
        join_all((0..3).map(update)),
        join_all((10..13).map(create)),
        join_all((3..6).map(clean_up)),
        join_all((20..23).map(insert)),
    );
    watch.run("SELECT 'the group is written'").await;
    update(6).await;
    create(13).await;
    clean_up(7).await;
    insert(23).await;
    watch.run("SELECT 'to here'").await;

    let log = server.log();
    let log = log.split("'from here'").nth(1).unwrap().split("'to here'").next().unwrap();
    let (group, lone) = log.split_once("'the group is written'").unwrap();
    for (part, expected) in [(group, 1), (lone, 4)] {
        let asked = |line: &&str| line.contains("execute ") || line.contains("statement: ");
        // The last one asks for the mark.
        let asked = part.lines().filter(asked).count() - 1;
        assert_eq!(asked, expected, "{part}");
        let own = part.lines().filter(|line| line.contains("statement: BEGIN") || line.contains("COMMIT")).count();
        assert_eq!(own, 0, "{part}");
    }
}

/// Arrays cost a lone write a seventh more.
#[tokio::test]
async fn a_lone_postgres_write_is_a_statement_without_arrays_and_two_are_one_with() {
    let (mut place, samples) = (Place::new(1).await, Samples::new("lone"));
    let versions = [begin(place.store(), &samples, 0).await, begin(place.store(), &samples, 1).await];
    for rows in [Rows::Updates, Rows::Creates, Rows::DedupEntries] {
        for members in [1, 2] {
            let first = if rows == Rows::Creates { 10 } else { 0 };
            place.hold(rows, &samples, first).await;
            let Place { store, watch, holder, .. } = &mut place;
            let samples = &samples;
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
