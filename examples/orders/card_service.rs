//! The card company: somebody else's program, with a memory of its own. It keeps a ledger by idempotency key and
//! answers a repeated key as it did the first time.
//!
//! It lives in this process, and its ledger in the shop's file, so that the books can be checked from one file alone, or,
//! where the shop is on a server, in a file that the server knows nothing of. Either way it has its own connection and its
//! own commits, and hapax knows nothing of it. A call that is dropped half-way is
//! carried out all the same, as a request on the wire would be.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinError, JoinHandle},
};

use crate::{
    Refusal,
    disk::{self, CREATE_PROBE},
    messages::{Card, TakePayment},
    order::PAYMENT_TIMEOUT,
};

/// A slow card answers when the order has given up.
const SLOW_ANSWER: Duration = Duration::from_millis(PAYMENT_TIMEOUT.as_millis() as u64 * 3 / 2);
/// Share of the calls that are declined at once, since the company is out of order.
const OUT_OF_ORDER: f64 = 0.05;
/// Share of the charges whose answer arrives garbled. The card was charged, or refused, all the same.
const GARBLED: f64 = 0.02;
/// Requests that may wait for the clerk, and that are written in one commit.
const REQUESTS_MAX: usize = 256;
/// How long the clerk waits while others write to the file.
const BUSY: Duration = Duration::from_secs(30);

/// Creates the ledger. `refunded` is 1 when a charge was given back.
pub(crate) const CREATE_LEDGER: &str = "CREATE TABLE orders_card_ledger (
    key TEXT NOT NULL PRIMARY KEY,
    order_id TEXT NOT NULL,
    cents INTEGER NOT NULL,
    answer TEXT NOT NULL CHECK (answer IN ('charged', 'refused', 'void')),
    refunded INTEGER NOT NULL DEFAULT 0,
    asked_at INTEGER NOT NULL DEFAULT 0 -- for the first time, milliseconds since 1970
) STRICT";

/// A client of the card company. Cloning gives another one.
#[derive(Clone)]
pub(crate) struct CardService {
    requests: mpsc::Sender<Request>,
    calls: Arc<AtomicU64>,
    declined: Arc<AtomicU64>,
    garbled: Arc<AtomicU64>,
    /// Draws when it is out of order, and what is garbled.
    random: Arc<Mutex<fastrand::Rng>>,
    /// Told of every call, which it answers at once, in place of the clerk.
    #[cfg(test)]
    told: Option<hapax::check::External>,
}

