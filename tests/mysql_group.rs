//! Group commit on MariaDB: the clauses that hold on any server, and in which statements a group is written, what its members
//! are told when its commit is cut, and what a lone write costs.
#![allow(clippy::unwrap_used)]

#[path = "group/bodies.rs"]
mod bodies;
#[path = "group/large.rs"]
mod large;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bodies::{PATIENCE, Rows, begin, save, version};
use futures_util::future::join_all;
use hapax::{
    MySql,
    entity::Expected,
    ports::{DedupStore, EntityStore, ErrorKind},
};
use hapax_tests::{MySqlServer, MySqlTables, Samples};
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, Row};

/// A session of somebody else. `hapax.` in a text stands for the prefix of a test's tables.
struct Session {
    connection: MySqlConnection,
    prefix: String,
}

impl Session {
    async fn new(tables: &MySqlTables) -> Self {
        Self { connection: tables.connection().await, prefix: tables.prefix().to_owned() }
    }

    async fn run(&mut self, sql: &str) {
        let text = sql.replace("hapax.", &self.prefix);
        self.connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    }

    /// Until `count` sessions of the server wait for a row.
    async fn until_waiting(&mut self, count: usize) {
        let began = Instant::now();
        loop {
            let counts = self.counts().await;
            let waiting = counts.get("Innodb_row_lock_current_waits").copied().unwrap_or_default();
            if usize::try_from(waiting) == Ok(count) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{waiting} sessions wait, not {count}");
            tokio::task::yield_now().await;
        }
    }

    /// A text and a number.
    async fn row(&mut self, sql: &str) -> (String, i64) {
        self.run("SET SESSION group_concat_max_len = 1000000").await;
        let text = sql.replace("hapax.", &self.prefix);
        let row = self.connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
        (String::from_utf8(row.get(0)).unwrap(), row.get(1))
    }

    /// The server's counts of statements and what else it counts, without those that are zero.
    async fn counts(&mut self) -> BTreeMap<String, i64> {
        let rows = self.connection.fetch_all("SHOW GLOBAL STATUS").await.unwrap();
        let count = |row: sqlx::mysql::MySqlRow| Some((row.get::<String, _>(0), row.get::<String, _>(1).parse().ok()?));
        rows.into_iter().filter_map(count).filter(|(_, count)| *count != 0).collect()
    }
}

/// What keeps a row of `samples` from others until it is rolled back. `BEGIN` is at the server's usual level: of an entity that
/// is not there, it is the gap between those beside it, in which nobody can insert, and which locks nobody else out.
fn held(rows: Rows, samples: &Samples, number: u32) -> String {
    let key = samples.key(number);
    let scope = format!("SELECT id FROM hapax.scope WHERE endpoint = '{}'", key.scope().endpoint);
    let bytes = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let done = samples.done(number);
    match rows {
        Rows::Updates | Rows::Creates => {
            format!("SELECT * FROM hapax.entity WHERE scope = ({scope}) AND `key` = '{}' FOR UPDATE", key.key())
        }
        Rows::DedupEntries => format!(
            "INSERT INTO hapax.dedup_0 (`key`, attempt, fingerprint, time) VALUES (x'{}', x'{}', x'{}', 0)",
            bytes(done.key.as_bytes()),
            bytes(done.attempt.as_bytes()),
            bytes(done.fingerprint.as_bytes())
        ),
    }
}

/// Tables, a store in them, and somebody else's sessions.
struct Place {
    holder: Session,
    watch: Session,
    store: MySql,
    // After the sessions, and before the server.
    tables: MySqlTables,
    _server: Option<MySqlServer>,
}

impl Place {
    async fn new() -> Self {
        Self::on(MySqlTables::new(), 1, None).await
    }

    /// On a server of its own, which counts for nobody else what waits and what it is asked for.
    async fn private(writers: usize) -> Self {
        let server = MySqlServer::start(&[]).await;
        Self::on(MySqlTables::on(&server.url()), writers, Some(server)).await
    }

