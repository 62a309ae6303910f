//! Endpoints in two "processes" each, while the broker between them is killed.

use std::{sync::Arc, time::Duration};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, RabbitMq, Saga, SendError, Sqlite,
    ids::{EntityKey, MessageId, Scope},
    ports::{EntityStore, Transport},
};
use hapax_tests::{RabbitMqServer, Scratch};
use serde::{Deserialize, Serialize};

use super::rig::PATIENCE;

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
const MESSAGES: usize = 600;
/// What has been handled when the broker is killed.
const BEFORE: u64 = 150;
/// See `server.rs`: a queue that is younger may not outlive it.
const SERVER_SAVES: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_broker_is_killed() {
    let mut server = RabbitMqServer::start().await;
    let options = || RabbitMq::options().patience(Duration::from_secs(5));
    let scratch = Scratch::new("rabbitmq-endpoints");
    let store = Sqlite::open(scratch.file("shop.db")).await.unwrap();
    let (stop, _) = tokio::sync::broadcast::channel::<()>(1);
    let mut running = Vec::new();
    for _ in 0..2 {
        let queue = options().open(server.url()).await.unwrap();
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
    tokio::time::sleep(SERVER_SAVES).await;
    let queue = options().open(server.url()).await.unwrap();
    assert!(queue.capabilities().durable);
    let sending = tokio::spawn(async move {
        let sender = queue.sender();
        for number in 0..MESSAGES {
            let add = Add { account: (number % ACCOUNTS).to_string() };
            let id: MessageId = format!("add {number}").parse().unwrap();
            let copies = if number % 3 == 0 { 2 } else { 1 };
            for _ in 0..copies {
                // The same id until it is confirmed.
                while let Err(e) = sender.send_as(id.clone(), "front", &add).await {
                    assert!(matches!(e, SendError::Dispatch(_)), "{e:?}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    });
    wait_for(&store, |[front, _]| front >= BEFORE).await;
    server.kill();
    server.restart().await;
    sending.await.unwrap();
    wait_for(&store, |[front, back]| front >= MESSAGES as u64 && back >= MESSAGES as u64).await;
    drop(stop);
    for endpoint in running {
        endpoint.await.unwrap().unwrap();
    }
    assert_eq!(counts(&store).await, [MESSAGES as u64; 2]);
}

async fn wait_for(store: &Sqlite, enough: impl Fn([u64; 2]) -> bool) {
    let looked = async {
        while !enough(counts(store).await) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(PATIENCE * 2, looked).await.is_err() {
        panic!("{:?} handled", counts(store).await);
    }
}

async fn counts(store: &Sqlite) -> [u64; 2] {
    let mut counts = [0; 2];
    for (count, name) in counts.iter_mut().zip(["front", "back"]) {
        let scope = Arc::new(Scope { endpoint: name.parse().unwrap(), saga: Account::NAME.parse().unwrap() });
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
