//! Goal: neither a process that dies nor a server that cuts connections costs a place of what tenants share, and each sale is booked once.
//! Method: two processes' endpoints for the same tenants share a few connections, counted by the server; it cuts them again and again, more
//! often than there are places, and one process is dropped with all that it holds, and started again.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use hapax::{
    Connections, Endpoint, Postgres, PostgresQueue,
    endpoint::{Error, Settings},
    ports::{DeadLetters, Page},
};
use sqlx::{Connection, PgConnection, Row};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::rig::{Books, LOOK, Ledger, OnPostgres, Sell, Server, Shop, Sold, state};

const TENANTS: usize = 8;
const PLACES: usize = 4;
const SALES: usize = 20;
/// A cut comes after each of these parts of the sales but the last: so many that places which it costs would be missed.
const PARTS: usize = 3 * PLACES;
/// What is on its way comes again after this, if who had it is gone.
const LEASE: Duration = Duration::from_secs(2);
/// Connections that were given up or cut are seen no longer than this.
const LEAVING: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(120);

/// What one process has.
struct Process {
    opened: Vec<(Postgres, PostgresQueue)>,
    running: JoinSet<Result<(), Error>>,
}

impl Process {
    async fn open(server: &OnPostgres, connections: &Connections) -> Self {
        let mut opened = Vec::new();
        for tenant in 0..TENANTS {
            opened.push(server.open_leasing(tenant, connections, LEASE).await);
        }
        Self { opened, running: JoinSet::new() }
    }

    async fn run(&mut self, books: &Books, stopped: &watch::Receiver<bool>) {
        for (tenant, (store, queue)) in self.opened.iter().enumerate() {
            let settings = Settings {
                pass_max: 1, // One sale, one commit: the more there is to cut.
                sweep_interval: Duration::from_secs(1),
                ..Settings::default()
            };
            let endpoint = Endpoint::builder("shop")
                .store(store.clone())
                .transport(queue.clone())
                .with(books.of(tenant))
                .settings(settings)
                .saga::<Shop>(|shop| shop.starts::<Sell>())
                .saga::<Ledger>(|ledger| ledger.starts::<Sold>());
            let endpoint = endpoint.start().await.unwrap();
            let mut stopped = stopped.clone();
            self.running.spawn(endpoint.run_until(async move { drop(stopped.wait_for(|stopped| *stopped).await) }));
        }
    }

    /// As a kill would have it: nothing is closed, and nobody is told.
    async fn die(mut self) {
        self.running.shutdown().await;
    }

    /// Until nothing waits and nothing is at work in the queues of all tenants.
    async fn drained(&self) {
        for (_, queue) in &self.opened {
            while queue.messages().await.unwrap_or(1) > 0 {
                sleep(LOOK).await;
            }
        }
    }

    async fn close(mut self) {
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap().unwrap();
        }
        for (store, queue) in self.opened {
            queue.close().await;
            store.close().await;
        }
    }
}

/// The server ends all connections of the tenants.
async fn cut(server: &OnPostgres) {
    let mut session = PgConnection::connect(server.url()).await.unwrap();
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    sqlx::query(sql).bind(server.name()).execute(&mut session).await.unwrap();
    session.close().await.unwrap();
}

/// For how long the server has seen more than there are places for, at a stretch, until `stopped`.
async fn longest_excess(server: Arc<OnPostgres>, mut stopped: watch::Receiver<bool>) -> Duration {
    let mut session = PgConnection::connect(server.url()).await.unwrap();
    let (mut longest, mut since) = (Duration::ZERO, None);
    while !*stopped.borrow_and_update() {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        let row = sqlx::query(sql).bind(server.name()).fetch_one(&mut session).await.unwrap();
        since = (row.get::<i64, _>(0) as usize > PLACES).then(|| since.unwrap_or_else(Instant::now));
        longest = longest.max(since.map_or(Duration::ZERO, |since| since.elapsed()));
        sleep(LOOK).await;
    }
    longest
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_dead_process_nor_cut_connections_cost_a_place_or_a_sale_on_postgres() {
    let (server, connections) = (Arc::new(OnPostgres::new(TENANTS).await), Connections::at_most(PLACES));
    let (books, (stop, stopped)) = (Books::default(), watch::channel(false));
    let watching = tokio::spawn(longest_excess(server.clone(), stopped.clone()));
    let mut first = Process::open(&server, &connections).await;
    let mut other = Process::open(&server, &connections).await;
    for (tenant, (_, queue)) in first.opened.iter().enumerate() {
        for sale in 0..SALES {
            let sell = Sell { shop: "corner".into(), what: format!("{tenant}: {sale}") };
            queue.sender().send_as(format!("sale-{sale}").parse().unwrap(), "shop", &sell).await.unwrap();
        }
    }
    first.run(&books, &stopped).await;
    other.run(&books, &stopped).await;

    let all = TENANTS * SALES;
    for part in 1..PARTS {
        timeout(PATIENCE, books.until(all * part / PARTS)).await.expect("they go on");
        if part == PARTS / 2 {
            first.die().await;
            cut(&server).await;
            first = Process::open(&server, &connections).await;
            first.run(&books, &stopped).await;
        } else {
            cut(&server).await;
        }
    }
    timeout(PATIENCE, books.until(all)).await.expect("they come to the end");
    timeout(PATIENCE, other.drained()).await.expect("nothing is left");

    for (tenant, (store, _)) in other.opened.iter().enumerate() {
        let own: BTreeSet<String> = (0..SALES).map(|sale| format!("{tenant}: {sale}")).collect();
        for saga in ["shop", "ledger"] {
            let has = state(store, saga).await;
            assert_eq!((has.len(), BTreeSet::from_iter(has)), (SALES, own.clone()), "{saga} of tenant {tenant}");
        }
        let letters = store.list(&"shop".parse().unwrap(), &Page::first(10)).await.unwrap();
        assert!(letters.is_empty(), "of tenant {tenant}: {letters:?}");
    }
    stop.send_replace(true);
    first.close().await;
    other.close().await;
    assert_eq!(connections.open(), 0, "a place was lost");
    let excess = watching.await.unwrap();
    assert!(excess < LEAVING, "more than {PLACES} connections for {excess:?}");
}
