//! One worker process: an endpoint on what the run has, until its standard input ends. It keeps nothing that matters,
//! so it may be killed or stopped at any moment.

use std::{io::Write, pin::pin, sync::Arc};

use hapax::endpoint::{ErrorKind, Settings};
use indicatif::ProgressBar;
use tokio::io::AsyncReadExt;

use crate::{
    Options, Refusal,
    backend::Backend,
    card_service::{self, CardService},
    door::Door,
    doubled::Doubled,
    place::Database,
    refusal::again,
    shop,
    telemetry::Teller,
    watch::Watch,
};

/// What a worker says once it handles messages: a line.
pub(crate) const WORKING: &str = "working\n";

/// Messages that a worker holds at a time: what a kill sends to the others is this much, one lease later.
const IN_FLIGHT_MAX: usize = 64;

/// Works until the parent closes our standard input, which its death does too: no worker is ever left behind.
pub(crate) async fn run<B: Backend>(place: &B::Place, database: &Database, options: &Options) -> Result<(), Refusal> {
    let cannot = |e: &dyn std::fmt::Display| Refusal::new(format!("{database} cannot be used: {e}"));
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let (cards, mut clerk) = CardService::join(&database.ledger, seed).await.map_err(|e| cannot(&e))?;
    let teller = options.metrics.is_some().then(Teller::begin);
    let watch = Arc::new(Watch::with(teller.as_ref().map(Teller::observer)));
    let door = Door::with_bar(IN_FLIGHT_MAX, ProgressBar::hidden());
    let patience = database.patience();
    let begin = async {
        let what = format!("{database} cannot be used");
        let opened =
            async || B::open(place, database.broker.as_ref(), false).await.map_err(|e| Refusal::of_store(&what, &e));
        let opened = again(patience, opened).await?;
        let dedup = match &database.dedup {
            Some(apart) => {
                let open = async || apart.open(false).await.map_err(|e| Refusal::of_store(&what, &e));
                Some(again(patience, open).await?)
            }
            None => None,
        };
        let start = async || {
            let transport = Doubled::new(opened.queue().clone(), options.duplicates(), seed);
            let settings = Settings { in_flight_max: IN_FLIGHT_MAX, ..shop::settings() };
            let endpoint = shop::endpoint(opened.store().clone(), dedup.clone(), transport, &cards, &door, &watch);
            opened.scheduled(endpoint).settings(settings).start().await.map_err(|e| match e.kind() {
                ErrorKind::Transport => Refusal::caused(&what, &e).passing(),
                _ => Refusal::caused(&what, &e),
            })
        };
        let endpoint = again(patience, start).await?;
        Ok((opened, endpoint))
    };
    let mut parent_is_gone = pin!(async {
        let mut nothing = [0];
        while matches!(tokio::io::stdin().read(&mut nothing).await, Ok(1..)) {}
    });
    let (opened, endpoint) = tokio::select! {
        begun = begin => begun?,
        () = &mut parent_is_gone => return Ok(()),
    };
    let _ = std::io::stdout().write_all(WORKING.as_bytes()); // To be killed from now on; a parent that is gone does not mind.
    tokio::select! {
        // Before his clients only if he cannot write: no payment would ever be taken.
        gone = &mut clerk => return Err(card_service::why_gone(&database.ledger, gone)),
        ended = endpoint.run_until(parent_is_gone) => ended.map_err(|e| Refusal::new(e.to_string()))?,
    }
    drop(cards); // The last client: the clerk goes home.
    match clerk.await {
        Ok(Ok(())) => {}
        gone => return Err(card_service::why_gone(&database.ledger, gone)),
    }
    opened.close().await;
    if let Some(teller) = teller {
        teller.end();
    }
    Ok(())
}
