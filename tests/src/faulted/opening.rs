//! Opening a store, with everything that may go wrong at each kind of request that it makes.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use hapax::ports::{ErrorKind, StoreError};
use tokio::task::JoinSet;

use super::{Kind, Met, SAMPLED, Trouble, is_thorough};
use crate::http_faults::{Asked, Fault, FaultProxy, Gate};

/// Opens a store that nobody has opened before, through the service's address; in haste, or not.
pub type Opening =
    Arc<dyn Fn(String, bool) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> + Send + Sync>;

/// How often one is opened that does not come to the request that is meant.
const TRIES_MAX: usize = 5;
const NEVER: &str = "it was never asked for";

/// Opens a new store for each trouble and each kind of request: at the first of that kind, and at all of them. It must be open,
/// or end with an error of one of the kinds `may_be`; and be opened when all goes well.
///
/// # Panics
/// With every opening that was not so.
pub async fn check_opening(
    upstream: &str,
    kind: Kind,
    troubles: &[Trouble],
    may_be: &'static [ErrorKind],
    fresh: fn() -> Opening,
) -> Met {
    let proxy = FaultProxy::start(upstream).expect("a proxy");
    fresh()(proxy.url().to_owned(), false).await.expect("a store that is opened");
    let kinds: BTreeSet<String> = proxy.asked().iter().filter_map(kind).collect();
    let (begun, mut openings) = (Instant::now(), JoinSet::new());
    for trouble in troubles.iter().copied() {
        let (kinds, upstream) = (kinds.clone(), upstream.to_owned());
        openings.spawn(async move {
            let (mut met, mut wrong) = (Met::default(), Vec::new());
            for meant in kinds.iter().filter(|kind| (trouble.fits)(kind)) {
                let stays = is_thorough() || fastrand::usize(..SAMPLED) == 0;
                for always in [false, true].into_iter().take(1 + usize::from(stays)) {
                    let case = || open(&upstream, kind, (meant.clone(), trouble, always), fresh());
                    let mut opened = case().await;
                    for _ in 1..TRIES_MAX {
                        // On a busy machine one in haste may end before it comes there.
                        if opened.as_ref().err().is_some_and(|why| why == NEVER) {
                            opened = case().await;
                        }
                    }
                    match opened.and_then(|ended| judge(ended, may_be)) {
                        Ok(()) => met.add(meant.clone(), trouble.name),
                        Err(why) => wrong.push(format!("{} at {meant}, always: {always}: {why}", trouble.name)),
                    }
                }
            }
            (met, wrong)
        });
    }
    let (mut met, mut wrong) = (Met::default(), Vec::new());
    while let Some(ended) = openings.join_next().await {
        let (also_met, also_wrong) = ended.expect("openings that do not panic");
        met.extend(also_met);
        wrong.extend(also_wrong);
    }
    println!("opened for each of {kinds:?} in {:?}", begun.elapsed());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    met
}

/// Answers how it ended with the trouble; in the end it is open.
async fn open(
    upstream: &str,
    kind: Kind,
    (meant, trouble, always): (String, Trouble, bool),
    opening: Opening,
) -> Result<Option<StoreError>, String> {
    let proxy = FaultProxy::start(upstream).map_err(|error| error.to_string())?;
    let (gate, is_over) = (Gate::new(), AtomicBool::new(false));
    let matches = move |asked: &Asked| {
        kind(asked).as_deref() == Some(meant.as_str()) && (always || !is_over.swap(true, Ordering::SeqCst))
    };
    let fault = (trouble.fault)(&gate);
    let waits = matches!(fault, Fault::Hold(_) | Fault::HoldAnswer(_));
    let rule = proxy.every(matches, fault);
    let opened = opening(proxy.url().to_owned(), true).await;
    rule.end();
    gate.open();
    if waits {
        rule.until_served(rule.matched()).await;
    }
    if rule.matched() == 0 {
        return Err(NEVER.to_owned());
    }
    opening(proxy.url().to_owned(), false).await.map_err(|error| format!("opened again: {error:?}"))?;
    Ok(opened.err())
}

fn judge(ended: Option<StoreError>, may_be: &[ErrorKind]) -> Result<(), String> {
    match ended {
        Some(error) if !may_be.contains(&error.kind()) => Err(format!("it ends with {error:?}")),
        _ => Ok(()),
    }
}
