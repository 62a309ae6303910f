//! Endpoints on the queue: two of them in two "processes" each, all on one file.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use std::time::Duration;

use common::*;
use hapax_core::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga,
    endpoint::Settings,
    ids::{EntityKey, Scope},
    ports::{DeadLetters, EntityStore, Page, Transport},
};
use hapax_stores::Sqlite;
use hapax_transports::SqliteQueue;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Add {
    account: String,
}
impl Message for Add {
    const TYPE: &'static str = "test.add";
}

#[derive(Serialize, Deserialize)]
struct Added {
    account: String,
}
impl Message for Added {
    const TYPE: &'static str = "test.added";
}

#[derive(Default, Serialize, Deserialize)]
struct Account {
    count: u64,
}
impl Saga for Account {
    const NAME: &'static str = "account";
}
impl Handle<Add> for Account {
    fn correlate(add: &Add) -> Correlation<'_> {
        (&add.account).into()
    }
    async fn handle(&mut self, add: Add, cx: &mut Context) -> Result<(), HandlerError> {
        self.count += 1;
        cx.publish(Added { account: add.account })?;
        Ok(())
    }
}
impl Handle<Added> for Account {
    fn correlate(added: &Added) -> Correlation<'_> {
        (&added.account).into()
    }
    async fn handle(&mut self, _: Added, _: &mut Context) -> Result<(), HandlerError> {
        self.count += 1;
        Ok(())
    }
}

const ACCOUNTS: usize = 7;
const MESSAGES: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_several_processes_on_one_file_handle_each_message_once() {
    for ordered in [false, true] {
        let place = Place::new();
        let mut running = Vec::new();
        let (stop, _) = tokio::sync::broadcast::channel::<()>(1);
        for _ in 0..2 {
            let store = Sqlite::open(place.file()).await.unwrap();
            let queue = SqliteQueue::options().ordered_keys(ordered).on(&store).await.unwrap();
            for name in ["front", "back"] {
                let endpoint = Endpoint::builder(name).store(store.clone()).transport(queue.clone());
                let endpoint = match name {
                    "front" => endpoint.saga::<Account>(|account| account.starts::<Add>()),
                    _ => endpoint.saga::<Account>(|account| account.starts::<Added>()),
                };
                let mut stopped = stop.subscribe();
                let endpoint = endpoint.start().await.unwrap();
                running.push(tokio::spawn(endpoint.run_until(async move { stopped.recv().await })));
            }
        }
        let store = Sqlite::open(place.file()).await.unwrap();
        let queue = SqliteQueue::on(&store).await.unwrap();
        // Subscribed before anything is published, though nobody may be there yet.
        queue.connect(&endpoint("back"), &[Added::TYPE.parse().unwrap()]).await.unwrap();
        let sender = queue.sender();
        for number in 0..MESSAGES {
            let add = Add { account: (number % ACCOUNTS).to_string() };
            let id: hapax_core::ids::MessageId = format!("add {number}").parse().unwrap();
            sender.send_as(id.clone(), "front", &add).await.unwrap();
            if number % 3 == 0 {
                sender.send_as(id, "front", &add).await.unwrap(); // A copy.
            }
        }
        let finished = async {
            while counts(&store).await != [MESSAGES as u64; 2] || queue.messages().await.unwrap() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE * 2, finished).await.is_err() {
            panic!("{:?} handled, {} left", counts(&store).await, queue.messages().await.unwrap());
        }
        drop(stop);
        for endpoint in running {
            endpoint.await.unwrap().unwrap();
        }
        assert_eq!(counts(&store).await, [MESSAGES as u64; 2]);
        let letters = store.list(&endpoint("front"), &Page::first(10)).await.unwrap();
        let more = store.list(&endpoint("back"), &Page::first(10)).await.unwrap();
        assert!(letters.is_empty() && more.is_empty(), "{letters:?} {more:?}");
        clean_up(&place, &store, &queue).await;
        assert_eq!(counts(&store).await, [MESSAGES as u64; 2]);
    }
}

/// A clean-up that met the other process's save twice leaves its entry to the entity's next save, or to the sweeper.
async fn clean_up(place: &Place, store: &Sqlite, queue: &SqliteQueue) {
    let at_once =
        Settings { sweep_age: Duration::ZERO, sweep_interval: Duration::from_millis(20), ..Settings::default() };
    let sweeper =
        |name: &str| Endpoint::builder(name).store(store.clone()).transport(queue.clone()).settings(at_once.clone());
    let [front, back] = [
        sweeper("front").saga::<Account>(|account| account.starts::<Add>()).start().await.unwrap(),
        sweeper("back").saga::<Account>(|account| account.starts::<Added>()).start().await.unwrap(),
    ];
    let swept = async {
        while place.number("SELECT count(*) FROM hapax_entity WHERE pending_since IS NOT NULL").await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = std::future::pending::<()>;
    tokio::select! {
        swept = tokio::time::timeout(PATIENCE, swept) => swept.expect("entries that nobody sweeps"),
        _ = front.run_until(ended()) => unreachable!("nobody stops it"),
        _ = back.run_until(ended()) => unreachable!("nobody stops it"),
    }
}

async fn counts(store: &Sqlite) -> [u64; 2] {
    let mut counts = [0; 2];
    for (count, name) in counts.iter_mut().zip(["front", "back"]) {
        let scope = std::sync::Arc::new(Scope { endpoint: endpoint(name), saga: Account::NAME.parse().unwrap() });
        for account in 0..ACCOUNTS {
            let key = EntityKey::new(scope.clone(), account.to_string().parse().unwrap());
            if let Some(stored) = store.load(&key, &[]).await.unwrap().stored {
                // JSON behind a frame of two bytes.
                *count += serde_json::from_slice::<Account>(&stored.entity.state[2..]).unwrap().count;
            }
        }
    }
    counts
}
