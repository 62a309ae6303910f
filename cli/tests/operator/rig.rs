//! A file in a folder of its own, an endpoint that runs on it, and the program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sqlite, SqliteQueue,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, Settings},
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, DeadLetters, DedupStore, DispatchError, Dispatcher, EntityStore, ErrorKind, Page, Refused,
        Transport, TransportCapabilities, TransportError,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Serialize, Deserialize)]
pub(crate) struct AddItem {
    pub(crate) order: String,
    pub(crate) item: String,
}
impl Message for AddItem {
    const TYPE: &'static str = "shop.add-item";
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ItemAdded {
    pub(crate) order: String,
}
impl Message for ItemAdded {
    const TYPE: &'static str = "shop.item-added";
}

/// An order; there is no item `bad`.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Order {
    items: Vec<String>,
}
impl Saga for Order {
    const NAME: &'static str = "order";
}
impl Handle<AddItem> for Order {
    fn correlate(add: &AddItem) -> Correlation<'_> {
        (&add.order).into()
    }
    async fn handle(&mut self, add: AddItem, cx: &mut Context) -> Result<(), HandlerError> {
        if add.item == "bad" {
            return Err(HandlerError::permanent("no such item"));
        }
        self.items.push(add.item);
        cx.send("stock", ItemAdded { order: add.order })
    }
}

/// Queues whose way out is cut, so that what is saved waits.
#[derive(Debug, Clone)]
pub(crate) struct Cut(pub(crate) SqliteQueue);

#[async_trait::async_trait]
impl Transport for Cut {
    fn capabilities(&self) -> TransportCapabilities {
        self.0.capabilities()
    }
    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        Ok(Connected { dispatcher: Arc::new(Away), ..self.0.connect(endpoint, types).await? })
    }
}

#[derive(Debug)]
struct Away;

#[async_trait::async_trait]
impl Dispatcher for Away {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }
    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let away = || TransportError::new(ErrorKind::Unavailable, "dispatching", "the cable is cut");
        outgoing.iter().map(|_| Err(DispatchError::Transient(away()))).collect()
    }
}

/// A folder that goes with it.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hapax-cli-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self) -> String {
        self.0.join("shop.db").to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // Whoever has it open holds it for a moment longer.
    }
}

/// The program, with no store in its environment.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
    command.env_remove("HAPAX_STORE").env_remove("HAPAX_TRANSPORT").stdin(Stdio::null());
    command
}

pub(crate) fn hapax(args: &[&str]) -> Output {
    program().args(args).output().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What it answers in JSON, having ended with `code`.
#[track_caller]
pub(crate) fn json(args: &[&str], code: i32) -> Value {
    let output = hapax(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {output:?}"))
}

pub(crate) fn builder<S>(store: S, transport: impl Transport + 'static) -> EndpointBuilder
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
{
    let recoverability = Recoverability { attempts_max: 2, ..Recoverability::default() };
    let settings = Settings { recoverability, ..Settings::default() };
    Endpoint::builder("shop")
        .store(store)
        .transport(transport)
        .settings(settings)
        .saga::<Order>(|order| order.starts::<AddItem>())
}

/// Waits until it is so, for a while.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

/// A shop that has run: `good-1`, given twice, is handled and what it sends is in the queue of `stock`; `bad-1` is a dead letter.
pub(crate) async fn shop_that_ran(file: &str) {
    let store = Sqlite::open(file).await.unwrap();
    let queue = SqliteQueue::on(&store).await.unwrap();
    let shop = builder(store.clone(), queue.clone()).start().await.unwrap();
    let running = tokio::spawn(shop.run_until(std::future::pending::<()>()));
    let add = |item: &str| AddItem { order: "7".to_owned(), item: item.to_owned() };
    for (id, item) in [("good-1", "tea"), ("bad-1", "bad"), ("good-1", "tea")] {
        queue.sender().send_as(id.parse().unwrap(), "shop", &add(item)).await.unwrap();
    }
    let (shop, stock) = ("shop".parse::<EndpointName>().unwrap(), "stock".parse::<EndpointName>().unwrap());
    let settled = || async {
        let letters = store.list(&shop, &Page::first(10)).await.unwrap().len();
        (letters, queue.backlog(&shop).await.unwrap(), queue.backlog(&stock).await.unwrap()) == (1, 0, 1)
    };
    until("the shop has handled all", settled).await;
    running.abort();
    let _ = running.await;
    store.close().await;
}

/// The same while the way out is cut: what `waits-1` has to send waits in the entity of order 8.
pub(crate) async fn shop_that_could_not_send(file: &str) {
    let store = Sqlite::open(file).await.unwrap();
    let queue = SqliteQueue::on(&store).await.unwrap();
    let shop = builder(store.clone(), Cut(queue.clone())).start().await.unwrap();
    let running = tokio::spawn(shop.run_until(std::future::pending::<()>()));
    let add = AddItem { order: "8".to_owned(), item: "tea".to_owned() };
    queue.sender().send_as("waits-1".parse().unwrap(), "shop", &add).await.unwrap();
    let scope = Arc::new(hapax::ids::Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() });
    let waits = || async { !store.pending(&scope, Duration::ZERO, None, 10).await.unwrap().is_empty() };
    until("something waits", waits).await;
    running.abort();
    let _ = running.await;
    store.close().await;
}
