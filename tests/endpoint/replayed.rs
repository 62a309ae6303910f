//! Thousands of letters, given to their endpoint again: in the order of each entity, and as one action of the record.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::{
    Endpoint, InProcess, Memory, MessageId, Sqlite,
    endpoint::{
        EndpointBuilder,
        office::{Deed, Filter},
    },
    entity::Entity,
    envelope::Outgoing,
    ids::{EntityKey, Scope},
    ports::{
        DeadLetters, DedupStore, DispatchError, Dispatcher, EntityStore, ErrorKind, Refused, Transport, TransportError,
    },
};
use hapax_tests::Scratch;

use crate::{
    office::{add, all, letter, numbered, office},
    work::{Log, Task, WayOut, Worker, done, endpoint, settings, task},
};

pub(crate) const MANY: usize = 3000;
pub(crate) const KEYS: [&str; 3] = ["a", "b", "c"];

pub(crate) fn in_order(key: usize, count: usize) -> Vec<String> {
    (key..count).step_by(KEYS.len()).map(|number| format!("t-{number}")).collect()
}

/// Of the task of this name.
pub(crate) fn number(name: &str) -> usize {
    name["t-".len()..].parse().unwrap()
}

/// A way out that notes what it has sent, and once takes nothing of one name.
#[derive(Debug, Clone)]
struct Picky {
    hub: InProcess,
    refuses: Arc<Mutex<Option<&'static str>>>,
    sent: Arc<Mutex<Vec<String>>>,
}

impl Picky {
    fn refusing(hub: &InProcess, name: &'static str) -> Self {
        Self { hub: hub.clone(), refuses: Arc::new(Mutex::new(Some(name))), sent: Arc::default() }
    }

    /// Of one key, in the order in which they were sent.
    fn sent(&self, key: usize) -> Vec<String> {
        let sent = self.sent.lock().unwrap();
        sent.iter().filter(|name| number(name) % KEYS.len() == key).cloned().collect()
    }
}

#[async_trait]
impl Dispatcher for Picky {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results = Vec::new();
        for outgoing in outgoing {
            let name = outgoing.envelope.message_id.to_string();
            if self.refuses.lock().unwrap().take_if(|refused| *refused == name).is_some() {
                let why = TransportError::new(ErrorKind::Unavailable, "dispatching", "not now");
                results.push(Err(DispatchError::Transient(why)));
                continue;
            }
            let result = self.hub.dispatch(std::slice::from_ref(outgoing)).await;
            if result.iter().all(Result::is_ok) {
                self.sent.lock().unwrap().push(name);
            }
            results.extend(result);
        }
        results
    }
}