/// What the company says to a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Charged,
    Refused,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum CardError {
    /// Nothing was done.
    Declined(CardBusy),
    /// It was done, and whoever asks again at once, under the same key, is told what.
    Garbled(Garbled),
    /// The card may have been charged or not: only a repeat under the same key tells.
    Failed(&'static str),
}

/// The company is out of order, and says so at once. What is to be done about it is a rule in the shop's settings, by this type.
#[derive(Debug)]
pub(crate) struct CardBusy;

/// The company's answer cannot be read. A rule by this type too.
#[derive(Debug)]
pub(crate) struct Garbled;

struct Request {
    what: What,
    answer: oneshot::Sender<Said>,
}

struct Said {
    answer: String,
    /// Since the key was first heard of.
    asked_ago: Duration,
}

enum What {
    Charge { key: String, order: String, cents: i64, refuse: bool },
    Void { key: String, order: String },
    Refund { key: String },
}

impl CardService {
    /// Opens the company, with an empty ledger in `database`. The clerk ends when the last client is dropped.
    pub(crate) async fn open(
        database: &Path,
        seed: u64,
    ) -> Result<(Self, JoinHandle<Result<(), sqlx::Error>>), sqlx::Error> {
        Self::found(database).await?;
        Self::join(database, seed).await
    }

    /// Writes an empty ledger into `database`, for clerks of other processes.
    pub(crate) async fn found(database: &Path) -> Result<(), sqlx::Error> {
        let mut ledger = connect(database, true).await?;
        sqlx::query(CREATE_LEDGER).execute(&mut ledger).await?;
        sqlx::query(CREATE_PROBE).execute(&mut ledger).await?;
        ledger.close().await
    }

    /// Opens an office of the company, with the ledger that is in `database`.
    pub(crate) async fn join(
        database: &Path,
        seed: u64,
    ) -> Result<(Self, JoinHandle<Result<(), sqlx::Error>>), sqlx::Error> {
        let ledger = connect(database, false).await?;
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        let service = Self {
            requests,
            calls: Arc::default(),
            declined: Arc::default(),
            garbled: Arc::default(),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            #[cfg(test)]
            told: None,
        };
        Ok((service, tokio::spawn(clerk(ledger, inbox))))
    }

    /// Charges the card, once for each `key`.
    pub(crate) async fn charge(&self, key: &str, take: &TakePayment) -> Result<Answer, CardError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.is_open()?;
        if take.card == Card::Silent {
            return std::future::pending().await;
        }
        let (key, order, refuse) = (key.to_owned(), take.order.clone(), take.card == Card::Refused);
        let Said { answer, asked_ago } = self.ask(What::Charge { key, order, cents: take.cents, refuse }).await?;
        match take.card {
            // Whoever asks again later need not wait again.
            Card::Slow => tokio::time::sleep(SLOW_ANSWER.saturating_sub(asked_ago)).await,
            Card::Lost => std::future::pending().await,
            Card::Good | Card::Refused | Card::Silent => {}
        }
        if self.happens(GARBLED) {
            self.garbled.fetch_add(1, Ordering::Relaxed);
            return Err(CardError::Garbled(Garbled));
        }
        match answer.as_str() {
            "charged" => Ok(Answer::Charged),
            "refused" => Ok(Answer::Refused),
            _ => Err(CardError::Failed("the charge was voided")),
        }
    }

    /// Sees to it that nothing is charged under `key`: what was is given back, what comes later is not carried out.
    pub(crate) async fn void(&self, key: &str, order: &str) -> Result<(), CardError> {
        self.is_open()?;
        self.ask(What::Void { key: key.to_owned(), order: order.to_owned() }).await.map(drop)
    }

    /// Gives back what was charged under `key`, once.
    pub(crate) async fn refund(&self, key: &str) -> Result<(), CardError> {
        self.is_open()?;
        self.ask(What::Refund { key: key.to_owned() }).await.map(drop)
    }

    /// How often a charge was asked for, repeats included.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How many calls were declined.
    pub(crate) fn declined(&self) -> u64 {
        self.declined.load(Ordering::Relaxed)
    }

    /// How many answers could not be read.
    pub(crate) fn garbled(&self) -> u64 {
        self.garbled.load(Ordering::Relaxed)
    }

    fn happens(&self, share: f64) -> bool {
        #[cfg(test)]
        if self.told.is_some() {
            return false;
        }
        self.random.lock().unwrap_or_else(PoisonError::into_inner).f64() < share
    }

    fn is_open(&self) -> Result<(), CardError> {
        if !self.happens(OUT_OF_ORDER) {
            return Ok(());
        }
        self.declined.fetch_add(1, Ordering::Relaxed);
        Err(CardError::Declined(CardBusy))
    }

    async fn ask(&self, what: What) -> Result<Said, CardError> {
        #[cfg(test)]
        if let Some(told) = &self.told {
            return Ok(answer_at_once(told, &what));
        }
        let gone = || CardError::Failed("the card company cannot be reached");
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request { what, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())
    }
}

#[cfg(test)]
impl CardService {
    /// A company that answers at once and remembers nothing, for checks.
    pub(crate) fn told(told: hapax::check::External) -> Self {
        let (requests, _) = mpsc::channel(1);
        let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(0)));
        let [calls, declined, garbled] = std::array::from_fn(|_| Arc::default());
        Self { requests, calls, declined, garbled, random, told: Some(told) }
    }
}

