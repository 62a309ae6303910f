//! Who is asked: an endpoint of accounts, whose answers tell which run of its handler gave them.

use std::time::Duration;

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, RequestClient, Saga,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, Settings},
    ids::IdempotencyKey,
    ports::{DeadLetter, DeadLetters, Page, Transport},
    requests::{RequestClientBuilder, RequestError},
};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinHandle, time::timeout};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Writes a line into an account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Book {
    pub(crate) account: String,
    pub(crate) line: String,
    pub(crate) way: Way,
}

impl Message for Book {
    const TYPE: &'static str = "bank.book";
}

/// How a request is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    #[default]
    Usual,
    /// With a message of another type.
    Other,
    /// With a body that is none of the type.
    Unreadable,
    /// Not at all.
    Silent,
    /// It never can be.
    Never,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Booked {
    pub(crate) lines: usize,
    /// Drawn anew by each run of the handler.
    pub(crate) run: u64,
}

impl Message for Booked {
    const TYPE: &'static str = "bank.booked";
}

#[derive(Debug, Serialize, Deserialize)]
struct Noted;

impl Message for Noted {
    const TYPE: &'static str = "bank.noted";
}

#[derive(Debug, Serialize, Deserialize)]
struct Garbled {
    lines: String,
}

impl Message for Garbled {
    const TYPE: &'static str = Booked::TYPE;
}

/// Lines, and the runs that wrote them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    lines: Vec<(String, u64)>,
}

impl Saga for Account {
    const NAME: &'static str = "account";
}

impl Handle<Book> for Account {
    fn correlate(book: &Book) -> Correlation<'_> {
        (&book.account).into()
    }

    async fn handle(&mut self, book: Book, cx: &mut Context) -> Result<(), HandlerError> {
        let run = fastrand::u64(..);
        self.lines.push((book.line, run));
        match book.way {
            Way::Usual => cx.reply(Booked { lines: self.lines.len(), run }),
            Way::Other => cx.reply(Noted),
            Way::Unreadable => cx.reply(Garbled { lines: "many".into() }),
            Way::Silent => Ok(()),
            Way::Never => Err(HandlerError::permanent("the bank does not take it")),
        }
    }
}

/// A bank that runs. Dropping it is a crash: what it is about is not finished.
pub(crate) struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where everything is kept, whoever runs.
pub(crate) struct Bank {
    pub(crate) store: Memory,
    pub(crate) hub: InProcess,
}

impl Bank {
    pub(crate) fn new(name: &str) -> Self {
        Self { store: Memory::new(), hub: InProcess::new(name) }
    }

    pub(crate) fn endpoint(&self, transport: impl Transport + 'static) -> EndpointBuilder {
        Endpoint::builder("bank")
            .store(self.store.clone())
            .transport(transport)
            .settings(Settings {
                sweep_age: Duration::ZERO,
                recoverability: Recoverability { attempts_max: 5, ..Recoverability::default() },
                ..Settings::default()
            })
            .saga::<Account>(|account| account.starts::<Book>())
    }

    pub(crate) async fn run(&self) -> Running {
        run(self.endpoint(self.hub.clone())).await
    }

    pub(crate) async fn client(&self, name: &str) -> RequestClient {
        RequestClient::builder(name).transport(self.hub.clone()).start().await.unwrap()
    }

    /// A client that looks where the bank sets messages aside.
    pub(crate) fn looking(&self, name: &str) -> RequestClientBuilder {
        RequestClient::builder(name).transport(self.hub.clone()).dead_letters(self.store.clone())
    }

    /// What an account has, with the runs that wrote it.
    pub(crate) fn lines(&self, account: &str) -> Vec<(String, u64)> {
        let entities = self.store.entities();
        let Some((_, entity)) = entities.iter().find(|(key, _)| key.key().as_str() == account) else {
            return Vec::new();
        };
        let account: Account = serde_json::from_slice(&entity.state[hapax::codec::FRAME_BYTES..]).unwrap();
        account.lines
    }

    /// Waits until every message is settled.
    pub(crate) async fn idle(&self) {
        timeout(60 * MINUTE, self.hub.idle()).await.expect("each message is settled within an hour");
    }

    pub(crate) async fn letters(&self) -> Vec<DeadLetter> {
        self.store.list(&"bank".parse().unwrap(), &Page::first(1000)).await.unwrap()
    }

    /// Asserts that `answer` is that of the one line of the account.
    pub(crate) fn booked_once(&self, account: &str, answer: &Booked) {
        let lines = self.lines(account);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!((lines[0].1, lines.len()), (answer.run, answer.lines));
    }
}

pub(crate) async fn run(endpoint: EndpointBuilder) -> Running {
    let endpoint = endpoint.start().await.unwrap();
    Running(tokio::spawn(async move { endpoint.run_until(std::future::pending::<()>()).await.unwrap() }))
}

pub(crate) fn book(account: &str, line: &str) -> Book {
    Book { account: account.into(), line: line.into(), way: Way::Usual }
}

pub(crate) fn key(text: &str) -> IdempotencyKey {
    text.parse().unwrap()
}

/// Books a line under the line's own name.
pub(crate) async fn ask(client: &RequestClient, book: &Book, within: Duration) -> Result<Booked, RequestError> {
    let asked = client.request_with_key(key(&book.line), "bank", book, within);
    timeout(within.saturating_add(MINUTE), asked).await.expect("it ends by its deadline")
}

/// The same in a task, which has begun when this returns: the runtime has one thread.
pub(crate) async fn asking(client: &RequestClient, book: Book) -> JoinHandle<Result<Booked, RequestError>> {
    let client = client.clone();
    let asking = tokio::spawn(async move { ask(&client, &book, MINUTE).await });
    tokio::task::yield_now().await;
    asking
}

/// Lets time pass until `done`, for an hour at most.
pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..36_000 {
        if done() {
            return;
        }
        tokio::time::sleep(SECOND / 10).await;
    }
    panic!("it never came to it: {what}");
}
