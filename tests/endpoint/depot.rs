//! A store of bodies that can be watched, and can be told to fail; and who sends and reads large texts.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, Needs, Saga,
    endpoint::{EndpointBuilder, Settings},
    ids::EndpointName,
    ports::{
        Bodies, BodyCapabilities, BodyName, BodyReference, DeadLetter, DeadLetters, ErrorKind, Got, NewBody, Page,
        Staged, StoreError, Transport,
    },
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{sleep, timeout},
};

/// Bodies of more bytes do not travel.
pub(crate) const ABOVE: usize = 1000;
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const RETENTION: Duration = Duration::from_secs(2 * 3600);
pub(crate) const PUBLISHED: Duration = Duration::from_secs(4 * 3600);

/// Where the process that calls dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fuse {
    /// Before the call has any effect.
    Before(u32),
    /// After it, and before it is answered.
    After(u32),
    /// After the first of this name.
    AfterCall(&'static str),
}

/// Bodies in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Depot {
    pub(crate) kept: Memory,
    seen: Arc<Mutex<Vec<&'static str>>>,
    failing: Arc<Mutex<BTreeMap<&'static str, ErrorKind>>>,
    fuse: Arc<Mutex<Option<Fuse>>>,
    blown: Arc<Notify>,
    died_of: Arc<Mutex<Vec<&'static str>>>,
    calls: Arc<AtomicU32>,
}

impl Depot {
    /// Calls of the messages' way, in order.
    pub(crate) fn seen(&self) -> Vec<&'static str> {
        self.seen.lock().unwrap().clone()
    }

    /// From now on `call` fails.
    pub(crate) fn fails(&self, call: &'static str, kind: ErrorKind) {
        self.failing.lock().unwrap().insert(call, kind);
    }

    pub(crate) fn mend(&self) {
        self.failing.lock().unwrap().clear();
    }

    /// Who calls from now on dies of this.
    pub(crate) fn light(&self, fuse: Fuse) {
        self.calls.store(0, Ordering::Relaxed);
        *self.fuse.lock().unwrap() = Some(fuse);
    }

    /// At which call somebody has died meanwhile. There is no fuse any more.
    pub(crate) async fn died(&self) -> Option<&'static str> {
        let died = timeout(MINUTE, self.blown.notified()).await.is_ok();
        *self.fuse.lock().unwrap() = None;
        let died_of = self.died_of.lock().unwrap();
        died_of.last().copied().filter(|_| died)
    }

    /// Rows and bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.kept.bodies()
    }

    async fn call<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if !matches!(call, "staged" | "unstage" | "collect") {
            self.seen.lock().unwrap().push(call);
        }
        let failing = self.failing.lock().unwrap().get(call).copied();
        let error = |kind| StoreError::new(kind, "asking the depot", "it is told to fail");
        match failing {
            Some(ErrorKind::UnknownOutcome) => {
                work.await?;
                return Err(error(ErrorKind::UnknownOutcome));
            }
            Some(kind) => return Err(error(kind)),
            None => {}
        }
        let fuse = *self.fuse.lock().unwrap();
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if fuse == Some(Fuse::Before(number)) {
            self.die(call).await;
        }
        let done = work.await;
        if fuse == Some(Fuse::After(number)) || fuse == Some(Fuse::AfterCall(call)) {
            self.die(call).await;
        }
        done
    }

    async fn die(&self, call: &'static str) {
        self.died_of.lock().unwrap().push(call);
        self.blown.notify_one();
        pending().await
    }
}

#[async_trait]
impl Bodies for Depot {
    fn body_capabilities(&self) -> BodyCapabilities {
        BodyCapabilities { name: "depot", ..self.kept.body_capabilities() }
    }
    async fn put(&self, body: &NewBody) -> Result<(), StoreError> {
        self.call("put", self.kept.put(body)).await
    }
    async fn keep(&self, name: &BodyName, for_all: Duration) -> Result<bool, StoreError> {
        self.call("keep", self.kept.keep(name, for_all)).await
    }
    async fn get(&self, name: &BodyName, reference: Option<&BodyReference>) -> Result<Got, StoreError> {
        self.call("get", self.kept.get(name, reference)).await
    }
    async fn release(
        &self,
        name: &BodyName,
        reference: &BodyReference,
        instead: &[BodyReference],
        told: Duration,
    ) -> Result<(), StoreError> {
        self.call("release", self.kept.release(name, reference, instead, told)).await
    }
    async fn staged(&self, endpoint: &EndpointName, age: Duration, limit: usize) -> Result<Vec<Staged>, StoreError> {
        self.call("staged", self.kept.staged(endpoint, age, limit)).await
    }
    async fn unstage(&self, name: &BodyName) -> Result<bool, StoreError> {
        self.call("unstage", self.kept.unstage(name)).await
    }
    async fn collect(&self, limit: usize) -> Result<usize, StoreError> {
        self.call("collect", self.kept.collect(limit)).await
    }
}

/// Asks for a text to be sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Write {
    pub(crate) key: String,
    pub(crate) bytes: usize,
    /// Nobody: it is published.
    pub(crate) to: Vec<String>,
}

