//! A worker is killed with messages under its lease: how long until the next worker handles them.

use std::{path::Path, time::Instant};

use super::{
    Figure, Options, millis,
    worker::{ENDPOINT, LEASE, Ping, Worker, open},
};
use crate::AnyError;

/// Beyond the lease.
const MARGIN_MS: f64 = 1000.0;

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (mut running, mut started) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        running.push(once(&dir.join(format!("recovery-{round}-running.db")), true)?);
        started.push(once(&dir.join(format!("recovery-{round}-started.db")), false)?);
    }
    let at_most = Some(millis(LEASE) + MARGIN_MS);
    Ok(vec![
        Figure::new(
            "recovery: from kill -9 to the next handled message, another worker running",
            "ms",
            at_most,
            running,
        ),
        Figure::new("recovery: the same, another worker started after the kill", "ms", at_most, started),
    ])
}

fn once(file: &Path, running: bool) -> Result<f64, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before there is a sender, so that the queue is there.
    let mut doomed = Worker::ready("hang", file)?;
    runtime.block_on(async {
        let (store, queue) = open(file).await?;
        queue.sender().send(ENDPOINT, &Ping { number: 1 }).await?;
        store.close().await;
        Ok::<_, AnyError>(())
    })?;
    doomed.handled()?;
    let mut next = if running { Some(Worker::ready("serve", file)?) } else { None };
    let killed = Instant::now();
    doomed.kill()?;
    let next = match &mut next {
        Some(next) => next,
        none => none.insert(Worker::start("serve", file)?),
    };
    next.handled()?;
    Ok(millis(killed.elapsed()))
}
