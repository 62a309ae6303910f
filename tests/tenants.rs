//! Many tenants in one process, each with a database of its own: they share a few connections, and nothing else.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "tenants/crossing.rs"]
mod crossing;
#[path = "tenants/cut.rs"]
mod cut;
#[path = "tenants/rig.rs"]
mod rig;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hapax::{
    Connections, Endpoint,
    endpoint::Settings,
    ids::EntityKey,
    ports::{EntityStore, ErrorKind},
};
use hapax_tests::PostgresSchema;
use rig::{Books, Ledger, OnMySql, OnPostgres, Sell, Server, Shop, state};
use sqlx::{Connection, Executor, PgConnection};
use tokio::sync::watch;

/// What each tenant sells.
const SALES: usize = 5;

/// Runs so many tenants on so many connections, and tells how many connections the server has seen at most.
async fn run<S: Server>(tenants: usize, places: usize) -> usize {
    let connections = Connections::at_most(places);
    let (books, (stop, stopped)) = (Books::default(), watch::channel(false));
    let (mut opened, mut running) = (Vec::new(), Vec::new());
    let server = Arc::new(S::new(tenants).await);
    let watching = tokio::spawn({
        let (server, mut stopped) = (server.clone(), stopped.clone());
        async move { server.most_connections(async move { drop(stopped.wait_for(|stopped| *stopped).await) }).await }
    });
    for tenant in 0..tenants {
        let (store, queue) = server.open(tenant, &connections).await;
        let endpoint = Endpoint::builder("shop")
            .store(store.clone())
            .transport(queue.clone())
            .with(books.of(tenant))
            .settings(Settings { sweep_interval: Duration::from_secs(60), ..Settings::default() })
            .saga::<Shop>(|shop| shop.starts::<Sell>())
            .saga::<Ledger>(|ledger| ledger.starts::<rig::Sold>());
        let endpoint = endpoint.start().await.unwrap();
        let mut stopped = stopped.clone();
        running.push(tokio::spawn(endpoint.run_until(async move { drop(stopped.wait_for(|stopped| *stopped).await) })));
        opened.push((store, queue));
    }
    for sale in 0..SALES {
        for (tenant, (_, queue)) in opened.iter().enumerate() {
            // The same ids for everybody: whose they are is told by the database alone.
            let sell = Sell { shop: "corner".into(), what: format!("{tenant}: {sale}") };
            S::sender(queue).send_as(format!("sale-{sale}").parse().unwrap(), "shop", &sell).await.unwrap();
        }
    }
    books.until(tenants * SALES).await;
    stop.send_replace(true);
    for ended in running {
        ended.await.unwrap().unwrap();
    }
    for (tenant, (store, _)) in opened.iter().enumerate() {
        let own: BTreeSet<String> = (0..SALES).map(|sale| format!("{tenant}: {sale}")).collect();
        for saga in ["shop", "ledger"] {
            let has = state(store, saga).await;
            assert_eq!(has.len(), SALES, "each once: {has:?}");
            assert_eq!(BTreeSet::from_iter(has), own, "{saga} of tenant {tenant}");
        }
    }
    assert!(connections.open() <= places);
    watching.await.unwrap()
}

