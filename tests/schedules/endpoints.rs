//! Two processes of an endpoint, whose transport holds nothing back, share a schedule in a database.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Message, MySql, Postgres, Saga, Sqlite,
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, DeadLetters, DedupStore, Delays, DispatchError, Dispatcher, EntityStore, ErrorKind, Page, Refused,
        Schedule, Transport, TransportCapabilities, TransportError,
    },
    time::Timestamp,
    transports::in_process::Faults,
};
use hapax_tests::{MySqlTables, PostgresSchema, Scratch};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

/// What clocks and rounding may make early; and nobody but a busy machine makes late.
const TOLERANCE: Duration = Duration::from_millis(50);
/// Of messages that a process has which is gone.
const LEASE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
struct Boil {
    egg: String,
    millis: u64,
}

impl Message for Boil {
    const TYPE: &'static str = "kitchen.boil";
}

#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    egg: String,
}

impl Message for Ready {
    const TYPE: &'static str = "kitchen.ready";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Egg {
    boils: bool,
}

impl Saga for Egg {
    const NAME: &'static str = "egg";
}

impl Handle<Boil> for Egg {
    fn correlate(boil: &Boil) -> Correlation<'_> {
        Correlation::of("egg", &boil.egg)
    }

    async fn handle(&mut self, boil: Boil, cx: &mut Context) -> Result<(), HandlerError> {
        self.boils = true;
        cx.timeout(Duration::from_millis(boil.millis), Ready { egg: boil.egg })?;
        Ok(())
    }
}

impl Handle<Ready> for Egg {
    fn correlate(ready: &Ready) -> Correlation<'_> {
        Correlation::of("egg", &ready.egg)
    }

    async fn handle(&mut self, ready: Ready, cx: &mut Context) -> Result<(), HandlerError> {
        self.boils = false;
        cx.get::<Eaten>()?.0.lock().unwrap().push(ready.egg);
        Ok(())
    }
}

/// Each egg that was ready.
#[derive(Debug, Clone, Default)]
struct Eaten(Arc<Mutex<Vec<String>>>);

/// A hub that takes nothing before it is due.
#[derive(Debug, Clone)]
struct Strict(InProcess);

#[async_trait]
impl Transport for Strict {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { delays: Delays::Never, ..self.0.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.0.connect(endpoint, types).await?;
        Ok(Connected { dispatcher: Arc::new(self.clone()), ..connected })
    }
}

#[async_trait]
impl Dispatcher for Strict {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.0.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let now = Timestamp::now().after(TOLERANCE);
        if outgoing.iter().any(|outgoing| outgoing.envelope.due.is_some_and(|due| due > now)) {
            let early = || TransportError::new(ErrorKind::TooLarge, "dispatching", "it is not due");
            return outgoing.iter().map(|_| Err(DispatchError::Permanent(early()))).collect();
        }
        self.0.dispatch(outgoing).await
    }
}

async fn process<S>(store: S, hub: &Strict, eaten: &Eaten) -> (oneshot::Sender<()>, JoinHandle<()>)
where
    S: EntityStore + DedupStore + DeadLetters + Schedule + Clone + 'static,
{
    let endpoint = Endpoint::builder("kitchen")
        .store(store.clone())
        .schedule(store)
        .transport(hub.clone())
        .with(eaten.clone())
        .saga::<Egg>(|egg| egg.starts::<Boil>().handles::<Ready>());
    let endpoint = endpoint.start().await.unwrap();
    let (stop, stopped) = oneshot::channel();
    (stop, tokio::spawn(async move { endpoint.run_until(stopped).await.unwrap() }))
}

/// One of the processes is gone before anything is due.
async fn comes_when_it_is_due_and_once<S>(stores: [S; 3])
where
    S: EntityStore + DedupStore + DeadLetters + Schedule + Clone + 'static,
{
    const EGGS: usize = 100;
    let (hub, eaten, kitchen) = (
        Strict(InProcess::with_faults("strict", LEASE, Faults::default())),
        Eaten::default(),
        "kitchen".parse().unwrap(),
    );
    let [first, second, books] = stores;
    let (gone, running) = (process(first, &hub, &eaten).await, process(second, &hub, &eaten).await);
    let sender = hub.0.sender();
    for egg in 0..EGGS {
        let boil = Boil { egg: format!("egg-{egg}"), millis: 1_500 + 10 * egg as u64 };
        sender.send("kitchen", &boil).await.unwrap();
    }
    let began = Instant::now();
    let is_full = async || Schedule::next(&books, &kitchen).await.unwrap().is_some();
    timeout(PATIENCE, async { while !is_full().await {} }).await.expect("nothing is put");
    gone.1.abort();
    let all = async { while eaten.0.lock().unwrap().len() < EGGS || is_full().await {} };
    timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("{} of {EGGS}", eaten.0.lock().unwrap().len()));
    assert!(began.elapsed() >= Duration::from_millis(1_500));
    let mut eggs = eaten.0.lock().unwrap().clone();
    assert_eq!(eggs.len(), EGGS, "some came twice");
    eggs.sort();
    eggs.dedup();
    assert_eq!(eggs.len(), EGGS, "some never came");
    let page = Page { message_id: None, limit: 10, skip: 0 };
    assert_eq!(DeadLetters::list(&books, &kitchen, &page).await.unwrap(), [], "none was sent early");
    drop(running.0);
    running.1.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_on_sqlite_comes_when_it_is_due_and_once() {
    let scratch = Scratch::new("schedules-endpoint");
    let open = async || Sqlite::open(scratch.folder().join("store.db")).await.unwrap();
    comes_when_it_is_due_and_once([open().await, open().await, open().await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_on_postgres_comes_when_it_is_due_and_once() {
    let schema = PostgresSchema::new();
    let stores: [Postgres; 3] = [schema.open().await, schema.open().await, schema.open().await];
    comes_when_it_is_due_and_once(stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_on_mysql_comes_when_it_is_due_and_once() {
    let tables = MySqlTables::new();
    let stores: [MySql; 3] = [tables.open().await, tables.open().await, tables.open().await];
    comes_when_it_is_due_and_once(stores).await;
}
