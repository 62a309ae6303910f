//! The MariaDB store and queue on servers whose sessions begin otherwise than usual, with other isolation levels, or through a
//! driver that is told of rows changed instead of rows found: the promises that several processes at once could break, and
//! two stores that race for the same entities.
#![allow(clippy::unwrap_used)]

#[path = "isolation/bodies.rs"]
mod bodies;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bodies::{Opens, keeps_its_promises, races};
use hapax::{
    MySql, MySqlQueue,
    entity::Expected,
    ports::{DeadLetters, DedupStore, EntityStore, Saved, Transport},
    stores::mysql::MySqlOptions,
    testing,
};
use hapax_tests::{MySqlServer, MySqlTables, Samples};
use sqlx::{AssertSqlSafe, Executor};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};

/// As in `conformance.rs`.
const LEASE: Duration = Duration::from_secs(1);
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server of one test's own, and how it is reached.
#[derive(Debug)]
struct Place {
    // Before the server.
    tables: MySqlTables,
    _server: MySqlServer,
}

impl Place {
    /// Whose sessions begin with `level`.
    async fn new(level: &str) -> Self {
        let server = MySqlServer::start(&[&format!("transaction-isolation={}", level.replace(' ', "-"))]).await;
        let tables = MySqlTables::on(&server.url());
        let of_others: String =
            sqlx::query_scalar("SELECT @@tx_isolation").fetch_one(&mut tables.connection().await).await.unwrap();
        assert_eq!(of_others, level.replace(' ', "-"), "the server has the level that is being tried");
        Self { tables, _server: server }
    }

    /// Whose driver does not ask for rows found.
    async fn of_rows_changed() -> Self {
        let server = MySqlServer::start(&[]).await;
        Self { tables: MySqlTables::on(&rows_changed(&server.url()).await), _server: server }
    }

    fn options(&self) -> MySqlOptions {
        self.tables.options().writers(1)
    }
}

impl Opens for Place {
    type Store = MySql;

    async fn open(&self) -> Arc<MySql> {
        Arc::new(self.options().open().await.unwrap())
    }
}

#[async_trait]
impl testing::entity_store::Builder for Place {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        self.open().await
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(self.open().await)
    }
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        None
    }
}

#[async_trait]
impl testing::dedup_store::Builder for Place {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        self.open().await
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.options().table_prefix("other_").open().await.unwrap()))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for Place {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        self.open().await
    }
}

#[async_trait]
impl testing::transport::Builder for Place {
    async fn transport(&self) -> Arc<dyn Transport> {
        let options = MySqlQueue::options().lease(LEASE).migrate(true);
        Arc::new(options.open_database(self.options()).await.unwrap())
    }
}

/// The level that the server gives to a transaction of the store's while it waits.
async fn is_read_committed(place: &Place) {
    let (store, samples) = (place.open().await, Samples::new("level"));
    let saved = store.save(&samples.key(1), &Expected::Absent, &samples.entity(1), &[]).await.unwrap();
    let Saved::At(version) = saved else { panic!("{saved:?}") };
    let mut other = place.tables.connection().await;
    other.execute("BEGIN").await.unwrap();
    other.execute(AssertSqlSafe(place.tables.with_names("SELECT * FROM hapax.entity FOR UPDATE"))).await.unwrap();
    let mut waiting = tokio::spawn({
        let (store, samples) = (store.clone(), samples.clone());
        async move { store.save(&samples.key(1), &Expected::Version(version), &samples.entity(2), &[samples.done(1)]).await }
    });
    let level =
        "SELECT CAST(trx_isolation_level AS CHAR) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    let began = Instant::now();
    let level: String = loop {
        if let Some(level) = sqlx::query_scalar(level).fetch_optional(&mut other).await.unwrap() {
            break level;
        }
        assert!(began.elapsed() < PATIENCE && !waiting.is_finished(), "nobody waits");
        // The server's list is not renewed while it is read all the time.
        tokio::time::sleep(Duration::from_millis(150)).await;
    };
    assert_eq!(level, "READ COMMITTED");
    other.execute("COMMIT").await.unwrap();
    assert!(matches!((&mut waiting).await.unwrap().unwrap(), Saved::At(_)));
}

/// A way to the server at `url` that takes the client's wish for rows found out of its first message: then an update, and an
/// insert of what is there, tell of no row where they change nothing.
async fn rows_changed(url: &str) -> String {
    const FOUND_ROWS: u8 = 2;
    const HEADER_BYTES: usize = 4;
    let (account, place) = url.split_once('@').unwrap();
    let (server, database) = place.split_once('/').unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("{account}@{}/{database}?ssl-mode=disabled", listener.local_addr().unwrap());
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move {
                drop(copy(&mut from_server, &mut to_client).await);
            });
            tokio::spawn(async move {
                let mut first = [0; HEADER_BYTES + 1];
                if from_client.read_exact(&mut first).await.is_ok() {
                    assert_ne!(first[HEADER_BYTES] & FOUND_ROWS, 0, "the driver asks for rows found");
                    first[HEADER_BYTES] &= !FOUND_ROWS;
                    drop(to_server.write_all(&first).await);
                    drop(copy(&mut from_client, &mut to_server).await);
                }
            });
        }
    });
    url
}

/// Nothing that the store or the queue makes of a count of rows depends on which rows are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_rows_changed_instead_of_rows_found_make_no_difference() {
    let place = Place::of_rows_changed().await;
    let mut session = place.tables.connection().await;
    session.execute("CREATE TABLE one (x INT) ENGINE = InnoDB").await.unwrap();
    session.execute("INSERT INTO one VALUES (1)").await.unwrap();
    let same = session.execute("UPDATE one SET x = 1").await.unwrap();
    assert_eq!(same.rows_affected(), 0, "the server counts rows changed");

    // Entries that are known already, alone and among others; a save of what is there already.
    let (store, samples) = (place.open().await, Samples::new("same"));
    for _ in 0..3 {
        store.insert(&[samples.done(1)]).await.unwrap();
        store.insert(&[samples.done(1), samples.done(2)]).await.unwrap();
    }
    let mut expected = Expected::Absent;
    for _ in 0..3 {
        let Saved::At(version) = store.save(&samples.key(1), &expected, &samples.entity(1), &[]).await.unwrap() else {
            panic!("nobody else has saved it");
        };
        expected = Expected::Version(version);
    }
    keeps_its_promises(&place).await;
    races(&place).await;
}

macro_rules! at_each_level {
    ($($module:ident: $level:literal,)*) => {$(
        mod $module {
            use super::{Place, is_read_committed, keeps_its_promises, races};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mysql_keeps_its_promises() {
                let place = Place::new($level).await;
                is_read_committed(&place).await;
                keeps_its_promises(&place).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn two_mysql_stores_race() {
                races(&Place::new($level).await).await;
            }
        }
    )*};
}

at_each_level! {
    read_uncommitted: "READ UNCOMMITTED",
    read_committed: "READ COMMITTED",
    repeatable_read: "REPEATABLE READ",
    serializable: "SERIALIZABLE",
}
