//! Messages of which one kills whoever handles it, and the process that does: with the settings that a user gets.
#![allow(dead_code)] // Each program uses a part of it.

use std::{path::Path, sync::Arc, time::Duration};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, MessageId, Saga, Sqlite, SqliteQueue,
    envelope::{Destination, Envelope, Outgoing},
    ids::EndpointName,
    ports::Transport,
};
use serde::{Deserialize, Serialize};

/// Who handles them.
pub(crate) const STRUCK: &str = "struck";
/// Of a message: far above what a handler takes here, and soon over when its process has died.
const LEASE: Duration = Duration::from_millis(500);
/// How often the queue is looked at.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize, Deserialize)]
struct Strike {
    name: String,
    kills: bool,
}

impl Message for Strike {
    const TYPE: &'static str = "crash.strike";
}

/// One for each strike.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Struck {
    handled: Vec<String>,
}

impl Saga for Struck {
    const NAME: &'static str = STRUCK;
}

impl Handle<Strike> for Struck {
    fn correlate(strike: &Strike) -> Correlation<'_> {
        (&strike.name).into()
    }

    async fn handle(&mut self, strike: Strike, _: &mut Context) -> Result<(), HandlerError> {
        if strike.kills {
            std::process::abort();
        }
        // So that it is at work when another one kills the process.
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.handled.push(strike.name);
        Ok(())
    }
}

async fn open(folder: &Path) -> (Sqlite, SqliteQueue) {
    let store = Sqlite::open(folder.join("store.db")).await.unwrap();
    let queue = SqliteQueue::options().lease(LEASE).on(&store).await.unwrap();
    (store, queue)
}

/// Sends strikes of these names; the one named `bad` kills.
pub(crate) async fn send(folder: &Path, names: &[String]) {
    let (store, queue) = open(folder).await;
    let endpoint: EndpointName = STRUCK.parse().unwrap();
    let strikes = names.iter().map(|name| {
        let body = serde_json::to_vec(&Strike { name: name.clone(), kills: name == "bad" }).unwrap();
        let id = MessageId::parse(name).unwrap();
        let envelope = Arc::new(Envelope::new(id, Strike::TYPE.parse().unwrap(), body));
        Outgoing { destination: Destination::Endpoint(endpoint.clone()), envelope }
    });
    let dispatcher = queue.connect(&endpoint, &[]).await.unwrap().dispatcher;
    for result in dispatcher.dispatch(&strikes.collect::<Vec<_>>()).await {
        result.unwrap();
    }
    store.close().await;
}

/// Handles them until none is left, or until it dies.
pub(crate) async fn strike(folder: &Path) {
    let (store, queue) = open(folder).await;
    let emptied = async {
        while queue.backlog(&STRUCK.parse().unwrap()).await.unwrap() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    };
    let endpoint = Endpoint::builder(STRUCK).store(store.clone()).transport(queue.clone());
    endpoint.saga::<Struck>(|struck| struck.starts::<Strike>()).run_until(emptied).await.unwrap();
    store.close().await;
}
