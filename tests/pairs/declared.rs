//! Every store that can be had, and what it declares.

use std::{any::Any, sync::Arc, time::Duration};

use hapax::{
    Memory,
    ports::{DedupCapabilities, DedupStore, EntityStore, StoreCapabilities},
};
use hapax_tests::Scratch;

use crate::{counted::Pair, table::Line};

/// A store, opened.
pub(crate) struct Opened {
    pub(crate) line: Line,
    /// It keeps both.
    one: Option<Pair>,
    entities: Option<Arc<dyn EntityStore>>,
    dedup: Arc<dyn DedupStore>,
    /// Where it is, which goes with it.
    _place: Option<Box<dyn Any>>,
}

impl Opened {
    /// Entities here, dedup entries there; nothing where one of them is not kept.
    pub(crate) fn with(&self, other: &Self) -> Option<Pair> {
        Some(Pair { entities: self.entities.clone()?, dedup: other.dedup.clone(), same: false })
    }

    /// Both here.
    pub(crate) fn alone(&self) -> Option<Pair> {
        self.one.clone()
    }
}

type Named = (String, Option<Opened>);

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

fn line(entities: Option<StoreCapabilities>, dedup: DedupCapabilities) -> Line {
    Line {
        entity: entities.map(|can| bytes(can.entity_bytes_max)),
        together: entities.is_some_and(|can| can.together),
        kept: Some(kept(dedup.keeps)),
        reply: (dedup.reply_bytes_max < usize::MAX).then(|| bytes(dedup.reply_bytes_max)),
        durable: dedup.durable && entities.is_none_or(|can| can.durable),
    }
}

fn of(store: impl EntityStore + DedupStore + 'static, place: Option<Box<dyn Any>>) -> Named {
    let (name, line) = (store.dedup_capabilities().name, line(Some(store.capabilities()), store.dedup_capabilities()));
    let store = Arc::new(store);
    let one = Some(Pair { entities: store.clone(), dedup: store.clone(), same: true });
    let opened = Opened { line, one, entities: Some(store.clone()), dedup: store, _place: place };
    (name.to_owned(), Some(opened))
}

/// Every store by its name; nothing for one that is not there.
pub(crate) async fn all() -> Vec<Named> {
    let mut all = vec![of(Memory::new(), None)];
    #[cfg(feature = "databases")]
    databases(&mut all).await;
    #[cfg(not(feature = "databases"))]
    all.extend(["sqlite", "postgres", "mysql"].map(|name| (name.to_owned(), None)));
    #[cfg(feature = "object")]
    {
        let scratch = Scratch::new("object-pairs");
        let store = hapax::ObjectDedup::directory(scratch.file("dedup")).create_if_missing(true).open().await.unwrap();
        let line = line(None, store.dedup_capabilities());
        let opened =
            Opened { line, one: None, entities: None, dedup: Arc::new(store), _place: Some(Box::new(scratch)) };
        all.push(("object".to_owned(), Some(opened)));
    }
    #[cfg(not(feature = "object"))]
    all.push(("object".to_owned(), None));
    #[cfg(feature = "dynamodb")]
    if there("HAPAX_TEST_DYNAMODB") {
        let table = hapax_tests::DynamoDbTable::new();
        all.push(of(table.open().await, Some(Box::new(table))));
    }
    #[cfg(feature = "cosmos")]
    if there("HAPAX_TEST_COSMOS") {
        use hapax::stores::cosmos::Layout;
        // One layout is for one store that keeps both, the other for pairs.
        let one = hapax_tests::CosmosDatabase::new(Layout::Together).open().await;
        let apart = hapax_tests::CosmosDatabase::new(Layout::Apart).open().await;
        let can = StoreCapabilities { together: one.capabilities().together, ..apart.capabilities() };
        let line = line(Some(can), apart.dedup_capabilities());
        let (name, opened) = of(apart, None);
        let one = of(one, None).1.and_then(|opened| opened.one);
        all.push((name, opened.map(|opened| Opened { line, one, ..opened })));
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
async fn databases(all: &mut Vec<Named>) {
    let scratch = Scratch::new("pairs");
    all.push(of(hapax::Sqlite::open(scratch.file("hapax.db")).await.unwrap(), Some(Box::new(scratch))));
    match there("HAPAX_TEST_POSTGRES") {
        true => {
            let schema = hapax_tests::PostgresSchema::new();
            all.push(of(schema.open().await, Some(Box::new(schema))));
        }
        false => all.push(("postgres".to_owned(), None)),
    }
    match there("HAPAX_TEST_MYSQL") {
        true => {
            let tables = hapax_tests::MySqlTables::new();
            let (name, opened) = of(tables.open().await, Some(Box::new(tables)));
            // What one server takes is not what the next one does.
            let most = || Some("16 MiB, or what the server's packets hold".to_owned());
            let told = |line| Line { entity: most(), reply: most(), ..line };
            all.push((name, opened.map(|opened| Opened { line: told(opened.line.clone()), ..opened })));
        }
        false => all.push(("mysql".to_owned(), None)),
    }
}
