//! Stores of bodies that are too large to travel.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{ports::Bodies, testing};

use crate::{InMemory, InPostgres, InSqlite};

#[async_trait]
impl testing::bodies::Builder for InMemory {
    async fn bodies(&self) -> Arc<dyn Bodies> {
        Arc::new(self.0.clone())
    }
}

#[async_trait]
impl testing::bodies::Builder for InSqlite {
    async fn bodies(&self) -> Arc<dyn Bodies> {
        self.open().await
    }
}

#[async_trait]
impl testing::bodies::Builder for InPostgres {
    async fn bodies(&self) -> Arc<dyn Bodies> {
        Arc::new(self.0.open().await)
    }
}

mod memory {
    hapax_core::bodies_suite!(crate::InMemory::default());
}

mod sqlite {
    hapax_core::bodies_suite!(crate::InSqlite::new());
}

mod postgres {
    hapax_core::bodies_suite!(crate::InPostgres::new());
}
