//! What the endpoints under test do, and what they can be asked afterwards.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, Handler, HandlerError, InProcess, Memory, Message, Needs, Saga,
    endpoint::{EndpointBuilder, Settings},
    envelope::{Destination, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{
        Connected, DeadLetter, DeadLetters, DispatchError, Dispatcher, ErrorKind, Page, Refused, Transport,
        TransportCapabilities, TransportError,
    },
};
use serde::{Deserialize, Serialize};

/// Work for one saga.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Which saga.
    pub(crate) key: String,
    /// What it is called.
    pub(crate) name: String,
    /// How long the handler takes.
    pub(crate) millis: u64,
    /// How many of its first runs fail.
    pub(crate) fails: u32,
    /// It says when it is done.
    pub(crate) tells: bool,
}

impl Message for Task {
    const TYPE: &'static str = "work.task";
}

/// A task is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) name: String,
}

impl Message for Done {
    const TYPE: &'static str = "work.done";
}

/// Nobody handles it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unheard;

impl Message for Unheard {
    const TYPE: &'static str = "work.unheard";
}

/// Names of the tasks that are done.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Worker {
    pub(crate) done: Vec<String>,
}

impl Saga for Worker {
    const NAME: &'static str = "worker";

    fn needs() -> Needs {
        Needs::default().and::<Log>()
    }
}

impl Handle<Task> for Worker {
    fn correlate(task: &Task) -> Correlation<'_> {
        Correlation::of("key", &task.key)
    }

    async fn handle(&mut self, task: Task, cx: &mut Context) -> Result<(), HandlerError> {
        let log = cx.get::<Log>()?.clone();
        log.run(Self::NAME, &task).await?;
        self.done.push(task.name.clone());
        if task.tells {
            cx.publish(Done { name: task.name })?;
        }
        Ok(())
    }
}

/// Another saga for the same messages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Auditor {
    pub(crate) seen: Vec<String>,
}

impl Saga for Auditor {
    const NAME: &'static str = "auditor";
}

impl Handle<Task> for Auditor {
    fn correlate(task: &Task) -> Correlation<'_> {
        Correlation::of("key", &task.key)
    }

    async fn handle(&mut self, task: Task, cx: &mut Context) -> Result<(), HandlerError> {
        let log = cx.get::<Log>()?.clone();
        log.run(Self::NAME, &Task { millis: 0, fails: 0, ..task.clone() }).await?;
        self.seen.push(task.name);
        Ok(())
    }
}

/// Writes down who is done.
#[derive(Debug, Clone)]
pub(crate) struct Listener;

impl Handler<Done> for Listener {
    const NAME: &'static str = "listener";

    async fn handle(&self, done: Done, cx: &mut Context) -> Result<(), HandlerError> {
        let task = Task { key: "listener".into(), name: done.name, ..Task::default() };
        let log = cx.get::<Log>()?.clone();
        log.run(Self::NAME, &task).await
    }
}

/// What the handlers did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<LogState>>);

#[derive(Debug, Default)]
struct LogState {
    /// Runs of each saga and task, kept or not.
    runs: BTreeMap<(String, String), u32>,
    at_work: BTreeMap<(String, String), u32>,
    most_of_one_key: u32,
    most_of_all: u32,
}

impl Log {
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self, saga: &str, task: &Task) -> Result<(), HandlerError> {
        let before = {
            let mut state = self.state();
            let runs = state.runs.entry((saga.to_owned(), task.name.clone())).or_default();
            *runs += 1;
            *runs - 1
        };
        let at_work = self.begin(saga, task);
        tokio::time::sleep(Duration::from_millis(task.millis)).await;
        drop(at_work);
        if before < task.fails { Err(HandlerError::transient("told to fail")) } else { Ok(()) }
    }

    fn begin(&self, saga: &str, task: &Task) -> AtWork {
        let key = (saga.to_owned(), task.key.clone());
        let mut state = self.state();
        *state.at_work.entry(key.clone()).or_default() += 1;
        state.most_of_one_key = state.most_of_one_key.max(state.at_work[&key]);
        state.most_of_all = state.most_of_all.max(state.at_work.values().sum());
        AtWork { log: self.clone(), key }
    }

    /// How often a saga has run a task.
    pub(crate) fn runs(&self, saga: &str, task: &str) -> u32 {
        self.state().runs.get(&(saga.to_owned(), task.to_owned())).copied().unwrap_or_default()
    }

    /// How many handlers of one saga instance were at work at the same time, at most.
    pub(crate) fn most_of_one_key(&self) -> u32 {
        self.state().most_of_one_key
    }

    /// How many handlers were at work at the same time, at most.
    pub(crate) fn most_of_all(&self) -> u32 {
        self.state().most_of_all
    }
}

