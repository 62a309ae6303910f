//! What one call has to send, in one transaction: who reads with `read_committed` sees all of it or nothing.
//!
//! A client library's producer has one transaction at a time, so a thread has it, and what calls have to send at the same time goes together:
//! whatever has come while the last transaction was under way, without a timer, up to a bound. What a call has is never split. Where something of
//! a transaction is refused, nothing of it is there, and the calls go one by one.

mod ended;
mod producer;
mod writer;

use std::time::Duration;

use hapax_core::ports::{DispatchError, ErrorKind, TransportError};
use rdkafka::{
    ClientConfig,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    Broker, KafkaOptions,
    errors::is_unknown_topic,
    link::{Link, millis},
    names::Names,
    producing::Parcel,
};
use ended::{Ended, Failure};
use producer::Producer;

const DISPATCHING: &str = "dispatching messages";
const CONNECTING: &str = "connecting to Kafka";
/// How long a transaction may be open before the broker ends it. Default a minute, the client library's own: whoever reads what is committed waits
/// for so long behind a process that died within one and is not started again.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Shorter ones would end on the way.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// A broker takes no longer one unless configured (`transaction.max.timeout.ms`).
const TIMEOUT_MAX: Duration = Duration::from_secs(900);
/// Messages that go in one transaction, unless one call alone has more. Default 1,000: what a failure sends again, and what memory they take, stays
/// small, and a transaction costs some journeys whatever is in it.
const MESSAGES_MAX: u32 = 1000;
/// The client library has room for no more at a time.
const MESSAGES_LIMIT: u32 = 50_000;
/// The same in bytes of bodies and headers.
const BYTES_MAX: usize = 16 << 20;
/// Calls that wait for the transaction before theirs to end. Who comes then waits for room.
const CALLS_MAX: usize = 1024;
/// Longest name of a process, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// What one dispatch has to send goes in one transaction: **a preview**, never run against Apache Kafka. For
/// [`KafkaOptions::transactions`]; the chapter on Kafka (`docs/kafka.md`) says what this gives, what it cannot give and what is unproven.
#[derive(Debug, Clone)]
#[must_use]
pub struct Transactions {
    name: String,
    pub(super) timeout: Duration,
    messages_max: u32,
}

impl Transactions {
    /// Of the process `name`: 1 to 100 ASCII letters, digits, `.`, `-` and `_`. No two processes that run at the same time have the same one, and a process that
    /// is started anew has the one it had: whoever opens with a name takes over from who had it, aborts what that has left open, and from then
    /// on that other is refused everything until it is started anew.
    pub fn of(name: impl Into<String>) -> Self {
        Self { name: name.into(), timeout: TIMEOUT, messages_max: MESSAGES_MAX }
    }

    /// How long a transaction may be open before the broker ends it, from a second to a quarter of an hour, which is what brokers take unless
    /// configured. Default a minute. A process that dies within a transaction holds up for so long whoever reads what is committed, unless it is
    /// started anew before. Confirmations are waited for no longer, whatever [`KafkaOptions::patience`] says.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(TIMEOUT_MIN, TIMEOUT_MAX);
        self
    }

    /// Messages of calls that go in one transaction together, from 1 to 50,000. Default 1,000. What one call has is never split, and may be more. With one, each call
    /// has a transaction of its own, and they wait for each other.
    pub fn messages_max(mut self, messages: u32) -> Self {
        self.messages_max = messages.clamp(1, MESSAGES_LIMIT);
        self
    }

    fn id(&self, names: &Names) -> Result<String, TransportError> {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let name = &self.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(usual) {
            let why = format!(
                "`{}` names no process for transactions: 1 to {NAME_BYTES_MAX} ASCII letters, digits, `.`, `-` and `_` do",
                name.escape_debug()
            );
            return Err(TransportError::new(ErrorKind::Misconfigured, CONNECTING, why));
        }
        Ok(names.process(name))
    }

    fn settings(&self, producing: &ClientConfig, id: &str, patience: Duration) -> ClientConfig {
        let mut config = producing.clone();
        config
            .set("transactional.id", id)
            .set("transaction.timeout.ms", millis(self.timeout))
            .set("message.timeout.ms", millis(patience.min(self.timeout)));
        config
    }
}

/// One call's part of a transaction.
#[derive(Debug)]
struct Call {
    parcels: Vec<Parcel>,
    bytes: usize,
    tell: oneshot::Sender<Vec<Ended>>,
}

/// Who sends in transactions.
pub(super) struct Transacting {
    calls: mpsc::Sender<Call>,
}

