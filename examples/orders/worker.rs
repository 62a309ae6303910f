//! One worker process: an endpoint on the files of the run, until its standard input ends. It keeps nothing that matters,
//! so it may be killed or stopped at any moment.

use std::{path::Path, sync::Arc};

use hapax::{Sqlite, SqliteQueue, endpoint::Settings};
use indicatif::ProgressBar;
use tokio::io::AsyncReadExt;

use crate::{
    Options, Refusal, card_service::CardService, door::Door, doubled::Doubled, shop, watch::Watch, workers::LEASE,
};

/// Messages that a worker holds at a time: what a kill sends to the others is this much, one lease later.
const IN_FLIGHT_MAX: usize = 64;

/// Works until the parent closes our standard input, which its death does too: no worker is ever left behind.
pub(crate) async fn run(database: &Path, options: &Options) -> Result<(), Refusal> {
    let cannot = |e: &dyn std::fmt::Display| Refusal::new(format!("{} cannot be used: {e}", database.display()));
    let store = Sqlite::options(database).open().await.map_err(|e| cannot(&e))?;
    let queue = SqliteQueue::options().lease(LEASE).migrate(false).on(&store).await.map_err(|e| cannot(&e))?;
    let (cards, clerk) = CardService::join(database).await.map_err(|e| cannot(&e))?;
    let (door, watch) = (Door::with_bar(IN_FLIGHT_MAX, ProgressBar::hidden()), Arc::new(Watch::default()));
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let transport = Doubled::new(queue, options.duplicates(), seed);
    let settings = Settings { in_flight_max: IN_FLIGHT_MAX, ..shop::settings() };
    let endpoint = shop::endpoint(store.clone(), transport, &cards, &door, &watch).settings(settings);
    let parent_is_gone = async {
        let mut nothing = [0];
        while matches!(tokio::io::stdin().read(&mut nothing).await, Ok(1..)) {}
    };
    endpoint.run_until(parent_is_gone).await.map_err(|e| Refusal::new(e.to_string()))?;
    drop(cards); // The last client: the clerk goes home.
    clerk.await.map_err(|e| cannot(&e))?.map_err(|e| cannot(&e))?;
    store.close().await;
    Ok(())
}