    async fn on(tables: MySqlTables, writers: usize, _server: Option<MySqlServer>) -> Self {
        let store = tables.options().writers(writers).open().await.unwrap();
        let [holder, watch] = [Session::new(&tables).await, Session::new(&tables).await];
        Self { holder, watch, store, tables, _server }
    }
}

impl bodies::Place for Place {
    type Store = MySql;

    fn store(&self) -> &MySql {
        &self.store
    }

    async fn another(&self) -> MySql {
        self.tables.open().await
    }

    fn commits(store: &MySql) -> u64 {
        store.commits()
    }

    async fn hold(&mut self, rows: Rows, samples: &Samples, number: u32) {
        self.holder.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await;
        self.holder.run(&format!("BEGIN; {}", held(rows, samples, number))).await;
    }

    async fn release(&mut self) {
        self.holder.run("ROLLBACK").await;
    }

    async fn until_waiting(&mut self, count: usize) {
        self.watch.until_waiting(count).await;
    }
}

#[tokio::test]
async fn groups_of_two_mysql_stores_write_the_same_rows_in_one_order_whatever_order_they_were_asked_in() {
    let mut place = Place::private(1).await;
    let ways =
        [(Rows::Updates, 1), (Rows::Updates, 3), (Rows::Creates, 1), (Rows::Creates, 3), (Rows::DedupEntries, 1)];
    for (rows, sagas) in ways {
        bodies::contend(&mut place, rows, sagas).await;
        let counts = place.watch.counts().await;
        assert_eq!(counts.get("Innodb_deadlocks"), None, "{rows:?} of {sagas} sagas");
    }
}

#[tokio::test]
async fn all_writes_of_an_entity_go_through_one_mysql_writer_and_the_other_writers_do_not_wait_for_it() {
    /// A row that is held is waited for three times, for three seconds each.
    const WAITS: Duration = Duration::from_secs(9);
    bodies::one_writer_an_entity(Place::private(4).await, WAITS).await;
}

#[tokio::test]
async fn a_mysql_finish_shares_the_commit_of_the_saves_beside_it_and_gives_way_to_one_of_its_own_entity() {
    bodies::a_finish_shares_and_gives_way(Place::new().await).await;
}

#[tokio::test]
async fn a_mysql_finish_never_waits_for_the_next_group() {
    bodies::a_finish_never_waits_for_the_next_group(Place::private(1).await).await;
}

#[tokio::test]
async fn a_conflict_in_a_mysql_group_is_of_its_member_alone_and_writes_none_of_its_dedup_entries() {
    bodies::a_conflict_is_of_its_member_alone(Place::new().await).await;
}

#[tokio::test]
async fn a_mysql_group_has_at_most_one_write_of_an_entity() {
    bodies::one_write_an_entity_in_a_group(Place::new().await).await;
}

/// The commit may have been made, and what is written again could meet what was written before. Somebody makes a backup, for
/// which commits wait, and the connection of one that waits is ended.
#[tokio::test]
async fn a_mysql_commit_of_unknown_outcome_is_unknown_to_every_member_of_its_group() {
    const MEMBERS: u32 = 5;
    let mut place = Place::private(1).await;
    let samples = Samples::new("cut");
    begin(&place.store, &samples, 1000).await;
    for stage in ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"] {
        place.holder.run(&format!("BACKUP STAGE {stage}")).await;
    }
    let Place { store, watch, holder, .. } = &mut place;
    let (commits, begun) = (store.commits(), watch.counts().await["Com_begin"]);
    let saves = join_all((0..MEMBERS).map(async |number| save(store, &samples, number, &Expected::Absent).await));
    let (answers, ()) = futures_util::join!(saves, async {
        let sql = "SELECT id FROM information_schema.processlist WHERE info = 'COMMIT' AND state LIKE 'Waiting for%'";
        let began = Instant::now();
        let at_the_commit: i64 = loop {
            match sqlx::query_scalar(sql).fetch_optional(&mut watch.connection).await.unwrap() {
                Some(session) => break session,
                None => assert!(began.elapsed() < PATIENCE, "nobody waits at the commit"),
            }
            tokio::task::yield_now().await;
        };
        watch.run(&format!("KILL CONNECTION {at_the_commit}")).await;
    });
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::UnknownOutcome, "{number}");
    }
    assert_eq!(store.commits(), commits);
    assert_eq!(watch.counts().await["Com_begin"], begun + 1, "something was written again");
    holder.run("BACKUP STAGE END").await;
    for number in 0..MEMBERS {
        let stored = store.load(&samples.key(number), &[]).await.unwrap().stored;
        let expected = stored.map_or(Expected::Absent, |stored| Expected::Version(stored.version));
        version(save(store, &samples, number, &expected).await.unwrap());
    }
}

