//! A worker is killed with messages under its lease: how long until another one handles the first of them.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    Figure, Options, counted, millis,
    worker::{ENDPOINT, LEASE, Ping, Worker, open},
};
use crate::AnyError;

/// Beyond the lease.
const MARGIN_MS: f64 = 1000.0;
/// Messages that the killed worker has.
const LEASED: u64 = 16;

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let (mut running, mut started) = (Vec::new(), Vec::new());
    let rounds = u32::try_from(options.rounds)?;
    for round in 0..rounds {
        // Leases are extended every so often: each round another moment of it.
        let phase = LEASE * round / rounds;
        running.push(once(&dir.join(format!("running-{round}.db")), phase, true)?);
        started.push(once(&dir.join(format!("started-{round}.db")), phase, false)?);
    }
    let at_most = millis(LEASE) + MARGIN_MS;
    let name = "recovery: from kill -9 of a worker until another handles a message of its";
    Ok(vec![
        Figure::of(format!("{name}, one that runs already"), "ms", running).all_at_most(at_most),
        Figure::of(format!("{name}, one started after the kill"), "ms", started).all_at_most(at_most),
    ])
}

fn once(file: &Path, phase: Duration, running: bool) -> Result<f64, AnyError> {
    let runtime = super::runtime()?;
    let mut doomed = Worker::ready("hang", file)?;
    runtime.block_on(send(file))?;
    for _ in 0..LEASED {
        doomed.handled()?; // It has begun, and will never end.
    }
    let next = if running { Some(Worker::ready("serve", file)?) } else { None };
    std::thread::sleep(phase);
    let killed = Instant::now();
    doomed.kill()?;
    let next = match next {
        Some(next) => next,
        None => Worker::start("serve", file, &[])?,
    };
    let (first, _) = next.handled()?;
    let time = millis(killed.elapsed());

    let mut handled = BTreeSet::from([first]);
    while (handled.len() as u64) < LEASED {
        if !handled.insert(next.handled()?.0) {
            return Err("a message was handled twice by one worker".into());
        }
    }
    runtime.block_on(emptied(file))?;
    drop(next);
    runtime.block_on(counted::each_once(file, LEASED))?;
    Ok(time)
}

async fn send(file: &Path) -> Result<(), AnyError> {
    let (store, queue) = open(file).await?;
    let sender = queue.sender();
    for number in 0..LEASED {
        sender.send(ENDPOINT, &Ping { number }).await?;
    }
    store.close().await;
    Ok(())
}

/// Waits until the queue is empty.
pub(super) async fn emptied(file: &Path) -> Result<(), AnyError> {
    const LONGEST: Duration = Duration::from_secs(30);
    const LOOK_AGAIN: Duration = Duration::from_millis(10);
    let begun = Instant::now();
    while counted::number(file, "SELECT count(*) FROM hapax_queue_message").await? > 0 {
        if begun.elapsed() > LONGEST {
            return Err("messages are handled and not settled".into());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}
