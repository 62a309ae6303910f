//! What the PostgreSQL store rests on, beyond the promises of the ports: what it waits for, and what it then sees.

use std::{sync::Arc, time::Duration};

use hapax::{
    Postgres,
    entity::{DedupEntry, Entity, Expected, OutboxEntry, Version},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, SagaKey, SagaName, Scope},
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, ErrorKind, Page, Saved},
    time::Timestamp,
};
use hapax_tests::{LogLines, PostgresSchema, samples};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, postgres::PgRow};

/// A session of somebody else, in the schema of a test.
struct Session {
    connection: PgConnection,
    schema: String,
}

impl Session {
    async fn new(schema: &PostgresSchema) -> Self {
        Self { connection: PgConnection::connect(schema.url()).await.unwrap(), schema: schema.name().to_owned() }
    }

    /// Runs some statements; `s.` stands for the schema.
    async fn run(&mut self, sql: &str) {
        let text = sql.replace("s.", &format!("{}.", self.schema));
        self.connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    }

    async fn row(&mut self, sql: &str) -> PgRow {
        let text = sql.replace("s.", &format!("{}.", self.schema));
        self.connection.fetch_one(AssertSqlSafe(text)).await.unwrap()
    }

    async fn number(&mut self, sql: &str) -> i64 {
        self.row(sql).await.get(0)
    }

    /// Until a session waits for a lock on a table of the schema.
    async fn until_somebody_waits(&mut self) {
        let waiting = format!(
            "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE NOT l.granted AND n.nspname = '{}'",
            self.schema
        );
        while self.number(&waiting).await == 0 {
            tokio::task::yield_now().await;
        }
    }
}

fn key(name: &str) -> EntityKey {
    let scope = Scope { endpoint: EndpointName::parse("e").unwrap(), saga: SagaName::parse("s").unwrap() };
    EntityKey::new(Arc::new(scope), SagaKey::parse(name).unwrap())
}

fn mark(number: u8) -> DedupEntry {
    DedupEntry {
        key: DedupKey::from_bytes([number; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([number; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(0),
    }
}

fn entity(state: &str) -> Entity {
    Entity { state: state.as_bytes().to_vec().into(), ..Entity::default() }
}

/// A new entity, which nobody else has begun.
async fn begin(store: &Postgres, key: &EntityKey, entity: &Entity) -> Version {
    match store.save(key, &Expected::Absent, entity, &[]).await.unwrap() {
        Saved::At(version) => version,
        Saved::Conflict => panic!("{key} is there already"),
    }
}

async fn knows(store: &Postgres, mark: &DedupEntry) -> bool {
    store.contains(&[mark.key]).await.unwrap().entry(&mark.key).is_some()
}

/// The insert's statement may not have looked before it had the lock: it would write into what is closed.
#[tokio::test]
async fn an_insert_that_waits_for_a_rotation_goes_into_the_next_generation() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    store.insert(&[mark(1)]).await.unwrap();
    let mut rotation = Session::new(&schema).await;
    rotation.run("BEGIN; LOCK TABLE s.dedup_0 IN SHARE MODE").await;
    let inserting = tokio::spawn({
        let store = store.clone();
        async move { store.insert(&[mark(2)]).await }
    });
    Session::new(&schema).await.until_somebody_waits().await;
    rotation.run("UPDATE s.generation SET closed_at = 1; INSERT INTO s.generation VALUES (2, 1, 1); COMMIT").await;
    inserting.await.unwrap().unwrap();
    assert_eq!(rotation.number("SELECT count(*) FROM s.dedup_0").await, 1);
    assert_eq!(rotation.number("SELECT count(*) FROM s.dedup_1").await, 1);
    assert!(knows(&store, &mark(1)).await && knows(&store, &mark(2)).await);
}

/// What a process knows of the generations may be old.
#[tokio::test]
async fn handles_find_what_others_have_put_into_generations_that_they_do_not_know() {
    let schema = PostgresSchema::new();
    let (old, other) = (schema.open().await, schema.open().await);
    old.insert(&[mark(1)]).await.unwrap();
    let mut session = Session::new(&schema).await;
    session.run("UPDATE s.generation SET opened_at = 0").await;
    other.evict(Duration::from_secs(7 * 24 * 3600)).await.unwrap();
    assert_eq!(session.number("SELECT max(id) FROM s.generation").await, 2);
    other.insert(&[mark(2)]).await.unwrap();
    assert!(knows(&old, &mark(2)).await, "the check looks into the newest");
    old.insert(&[mark(3)]).await.unwrap();
    assert_eq!(session.number("SELECT count(*) FROM s.dedup_1").await, 2);
    let saved = old.save(&key("k"), &Expected::Absent, &entity("1"), &[mark(4)]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)));
    assert!(knows(&other, &mark(1)).await && knows(&other, &mark(4)).await);
}

#[tokio::test]
async fn eviction_empties_a_table_and_keeps_what_is_within_the_retention() {
    const DAY: i64 = 24 * 3600 * 1000;
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    let week = Duration::from_millis(7 * DAY as u64);
    store.insert(&[mark(1), mark(2)]).await.unwrap();
    let mut session = Session::new(&schema).await;
    // As if a week less a minute, and then a week, had passed since it was closed.
    session.run("UPDATE s.generation SET opened_at = 0").await;
    store.evict(week).await.unwrap();
    let closed = |ago: i64| {
        format!(
            "UPDATE s.generation SET closed_at = (date_part('epoch', clock_timestamp()) * 1000)::bigint - {ago} WHERE id = 1"
        )
    };
    session.run(&closed(7 * DAY - 60_000)).await;
    assert_eq!(store.evict(week).await.unwrap().entries, 0);
    assert!(knows(&store, &mark(1)).await);
    session.run(&closed(7 * DAY + 1)).await;
    assert_eq!(
        store.evict(Duration::from_secs(1)).await.unwrap().entries,
        2,
        "and nobody shortens the longest retention"
    );
    assert!(!knows(&store, &mark(1)).await);
    assert_eq!(session.number("SELECT pg_relation_size('s.dedup_0')").await, 0, "emptied, not deleted from");
    assert_eq!(session.number("SELECT count(*) FROM s.generation WHERE slot = 0").await, 0);
}

/// Somebody reads the table: the eviction gives way, and so does nobody wait behind it for long.
#[tokio::test]
async fn eviction_gives_way_to_those_who_read() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    store.insert(&[mark(1)]).await.unwrap();
    let mut session = Session::new(&schema).await;
    session.run("UPDATE s.generation SET opened_at = 0").await;
    store.evict(Duration::from_millis(1)).await.unwrap();
    session.run("UPDATE s.generation SET closed_at = 1 WHERE id = 1").await;
    session.run("BEGIN; SELECT * FROM s.dedup_0").await;
    let evicted = store.evict(Duration::from_millis(1)).await.unwrap();
    assert!(evicted.more && evicted.entries == 0, "{evicted:?}");
    session.run("COMMIT").await;
    assert_eq!(store.evict(Duration::from_millis(1)).await.unwrap().entries, 1);
}

