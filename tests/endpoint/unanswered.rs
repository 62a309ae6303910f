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
    endpoint::Settings,
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
};
use tokio::{sync::oneshot, time::sleep};

use crate::{
    outage::{Tell, Teller},
    work::{WayOut, settings},
};

/// A broker that does not answer what has a message for `deaf`, though it takes the others with it, and takes nothing for `later` until it is mended.
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
            let hears = |outgoing: &&Outgoing| !outgoing.destination.to_string().ends_with("deaf");
            let others: Vec<_> = outgoing.iter().filter(hears).cloned().collect();
            self.hub.dispatch(&others).await;
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

/// Goal: what one saga sends to a destination that takes it is not sent again and again, whatever else it sends in the same moment. Method: both in one outbox entry,
/// while the broker does not answer any call that has a message for the other.
#[tokio::test(start_paused = true)]
async fn a_destination_that_never_answers_does_not_answer_for_those_that_a_saga_sends_to_beside_it() {
    let (store, hub) = (Memory::new(), InProcess::new("unanswering"));
    let out = Unanswering { hub: hub.clone(), mended: Arc::default() };
    out.mended.store(true, Ordering::SeqCst);
    let endpoint = Endpoint::builder("tell")
        .store(store.clone())
        .transport(WayOut(hub.clone(), out.clone()))
        // Not those of the others here: what a pass is sending is not swept beside it.
        .settings(Settings::default())
        .saga::<Teller>(|teller| teller.starts::<Tell>());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    let taken = || hub.backlog(&"later".parse().unwrap());
    // The first time nobody knows yet who does not answer.
    for (key, times) in [("a", 2), ("b", 1), ("c", 1)] {
        let before = taken();
        hub.sender().send("tell", &Tell { key: key.into(), to: "later deaf".into() }).await.unwrap();
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(taken() - before, times, "of {key}, after an hour of sweeps");
    }
    let entities = store.entities();
    let waiting: Vec<_> = entities.iter().flat_map(|(_, teller)| &teller.outbox).flat_map(|e| &e.outgoing).collect();
    assert_eq!(waiting.len(), 3, "what is for the other waits: {waiting:?}");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
