//! The suites of the ports.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    ports::{DeadLetters, DedupStore, EntityStore},
    testing,
};
use hapax_tests::DynamoDbTable;

use crate::faults::{Fault, Faults};

/// So short that a call with a fault often ends before its next try.
const HASTY: Duration = Duration::from_millis(60);

/// One table; each handle has a client of its own, as another process would.
#[derive(Debug)]
struct InDynamoDb(DynamoDbTable);

impl InDynamoDb {
    fn new() -> Self {
        Self(DynamoDbTable::new())
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
        self.0.open().await; // First, for it creates the table.
        let faults = Faults::new(|operation, number| match number % 7 {
            _ if operation.starts_with("Describe") => Fault::None,
            1 => Fault::throttled(),
            3 => Fault::AnswerLost,
            5 => Fault::RequestLost,
            _ => Fault::None,
        });
        let options = self.0.options_of(self.0.client_seen_by(faults));
        let slow = loop {
            if let Ok(store) = options.clone().call_limit(HASTY).open().await {
                break store;
            }
        };
        Some(Arc::new(slow))
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
}
