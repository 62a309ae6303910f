//! What is over is removed, and what waits is told, apart from what is relayed.

use std::sync::Arc;

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{Counted, RelayCounts, RelayMetrics, RelayOptions};
use crate::{
    handler_error::chain,
    ports::{Care, Cared, OutboxTable, StoreError},
};

/// Until it is stopped.
pub(super) async fn run(
    table: Arc<dyn OutboxTable>,
    options: RelayOptions,
    counted: Arc<Counted>,
    metrics: Arc<dyn RelayMetrics>,
    mut stop: watch::Receiver<bool>,
) {
    // Relays that were started at once do not look at once.
    let rest = || sleep(options.care_every.mul_f64(0.75 + fastrand::f64() / 2.0));
    let caring = async {
        loop {
            rest().await;
            if let Err(error) = care(&*table, &options).await {
                tracing::warn!(table = table.name(), error = %chain(&error), "what is over could not be removed now");
            }
        }
    };
    // Beside it: what takes hours to remove keeps no figures back.
    let watching = async {
        loop {
            rest().await;
            match table.state().await {
                Ok(state) => metrics.observe(table.name(), &state, &counted.add_to(RelayCounts::default())),
                Err(error) => tracing::debug!(table = table.name(), %error, "what waits could not be counted now"),
            }
        }
    };
    tokio::select! {
        () = caring => {}
        () = watching => {}
        _ = stop.wait_for(|stopped| *stopped) => {}
    }
}

async fn care(table: &dyn OutboxTable, options: &RelayOptions) -> Result<(), StoreError> {
    let RelayOptions { keep, archive, care_rows: rows, .. } = *options;
    loop {
        let begun = Instant::now();
        let Cared { ended, archived } = table.care(&Care { keep, archive, rows }).await?;
        if ended < rows && archived < rows {
            return Ok(());
        }
        sleep(begun.elapsed()).await;
    }
}