/// Else an entity that comes again could have a version that its predecessor had.
#[tokio::test]
async fn an_entity_that_waits_for_a_purge_begins_above_it() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    begin(&store, &key("named"), &entity("1")).await;
    let mut purge = Session::new(&schema).await;
    purge.run("BEGIN; LOCK TABLE s.floor IN ACCESS EXCLUSIVE MODE").await;
    let saving = tokio::spawn({
        let store = store.clone();
        async move { store.save(&key("new"), &Expected::Absent, &entity("1"), &[]).await }
    });
    Session::new(&schema).await.until_somebody_waits().await;
    purge.run("UPDATE s.floor SET version = 41; COMMIT").await;
    let Saved::At(version) = saving.await.unwrap().unwrap() else { panic!("nobody else has saved it") };
    assert_eq!(version.as_number(), Some(42));
}

/// The negative control of design clause "one plain SELECT": with a row lock, the entity is shown as it is by then, beside
/// dedup entries as they were before. The store's load takes none, and shows one moment.
#[tokio::test]
async fn a_load_that_locks_would_see_two_moments_and_the_stores_does_not() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    let (key, mark) = (key("k"), mark(7));
    let before = begin(&store, &key, &entity("before")).await.as_number().unwrap();

    let (mut writer, mut locking) = (Session::new(&schema).await, Session::new(&schema).await);
    writer.run("BEGIN; UPDATE s.entity SET version = version + 1, state = 'after'").await;
    let bytes = "decode(repeat('07', 24), 'hex')";
    let short = "decode(repeat('07', 16), 'hex')";
    writer.run(&format!("INSERT INTO s.dedup_0 VALUES ({bytes}, {short}, {short}, 0, NULL)")).await;

    let meanwhile = store.load(&key, &[mark.key]).await.unwrap();
    assert_eq!(meanwhile.stored.unwrap().version.as_number(), Some(before));
    assert!(meanwhile.known.unwrap().entry(&mark.key).is_none());

    let sql = format!("SELECT version, EXISTS (SELECT FROM s.dedup_0 WHERE key = {bytes}) FROM s.entity FOR UPDATE");
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%' AND pid = ";
    let pid: i32 = locking.row("SELECT pg_backend_pid()").await.get(0);
    let locked = tokio::spawn(async move {
        let row = locking.row(&sql).await;
        (row.get::<i64, _>(0), row.get::<bool, _>(1))
    });
    let mut watch = Session::new(&schema).await;
    while watch.number(&format!("{waits}{pid}")).await == 0 {
        tokio::task::yield_now().await;
    }
    writer.run("COMMIT").await;
    assert_eq!(locked.await.unwrap(), (before + 1, false), "the server has mended it? then this control is void");
    let after = store.load(&key, &[mark.key]).await.unwrap();
    assert_eq!(after.stored.unwrap().version.as_number(), Some(before + 1));
}

