//! What every store that can be had declares.

use std::time::Duration;

use hapax::{
    Memory,
    ports::{DedupCapabilities, DedupStore, EntityStore, StoreCapabilities},
};

use crate::table::Line;

fn bytes(bytes: usize) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

fn kept(keeps: Option<Duration>) -> String {
    const DAY: u64 = 24 * 60 * 60;
    match keeps {
        None => "by `evict`".into(),
        Some(keeps) if keeps.as_secs().is_multiple_of(DAY) => format!("for {} days", keeps.as_secs() / DAY),
        Some(keeps) => format!("for {} s", keeps.as_secs()),
    }
}

fn line(entities: Option<StoreCapabilities>, dedup: DedupCapabilities) -> (String, Option<Line>) {
    let line = Line {
        entity: entities.map(|can| bytes(can.entity_bytes_max)),
        together: entities.is_some_and(|can| can.together),
        kept: Some(kept(dedup.keeps)),
        reply: (dedup.reply_bytes_max < usize::MAX).then(|| bytes(dedup.reply_bytes_max)),
        durable: dedup.durable && entities.is_none_or(|can| can.durable),
    };
    (dedup.name.to_owned(), Some(line))
}

fn of(store: &(impl EntityStore + DedupStore)) -> (String, Option<Line>) {
    line(Some(store.capabilities()), store.dedup_capabilities())
}

/// Every store by its name; nothing for one that is not there.
pub(crate) async fn all() -> Vec<(String, Option<Line>)> {
    let mut all = vec![of(&Memory::new())];
    #[cfg(feature = "databases")]
    databases(&mut all).await;
    #[cfg(not(feature = "databases"))]
    all.extend(["sqlite", "postgres", "mysql"].map(|name| (name.to_owned(), None)));
    #[cfg(feature = "object")]
    {
        let scratch = hapax_tests::Scratch::new("object-pairs");
        let store = hapax::ObjectDedup::directory(scratch.file("dedup")).create_if_missing(true).open().await.unwrap();
        all.push(line(None, store.dedup_capabilities()));
    }
    #[cfg(not(feature = "object"))]
    all.push(("object".to_owned(), None));
    #[cfg(feature = "dynamodb")]
    if there("HAPAX_TEST_DYNAMODB") {
        all.push(of(&hapax_tests::DynamoDbTable::new().open().await));
    }
    #[cfg(feature = "cosmos")]
    if there("HAPAX_TEST_COSMOS") {
        use hapax::stores::cosmos::Layout;
        // One layout is for one store that keeps both, the other for pairs.
        let one = hapax_tests::CosmosDatabase::new(Layout::Together).open().await;
        let apart = hapax_tests::CosmosDatabase::new(Layout::Apart).open().await;
        let can = StoreCapabilities { together: one.capabilities().together, ..apart.capabilities() };
        all.push(line(Some(can), apart.dedup_capabilities()));
    }
    for name in ["dynamodb", "cosmos"] {
        if !all.iter().any(|(there, _)| there == name) {
            all.push((name.to_owned(), None));
        }
    }
    all
}

#[cfg(any(feature = "databases", feature = "dynamodb", feature = "cosmos"))]
fn there(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

#[cfg(feature = "databases")]
async fn databases(all: &mut Vec<(String, Option<Line>)>) {
    let scratch = hapax_tests::Scratch::new("pairs");
    all.push(of(&hapax::Sqlite::open(scratch.file("hapax.db")).await.unwrap()));
    match there("HAPAX_TEST_POSTGRES") {
        true => all.push(of(&hapax_tests::PostgresSchema::new().open().await)),
        false => all.push(("postgres".to_owned(), None)),
    }
    match there("HAPAX_TEST_MYSQL") {
        true => {
            let (name, line) = of(&hapax_tests::MySqlTables::new().open().await);
            // What one server takes is not what the next one does.
            let most = || Some("16 MiB, or what the server's packets hold".to_owned());
            all.push((name, line.map(|line| Line { entity: most(), reply: most(), ..line })));
        }
        false => all.push(("mysql".to_owned(), None)),
    }
}
