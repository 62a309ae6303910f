//! The suites of the ports.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    ports::{DeadLetters, DedupStore, EntityStore},
    testing,
};
use hapax_tests::{
    DynamoDbTable,
    http_faults::{Asked, Fault, FaultProxy},
    real::{self, AWS},
};

use crate::rig::throttled;

/// So short that a call with a fault often ends before its next try.
const HASTY: Duration = Duration::from_millis(60);
/// Requests from a fault to the same again, about.
const TURNS: usize = 7;

/// One table; each handle has a client of its own, as another process would.
#[derive(Debug)]
struct InDynamoDb(DynamoDbTable, Mutex<Vec<FaultProxy>>);

impl InDynamoDb {
    fn new() -> Self {
        Self(DynamoDbTable::new(), Mutex::default())
    }
}

#[async_trait]
impl testing::entity_store::Builder for InDynamoDb {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        Arc::new(self.0.open().await)
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.0.open().await))
    }
    /// By turns, requests go well, do not arrive, are throttled, or are served without an answer.
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        if real::is_asked(AWS) {
            return None; // No proxy can stand before the service itself.
        }
        self.0.open().await; // First, for it creates the table.
        let proxy = FaultProxy::start(self.0.url()).unwrap();
        let table = self.0.through(proxy.url());
        let faulty = table.options().call_limit(HASTY).open().await.unwrap();
        for (turn, fault) in [(1, throttled()), (3, Fault::DropAnswer), (5, Fault::DropRequest)] {
            let number = AtomicUsize::new(0);
            let is_its_turn = move |_: &Asked| number.fetch_add(1, Ordering::Relaxed) % TURNS == turn;
            proxy.every(is_its_turn, fault);
        }
        self.1.lock().unwrap().push(proxy);
        Some(Arc::new(faulty))
    }
}

#[async_trait]
impl testing::dedup_store::Builder for InDynamoDb {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(self.0.open().await)
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(DynamoDbTable::new().open().await))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for InDynamoDb {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(self.0.open().await)
    }
}

#[async_trait]
impl testing::survey::Builder for InDynamoDb {
    async fn surveyed(&self) -> testing::survey::Surveyed {
        testing::survey::Surveyed::of(&Arc::new(self.0.open().await))
    }
}

mod dynamodb {
    mod entities {
        hapax_core::entity_store_suite!(super::super::InDynamoDb::new());
    }
    mod dedup {
        hapax_core::dedup_store_suite!(super::super::InDynamoDb::new());
    }
    mod letters {
        hapax_core::dead_letters_suite!(super::super::InDynamoDb::new());
    }
    mod survey {
        hapax_core::survey_suite!(super::super::InDynamoDb::new());
    }
}