/// A constraint of the user's own refuses one of a group.
#[tokio::test]
async fn a_row_that_is_refused_hurts_no_other_of_its_group() {
    const MEMBERS: usize = 40;
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    begin(&store, &key("named"), &entity("1")).await;
    Session::new(&schema).await.run("ALTER TABLE s.entity ADD CHECK (key <> 'refused')").await;
    let commits = store.commits();
    let saves = (0..MEMBERS).map(|number| {
        let store = store.clone();
        let name = if number == MEMBERS / 2 { "refused".to_owned() } else { format!("k{number}") };
        tokio::spawn(
            async move { store.save(&key(&name), &Expected::Absent, &entity("1"), &[mark(number as u8)]).await },
        )
    });
    let saves: Vec<_> = saves.collect();
    let mut refused = Vec::new();
    for (number, save) in saves.into_iter().enumerate() {
        match save.await.unwrap() {
            Ok(saved) => assert!(matches!(saved, Saved::At(_)), "{number}"),
            Err(error) => refused.push((number, error)),
        }
    }
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].0, refused[0].1.kind()), (MEMBERS / 2, ErrorKind::Misconfigured));
    assert!(store.commits() - commits >= 2);
    for number in 0..MEMBERS {
        assert_eq!(knows(&store, &mark(number as u8)).await, number != MEMBERS / 2, "{number}");
    }
}

/// An entity whose outbox is emptied is looked at by one more sweep, and by no later one.
#[tokio::test]
async fn a_sweep_looks_only_at_entities_that_have_changed_since() {
    let entry = OutboxEntry {
        key: mark(1).key,
        attempt: mark(1).attempt,
        fingerprint: mark(1).fingerprint,
        commit: 1,
        saved_at: Timestamp::from_millis(0),
        outgoing: Vec::new(),
        reply: None,
        reply_sent: false,
    };
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    let key = key("k");
    let waiting = Entity { outbox: vec![Arc::new(entry)], ..entity("1") };
    let version = begin(&store, &key, &waiting).await;
    let mut session = Session::new(&schema).await;
    let watched = "SELECT count(*) FROM s.entity WHERE watched";
    assert_eq!(session.number(watched).await, 1);
    let list = async || store.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap().len();
    assert_eq!(list().await, 1);
    assert_eq!(session.number(watched).await, 1, "something waits");
    let emptied = store.save(&key, &Expected::Version(version), &entity("2"), &[]).await.unwrap();
    assert!(matches!(emptied, Saved::At(_)));
    assert_eq!(session.number(watched).await, 1, "an emptied outbox changes no index");
    assert_eq!(list().await, 0);
    assert_eq!(session.number(watched).await, 0);
}

#[tokio::test]
async fn a_letter_that_cannot_be_read_hides_no_other() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    let endpoint = EndpointName::parse("e").unwrap();
    let letters = [(); 3].map(|()| samples::letter(endpoint.clone(), "x"));
    for letter in &letters {
        store.add(letter).await.unwrap();
    }
    let damage = async |letter: &DeadLetter| {
        let id = &letter.envelope.message_id;
        let damage = format!("UPDATE s.dead_letter SET envelope = '\\x07' WHERE message_id = '{id}'");
        Session::new(&schema).await.run(&damage).await;
    };
    damage(&letters[1]).await;
    let logged = LogLines::here();
    assert_eq!(store.list(&endpoint, &Page::first(10)).await.unwrap(), [letters[0].clone(), letters[2].clone()]);
    assert_eq!(logged.with("is left out").len(), 1);
    // Nor does a whole page of them.
    damage(&letters[0]).await;
    for (skip, limit, left_out) in [(0, 1, 1), (1, 1, 1), (2, 1, 0), (0, 2, 2), (2, 2, 0)] {
        let (page, logged) = (Page { skip, ..Page::first(limit) }, LogLines::here());
        assert_eq!(store.list(&endpoint, &page).await.unwrap(), letters[2..], "{page:?}");
        assert_eq!(logged.with("is left out").len(), left_out, "{page:?}");
    }
    for page in [Page { skip: 3, ..Page::first(1) }, Page::first(0)] {
        assert_eq!(store.list(&endpoint, &page).await.unwrap(), [], "{page:?}");
    }
}
