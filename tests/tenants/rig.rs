//! A shop for each tenant, and its place on a server.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax::{
    Connections, Context, Correlation, Handle, HandlerError, Message, MySql, MySqlQueue, Needs, Postgres,
    PostgresQueue, Saga, Sender,
    codec::FRAME_BYTES,
    ids::{EndpointName, EntityKey, SagaKey, SagaName, Scope},
    ports::{DeadLetters, DedupStore, EntityStore, Transport},
};
use hapax_tests::{MySqlTables, PostgresSchema};
use serde::{Deserialize, Serialize};
use sqlx::{
    AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row, mysql::MySqlConnectOptions,
    postgres::PgConnectOptions,
};
use tokio::sync::Notify;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sell {
    pub(crate) shop: String,
    pub(crate) what: String,
}

impl Message for Sell {
    const TYPE: &'static str = "tenants.sell";
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sold {
    shop: String,
    what: String,
}

impl Message for Sold {
    const TYPE: &'static str = "tenants.sold";
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Shop {
    has: Vec<String>,
}

impl Saga for Shop {
    const NAME: &'static str = "shop";
}

impl Handle<Sell> for Shop {
    fn correlate(sell: &Sell) -> Correlation<'_> {
        (&sell.shop).into()
    }

    async fn handle(&mut self, sell: Sell, cx: &mut Context) -> Result<(), HandlerError> {
        self.has.push(sell.what.clone());
        cx.send_local(Sold { shop: sell.shop, what: sell.what })
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    has: Vec<String>,
}

impl Saga for Ledger {
    const NAME: &'static str = "ledger";

    fn needs() -> Needs {
        Needs::default().and::<Book>()
    }
}

impl Handle<Sold> for Ledger {
    fn correlate(sold: &Sold) -> Correlation<'_> {
        (&sold.shop).into()
    }

    async fn handle(&mut self, sold: Sold, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Book>()?.written(&sold.what);
        self.has.push(sold.what);
        Ok(())
    }
}

/// What has come to the end of its way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books(Arc<Sales>);

#[derive(Debug, Default)]
struct Sales {
    written: Mutex<BTreeSet<(usize, String)>>,
    told: Notify,
}

/// That of one tenant.
#[derive(Debug)]
pub(crate) struct Book(Books, usize);

impl Books {
    pub(crate) fn of(&self, tenant: usize) -> Book {
        Book(self.clone(), tenant)
    }

    pub(crate) async fn until(&self, sales: usize) {
        loop {
            let told = self.0.told.notified();
            if self.0.written.lock().unwrap_or_else(PoisonError::into_inner).len() >= sales {
                return;
            }
            told.await;
        }
    }
}

impl Book {
    fn written(&self, what: &str) {
        let Self(books, tenant) = self;
        books.0.written.lock().unwrap_or_else(PoisonError::into_inner).insert((*tenant, what.to_owned()));
        books.0.told.notify_one();
    }
}

/// The only instance of a saga.
pub(crate) fn key(saga: &str) -> EntityKey {
    let scope = Scope { endpoint: EndpointName::parse("shop").unwrap(), saga: SagaName::parse(saga).unwrap() };
    EntityKey::new(Arc::new(scope), SagaKey::parse("corner").unwrap())
}

/// What it has.
pub(crate) async fn state(store: &impl EntityStore, saga: &str) -> Vec<String> {
    let stored = store.load(&key(saga), &[]).await.unwrap().stored.unwrap();
    let json: serde_json::Value = serde_json::from_slice(&stored.entity.state[FRAME_BYTES..]).unwrap();
    serde_json::from_value(json["has"].clone()).unwrap()
}

/// A server with a place for each tenant.
pub(crate) trait Server: Send + Sync + Sized + 'static {
    type Store: EntityStore + DedupStore + DeadLetters + Clone + 'static;
    type Queue: Transport + Clone + 'static;
    type Session: Connection;

    fn new(tenants: usize) -> impl Future<Output = Self> + Send;
    fn open(&self, tenant: usize, connections: &Connections)
    -> impl Future<Output = (Self::Store, Self::Queue)> + Send;
    fn sender(queue: &Self::Queue) -> Sender;
    /// A session that keeps everybody else from the tenant's entities until it is closed.
    fn lock(&self, tenant: usize) -> impl Future<Output = Self::Session> + Send;
    /// How many connections there are at most until `end`, by the server's word.
    fn most_connections(&self, end: impl Future<Output = ()> + Send) -> impl Future<Output = usize> + Send;
}

/// Rests between two looks at the server, so that looking does not keep it busy.
pub(crate) const LOOK: Duration = Duration::from_millis(10);
/// Of queues that others fill too: many tenants that look every 5 ms would keep all connections busy with looking.
const POLLS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// As queues have it unless told otherwise.
const LEASE: Duration = Duration::from_secs(30);

fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("tenants_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A schema for each tenant.
pub(crate) struct OnPostgres {
    name: String,
    schemas: Vec<PostgresSchema>,
}

impl OnPostgres {
    /// What the tenants' connections are called at the server.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> &str {
        self.schemas[0].url()
    }

    /// With leases of a length of their own.
    pub(crate) async fn open_leasing(
        &self,
        tenant: usize,
        connections: &Connections,
        lease: Duration,
    ) -> (Postgres, PostgresQueue) {
        let schema = &self.schemas[tenant];
        let place: PgConnectOptions = schema.url().parse().unwrap();
        let store = Postgres::with(place.application_name(&self.name)).schema(schema.name()).migrate(true);
        let store = store.connections(connections).open().await.unwrap();
        let queue = PostgresQueue::options().polls(POLLS.0, POLLS.1).lease(lease).migrate(true);
        (store.clone(), queue.on(&store).await.unwrap())
    }
}

impl Server for OnPostgres {
    type Store = Postgres;
    type Queue = PostgresQueue;
    type Session = PgConnection;

    async fn new(tenants: usize) -> Self {
        Self { name: unique(), schemas: (0..tenants).map(|_| PostgresSchema::new()).collect() }
    }

    async fn open(&self, tenant: usize, connections: &Connections) -> (Postgres, PostgresQueue) {
        self.open_leasing(tenant, connections, LEASE).await
    }

    fn sender(queue: &PostgresQueue) -> Sender {
        queue.sender()
    }

    async fn lock(&self, tenant: usize) -> PgConnection {
        let schema = &self.schemas[tenant];
        let mut session = PgConnection::connect(schema.url()).await.unwrap();
        let lock = format!("BEGIN; LOCK TABLE {}.entity IN ACCESS EXCLUSIVE MODE", schema.name());
        session.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.unwrap();
        session
    }

    async fn most_connections(&self, end: impl Future<Output = ()> + Send) -> usize {
        let mut connection = PgConnection::connect(self.schemas[0].url()).await.unwrap();
        let (mut most, mut end) = (0, std::pin::pin!(end));
        loop {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
            let row = sqlx::query(sql).bind(&self.name).fetch_one(&mut connection).await.unwrap();
            most = most.max(row.get::<i64, _>(0) as usize);
            tokio::select! {
                () = &mut end => return most,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

/// A database for each tenant.
pub(crate) struct OnMySql {
    name: String,
    place: MySqlConnectOptions,
}

impl Server for OnMySql {
    type Store = MySql;
    type Queue = MySqlQueue;
    type Session = MySqlConnection;

    async fn new(tenants: usize) -> Self {
        let (name, tables) = (unique(), MySqlTables::new());
        for tenant in 0..tenants {
            tables.run(&format!("CREATE DATABASE {name}_{tenant}")).await.unwrap();
        }
        Self { name, place: tables.url().parse().unwrap() }
    }

    async fn open(&self, tenant: usize, connections: &Connections) -> (MySql, MySqlQueue) {
        let place = self.place.clone().database(&format!("{}_{tenant}", self.name));
        let store = MySql::with(place).migrate(true).connections(connections).open().await.unwrap();
        let queue = MySqlQueue::options().polls(POLLS.0, POLLS.1).migrate(true).on(&store).await.unwrap();
        (store, queue)
    }

    fn sender(queue: &MySqlQueue) -> Sender {
        queue.sender()
    }

    async fn lock(&self, tenant: usize) -> MySqlConnection {
        let place = self.place.clone().database(&format!("{}_{tenant}", self.name));
        let mut session = MySqlConnection::connect_with(&place).await.unwrap();
        session.execute(sqlx::raw_sql("LOCK TABLES hapax_entity WRITE")).await.unwrap();
        session
    }

    async fn most_connections(&self, end: impl Future<Output = ()> + Send) -> usize {
        let mut connection = MySqlConnection::connect_with(&self.place).await.unwrap();
        let (mut most, mut end) = (0, std::pin::pin!(end));
        loop {
            let sql = "SELECT count(*) FROM information_schema.processlist WHERE db LIKE ?";
            let row = sqlx::query(sql).bind(format!("{}\\_%", self.name)).fetch_one(&mut connection).await.unwrap();
            most = most.max(row.get::<i64, _>(0) as usize);
            tokio::select! {
                () = &mut end => return most,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

impl Drop for OnMySql {
    fn drop(&mut self) {
        let (name, place) = (self.name.clone(), self.place.clone());
        // In a thread and a runtime of its own: the test's may be ending. What stays is on the test server.
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let mut connection = MySqlConnection::connect_with(&place).await.ok()?;
                for tenant in 0.. {
                    let drop = format!("DROP DATABASE {name}_{tenant}");
                    connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.ok()?;
                }
                Some(())
            })
        });
        let _ = ended.join();
    }
}
