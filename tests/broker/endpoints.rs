//! Endpoints over a broker: in two "processes" each, while copies come and the broker is killed; and a message that is no good.
#![allow(dead_code, clippy::unwrap_used)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, SendError, Sender, Sqlite,
    endpoint::Settings,
    envelope::Destination,
    ids::{EndpointName, EntityKey, Scope},
    ports::{DeadLetter, DeadLetters, Dispatcher, EntityStore, Page, Transport},
};
use hapax_tests::Scratch;
use serde::{Deserialize, Serialize};

/// What has to come comes long before this, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker of the test's own.
pub(crate) trait Server {
    type Queue: Transport + Dispatcher + Clone + 'static;

    async fn open(&self, ordered: bool) -> Self::Queue;

    /// By SIGKILL; it is there again when this ends.
    async fn is_killed(&mut self);

    /// Once what it has been told to make outlives a kill.
    async fn has_saved(&self) {}
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Add {
    pub(crate) account: String,
    pub(crate) number: usize,
}
impl Message for Add {
    const TYPE: &'static str = "test.add";
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Added {
    account: String,
    number: usize,
}
impl Message for Added {
    const TYPE: &'static str = "test.added";
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Account {
    /// What it was told, in this order.
    numbers: Vec<usize>,
}
impl Saga for Account {
    const NAME: &'static str = "account";
}
impl Handle<Add> for Account {
    fn correlate(add: &Add) -> Correlation<'_> {
        (&add.account).into()
    }
    async fn handle(&mut self, add: Add, cx: &mut Context) -> Result<(), HandlerError> {
        if add.account == "poison" {
            return Err(HandlerError::permanent("it can never succeed"));
        }
        self.numbers.push(add.number);
        cx.publish(Added { account: add.account, number: add.number })?;
        Ok(())
    }
}
impl Handle<Added> for Account {
    fn correlate(added: &Added) -> Correlation<'_> {
        (&added.account).into()
    }
    async fn handle(&mut self, added: Added, _: &mut Context) -> Result<(), HandlerError> {
        self.numbers.push(added.number);
        Ok(())
    }
}

const ACCOUNTS: usize = 7;
const NAMES: [&str; 2] = ["front", "back"];

/// Two endpoints handle `messages`, some of which are sent twice, once each; the server is killed when a quarter of them is.
pub(crate) async fn each_is_handled_once(mut server: impl Server, ordered: bool, messages: usize) {
    let scratch = Scratch::new("broker-endpoints");
    let store = Sqlite::open(scratch.file("shop.db")).await.unwrap();
    let (stop, _) = tokio::sync::broadcast::channel::<()>(1);
    let mut running = Vec::new();
    for _ in 0..2 {
        let queue = server.open(ordered).await;
        for name in ["back", "front"] {
            // What cannot be sent while the server is away is left to the sweeper, who is soon to have it.
            let soon = Settings {
                sweep_age: Duration::from_secs(1),
                sweep_interval: Duration::from_secs(1),
                ..Settings::default()
            };
            let endpoint = Endpoint::builder(name).store(store.clone()).transport(queue.clone()).settings(soon);
            let endpoint = match name {
                "front" => endpoint.saga::<Account>(|account| account.starts::<Add>()),
                _ => endpoint.saga::<Account>(|account| account.starts::<Added>()),
            };
            let mut stopped = stop.subscribe();
            let endpoint = endpoint.start().await.unwrap();
            running.push(tokio::spawn(endpoint.run_until(async move { stopped.recv().await })));
        }
    }
    server.has_saved().await;
    let queue = server.open(ordered).await;
    assert!(queue.capabilities().durable);
    let sender = Sender::new(Arc::new(queue));
    let sending = tokio::spawn(async move {
        let front = Destination::Endpoint("front".parse().unwrap());
        for number in 0..messages {
            let add = Add { account: (number % ACCOUNTS).to_string(), number };
            let mut envelope = sender.envelope(format!("add {number}").parse().unwrap(), &add).unwrap();
            envelope.partition_key = Some(add.account.parse().unwrap());
            let copies = if number % 3 == 0 { 2 } else { 1 };
            for _ in 0..copies {
                // The same id until it is confirmed.
                while let Err(e) = sender.send_envelope(front.clone(), envelope.clone()).await {
                    assert!(matches!(e, SendError::Dispatch(_)), "{e:?}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    });
    let all = messages as u64;
    wait_for(&store, |[front, _]| front >= all / 4).await;
    server.is_killed().await;
    sending.await.unwrap();
    wait_for(&store, |[front, back]| front >= all && back >= all).await;
    drop(stop);
    for endpoint in running {
        endpoint.await.unwrap().unwrap();
    }
    for name in NAMES {
        let accounts = told(&store, name).await;
        if ordered && name == "front" {
            assert!(accounts.iter().all(|numbers| numbers.is_sorted()), "not in order: {accounts:?}");
        }
        let mut numbers = accounts.concat();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..messages), "{name} was told {numbers:?}");
    }
}

async fn wait_for(store: &Sqlite, enough: impl Fn([u64; 2]) -> bool) {
    let looked = async {
        while !enough(counts(store, NAMES).await) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(PATIENCE * 2, looked).await.is_err() {
        panic!("{:?} handled", counts(store, NAMES).await);
    }
}

/// How much the accounts of each endpoint were told.
pub(crate) async fn counts<const N: usize>(store: &Sqlite, names: [&str; N]) -> [u64; N] {
    let mut counts = [0; N];
    for (count, name) in counts.iter_mut().zip(names) {
        *count = told(store, name).await.concat().len() as u64;
    }
    counts
}

/// What each account of an endpoint was told, in this order.
async fn told(store: &Sqlite, name: &str) -> Vec<Vec<usize>> {
    let scope = Arc::new(Scope { endpoint: name.parse().unwrap(), saga: Account::NAME.parse().unwrap() });
    let mut told = Vec::new();
    for account in 0..ACCOUNTS {
        let key = EntityKey::new(scope.clone(), account.to_string().parse().unwrap());
        let stored = store.load(&key, &[]).await.unwrap().stored;
        // JSON behind a frame of two bytes.
        let account = stored.map(|stored| serde_json::from_slice::<Account>(&stored.entity.state[2..]).unwrap());
        told.push(account.unwrap_or_default().numbers);
    }
    told
}

#[derive(Serialize, Deserialize)]
struct Bad {
    name: String,
}
impl Message for Bad {
    const TYPE: &'static str = "test.bad";
}

#[derive(Default, Serialize, Deserialize)]
struct Tries;
impl Saga for Tries {
    const NAME: &'static str = "tries";
}
impl Handle<Bad> for Tries {
    fn correlate(bad: &Bad) -> Correlation<'_> {
        (&bad.name).into()
    }
    async fn handle(&mut self, bad: Bad, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Arc<Mutex<Vec<String>>>>()?.lock().unwrap().push(bad.name.clone());
        if bad.name == "good" { Ok(()) } else { Err(HandlerError::transient("it is no good")) }
    }
}

/// What kills its process each time it is given, and what fails each time, end among the letters on the server, each with its
/// body and its count; what is good is handled. `is_empty`: nothing is left in the queue.
pub(crate) async fn poison_is_set_aside<Q>(queue: Q, here: EndpointName, is_empty: impl AsyncFn() -> bool)
where
    Q: Transport + Dispatcher + DeadLetters + Clone + 'static,
{
    const ATTEMPTS_MAX: u32 = 4;
    let sender = Sender::new(Arc::new(queue.clone()));
    queue.connect(&here, &[]).await.unwrap();
    sender.send_as("killer".parse().unwrap(), here.as_str(), &Bad { name: "killer".into() }).await.unwrap();
    for round in 1..=ATTEMPTS_MAX {
        // A process that dies with it: nothing is settled, and the lease runs out.
        let dying = queue.connect(&here, &[]).await.unwrap();
        let given = tokio::time::timeout(PATIENCE, dying.receiver.receive(1)).await.expect("nothing came");
        assert_eq!(given.unwrap().pop().unwrap().attempts, round);
    }
    for name in ["failing", "good"] {
        sender.send_as(name.parse().unwrap(), here.as_str(), &Bad { name: name.into() }).await.unwrap();
    }
    let mut settings = Settings::default();
    settings.recoverability.poison_above = ATTEMPTS_MAX;
    settings.recoverability.attempts_max = 2;
    settings.recoverability.retry_delay = Duration::from_millis(50);
    let handled: Arc<Mutex<Vec<String>>> = Arc::default();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let scratch = Scratch::new("broker-poison");
    let store = Sqlite::open(scratch.file("shop.db")).await.unwrap();
    // Without `.store(..)`, which would keep the letters.
    let endpoint = Endpoint::builder(here.as_str())
        .entities(store.clone())
        .dedup(store)
        .transport(queue.clone())
        .settings(settings)
        .with(handled.clone())
        .saga::<Tries>(|tries| tries.starts::<Bad>());
    let running = tokio::spawn(endpoint.start().await.unwrap().run_until(stopped));
    let letters = async {
        loop {
            let letters: Vec<DeadLetter> = queue.list(&here, &Page::first(10)).await.unwrap();
            if letters.len() == 2 && is_empty().await {
                break letters;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let letters = tokio::time::timeout(PATIENCE, letters).await.expect("they are not set aside");
    drop(stop);
    running.await.unwrap().unwrap();
    let mut found: Vec<(String, u32)> =
        letters.iter().map(|l| (l.envelope.message_id.to_string(), l.attempts)).collect();
    found.sort();
    assert_eq!(found, [("failing".to_owned(), 2), ("killer".to_owned(), ATTEMPTS_MAX + 1)]);
    let killer = letters.iter().find(|letter| letter.attempts > ATTEMPTS_MAX).unwrap();
    assert_eq!(&killer.envelope.body[..], br#"{"name":"killer"}"#);
    let handled = handled.lock().unwrap();
    assert!(!handled.contains(&"killer".to_owned()) && handled.contains(&"good".to_owned()), "{handled:?}");
}
