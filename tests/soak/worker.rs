//! One worker process: both endpoints, until its standard input ends. It keeps nothing that matters.

use std::{io::Read, sync::Arc, time::Duration};

use hapax::{
    Endpoint, Registry,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, Settings},
    ports::Transport,
};
use serde::{Deserialize, Serialize};

use crate::{
    AnyError,
    counts::Counter,
    fuse::{Fuse, Fused},
    leases::Counted,
    messages::{Add, Added, BACK, FRONT, HELD_BACK_FOR, Ledger, Setting, Version},
    place::{Front, QueuePlace, Store, StorePlace},
};

/// How often it tells what it has met.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Before it looks again whether what is away is back.
const AGAIN: Duration = Duration::from_millis(200);
/// Of what is left over, in the time after which it is.
const SWEEPS: u32 = 5;
/// Above what a pass takes where nothing is wrong, also on a machine that is busy otherwise: one that takes longer sends nothing, and is made again,
/// which would take as long.
const DEADLINE: Duration = Duration::from_secs(5);
/// A fault here is not the message's.
const OFTEN: u32 = 1_000_000;

/// What a worker is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) store: StorePlace,
    pub(crate) queues: QueuePlace,
    pub(crate) version: Version,
    /// It keeps no marks.
    pub(crate) forgets: bool,
    /// At which call of a port it dies, see [`Fuse`].
    pub(crate) fuse: Option<String>,
    pub(crate) times: Times,
}

/// How patient workers are.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Times {
    /// As long as one that died keeps what it was given.
    pub(crate) lease: Duration,
    /// What is left over is swept after it; a stop waits no longer.
    pub(crate) sweep_age: Duration,
}

impl Times {
    /// Where much is wrong.
    pub(crate) const USUAL: Self = Self { lease: Duration::from_secs(2), sweep_age: Duration::from_secs(5) };
    /// Where one thing is.
    pub(crate) const SHORT: Self = Self { lease: Duration::from_millis(500), sweep_age: Duration::from_secs(1) };
}

/// Works until whoever has started this process closes its standard input, or is gone.
pub(crate) async fn run(plan: &Plan) -> Result<(), AnyError> {
    let lines = hapax_tests::lines(|line| eprintln!("{line}"));
    tracing::subscriber::set_global_default(lines)?;
    let counter = Counter::default();
    let told = counter.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(TELL_EVERY);
            if let Ok(line) = serde_json::to_string(&told.counts()) {
                println!("{line}");
            }
        }
    });
    let (closed, mut is_closed) = tokio::sync::watch::channel(false);
    std::thread::spawn(move || {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        closed.send_replace(true);
    });
    let over = |mut is_closed: tokio::sync::watch::Receiver<bool>| async move {
        drop(is_closed.wait_for(|closed| *closed).await);
    };
    let (store, front, back) = tokio::select! {
        begun = begin(plan, &counter) => begun,
        _ = is_closed.wait_for(|closed| *closed) => return Ok(()),
    };
    println!("{}", crate::crew::WORKING);
    tokio::try_join!(front.run_until(over(is_closed.clone())), back.run_until(over(is_closed)))?;
    drop(store);
    println!("{}", serde_json::to_string(&counter.counts())?);
    Ok(())
}

/// As whoever looks after processes would start it again.
async fn begin(plan: &Plan, counter: &Counter) -> (Store, Endpoint, Endpoint) {
    loop {
        match try_to_begin(plan, counter).await {
            Ok(begun) => return begun,
            Err(why) => eprintln!("it cannot begin yet: {why}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn try_to_begin(plan: &Plan, counter: &Counter) -> Result<(Store, Endpoint, Endpoint), AnyError> {
    let fuse = plan.fuse.as_deref().map(|point| Fuse::parse(point).ok_or("no such point")).transpose()?;
    let front = match &fuse {
        Some(fuse) => Front::Fused(fuse.clone()),
        None if plan.forgets => Front::Forgets,
        None => Front::Plain,
    };
    let store = plan.store.open(front).await?;
    let transport = plan.queues.open(plan.times.lease).await?.transport();
    let transport: Arc<dyn Transport> = Arc::new(Counted { port: transport, counter: counter.clone() });
    let transport: Arc<dyn Transport> = match fuse {
        Some(fuse) => Arc::new(Fused { port: transport, fuse }),
        None => transport,
    };
    let holds_back = store.has_schedule || transport.capabilities().delays.hold(HELD_BACK_FOR);
    let setting = Setting { version: plan.version, holds_back };
    let endpoint = |name: &str| endpoint(name, plan, &store, &transport, setting, counter);
    // Whoever sends needs a queue to send to.
    let back = endpoint(BACK).saga::<Ledger>(Registry::starts::<Added>).start().await?;
    let front = endpoint(FRONT).saga::<Ledger>(Registry::starts::<Add>).start().await?;
    Ok((store, front, back))
}

fn endpoint(
    name: &str,
    plan: &Plan,
    store: &Store,
    transport: &Arc<dyn Transport>,
    setting: Setting,
    counter: &Counter,
) -> EndpointBuilder {
    let settings = Settings {
        deadline: DEADLINE,
        sweep_age: plan.times.sweep_age,
        sweep_interval: plan.times.sweep_age / SWEEPS,
        stop_limit: plan.times.sweep_age,
        recoverability: Recoverability {
            attempts_max: OFTEN,
            poison_above: OFTEN,
            retry_delay: Duration::from_millis(50),
            retry_delay_max: Duration::from_secs(1),
            ..Recoverability::default()
        },
        ..Settings::default()
    };
    let builder = (store.lends)(Endpoint::builder(name)).transport(transport.clone());
    builder.with(setting).metrics(counter.clone()).settings(settings)
}
