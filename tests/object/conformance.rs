//! Every promise of the port, in memory and in a directory; each handle is opened anew, as another process would.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{ObjectDedup, ports::DedupStore, testing};
use hapax_tests::Scratch;
use object_store::memory::InMemory;

/// In one store in memory.
#[derive(Debug, Default)]
pub(crate) struct Shared(Arc<InMemory>);

impl Shared {
    async fn open(&self, prefix: &str) -> Arc<dyn DedupStore> {
        let options = ObjectDedup::options(self.0.clone(), prefix).clock_margin(Duration::ZERO);
        Arc::new(options.open().await.unwrap())
    }
}

#[async_trait]
impl testing::dedup_store::Builder for Shared {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        self.open("shared").await
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(self.open("separate/of it").await)
    }
}

/// In one directory.
#[derive(Debug)]
pub(crate) struct Directory(Scratch);

impl Directory {
    pub(crate) fn new() -> Self {
        Self(Scratch::new("object-conformance"))
    }

    async fn open(&self, name: &str) -> Arc<dyn DedupStore> {
        Arc::new(ObjectDedup::directory(self.0.file(name)).create_if_missing(true).open().await.unwrap())
    }
}

#[async_trait]
impl testing::dedup_store::Builder for Directory {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        self.open("shared").await
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(self.open("separate").await)
    }
}

mod object_in_memory {
    hapax_core::dedup_store_suite!(super::Shared::default());
}

mod object_directory {
    hapax_core::dedup_store_suite!(super::Directory::new());
}
