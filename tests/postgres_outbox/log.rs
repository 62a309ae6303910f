//! What is relayed from the server's log: rows that are read there, and messages that are nowhere else.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax::{
    envelope::{Envelope, Outgoing},
    ports::{ErrorKind, OutboxTable, Page, StoreError},
    stores::postgres::outbox::LogOptions,
    time::Timestamp,
};
use hapax_tests::{PostgresSchema, PostgresServer};
use sqlx::{PgPool, postgres::PgPoolOptions};

use super::{
    rig::{Outbox, Place},
    sink::{Fate, PATIENCE, Placed, Sink, patient, quick, relay},
};

const WAITING: &str = "SELECT count(*) FROM hapax.outbox WHERE status = 0";
const SENT: &str = "SELECT count(*) FROM hapax.outbox WHERE status = 1";
const FAILED: &str = "SELECT count(*) FROM hapax.outbox WHERE status = 2";
/// While a slot is made it is active too, and what is committed by then is not for it.
const READERS: &str = "SELECT count(*) FROM pg_replication_slots WHERE active AND confirmed_flush_lsn IS NOT NULL";

/// A server that tells what is in its log.
pub(super) struct Logged {
    pub(super) place: Place,
    log: LogOptions,
    pub(super) server: PostgresServer,
}

impl Logged {
    pub(super) async fn new(log: LogOptions) -> Self {
        Self::on(PostgresServer::start(&["wal_level=logical"]).await, log).await
    }

    async fn on(server: PostgresServer, log: LogOptions) -> Self {
        let place = place_on(&server).await;
        let this = Self { place, log: log.heartbeat(Duration::from_millis(200)), server };
        this.outbox().await;
        this.place.run("CREATE TABLE hapax.orders (id INT PRIMARY KEY)").await;
        this
    }

    pub(super) async fn outbox(&self) -> Outbox {
        self.try_outbox(self.log.clone()).await.unwrap()
    }

    async fn try_outbox(&self, log: LogOptions) -> Result<Outbox, StoreError> {
        Outbox::options().migrate(true).log(log).open_database(self.place.database()).await
    }

    /// Somebody reads the log.
    pub(super) async fn until_read(&self) {
        self.place.until(READERS, 1).await;
    }

    pub(super) async fn until_not_read(&self) {
        self.place.until(READERS, 0).await;
    }

    /// Nobody reads it at the moment: whoever does begins anew.
    pub(super) async fn cut(&self) {
        self.place.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active").await;
    }
}

async fn place_on(server: &PostgresServer) -> Place {
    let schema = PostgresSchema::on(&server.url());
    let pool: PgPool = PgPoolOptions::new().max_connections(8).connect(schema.url()).await.unwrap();
    Place { pool, schema, ordered: false }
}

/// Looks and leases end nothing within a test, but for those of the log.
fn rows() -> LogOptions {
    LogOptions::rows().lease(PATIENCE * 4)
}

async fn is_read_from_the_log(logged: &Logged) -> Sink {
    let (writer, relaying, sink) = (logged.outbox().await, logged.outbox().await, Sink::new());
    let relay = relay(&relaying, &sink, patient());
    logged.until_read().await;
    for order in 0..100 {
        let (tx, ticket) = logged.place.order(&writer, order).await;
        if order % 10 == 9 {
            tx.rollback().await.unwrap();
        } else {
            writer.commit(tx, ticket).await.unwrap();
        }
    }
    let mut tx = logged.place.begin().await;
    let many: Vec<Outgoing> = (100..400).map(|order| writer.outgoing(&Placed { order }).unwrap()).collect();
    let ticket = writer.enqueue_all(&mut tx, &many).await.unwrap();
    writer.commit(tx, ticket).await.unwrap();
    sink.until(|sink| sink.distinct().len() >= 390).await;
    relay.stop().await.unwrap();
    let committed = (0..400).filter(|order| order % 10 != 9 || *order >= 100);
    assert_eq!(sink.orders(), Vec::from_iter(committed), "each once, in the order of their commits, and no others");
    sink
}

#[tokio::test]
async fn rows_are_read_from_the_log() {
    let logged = Logged::new(rows()).await;
    is_read_from_the_log(&logged).await;
    assert_eq!([logged.place.number(SENT).await, logged.place.number(WAITING).await], [390, 0], "a stop stores all");
    assert_eq!(logged.place.number("SELECT max(attempts) FROM hapax.outbox").await, 1);
    logged.place.until("SELECT count(*) FROM pg_replication_slots", 0).await;
}

