//! A broker that never answers what it is sent.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Endpoint, InProcess, Memory,
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
};
use tokio::{sync::oneshot, time::sleep};

use crate::{
    outage::{Tell, Teller},
    work::{WayOut, settings},
};

/// A broker that does not answer what is sent to `deaf`, and takes nothing for `later` until it is mended.
#[derive(Debug, Clone)]
struct Unanswering {
    hub: InProcess,
    mended: Arc<AtomicBool>,
}

#[async_trait]
impl Dispatcher for Unanswering {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let is_to = |name: &str| outgoing.iter().any(|outgoing| outgoing.destination.to_string().ends_with(name));
        if is_to("deaf") {
            pending::<()>().await;
        }
        if is_to("later") && !self.mended.load(Ordering::SeqCst) {
            let full = || TransportError::new(ErrorKind::Unavailable, "dispatching", "it is full");
            return outgoing.iter().map(|_| Err(DispatchError::Transient(full()))).collect();
        }
        self.hub.dispatch(outgoing).await
    }
}

/// Goal: a broker that never answers what is sent to one destination holds up no sweep of what is for another. Method: the one is sent to first and
/// left to the sweeper, and then the other.
#[tokio::test(start_paused = true)]
async fn a_destination_that_never_answers_holds_up_no_sweep() {
    let (store, hub) = (Memory::new(), InProcess::new("unanswering"));
    let out = Unanswering { hub: hub.clone(), mended: Arc::default() };
    let endpoint = Endpoint::builder("tell")
        .store(store.clone())
        .transport(WayOut(hub.clone(), out.clone()))
        .settings(settings())
        .saga::<Teller>(|teller| teller.starts::<Tell>());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    for (key, to) in [("a", "deaf"), ("b", "later")] {
        hub.sender().send("tell", &Tell { key: key.into(), to: to.into() }).await.unwrap();
        sleep(Duration::from_secs(300)).await;
    }
    assert_eq!(hub.backlog(&"later".parse().unwrap()), 0);
    out.mended.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(hub.backlog(&"later".parse().unwrap()), 1);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