#[cfg(test)]
fn answer_at_once(told: &hapax::check::External, what: &What) -> Said {
    let (What::Charge { key, .. } | What::Void { key, .. } | What::Refund { key }) = what;
    told.call_with_key(key);
    let answer = if matches!(what, What::Charge { refuse: true, .. }) { "refused" } else { "charged" };
    Said { answer: answer.into(), asked_ago: Duration::ZERO }
}

/// Why a clerk has gone before his clients.
pub(crate) fn why_gone(ledger: &Path, gone: Result<Result<(), sqlx::Error>, JoinError>) -> Refusal {
    match gone {
        Ok(Err(e)) => disk::refusal(ledger, &e),
        Ok(Ok(())) => Refusal::new("the card company has closed"),
        Err(e) => Refusal::new(format!("the card company has broken down: {e}")),
    }
}

async fn connect(database: &Path, new: bool) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(database).create_if_missing(new).busy_timeout(BUSY);
    SqliteConnection::connect_with(&options.journal_mode(SqliteJournalMode::Wal)).await
}

/// Carries out whatever has queued, in one commit, and answers after it: its clients compete with hapax for one file.
async fn clerk(mut ledger: SqliteConnection, mut inbox: mpsc::Receiver<Request>) -> Result<(), sqlx::Error> {
    let mut requests = Vec::with_capacity(REQUESTS_MAX);
    while inbox.recv_many(&mut requests, REQUESTS_MAX).await > 0 {
        let mut answers = Vec::with_capacity(requests.len());
        let mut commit = ledger.begin_with("BEGIN IMMEDIATE").await?;
        for Request { what, answer } in requests.drain(..) {
            answers.push((answer, carry_out(&mut commit, what).await?));
        }
        commit.commit().await?;
        for (answer, said) in answers {
            let _ = answer.send(said); // Whoever asked may be gone: that does not undo it.
        }
    }
    ledger.close().await
}

async fn carry_out(ledger: &mut SqliteConnection, what: What) -> Result<Said, sqlx::Error> {
    const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
    let key = match what {
        What::Charge { key, order, cents, refuse } => {
            let sql = format!(
                "INSERT INTO orders_card_ledger (key, order_id, cents, answer, asked_at) VALUES (?, ?, ?, ?, {NOW}) \
                 ON CONFLICT (key) DO NOTHING"
            );
            let answer = if refuse { "refused" } else { "charged" };
            sqlx::query(AssertSqlSafe(sql))
                .bind(&key)
                .bind(order)
                .bind(cents)
                .bind(answer)
                .execute(&mut *ledger)
                .await?;
            key
        }
        What::Void { key, order } => {
            let sql = "INSERT INTO orders_card_ledger (key, order_id, cents, answer) VALUES (?, ?, 0, 'void') \
                       ON CONFLICT (key) DO UPDATE SET refunded = (answer = 'charged')";
            sqlx::query(sql).bind(&key).bind(order).execute(&mut *ledger).await?;
            key
        }
        What::Refund { key } => {
            let sql = "UPDATE orders_card_ledger SET refunded = 1 WHERE key = ? AND answer = 'charged'";
            sqlx::query(sql).bind(&key).execute(&mut *ledger).await?;
            key
        }
    };
    let sql = format!("SELECT answer, max({NOW} - asked_at, 0) FROM orders_card_ledger WHERE key = ?");
    let said = sqlx::query_as(AssertSqlSafe(sql)).bind(key).fetch_optional(&mut *ledger).await?;
    let (answer, asked_ago): (String, i64) = said.unwrap_or_else(|| ("unknown".into(), 0));
    Ok(Said { answer, asked_ago: Duration::from_millis(asked_ago.unsigned_abs()) })
}

impl fmt::Display for CardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declined(_) => f.write_str("the card company has declined to answer"),
            Self::Garbled(_) => f.write_str("the card company cannot be understood"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CardError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Declined(busy) => Some(busy),
            Self::Garbled(garbled) => Some(garbled),
            Self::Failed(_) => None,
        }
    }
}

impl fmt::Display for CardBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is out of order, and asks to be called again")
    }
}

impl std::error::Error for CardBusy {}

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its answer is garbled")
    }
}

impl std::error::Error for Garbled {}
