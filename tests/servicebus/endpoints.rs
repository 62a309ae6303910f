//! Endpoints over AMQP 1.0: the scenarios of every broker.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Endpoint, Handler, HandlerError, Message, Sender, Sqlite,
    envelope::Outgoing,
    ids::{EndpointName, MessageId, TypeName},
    ports::{
        Connected, DeadLetter, DeadLetters, Delivery, DispatchError, Dispatcher, Page, Receipt, Receiver, Refused,
        Settled, Settlement, StoreError, Transport, TransportCapabilities, TransportError,
    },
};
use hapax_tests::{RabbitMqServer, Scratch};
use serde::{Deserialize, Serialize};

use super::{proxy::Proxy, rig::*};

#[path = "../broker/endpoints.rs"]
pub(crate) mod broker;

const MESSAGES: usize = 300;
/// Few enough that what was there at each cut, and was sent twice, is not given so often that it counts as poison.
const CUTS: usize = 3;

/// How often each message has been given.
pub(crate) type Counts = Arc<Mutex<HashMap<MessageId, u32>>>;

struct Killed {
    server: RabbitMqServer,
    counts: Counts,
}

impl broker::Server for Killed {
    type Queue = Counted;

    async fn open(&self, _: bool) -> Counted {
        Counted { queues: Queues::open(self.server.url()).await, counts: self.counts.clone() }
    }

    async fn is_killed(&mut self) {
        self.server.kill();
        self.server.restart().await;
    }
}

/// Lines that are cut again and again are to endpoints what a broker is that is killed.
struct Cut {
    server: RabbitMqServer,
    proxy: Proxy,
    counts: Counts,
}

impl broker::Server for Cut {
    type Queue = Counted;

    async fn open(&self, _: bool) -> Counted {
        let server = self.server.url();
        let options = options_at(&server).patience(Duration::from_secs(5));
        Counted { queues: Queues::over(options, self.proxy.url(), server).await, counts: self.counts.clone() }
    }

    async fn is_killed(&mut self) {
        for _ in 0..CUTS {
            // Long enough that something is sent and not confirmed.
            self.proxy.deafen();
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.proxy.cut();
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

/// An endpoint takes no transport that does not count, and the plain server does not: here the test counts, for all of its "processes".
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    pub(crate) queues: Queues,
    pub(crate) counts: Counts,
}

#[async_trait]
impl Transport for Counted {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { counts_deliveries: true, ..self.queues.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.queues.connect(endpoint, types).await?;
        let (receiver, counts) = (connected.receiver, self.counts.clone());
        let receiver = Arc::new(Counting { receiver, counts, given: Mutex::default() });
        Ok(Connected { receiver, ..connected })
    }
}

#[async_trait]
impl Dispatcher for Counted {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.queues.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        self.queues.dispatch(outgoing).await
    }
}

#[async_trait]
impl DeadLetters for Counted {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.queues.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.queues.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.queues.discard(letters).await
    }
}

#[derive(Debug)]
struct Counting {
    receiver: Arc<dyn Receiver>,
    counts: Counts,
    /// Whose receipts they are.
    given: Mutex<HashMap<Receipt, MessageId>>,
}

#[async_trait]
impl Receiver for Counting {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let mut deliveries = self.receiver.receive(max).await?;
        let (mut counts, mut given) = (self.counts.lock().unwrap(), self.given.lock().unwrap());
        for delivery in &mut deliveries {
            let id = &delivery.envelope.message_id;
            given.insert(delivery.receipt.clone(), id.clone());
            let count = counts.entry(id.clone()).or_default();
            *count += 1;
            delivery.attempts = *count;
        }
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let id = self.given.lock().unwrap().remove(receipt);
        // Before it can be given again.
        if let (Some(id), Settlement::Retry { counts: false, .. }) = (&id, &settlement)
            && let Some(count) = self.counts.lock().unwrap().get_mut(id)
        {
            *count = count.saturating_sub(1);
        }
        self.receiver.settle(receipt, settlement).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_broker_is_killed() {
    let server = Killed { server: RabbitMqServer::with_amqp_1_0().await, counts: Counts::default() };
    broker::each_is_handled_once(server, false, MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_connections_are_cut() {
    let server = RabbitMqServer::with_amqp_1_0().await;
    let proxy = Proxy::to(&server.url()).await;
    broker::each_is_handled_once(Cut { server, proxy, counts: Counts::default() }, false, 2 * MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_ends_among_the_dead_letters_on_the_server_and_holds_up_nothing() {
    let here = endpoint();
    if is_azure() {
        // It counts by itself, and what it holds cannot be asked over AMQP.
        return broker::poison_is_set_aside(open().await, here, async || true).await;
    }
    let queue = Counted { queues: open().await, counts: Counts::default() };
    broker::poison_is_set_aside(queue, here.clone(), async || waiting(&here).await == 0).await;
}

#[derive(Serialize, Deserialize)]
struct Told;
impl Message for Told {
    const TYPE: &'static str = "test.told";
}

/// How often it has been told.
#[derive(Clone, Default)]
struct Ear(Arc<AtomicU32>);
impl Handler<Told> for Ear {
    const NAME: &'static str = "ear";
    async fn handle(&self, _: Told, _: &mut Context) -> Result<(), HandlerError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// No server of AMQP 1.0 drops a repeat here: both come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_sent_twice_comes_twice_and_is_handled_once() {
    let (here, ear, scratch) = (endpoint(), Ear::default(), Scratch::new("servicebus-twice"));
    let queue = Counted { queues: open().await, counts: Counts::default() };
    let store = Sqlite::open(scratch.file("shop.db")).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shop = Endpoint::builder(here.as_str()).store(store).transport(queue.clone()).handler(ear.clone());
    let running = tokio::spawn(shop.start().await.unwrap().run_until(stopped));
    let (sender, id) = (Sender::new(Arc::new(queue.clone())), MessageId::random());
    for _ in 0..2 {
        sender.send_as(id.clone(), here.as_str(), &Told).await.unwrap();
    }
    let given = || queue.counts.lock().unwrap().get(&id).copied();
    let told = || ear.0.load(Ordering::SeqCst);
    let both = async {
        while given() < Some(2) || told() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("they do not come, or are not handled");
    // What has begun ends before it does.
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!(told(), 1);
}