#[tokio::test]
async fn messages_are_in_the_log_alone() {
    let logged = Logged::new(LogOptions::messages()).await;
    is_read_from_the_log(&logged).await;
    assert_eq!(logged.place.number("SELECT count(*) FROM hapax.outbox").await, 0);
    // All was told at the stop: who comes next is given nothing again.
    let (outbox, sink) = (logged.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, patient());
    logged.place.orders(&outbox, 400..410).await;
    sink.until_all(400..410).await;
    assert_eq!(sink.orders(), Vec::from_iter(400..410));
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_savepoint_has_taken_back_is_not_in_the_log() {
    for log in [rows(), LogOptions::messages()] {
        let logged = Logged::new(log).await;
        let (outbox, sink) = (logged.outbox().await, Sink::new());
        let relay = relay(&outbox, &sink, patient());
        logged.until_read().await;
        let mut tx = logged.place.begin().await;
        let first = outbox.enqueue(&mut tx, &Placed { order: 0 }).await.unwrap();
        logged.place.within(&mut tx, "SAVEPOINT here").await;
        drop(outbox.enqueue(&mut tx, &Placed { order: 1 }).await.unwrap());
        logged.place.within(&mut tx, "ROLLBACK TO SAVEPOINT here").await;
        let last = outbox.enqueue(&mut tx, &Placed { order: 2 }).await.unwrap();
        outbox.commit(tx, first.and(last)).await.unwrap();
        sink.until(|sink| sink.orders().contains(&2)).await;
        assert_eq!(sink.orders(), [0, 2]);
        relay.stop().await.unwrap();
    }
}

#[tokio::test]
async fn only_one_reads_and_another_takes_over() {
    let logged = Logged::new(rows()).await;
    let (one, other, sink) = (logged.outbox().await, logged.outbox().await, Sink::new());
    let first = relay(&one, &sink, patient());
    logged.until_read().await;
    let second = relay(&other, &sink, patient());
    logged.place.orders(&one, 0..50).await;
    sink.until_all(0..50).await;
    assert_eq!(sink.taken().len(), 50, "nothing is read twice");
    first.stop().await.unwrap();
    logged.until_not_read().await;
    logged.until_read().await;
    logged.place.orders(&one, 50..100).await;
    sink.until_all(0..100).await;
    second.stop().await.unwrap();
}

#[tokio::test]
async fn rows_that_nobody_reads_are_claimed_when_their_lease_is_over() {
    let logged = Logged::new(LogOptions::rows().lease(Duration::from_millis(300))).await;
    let (writer, sink) = (logged.outbox().await, Sink::new());
    logged.place.orders(&writer, 0..50).await;
    let plain = Outbox::options().open_database(logged.place.database()).await.unwrap();
    let relay = relay(&plain, &sink, quick());
    sink.until_all(0..50).await;
    relay.stop().await.unwrap();
    assert_eq!(logged.place.number(SENT).await, 50);
}

#[tokio::test]
async fn what_cannot_be_sent_now_becomes_a_row() {
    let logged = Logged::new(LogOptions::messages()).await;
    // Each only once: whoever refuses what it is probed with, again and again, is left alone for longer and longer.
    let refused = Mutex::new(HashSet::new());
    let sink = Sink::with(move |order| match order {
        7 => Fate::Impossible,
        order if order % 10 == 3 && refused.lock().unwrap().insert(order) => Fate::Refused,
        _ => Fate::Taken,
    });
    let outbox = logged.outbox().await;
    let first = relay(&outbox, &sink, quick());
    logged.place.orders(&outbox, 0..100).await;
    sink.until(|sink| sink.distinct().len() >= 99).await;
    logged.place.until(FAILED, 1).await;
    let failed = outbox.failed(&Page::first(10)).await.unwrap();
    assert_eq!((failed.len(), failed[0].attempts), (1, 1));
    let body: Placed = serde_json::from_slice(&failed[0].outgoing.as_ref().unwrap().envelope.body).unwrap();
    assert!(body.order == 7 && failed[0].reason.contains("order 7 is not taken"), "{failed:?}");
    first.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 99, "each once");
    assert_eq!([logged.place.number(SENT).await, logged.place.number(WAITING).await], [10, 0]);
}