impl Message for Write {
    const TYPE: &'static str = "claims.write";
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) key: String,
    pub(crate) text: String,
}

impl Message for Text {
    const TYPE: &'static str = "claims.text";
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Writer {
    written: usize,
}

impl Saga for Writer {
    const NAME: &'static str = "writer";
}

impl Handle<Write> for Writer {
    fn correlate(write: &Write) -> Correlation<'_> {
        (&write.key).into()
    }

    async fn handle(&mut self, write: Write, cx: &mut Context) -> Result<(), HandlerError> {
        self.written += 1;
        let text = Text { key: write.key, text: "x".repeat(write.bytes) };
        for to in &write.to {
            cx.send(to, text.clone())?;
        }
        if write.to.is_empty() { cx.publish(text) } else { Ok(()) }
    }
}

/// What a reader does with a text: fail so often first, for good or for now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mood(pub(crate) Arc<Mutex<BTreeMap<&'static str, u32>>>);

impl Mood {
    /// The next `times` of `saga` fail for good.
    pub(crate) fn refuses(&self, saga: &'static str, times: u32) {
        self.0.lock().unwrap().insert(saga, times);
    }

    /// Those of `saga` fail for now, until it refuses none.
    pub(crate) fn puts_off(&self, saga: &'static str) {
        self.0.lock().unwrap().insert(saga, u32::MAX);
    }

    fn take(&self, saga: &'static str) -> Result<(), HandlerError> {
        let mut moods = self.0.lock().unwrap();
        let left = moods.entry(saga).or_default();
        match *left {
            0 => return Ok(()),
            u32::MAX => return Err(HandlerError::transient("told to put it off")),
            _ => *left -= 1,
        }
        Err(HandlerError::permanent("told to refuse it"))
    }
}

macro_rules! reader {
    ($reader:ident $name:literal) => {
        #[derive(Debug, Default, Serialize, Deserialize)]
        pub(crate) struct $reader {
            pub(crate) read: Vec<usize>,
        }

        impl Saga for $reader {
            const NAME: &'static str = $name;

            fn needs() -> Needs {
                Needs::default().and::<Mood>()
            }
        }

        impl Handle<Text> for $reader {
            fn correlate(text: &Text) -> Correlation<'_> {
                (&text.key).into()
            }

            async fn handle(&mut self, text: Text, cx: &mut Context) -> Result<(), HandlerError> {
                cx.get::<Mood>()?.take(Self::NAME)?;
                assert!(cx.incoming().body.len() >= text.text.len(), "the message came with its body");
                self.read.push(text.text.len());
                Ok(())
            }
        }
    };
}

reader!(Shelf "shelf");
reader!(Index "index");

/// Settings under which times pass that a test can wait for.
pub(crate) fn settings() -> Settings {
    Settings { retention: RETENTION, published_retention: PUBLISHED, ..crate::work::settings() }
}

/// Who sends texts.
pub(crate) fn writer(store: &Memory, transport: impl Transport + 'static, depot: &Depot) -> EndpointBuilder {
    let front = Endpoint::builder("front").store(store.clone()).transport(transport).settings(settings());
    front.saga::<Writer>(|writer| writer.starts::<Write>()).bodies(depot.clone(), ABOVE)
}

/// Who reads them.
pub(crate) fn reader(name: &str, store: &Memory, hub: &InProcess, mood: &Mood) -> EndpointBuilder {
    let reader = Endpoint::builder(name).store(store.clone()).transport(hub.clone()).settings(settings());
    reader.with(mood.clone()).saga::<Shelf>(|shelf| shelf.starts::<Text>())
}

/// An endpoint that runs, until it is dropped: as if its process had died.
pub(crate) struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn run(endpoint: EndpointBuilder) -> Running {
    let endpoint = endpoint.start().await.unwrap();
    let running = tokio::spawn(async move { endpoint.run_until(pending::<()>()).await });
    sleep(Duration::from_millis(1)).await;
    Running(running.abort_handle())
}

/// What a reader of the store has read.
pub(crate) fn read(store: &Memory, endpoint: &str, saga: &str) -> Vec<usize> {
    let entities = store.entities();
    let of = |scope: &hapax::ids::Scope| scope.endpoint.as_str() == endpoint && scope.saga.as_str() == saga;
    let mut read = Vec::new();
    for (_, entity) in entities.iter().filter(|(key, _)| of(key.scope())) {
        let json: serde_json::Value = serde_json::from_slice(&entity.state[hapax::codec::FRAME_BYTES..]).unwrap();
        read.extend(serde_json::from_value::<Vec<usize>>(json["read"].clone()).unwrap());
    }
    read
}

pub(crate) async fn letters(store: &Memory, endpoint: &str) -> Vec<DeadLetter> {
    store.list(&endpoint.parse().unwrap(), &Page::first(100)).await.unwrap()
}

pub(crate) async fn write(hub: &InProcess, write: &Write) {
    hub.sender().send("front", write).await.unwrap();
}

pub(crate) fn to(endpoints: &[&str]) -> Write {
    Write { key: "a".into(), bytes: 5000, to: endpoints.iter().map(ToString::to_string).collect() }
}
