//! Logs inside the process, with one partition and with several.

use std::{num::NonZeroUsize, sync::Arc};

use async_trait::async_trait;
use hapax::{PartitionedLog, ports::Transport, testing};

#[derive(Debug)]
struct Logs(PartitionedLog);

impl Logs {
    fn new(partitions: usize) -> Self {
        Self(PartitionedLog::with_partitions("conformance", NonZeroUsize::new(partitions).unwrap()))
    }
}

#[async_trait]
impl testing::transport::Builder for Logs {
    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.0.clone())
    }
}

mod one_partition {
    hapax_core::transport_suite!(super::Logs::new(1));
}

mod several_partitions {
    hapax_core::transport_suite!(super::Logs::new(5));
}