struct AtWork {
    log: Log,
    key: (String, String),
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if let Some(at_work) = self.log.state().at_work.get_mut(&self.key) {
            *at_work -= 1;
        }
    }
}

/// Settings that do not wait where a test has nothing to wait for. The store's clock is not paused, so the sweeper's age is
/// zero.
pub(crate) fn settings() -> Settings {
    Settings { sweep_age: Duration::ZERO, ..Settings::default() }
}

/// An endpoint of workers, to be completed.
pub(crate) fn endpoint(store: &Memory, transport: impl Transport + 'static, log: &Log) -> EndpointBuilder {
    Endpoint::builder("work")
        .store(store.clone())
        .transport(transport)
        .with(log.clone())
        .settings(settings())
        .saga::<Worker>(|worker| worker.starts::<Task>())
}

/// A task for a key.
pub(crate) fn task(key: &str, name: &str) -> Task {
    Task { key: key.into(), name: name.into(), ..Task::default() }
}

/// Sends a task under its own name.
pub(crate) async fn send(hub: &InProcess, task: &Task) {
    hub.sender().send_as(task.name.parse().unwrap(), "work", task).await.unwrap();
}

/// What a saga of the store has done.
pub(crate) fn done(store: &Memory, saga: &str, key: &str) -> Vec<String> {
    let entities = store.entities();
    let of = |key_of: &hapax::ids::EntityKey| key_of.key().as_str() == key && key_of.scope().saga.as_str() == saga;
    let Some((_, entity)) = entities.iter().find(|(key_of, _)| of(key_of)) else { return Vec::new() };
    let json: serde_json::Value = serde_json::from_slice(&entity.state[hapax::codec::FRAME_BYTES..]).unwrap();
    let list = json.get("done").or_else(|| json.get("seen")).cloned().unwrap();
    serde_json::from_value(list).unwrap()
}

/// Everything that the endpoint has set aside.
pub(crate) async fn letters(store: &Memory) -> Vec<DeadLetter> {
    let name = EndpointName::parse("work").unwrap();
    store.list(&name, &Page::first(1000)).await.unwrap()
}

/// A hub whose way out can be cut: to everybody, or to one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) hub: InProcess,
    cut: Arc<Mutex<bool>>,
    to: Option<Destination>,
    refused: Arc<AtomicU32>,
}

impl Cut {
    pub(crate) fn new(hub: &InProcess) -> Self {
        Self { hub: hub.clone(), cut: Arc::new(Mutex::new(true)), to: None, refused: Arc::default() }
    }

    pub(crate) fn only_to(hub: &InProcess, endpoint: &str) -> Self {
        Self { to: Some(Destination::Endpoint(endpoint.parse().unwrap())), ..Self::new(hub) }
    }

    /// How many messages it was offered while it was cut.
    pub(crate) fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn mend(&self) {
        *self.cut.lock().unwrap() = false;
    }

    fn is_cut(&self) -> bool {
        *self.cut.lock().unwrap()
    }
}

/// A hub with another way out.
#[derive(Debug)]
pub(crate) struct WayOut<D>(pub(crate) InProcess, pub(crate) D);

#[async_trait]
impl<D: Dispatcher + Clone + 'static> Transport for WayOut<D> {
    fn capabilities(&self) -> TransportCapabilities {
        self.0.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.0.connect(endpoint, types).await?;
        Ok(Connected { dispatcher: Arc::new(self.1.clone()), ..connected })
    }
}

#[async_trait]
impl Dispatcher for Cut {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results = Vec::new();
        for outgoing in outgoing {
            let is_meant = self.to.as_ref().is_none_or(|to| *to == outgoing.destination);
            if self.is_cut() && is_meant {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let why = TransportError::new(ErrorKind::Unavailable, "dispatching", "cut off");
                results.push(Err(DispatchError::Transient(why)));
            } else {
                results.extend(self.hub.dispatch(std::slice::from_ref(outgoing)).await);
            }
        }
        results
    }
}
