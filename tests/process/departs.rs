//! A whole endpoint whose transport holds nothing back, so that what is due later waits in the store's schedule.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Endpoint, Registry, SqliteQueue,
    endpoint::Settings,
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, Schedule, Transport, TransportCapabilities, TransportError},
};

use crate::{
    Store,
    fuse::{Fuse, Fused},
    often,
    sagas::{Note, Notes, Ring, Tally},
    tally::{ENDPOINT, Step},
};

/// How often it is looked whether all is done.
const LOOK: Duration = Duration::from_millis(5);

/// A transport that says that it holds no message back.
#[derive(Debug)]
struct Prompt<T>(T);

#[async_trait]
impl<T: Transport> Transport for Prompt<T> {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { delays: Delays::Never, ..self.0.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.connect(endpoint, types).await
    }
}

/// Until nothing is left in the queue and in the schedule. Calls of the schedule are on the fuse, and those that send.
pub(crate) async fn depart<S: Store + Schedule>(store: S, queue: SqliteQueue, fuse: Fuse) {
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(store.clone())
        .schedule(Fused { port: Arc::new(store.clone()), fuse: fuse.clone() })
        .transport(Prompt(Fused { port: Arc::new(queue.clone()), fuse: fuse.clone() }))
        .saga::<Tally>(|tally| tally.starts::<Step>().handles::<Ring>())
        .saga::<Notes>(Registry::starts::<Note>)
        .settings(Settings { recoverability: often(), ..Settings::default() });
    endpoint.run_until(all_is_done(&store, &queue, &fuse)).await.unwrap();
    store.close().await;
}

/// No step is left, then nothing that a step has put into the schedule, then nothing of what came out of it; and whoever has asked
/// has been answered.
async fn all_is_done(schedule: &impl Schedule, queue: &SqliteQueue, fuse: &Fuse) {
    let endpoint: EndpointName = ENDPOINT.parse().unwrap();
    let is_empty = async || queue.backlog(&endpoint).await.unwrap() == 0;
    let is_none = async || schedule.next(&endpoint).await.unwrap().is_none();
    while !(is_empty().await && is_none().await && is_empty().await && fuse.is_idle()) {
        tokio::time::sleep(LOOK).await;
    }
}
