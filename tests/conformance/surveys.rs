//! Stores with what they show to a person.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::testing::survey::{Builder, Surveyed};

use crate::{InMemory, InMySql, InPostgres, InSqlite};

#[async_trait]
impl Builder for InMemory {
    async fn surveyed(&self) -> Surveyed {
        let store = Arc::new(self.0.clone());
        Surveyed { schedule: Some(store.clone()), ..Surveyed::of(&store) }
    }
}

#[async_trait]
impl Builder for InSqlite {
    async fn surveyed(&self) -> Surveyed {
        let store = self.open().await;
        Surveyed { schedule: Some(store.clone()), ..Surveyed::of(&store) }
    }
}

#[async_trait]
impl Builder for InPostgres {
    async fn surveyed(&self) -> Surveyed {
        let store = Arc::new(self.0.open().await);
        Surveyed { schedule: Some(store.clone()), ..Surveyed::of(&store) }
    }
}

#[async_trait]
impl Builder for InMySql {
    async fn surveyed(&self) -> Surveyed {
        let store = Arc::new(self.0.open().await);
        Surveyed { schedule: Some(store.clone()), ..Surveyed::of(&store) }
    }
}