#[tokio::test]
async fn what_is_not_due_or_may_expire_is_a_row() {
    for log in [rows(), LogOptions::messages()] {
        let logged = Logged::new(log).await;
        let (outbox, sink) = (logged.outbox().await, Sink::new());
        let relay = relay(&outbox, &sink, quick());
        logged.until_read().await;
        let message = |order, change: &dyn Fn(&mut Envelope)| {
            let outgoing = outbox.outgoing(&Placed { order }).unwrap();
            let mut envelope = (*outgoing.envelope).clone();
            change(&mut envelope);
            Outgoing { envelope: envelope.into(), ..outgoing }
        };
        let now = Timestamp::now();
        let messages = [
            message(0, &|_| {}),
            message(1, &|envelope| envelope.due = Some(now.after(Duration::from_millis(500)))),
            message(2, &|envelope| envelope.expires = Some(now.after(PATIENCE))),
            message(3, &|envelope| envelope.expires = Some(Timestamp::from_millis(1))),
        ];
        let mut tx = logged.place.begin().await;
        let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
        outbox.commit(tx, ticket).await.unwrap();
        sink.until_all(0..3).await;
        assert!(Timestamp::now() >= now.after(Duration::from_millis(490)), "not before it is due");
        logged.place.until("SELECT count(*) FROM hapax.outbox WHERE status = 3", 1).await;
        relay.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_slot_that_is_gone_is_said_and_made_anew() {
    let logged = Logged::new(LogOptions::messages()).await;
    let (outbox, sink) = (logged.outbox().await, Sink::new());
    let first = relay(&outbox, &sink, patient());
    logged.place.orders(&outbox, 0..10).await;
    sink.until_all(0..10).await;
    first.stop().await.unwrap();
    logged.until_not_read().await;
    assert_eq!(outbox.state().await.unwrap().log_gaps, 0);
    logged.place.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots").await;
    assert_eq!(outbox.state().await.unwrap().log_lag, None, "nobody keeps the log");
    // What is stored now is lost, as with every log that nobody keeps; it is counted.
    let second = relay(&outbox, &sink, patient());
    logged.until_read().await;
    logged.place.orders(&outbox, 20..30).await;
    sink.until(|sink| sink.distinct().len() >= 20).await;
    let state = outbox.state().await.unwrap();
    assert!(state.log_gaps == 1 && state.log_lag.is_some(), "{state:?}");
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_slot_that_is_lost_before_anything_was_read_is_counted_too() {
    let logged = Logged::new(LogOptions::messages()).await;
    let outbox = logged.outbox().await;
    logged.place.orders(&outbox, 0..10).await;
    // Twice: what tells of the first loss is not all that tells of the second.
    for lost in 1..=2 {
        logged.place.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots").await;
        let state = logged.outbox().await.state().await.unwrap();
        assert!(state.log_gaps == lost && state.log_lag.is_some(), "{state:?}");
    }
    assert_eq!(logged.outbox().await.state().await.unwrap().log_gaps, 2, "one that is there is no loss");
}

#[tokio::test]
async fn what_is_stored_of_another_log_skips_nothing() {
    let logged = Logged::new(LogOptions::messages()).await;
    let (outbox, sink) = (logged.outbox().await, Sink::new());
    logged.place.orders(&outbox, 0..20).await;
    // As a restored copy of another server's tables would say: far ahead.
    logged
        .place
        .run("INSERT INTO hapax.outbox_meta VALUES ('log_read', 9000000000000000), ('log_system', 1) ON CONFLICT DO NOTHING")
        .await;
    let relay = relay(&outbox, &sink, patient());
    sink.until_all(0..20).await;
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn too_much_log_goes_into_the_table() {
    let logged = Logged::new(LogOptions::messages().lag_bytes_max(200_000)).await;
    let open = Arc::<AtomicBool>::default();
    let is_open = open.clone();
    let sink = Sink::with(move |_| if is_open.load(Ordering::Relaxed) { Fate::Taken } else { Fate::Refused });
    let outbox = logged.outbox().await;
    let relay = relay(&outbox, &sink, quick());
    logged.until_read().await;
    logged.place.orders(&outbox, 0..1500).await;
    // Nothing is sent, and nearly all is in the table, so that the log need not be kept.
    let lag = async {
        loop {
            let state = outbox.state().await.unwrap();
            if state.log_lag.is_some_and(|lag| lag <= 200_000) && state.stored >= 500 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, lag).await.expect("the log is kept for ever");
    open.store(true, Ordering::Relaxed);
    sink.until_all(0..1500).await;
    relay.stop().await.unwrap();
}

/// Any role may write into the log what it likes, and say that it is a message of this outbox.
#[tokio::test]
async fn what_cannot_be_read_is_set_aside_and_holds_up_nothing() {
    let logged = Logged::new(LogOptions::messages().lag_bytes_max(1 << 20)).await;
    let (outbox, sink) = (logged.outbox().await, Sink::new());
    logged.place.orders(&outbox, 0..10).await;
    // None at all, one that begins well, and one of a version that there is not yet, whose log is not to be kept.
    for unreadable in ["'x'", "'\\x7001'::bytea", "'\\x70ff'::bytea"] {
        logged.place.run(&format!("SELECT pg_logical_emit_message(true, 'hapax.outbox', {unreadable})")).await;
    }
    logged.place.orders(&outbox, 10..20).await;
    logged.place.run(&format!("SELECT pg_logical_emit_message(true, 'filler', repeat('x', {}))", 4 << 20)).await;
    let relay = relay(&outbox, &sink, patient());
    sink.until_all(0..20).await;
    let failed = outbox.failed(&Page::first(10)).await.unwrap();
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(failed.iter().all(|failed| failed.reason.contains("server's log at")), "{failed:?}");
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn what_others_write_into_the_log_is_not_kept() {
    for log in [rows(), LogOptions::messages()] {
        // It says how far it is whenever it has come to the log's end, and not only when it would give somebody up.
        let server = PostgresServer::start(&["wal_level=logical", "wal_sender_timeout=0"]).await;
        let logged = Logged::on(server, log).await;
        let (outbox, sink) = (logged.outbox().await, Sink::new());
        let relay = relay(&outbox, &sink, patient());
        logged.until_read().await;
        logged
            .place
            .run("CREATE TABLE hapax.big AS SELECT i, repeat('x', 500) FROM generate_series(1, 100000) AS i")
            .await;
        let less = async {
            while outbox.state().await.unwrap().log_lag.is_none_or(|lag| lag > 30 << 20) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, less).await.expect("the log of others is kept");
        relay.stop().await.unwrap();
    }
}

#[tokio::test]
async fn servers_that_do_not_let_their_log_be_read_are_refused_at_the_start() {
    let wrong = |opened: Result<Outbox, StoreError>| {
        let error = opened.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        format!("{error}: {}", std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default())
    };
    let server = PostgresServer::start(&["wal_level=replica"]).await;
    let place = place_on(&server).await;
    let said = wrong(Outbox::options().migrate(true).log(rows()).open_database(place.database()).await);
    assert!(said.contains("wal_level = logical"), "{said}");

    let server = PostgresServer::start(&["wal_level=logical", "max_slot_wal_keep_size=100MB"]).await;
    let forgetful = Logged::on(server, rows()).await;
    let said = wrong(forgetful.try_outbox(LogOptions::messages()).await);
    assert!(said.contains("max_slot_wal_keep_size"), "{said}");
    forgetful.try_outbox(LogOptions::messages().lag_bytes_max(50 << 20)).await.unwrap();

    let logged = Logged::new(rows()).await;
    let said = wrong(logged.try_outbox(rows().slot("Not-A-Name")).await);
    assert!(said.contains("Not-A-Name"), "{said}");
    let said =
        wrong(Outbox::options().migrate(true).log(rows()).open_database(logged.place.database().pooler(true)).await);
    assert!(said.contains("pooler"), "{said}");
    let said = wrong(
        Outbox::options()
            .migrate(true)
            .ordered_keys(true)
            .log(rows())
            .open_database(logged.place.database().table_prefix("o_"))
            .await,
    );
    assert!(said.contains("order"), "{said}");
    let said = wrong(Outbox::options().log(rows().slot("other")).open_database(logged.place.database()).await);
    assert!(said.contains("CREATE PUBLICATION"), "{said}");

    logged.place.run("CREATE ROLE plain LOGIN").await;
    let database = logged.server.url().replace("postgres://postgres@", "postgres://plain@");
    let schema = logged.place.schema.name().to_owned();
    let opened = Outbox::options().log(rows());
    let opened = opened.open_database(hapax::Postgres::options(&database).schema(schema)).await;
    let said = format!("{:?}", opened.expect_err("it is refused"));
    assert!(said.contains("REPLICATION") || said.contains("permission denied"), "{said}");
}
