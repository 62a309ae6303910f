//! Both layouts keep the promises of the ports: every suite, run on each.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    ports::{DeadLetters, DedupStore, EntityStore},
    stores::cosmos::Layout,
    testing,
};
use hapax_tests::CosmosDatabase;

/// One database; each handle has a client of its own, as another process would.
#[derive(Debug)]
struct InCosmos(CosmosDatabase, CosmosDatabase, Layout);

impl InCosmos {
    fn new(layout: Layout) -> Self {
        Self(CosmosDatabase::new(layout), CosmosDatabase::new(layout), layout)
    }
}

#[async_trait]
impl testing::entity_store::Builder for InCosmos {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        Arc::new(self.0.open().await)
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        match self.2 {
            Layout::Together => Some(Arc::new(self.0.open().await)),
            Layout::Apart => None,
        }
    }
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        Some(super::faults::faulty(&self.0).await)
    }
}

#[async_trait]
impl testing::dedup_store::Builder for InCosmos {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(self.0.open().await)
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.1.open().await))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for InCosmos {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(self.0.open().await)
    }
}

#[async_trait]
impl testing::survey::Builder for InCosmos {
    async fn surveyed(&self) -> testing::survey::Surveyed {
        testing::survey::Surveyed::of(&Arc::new(self.0.open().await))
    }
}

mod together {
    mod entities {
        hapax_core::entity_store_suite!(super::super::InCosmos::new(super::super::Layout::Together));
    }
    // What this layout does not take is not claimed.
    mod dedup {
        hapax_core::dedup_store_suite!(super::super::InCosmos::new(super::super::Layout::Together));
    }
    mod letters {
        hapax_core::dead_letters_suite!(super::super::InCosmos::new(super::super::Layout::Together));
    }
    mod survey {
        hapax_core::survey_suite!(super::super::InCosmos::new(super::super::Layout::Together));
    }
}

/// In a container of the user's own, whose partition key is elsewhere in a document.
mod beside_others {
    use super::*;

    fn in_cosmos() -> InCosmos {
        let of = |layout| CosmosDatabase::new(layout).partition_path("/customer");
        InCosmos(of(Layout::Together), of(Layout::Together), Layout::Together)
    }

    macro_rules! promises {
        ($($name:ident)*) => { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let kept = testing::entity_store::$name(&in_cosmos()).await;
                kept.unwrap_or_else(|broken| panic!("{broken:?}"));
            }
        )* };
    }

    promises! { whole guarded never_again one_snapshot only_with_the_winner finish_marks_first pending purge_spares }
    mod letters {
        hapax_core::dead_letters_suite!(super::in_cosmos());
    }
}

mod apart {
    mod entities {
        hapax_core::entity_store_suite!(super::super::InCosmos::new(super::super::Layout::Apart));
    }
    mod dedup {
        hapax_core::dedup_store_suite!(super::super::InCosmos::new(super::super::Layout::Apart));
    }
}
