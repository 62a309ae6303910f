//! Endpoints over NATS: the scenario of every broker, and eviction by evidence.

use std::time::Duration;

use broker::{Account, Add, counts};
use hapax::{
    Endpoint, Nats, Sqlite,
    endpoint::{Eviction, Settings},
    envelope::Destination,
    ids::MessageId,
    ports::{DeadLetters, Page, Transport},
};
use hapax_tests::{NatsServer, Scratch};

use super::rig::{PATIENCE, endpoint, open, options, url};

#[path = "../broker/endpoints.rs"]
mod broker;

const MESSAGES: usize = 600;

impl broker::Server for NatsServer {
    type Queue = Nats;

    async fn open(&self, ordered: bool) -> Nats {
        let options = Nats::options().patience(Duration::from_secs(5)).lease(Duration::from_secs(2));
        options.ordered_keys(ordered).open(self.url()).await.unwrap()
    }

    async fn is_killed(&mut self) {
        self.kill();
        self.restart().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_broker_is_killed() {
    broker::each_is_handled_once(NatsServer::start().await, false, MESSAGES).await;
}

/// With order asked for, by evidence, over the shared server; and what cannot succeed is among the letters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_goes_by_evidence_and_sets_poison_aside() {
    let queue = options().ordered_keys(true).open(url()).await.unwrap();
    let (name, scratch) = (endpoint(), Scratch::new("nats-evidence"));
    let store = Sqlite::open(scratch.file("shop.db")).await.unwrap();
    let (stop, mut stopped) = tokio::sync::broadcast::channel::<()>(1);
    let running = Endpoint::builder(name.as_str())
        .store(store.clone())
        .transport(queue.clone())
        .dead_letters(queue.clone())
        .settings(Settings { evict_interval: Duration::from_millis(50), ..Settings::default() })
        .eviction(Eviction::Evidence)
        .saga::<Account>(|account| account.starts::<Add>())
        .start()
        .await
        .unwrap();
    let running = tokio::spawn(running.run_until(async move { stopped.recv().await }));
    let sender = queue.sender();
    for account in ["1", "poison", "2", "3"] {
        sender.send(name.as_str(), &Add { account: account.into(), number: 0 }).await.unwrap();
    }
    let done = async {
        while counts(&store, [name.as_str()]).await != [3] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        loop {
            let letters = open().await.list(&name, &Page::first(10)).await.unwrap();
            if let [letter] = &letters[..] {
                assert!(letter.reason.contains("it can never succeed"), "{}", letter.reason);
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, done).await.expect("it is not handled, or not set aside");
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!((queue.backlog(&name).await.unwrap(), queue.unsettled(&name).await.unwrap()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_that_keep_order_handle_each_message_once_while_their_broker_is_killed() {
    broker::each_is_handled_once(NatsServer::start().await, true, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_ends_among_the_dead_letters_on_the_server_and_holds_up_nothing() {
    let (queue, here) = (open().await, endpoint());
    let is_empty = async || (queue.backlog(&here).await.unwrap(), queue.unsettled(&here).await.unwrap()) == (0, 0);
    broker::poison_is_set_aside(queue.clone(), here.clone(), is_empty).await;
}

/// The server takes it as one that is new, and the endpoint knows it. On a server of its own: so short a window is no other test's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_again_after_the_dedup_window_is_taken_by_the_server_and_dropped_by_the_endpoint() {
    let server = NatsServer::start().await;
    let options = Nats::options().prefix("window").dedup_window(Duration::from_secs(2));
    let queue = options.open(server.url()).await.unwrap();
    let (name, scratch) = (endpoint(), Scratch::new("nats-window"));
    queue.connect(&name, &[]).await.unwrap();
    let sender = queue.sender();
    let message = sender.envelope(MessageId::random(), &Add { account: "1".into(), number: 7 }).unwrap();
    let twice = async {
        while queue.backlog(&name).await.unwrap() < 2 {
            sender.send_envelope(Destination::Endpoint(name.clone()), message.clone()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, twice).await.expect("the server drops it for longer than it was told");

    let store = Sqlite::open(scratch.file("shop.db")).await.unwrap();
    let (stop, mut stopped) = tokio::sync::broadcast::channel::<()>(1);
    let running = Endpoint::builder(name.as_str())
        .store(store.clone())
        .transport(queue.clone())
        .dead_letters(queue.clone())
        .saga::<Account>(|account| account.starts::<Add>())
        .start()
        .await
        .unwrap();
    let running = tokio::spawn(running.run_until(async move { stopped.recv().await }));
    let settled = async {
        while (queue.backlog(&name).await.unwrap(), queue.unsettled(&name).await.unwrap()) != (0, 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("it is not settled");
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!(counts(&store, [name.as_str()]).await, [1]);
    assert!(queue.list(&name, &Page::first(1)).await.unwrap().is_empty(), "it was set aside");
}
