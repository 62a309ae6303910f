//! What is remembered goes by evidence: not while a copy may be left in the queue, and then it does.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hapax::{
    Context, Endpoint, Handler, HandlerError, Memory, Message, Sender,
    deliver::Recoverability,
    endpoint::{Eviction, Settings},
    envelope::Destination,
    ids::{EndpointName, TypeName},
    ports::{Connected, Dispatcher, Transport, TransportCapabilities, TransportError},
};
use serde::{Deserialize, Serialize};

const RETENTION: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_millis(200);
/// Much longer than the retention.
const LONG: Duration = Duration::from_millis(1500);
/// Between two tries of what cannot succeed yet.
const REST: Duration = Duration::from_millis(100);
/// What has to come comes long before this, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
struct Told {
    waits: bool,
}
impl Message for Told {
    const TYPE: &'static str = "test.told";
}

#[derive(Clone, Default)]
struct Seen {
    may_end: Arc<AtomicBool>,
    tries: Arc<AtomicU32>,
    done: Arc<AtomicU32>,
}

struct Listen;
impl Handler<Told> for Listen {
    const NAME: &'static str = "listen";
    async fn handle(&self, told: Told, cx: &mut Context) -> Result<(), HandlerError> {
        let seen = cx.get::<Seen>()?;
        if told.waits && !seen.may_end.load(Ordering::SeqCst) {
            seen.tries.fetch_add(1, Ordering::SeqCst);
            return Err(HandlerError::transient("not yet"));
        }
        seen.done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let look = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("never {what}"));
}

async fn send(sender: &Sender, here: &EndpointName, (id, key): (&str, Option<&str>), told: &Told) {
    let mut envelope = sender.envelope(id.parse().unwrap(), told).unwrap();
    envelope.partition_key = key.map(|key| key.parse().unwrap());
    sender.send_envelope(Destination::Endpoint(here.clone()), envelope).await.unwrap();
}

/// It says that it keeps nothing, as the store does, whose entries can be counted.
#[derive(Debug, Clone)]
struct Fleeting<Q>(Q);

#[async_trait]
impl<Q: Transport> Transport for Fleeting<Q> {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { durable: false, ..self.0.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.connect(endpoint, types).await
    }
}

/// A message is handled behind one that is tried again and again, for much longer than the retention: its entry stays. Once the first one has
/// ended too, both entries go.
pub(crate) async fn entries_go_when_the_queue_has_shown_that_their_messages_are_gone<Q>(queue: Q, here: EndpointName)
where
    Q: Transport + Dispatcher + Clone + 'static,
{
    entries_go_whatever_the_keys(queue, here, [None, None]).await;
}

/// The same with partition keys: that of the one that waits, and that of the other.
pub(crate) async fn entries_go_whatever_the_keys<Q>(queue: Q, here: EndpointName, keys: [Option<&str>; 2])
where
    Q: Transport + Dispatcher + Clone + 'static,
{
    assert!(queue.capabilities().marks);
    let (store, seen) = (Memory::new(), Seen::default());
    queue.connect(&here, &[]).await.unwrap();
    let rests = Recoverability {
        attempts_max: 10_000,
        poison_above: 10_000,
        retry_delay: REST,
        retry_delay_max: REST,
        ..Recoverability::default()
    };
    let settings = Settings {
        retention: RETENTION,
        evict_interval: Duration::from_millis(20),
        deadline: DEADLINE,
        sweep_age: Duration::ZERO,
        recoverability: rests,
        ..Settings::default()
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let endpoint = Endpoint::builder(here.as_str())
        .store(store.clone())
        .transport(Fleeting(queue.clone()))
        .settings(settings)
        .eviction(Eviction::Evidence)
        .with(seen.clone())
        .handler(Listen);
    let running = tokio::spawn(endpoint.start().await.unwrap().run_until(stopped));
    let sender = Sender::new(Arc::new(queue));
    let [waits, done] = keys;
    send(&sender, &here, ("waits", waits), &Told { waits: true }).await;
    until("tried", || seen.tries.load(Ordering::SeqCst) > 0).await;
    send(&sender, &here, ("done", done), &Told { waits: false }).await;
    until("handled", || seen.done.load(Ordering::SeqCst) == 1).await;
    let begun = Instant::now();
    until("over", || begun.elapsed() > LONG).await;
    let tries = seen.tries.load(Ordering::SeqCst);
    until("tried again", || seen.tries.load(Ordering::SeqCst) > tries).await;
    assert_eq!(store.dedup_entries(), 1, "it is forgotten while what came before it is in the queue");
    seen.may_end.store(true, Ordering::SeqCst);
    until("handled too", || seen.done.load(Ordering::SeqCst) == 2).await;
    until("forgotten", || store.dedup_entries() == 0).await;
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!(seen.done.load(Ordering::SeqCst), 2);
}