/// So many connections the server sees at most where so many are shared: for a moment, and longer on a machine that is busy, also those that have taken
/// leave, one for each place, and a few of those before. Sixteen tenants with one each would be more.
const fn seen_max(places: usize) -> usize {
    const LEAVING: usize = 4;
    if places > LEAVING { 2 * places } else { places + LEAVING }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_tenants_on_postgres_share_six_connections() {
    let most = run::<OnPostgres>(16, 6).await;
    assert!((1..=seen_max(6)).contains(&most), "{most} connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_tenants_on_mysql_share_six_connections() {
    let most = run::<OnMySql>(16, 6).await;
    assert!((1..=seen_max(6)).contains(&most), "{most} connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_is_enough_for_store_and_queue_on_postgres() {
    assert!(run::<OnPostgres>(1, 1).await <= seen_max(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_is_enough_for_store_and_queue_on_mysql() {
    assert!(run::<OnMySql>(1, 1).await <= seen_max(1));
}

/// Goal: others go on while one tenant's database does not answer, and it goes on when it does. Method: a lock on its tables, held until the
/// others are done.
async fn one_does_not_answer<S: Server>() {
    const TENANTS: usize = 8;
    let connections = Connections::at_most(6);
    let (books, (stop, stopped)) = (Books::default(), watch::channel(false));
    let server = S::new(TENANTS).await;
    let (mut opened, mut running) = (Vec::new(), Vec::new());
    for tenant in 0..TENANTS {
        let (store, queue) = server.open(tenant, &connections).await;
        let endpoint = Endpoint::builder("shop")
            .store(store.clone())
            .transport(queue.clone())
            .with(books.of(tenant))
            .saga::<Shop>(|shop| shop.starts::<Sell>())
            .saga::<Ledger>(|ledger| ledger.starts::<rig::Sold>());
        let endpoint = endpoint.start().await.unwrap();
        let mut stopped = stopped.clone();
        running.push(tokio::spawn(endpoint.run_until(async move { drop(stopped.wait_for(|stopped| *stopped).await) })));
        opened.push((store, queue));
    }
    for (tenant, (_, queue)) in opened.iter().enumerate() {
        for sale in 0..SALES {
            let sell = Sell { shop: "corner".into(), what: format!("{tenant}: {sale}") };
            S::sender(queue).send_as(format!("sale-{sale}").parse().unwrap(), "shop", &sell).await.unwrap();
        }
        if tenant == 0 {
            books.until(SALES).await;
        }
    }
    books.until(TENANTS * SALES).await;

    // All have worked; now the first one's tables cannot even be read.
    let session = server.lock(0).await;
    for (tenant, (_, queue)) in opened.iter().enumerate() {
        for sale in SALES..2 * SALES {
            let sell = Sell { shop: "corner".into(), what: format!("{tenant}: {sale}") };
            S::sender(queue).send_as(format!("sale-{sale}").parse().unwrap(), "shop", &sell).await.unwrap();
        }
    }
    let others = books.until(TENANTS * SALES + (TENANTS - 1) * SALES);
    tokio::time::timeout(Duration::from_secs(60), others).await.expect("the others go on");
    session.close().await.unwrap();
    tokio::time::timeout(Duration::from_secs(120), books.until(2 * TENANTS * SALES)).await.expect("so does the first");
    stop.send_replace(true);
    for ended in running {
        ended.await.unwrap().unwrap();
    }
    for (tenant, (store, _)) in opened.iter().enumerate() {
        let own: BTreeSet<String> = (0..2 * SALES).map(|sale| format!("{tenant}: {sale}")).collect();
        for saga in ["shop", "ledger"] {
            let has = state(store, saga).await;
            assert_eq!((has.len(), BTreeSet::from_iter(has)), (2 * SALES, own.clone()), "{saga} of tenant {tenant}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_database_does_not_answer_stops_nobody_else_on_postgres() {
    one_does_not_answer::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_database_does_not_answer_stops_nobody_else_on_mysql() {
    one_does_not_answer::<OnMySql>().await;
}

/// A load beside a save that waits for a lock, with one connection for both.
async fn expect_no_place(
    busy: impl EntityStore + Clone + 'static,
    asks: impl EntityStore,
    locked: impl Future<Output = ()>,
) {
    locked.await;
    let key = rig::key("shop");
    let saving = tokio::spawn({
        let (busy, key) = (busy.clone(), key.clone());
        async move { busy.save(&key, &hapax::entity::Expected::Absent, &Default::default(), &[]).await.map(drop) }
    });
    let refused = loop {
        match asks.load(&key, &[]).await {
            Ok(_) => tokio::task::yield_now().await, // The save has not begun yet.
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let told = refused.to_string();
    assert!(told.contains("Connections::at_most"), "{told}");
    drop(saving.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_place_in_time_is_told_what_to_do_on_postgres() {
    let (schema, one) = (PostgresSchema::new(), Connections::at_most(1));
    let busy = schema.options().connections(&one).open().await.unwrap();
    let asks = schema.options().connections(&one).read_limit(Duration::from_secs(2)).open().await.unwrap();
    let key: EntityKey = rig::key("other");
    drop(busy.save(&key, &hapax::entity::Expected::Absent, &Default::default(), &[]).await.unwrap()); // It knows the scope.
    let mut other = PgConnection::connect(schema.url()).await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE {}.entity IN EXCLUSIVE MODE", schema.name());
    expect_no_place(busy, asks, async {
        other.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(lock))).await.unwrap();
    })
    .await;
    other.execute("ROLLBACK").await.unwrap();
}
