//! What is remembered for longer than other messages: numbers of a sender, and the keys of those who ask. Two processes of each endpoint run at a
//! time. The stores' clocks are not paused.

use std::{collections::BTreeSet, time::Duration};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, Saga,
    endpoint::{EndpointBuilder, Eviction, Settings},
    envelope::{Destination, Envelope},
    ids::EndpointName,
    ports::{Connected, Settlement, Transport},
};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    evicting::{Lossy, RETENTION, settings, until},
    work::{Done, Listener, Log, Task, endpoint, send, task},
};

/// Endpoints that run, until they are told to stop.
#[derive(Default)]
struct Running(Vec<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Running {
    /// It has subscribed when this returns.
    async fn start(&mut self, endpoint: EndpointBuilder) {
        let (stop, stopped) = oneshot::channel::<()>();
        let endpoint = endpoint.start().await.unwrap();
        self.0.push((stop, tokio::spawn(async move { endpoint.run_until(stopped).await.unwrap() })));
    }

    async fn stop(self) {
        for (stop, running) in self.0 {
            stop.send(()).unwrap();
            running.await.unwrap();
        }
    }
}

/// What comes to an endpoint of the test's own, until there are so many.
async fn take(ends: &Connected, count: usize) -> Vec<Envelope> {
    let mut came = Vec::new();
    while came.len() < count {
        for delivery in ends.receiver.receive(count).await.unwrap() {
            came.push((*delivery.envelope).clone());
            ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        }
    }
    came
}

/// The hub, which says that nothing comes late: copies are what these tests make of it.
pub(crate) fn prompt(hub: &InProcess) -> Lossy {
    let (prompt, _) = Lossy::over(hub.clone());
    prompt.mend();
    prompt
}

async fn ends(hub: &InProcess, name: &str, types: &[&str]) -> Connected {
    let types: Vec<_> = types.iter().map(|of| of.parse().unwrap()).collect();
    hub.connect(&name.parse().unwrap(), &types).await.unwrap()
}

/// Goal: a message that its sender has numbered is recognised after its entry is gone, and another is not. Method: late copies of all that one
/// endpoint has told another, once that has forgotten each of them by itself.
#[tokio::test]
async fn what_one_endpoint_has_numbered_another_recognises_when_its_entry_is_gone() {
    const TASKS: usize = 30;
    for numbers in [true, false] {
        let hub = InProcess::new("numbered");
        let (front, ears, log) = (Memory::new(), Memory::new(), Log::default());
        let spy = ends(&hub, "spy", &[Done::TYPE]).await;
        let mut running = Running::default();
        for _ in 0..2 {
            let work = endpoint(&front, prompt(&hub), &Log::default());
            running.start(if numbers { work.number_messages() } else { work }).await;
            let ear = Endpoint::builder("ear").store(ears.clone()).transport(prompt(&hub)).with(log.clone());
            // These queues show nothing, so that by evidence nothing is forgotten but what was numbered.
            let eviction = if numbers { Eviction::Evidence } else { Eviction::After(RETENTION) };
            running.start(ear.handler(Listener).settings(settings()).eviction(eviction)).await;
        }
        for number in 0..TASKS {
            send(&hub, &Task { tells: true, ..task(&format!("key-{}", number % 7), &format!("task-{number}")) }).await;
        }
        let runs = || (0..TASKS).map(|number| log.runs("listener", &format!("task-{number}"))).sum::<u32>() as usize;
        let told = take(&spy, TASKS).await;
        // Settled, so that what is remembered of it has been written.
        until("handled", || runs() == TASKS && hub.backlog(&"ear".parse().unwrap()) == 0).await;
        assert!(told.iter().all(|told| told.sequence.is_some() == numbers));
        // The handler's entities as well: what is left of one that is deleted knows what made it, until it is purged.
        until("forgotten", || ears.dedup_entries() == 0 && ears.entities().is_empty()).await;
        for copy in told {
            let to_ear = Destination::Endpoint(EndpointName::parse("ear").unwrap());
            hub.sender().send_envelope(to_ear, copy).await.unwrap();
        }
        until("given", || hub.backlog(&"ear".parse().unwrap()) == 0).await;
        assert_eq!(runs(), if numbers { TASKS } else { 2 * TASKS }, "numbered: {numbers}");
        running.stop().await;
    }
}

/// Money is put on an account.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Put {
    account: String,
    cents: u64,
}

impl Message for Put {
    const TYPE: &'static str = "remembered.put";
}

/// What is on it then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Balance {
    cents: u64,
}

impl Message for Balance {
    const TYPE: &'static str = "remembered.balance";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Account {
    cents: u64,
}

impl Saga for Account {
    const NAME: &'static str = "account";
}

impl Handle<Put> for Account {
    fn correlate(put: &Put) -> Correlation<'_> {
        (&put.account).into()
    }

    async fn handle(&mut self, put: Put, cx: &mut Context) -> Result<(), HandlerError> {
        self.cents += put.cents;
        cx.reply(Balance { cents: self.cents })
    }
}

/// Goal: who asks again under a key of its own has the same answer, and one effect, for as long as keys are kept, which is longer than ids are.
/// Method: both are asked again when entries of ids are gone; with a key under another id, as a client does that was restarted.
#[tokio::test]
async fn a_key_is_remembered_with_its_answer_for_longer_than_ids_are() {
    let (hub, store) = (InProcess::new("keys"), Memory::new());
    let asker = ends(&hub, "asker", &[]).await;
    let keys = Settings { idempotency_retention: Some(Duration::from_secs(3600)), ..settings() };
    let mut running = Running::default();
    for _ in 0..2 {
        let bank = Endpoint::builder("bank").store(store.clone()).transport(prompt(&hub)).settings(keys.clone());
        running.start(bank.saga::<Account>(|account| account.starts::<Put>())).await;
    }
    let ask = async |account: &str, id: &str, key: Option<&str>| {
        let put = Put { account: account.into(), cents: 100 };
        let mut envelope: Envelope = hub.sender().envelope(id.parse().unwrap(), &put).unwrap();
        envelope.idempotency_key = key.map(|key| key.parse().unwrap());
        envelope.reply_to = Some(Destination::Endpoint("asker".parse().unwrap()));
        hub.sender().send_envelope(Destination::Endpoint("bank".parse().unwrap()), envelope).await.unwrap();
        let answer = take(&asker, 1).await.remove(0);
        (answer.message_id.clone(), serde_json::from_slice::<Balance>(&answer.body).unwrap().cents)
    };
    let by_key = ask("by-key", "first", Some("order-7")).await;
    let by_id = ask("by-id", "plain", None).await;
    assert_eq!((by_key.1, by_id.1), (100, 100));
    // What is kept of a key is kept elsewhere by now.
    until("forgotten", || store.dedup_entries() == 0).await;
    assert_eq!(ask("by-key", "second", Some("order-7")).await, by_key, "the same answer, once in effect");
    assert_eq!(ask("by-id", "plain", None).await.1, 200, "nobody knows any more");
    let answers: BTreeSet<_> = [ask("by-key", "third", Some("order-7")).await, by_key].into();
    assert_eq!(answers.len(), 1);
    running.stop().await;
}