/// Workers on any store.
fn on<S>(store: &S, transport: impl Transport + 'static, log: &Log) -> EndpointBuilder
where
    S: EntityStore + DedupStore + DeadLetters + Clone + 'static,
{
    Endpoint::builder("work")
        .store(store.clone())
        .transport(transport)
        .with(log.clone())
        .settings(settings())
        .saga::<Worker>(|worker| worker.starts::<Task>())
}

/// Retries `count` letters, of which one cannot be sent at first, and has two endpoints handle them.
async fn replay<S>(store: &S, hub: InProcess, count: usize)
where
    S: EntityStore + DedupStore + DeadLetters + Clone + 'static,
{
    for task in numbered(count) {
        store.add(&letter(&task)).await.unwrap();
    }
    let stuck = count / 5 / KEYS.len() * KEYS.len(); // Of the first key.
    let name: &'static str = format!("t-{stuck}").leak();
    let picky = Picky::refusing(&hub, name);
    let desk = on(store, WayOut(hub.clone(), picky.clone()), &Log::default());
    let office = desk.start().await.unwrap().dead_letter_office("alice");
    let outcome = office.retry_all(&Filter::default()).await.unwrap();
    // All of its key from there on stay, and nobody else.
    let stay = (count - stuck) / KEYS.len();
    assert_eq!((outcome.done, outcome.left, outcome.reasons.len()), (count - stay, stay, stay.min(100)));
    assert_eq!(outcome.reasons[0].message_id.to_string(), name);
    assert_eq!(outcome.reasons[1].reason, "one before it could not be sent");
    let outcome = office.retry_all(&Filter::default()).await.unwrap();
    assert_eq!((outcome.done, outcome.left), (stay, 0));
    assert_eq!(office.list(&Filter::default(), 0, 10).await.unwrap(), []);
    for key in 0..KEYS.len() {
        assert_eq!(picky.sent(key), in_order(key, count), "each once, in their order, over both rounds");
    }

    let log = Log::default();
    let process = || on(store, hub.clone(), &log).run_until(hub.idle());
    let (one, two) = tokio::join!(process(), process());
    one.unwrap();
    two.unwrap();
    for (index, key) in KEYS.into_iter().enumerate() {
        // Which of the two has one first is the broker's; that each is handled once is not.
        let mut handled = of(store, key).await;
        handled.sort_by_key(|name| number(name));
        assert_eq!(handled, in_order(index, count));
    }
}

/// What a worker has done.
async fn of(store: &impl EntityStore, key: &str) -> Vec<String> {
    let scope = Scope { endpoint: "work".parse().unwrap(), saga: "worker".parse().unwrap() };
    let key = EntityKey::new(Arc::new(scope), key.parse().unwrap());
    let Entity { state, .. } = store.load(&key, &[]).await.unwrap().stored.unwrap().entity;
    let json: serde_json::Value = serde_json::from_slice(&state[hapax::codec::FRAME_BYTES..]).unwrap();
    serde_json::from_value(json["done"].clone()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn thousands_of_letters_are_sent_in_the_order_of_each_entity_and_handled_once_by_two_endpoints() {
    replay(&Memory::new(), InProcess::new("replayed"), MANY).await;
}

#[tokio::test]
async fn letters_in_a_database_are_sent_in_the_order_of_each_entity_and_handled_once_by_two_endpoints() {
    let scratch = Scratch::new("replayed");
    let store = Sqlite::open(scratch.file("letters.db")).await.unwrap();
    replay(&store, InProcess::new("replayed-sqlite"), 600).await;
    store.close().await;
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_handles_a_replay_in_the_order_of_each_entity() {
    let (store, hub, log) = (Memory::new(), InProcess::new("in-order"), Log::default());
    add(&store, numbered(MANY)).await;
    let office = office(&store, hub.clone()).await;
    assert_eq!(office.retry_all(&Filter::default()).await.unwrap().done, MANY);
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    for (index, key) in KEYS.into_iter().enumerate() {
        assert_eq!(done(&store, "worker", key), in_order(index, MANY));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_thousands_is_one_action_of_the_record_and_pushes_out_none() {
    let (store, hub) = (Memory::new(), InProcess::new("recorded"));
    let ids: Vec<String> = (0..MANY).map(|_| MessageId::random().to_string()).collect();
    add(&store, ids.iter().map(|id| task("a", id))).await;
    let office = office(&store, hub).await;
    let first = all(&office).await.swap_remove(0);
    let edited = office.edit(&first, |envelope| envelope.headers.set("colour", "red").unwrap()).await.unwrap();
    office.discard(&[edited]).await.unwrap();
    assert_eq!(office.retry_all(&Filter::default()).await.unwrap().done, MANY - 1);
    add(&store, ids.iter().map(|id| task("a", id))).await;
    assert_eq!(office.discard_all(&Filter::default()).await.unwrap(), MANY);
    let actions = office.actions().await.unwrap();
    let told: Vec<_> = actions.iter().map(|action| (action.deed, action.count, &*action.messages)).collect();
    let expected = [
        (Deed::Edited, 1, &ids[..1]),
        (Deed::Discarded, 1, &ids[..1]),
        (Deed::Retried, MANY - 1, &ids[1..201]),
        (Deed::Discarded, MANY, &ids[..200]),
    ];
    assert_eq!(told, expected);
}
