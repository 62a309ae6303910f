//! A file in a folder of its own, an endpoint that ran on it, and the page on a free port.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hapax_core::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga,
    endpoint::EndpointBuilder,
    ids::{EndpointName, Fingerprint},
    metrics::Metrics,
    operator::Operator,
    ports::{DeadLetters, Page as Letters},
};
use hapax_page::{Actions, Page, Token};
use hapax_stores::Sqlite;
use hapax_transports::SqliteQueue;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// What a sender who means harm would write.
pub(crate) const HOSTILE: &str = "<script>document.title='owned'</script><img src=x onerror=alert(1)>";

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
    order: String,
}
impl Message for ItemAdded {
    const TYPE: &'static str = "shop.item-added";
}

/// An order; an item that begins with `bad` there is none, and the reason says so with its name.
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
        if add.item.starts_with("bad") {
            return Err(HandlerError::permanent(format!("no such item: {}", add.item)));
        }
        self.items.push(add.item);
        cx.send("stock", ItemAdded { order: add.order })
    }
}

/// A shop that has run, and its file. `good-1`, given twice, is handled; `bad-1` is a dead letter, and so is one whose id and item are hostile.
#[derive(Debug)]
pub(crate) struct Shop {
    folder: PathBuf,
    pub(crate) store: Sqlite,
    pub(crate) queue: SqliteQueue,
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder); // Whoever has it open holds it for a moment longer.
    }
}

impl Shop {
    pub(crate) async fn that_ran(metrics: Arc<dyn Metrics>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hapax-page-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("shop.db");
        let options = Sqlite::options(file.to_str().unwrap()).create_if_missing(true).migrate(true);
        let store = options.open().await.unwrap();
        let queue = SqliteQueue::options().migrate(true).on(&store).await.unwrap();
        let shop = Self { folder, store, queue };
        shop.runs(metrics).await;
        shop
    }

    pub(crate) async fn quiet() -> Self {
        Self::that_ran(Arc::new(hapax_core::metrics::NoMetrics)).await
    }

    fn builder(&self) -> EndpointBuilder {
        Endpoint::builder("shop")
            .store(self.store.clone())
            .transport(self.queue.clone())
            .saga::<Order>(|order| order.starts::<AddItem>())
    }

    async fn runs(&self, metrics: Arc<dyn Metrics>) {
        let endpoint = self.builder().metrics(metrics).start().await.unwrap();
        let running = tokio::spawn(endpoint.run_until(std::future::pending::<()>()));
        let hostile = format!("bad {HOSTILE}");
        let stock: EndpointName = "stock".parse().unwrap();
        let sent_on = async || self.queue.backlog(&stock).await.unwrap();
        self.sends("good-1", "tea").await;
        until("it is handled", async || (self.backlog().await, sent_on().await) == (0, 1)).await;
        // A copy of what is remembered, so that it does not come with the first in one pass.
        for (id, item) in [("good-1", "tea"), ("bad-1", "bad"), (HOSTILE, hostile.as_str())] {
            self.sends(id, item).await;
        }
        let is_over = async || (self.letters().await, self.backlog().await, sent_on().await) == (2, 0, 1);
        until("the shop has handled all", is_over).await;
        running.abort();
        let _ = running.await;
    }

    async fn sends(&self, id: &str, item: &str) {
        let add = AddItem { order: "7".to_owned(), item: item.to_owned() };
        self.queue.sender().send_as(id.parse().unwrap(), "shop", &add).await.unwrap();
    }

    pub(crate) async fn letters(&self) -> usize {
        self.store.list(&"shop".parse().unwrap(), &Letters::first(10)).await.unwrap().len()
    }

    /// Another letter about a message, as an edit that was cut short leaves it; its fingerprint.
    pub(crate) async fn copy_of(&self, id: &str) -> String {
        let all = self.store.list(&"shop".parse().unwrap(), &Letters::first(10)).await.unwrap();
        let mut letter = all.into_iter().find(|letter| letter.envelope.message_id.to_string() == id).unwrap();
        Arc::make_mut(&mut letter.envelope).body = br#"{"order":"7","item":"edited"}"#.as_slice().into();
        self.store.add(&letter).await.unwrap();
        Fingerprint::of(&letter.envelope).to_string()
    }

    pub(crate) async fn backlog(&self) -> u64 {
        self.queue.backlog(&"shop".parse().unwrap()).await.unwrap()
    }

    pub(crate) fn operator(&self) -> Operator {
        let operator = Operator::on(self.store.clone()).schedule(self.store.clone());
        operator.queues(self.queue.clone()).sends_by(self.queue.clone())
    }

    pub(crate) fn page(&self) -> Page {
        Page::new(self.operator())
    }

    /// With actions, and the lines of their log.
    pub(crate) fn acting_page(&self) -> (Page, Arc<Mutex<Vec<Value>>>) {
        let lines: Arc<Mutex<Vec<Value>>> = Arc::default();
        let log = lines.clone();
        let actions = Actions::new(Token::parse(TOKEN).unwrap()).by("page").store("shop.db");
        let actions = actions.writes(move |line| log.lock().unwrap().push(serde_json::from_str(&line.json()).unwrap()));
        (self.page().actions(actions), lines)
    }
}

/// Waits until it is so, for a while.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

/// What a server has answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// That it failed with this status, and says what and what to do, in JSON.
    #[track_caller]
    pub(crate) fn is_wrong(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let json = self.json();
        let part = |name: &str| json[name].as_str().unwrap().to_owned();
        assert!(!part("error").is_empty() && !part("remedy").is_empty(), "{json}");
        part("error")
    }
}

/// A page that is served.
#[derive(Debug)]
pub(crate) struct Served(pub(crate) SocketAddr);

impl Served {
    pub(crate) async fn new(page: Page) -> Self {
        Self::router(page.router()).await
    }

    pub(crate) async fn router(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self(address)
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "").await
    }

    /// An action by who knows the token.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        let bearer = format!("Bearer {TOKEN}");
        self.ask("POST", path, &[("Authorization", &bearer)], body).await
    }

    /// One request on a connection of its own. With a header `Host` among the `headers`, that is sent in place of the usual one.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request += &format!("Host: {}\r\n", self.0);
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if method == "POST" {
            request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        self.raw(&format!("{request}\r\n{body}")).await
    }

    pub(crate) async fn raw(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Whoever refuses a large body may hang up before it is sent.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }
}

/// As a browser writes it into an address.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