impl Transacting {
    /// Takes over from who had the name before. Misconfigurations are seen here, but for a broker that cannot end a transaction, of which the
    /// first message tells.
    pub(super) async fn start(
        transactions: &Transactions,
        options: &KafkaOptions,
        link: &Link,
        names: &Names,
    ) -> Result<Self, TransportError> {
        let id = transactions.id(names)?;
        let config = transactions.settings(link.producing.config(), &id, options.patience);
        let producer = Producer::new(config, link.place().clone(), id, options.patience, transactions.timeout);
        let (calls, taken) = mpsc::channel(CALLS_MAX);
        let (tell, told) = oneshot::channel();
        let messages_max = transactions.messages_max as usize;
        let begun = std::thread::Builder::new()
            .name("hapax-kafka-tx".to_owned())
            .spawn(move || writer::run(producer, taken, messages_max, tell));
        begun.map_err(|e| {
            let why = "the system has no thread for it: let it have more";
            TransportError::new(ErrorKind::Unavailable, CONNECTING, why).caused_by(e)
        })?;
        match told.await {
            Ok(Ok(())) => Ok(Self { calls }),
            Ok(Err(failure)) => Err(failure.told(CONNECTING, link.place())),
            Err(_) => Err(Failure::gone().told(CONNECTING, link.place())),
        }
    }

    /// One answer for each. Who gives up meanwhile is not sent if its transaction has not begun.
    async fn put(&self, parcels: Vec<Parcel>) -> Vec<Ended> {
        let count = parcels.len();
        let bytes = parcels.iter().map(bytes_of).sum();
        let (tell, told) = oneshot::channel();
        let gone = || vec![Ended::Failed(Failure::gone()); count];
        if self.calls.send(Call { parcels, bytes, tell }).await.is_err() {
            return gone();
        }
        told.await.unwrap_or_else(|_| gone())
    }
}

impl Broker {
    /// Sends what can be sent of one call, `results` being `Ok` for it: all of it or nothing. Where something else of it waits, so does this; what
    /// can never be sent is none of it.
    pub(super) async fn in_one_transaction(
        &self,
        transacting: &Transacting,
        mut results: Vec<Result<(), DispatchError>>,
        parcels: Vec<Parcel>,
    ) -> Vec<Result<(), DispatchError>> {
        let waits = results.iter().any(|result| matches!(result, Err(DispatchError::Transient(_))));
        let ended = if waits {
            vec![Ended::Failed(Failure::WithOthers); parcels.len()]
        } else if parcels.is_empty() {
            Vec::new()
        } else {
            let topics: Vec<String> = parcels.iter().map(|parcel| parcel.topic.clone()).collect();
            let ended = transacting.put(parcels).await;
            for (topic, ended) in topics.iter().zip(&ended) {
                if ended.error().is_some_and(|error| is_unknown_topic(error) || is_late(error)) {
                    self.link.forget(topic);
                }
            }
            ended
        };
        let sent = results.iter_mut().filter(|result| result.is_ok());
        for (result, ended) in sent.zip(ended) {
            *result = ended.result(DISPATCHING, self.link.place());
        }
        results
    }
}

impl KafkaOptions {
    /// What one dispatch has to send goes in one transaction. Default no: each message is confirmed by itself. **A preview.** Consumers then read
    /// what is committed, unless [told otherwise](Self::read_committed).
    pub fn transactions(mut self, transactions: Transactions) -> Self {
        self.transactions = Some(transactions);
        self
    }

    /// Whether endpoints are given messages of transactions once these are committed, and none of those that are aborted. Default yes with
    /// [transactions](Self::transactions), and else no. **A preview.** Whoever stands still within a transaction holds up all who read so, until the transaction's timeout.
    pub const fn read_committed(mut self, committed: bool) -> Self {
        self.read_committed = Some(committed);
        self
    }

    pub(super) fn reads_committed(&self) -> bool {
        self.read_committed.unwrap_or_else(|| self.transactions.is_some())
    }
}

/// What is opened.
pub(super) async fn opened(
    options: &KafkaOptions,
    link: &Link,
    names: &Names,
) -> Result<Option<Transacting>, TransportError> {
    match &options.transactions {
        Some(transactions) => Transacting::start(transactions, options, link, names).await.map(Some),
        None => Ok(None),
    }
}

/// The client library may call it so that a topic is not there: it is looked for the next time.
fn is_late(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(Code::MessageTimedOut)
}

fn bytes_of(parcel: &Parcel) -> usize {
    let headers: usize = parcel.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    headers + parcel.body.as_ref().map_or(0, bytes::Bytes::len)
}