/// What `writes` add to the counts of the server, of what a statement can be.
async fn counted(watch: &mut Session, writes: impl Future<Output = ()>) -> BTreeMap<String, i64> {
    let before = watch.counts().await;
    writes.await;
    let kinds = ["begin", "commit", "rollback", "select", "insert", "insert_select", "update", "delete", "replace"];
    let after = watch.counts().await;
    let counts = kinds.iter().chain(&["stmt_execute"]).map(|kind| format!("Com_{kind}"));
    let of = |counts: &BTreeMap<String, i64>, kind: &str| counts.get(kind).copied().unwrap_or_default();
    counts.map(|kind| (kind[4..].to_owned(), of(&after, &kind) - of(&before, &kind))).filter(|(_, n)| *n > 0).collect()
}

/// By the server's own counts.
#[tokio::test]
async fn a_mysql_group_is_one_statement_for_each_kind_and_a_lone_write_is_one_in_all() {
    let mut place = Place::private(1).await;
    let Place { store, watch, .. } = &mut place;
    let samples = Samples::new("statements");
    let entity = |number: u32| samples.entity_with(number, samples.entry(number));
    let mut versions = Vec::new();
    for number in 0..8 {
        let saved = store.save(&samples.key(number), &Expected::Absent, &entity(number), &[]).await.unwrap();
        versions.push(version(saved));
    }
    let update = async |number: u32| {
        let expected = Expected::Version(versions[number as usize].clone());
        version(store.save(&samples.key(number), &expected, &samples.entity(number), &[]).await.unwrap());
    };
    let create = async |number: u32| drop(begin(store, &samples, number).await);
    let clean_up = async |number: u32| {
        let (at, emptied) = (&versions[number as usize], samples.entity(number));
        store.finish(&samples.key(number), &[samples.done(number)], Some((at, &emptied))).await.unwrap();
    };
    let insert = async |number: u32| store.insert(&[samples.done(number)]).await.unwrap();
    let all = async {
        futures_util::join!(
            join_all((0..3).map(update)),
            join_all((10..13).map(create)),
            join_all((3..6).map(clean_up)),
            join_all((20..23).map(insert)),
        );
    };
    // Looked at: the newest generation, the highest version ever, the entities, the time. Written: saves, clean-ups, what
    // begins, dedup entries.
    let counts = |counts: &[(&str, i64)]| counts.iter().map(|(kind, n)| ((*kind).to_owned(), *n)).collect();
    let expected: BTreeMap<String, i64> = counts(&[("begin", 1), ("commit", 1), ("select", 4), ("insert", 4)]);
    assert_eq!(counted(watch, all).await, expected);
    let two = async {
        futures_util::join!(insert(30), insert(31));
    };
    let expected: BTreeMap<String, i64> = counts(&[("begin", 1), ("commit", 1), ("select", 2), ("insert", 1)]);
    assert_eq!(counted(watch, two).await, expected);
    let expected: BTreeMap<String, i64> = counts(&[("update", 1), ("stmt_execute", 1)]);
    assert_eq!(counted(watch, update(6)).await, expected);
    let expected: BTreeMap<String, i64> = counts(&[("insert_select", 1), ("stmt_execute", 1)]);
    assert_eq!(counted(watch, insert(23)).await, expected);
}
