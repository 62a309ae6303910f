//! The producer of a process' transactions: one at a time, ended before the next begins, and who has it made anew when it cannot go on.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread::sleep,
    time::{Duration, Instant},
};

use hapax_core::ports::ErrorKind;
use rdkafka::{
    ClientConfig, ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer},
};

use super::{
    super::{errors::is_unknown_topic, link::Heard, producing::Parcel},
    ended::{Failure, is_cleared, is_fenced, is_forgotten, is_its_own},
};

/// Beyond what the client library waits for a message: for the answer to the commit.
const MARGIN: Duration = Duration::from_secs(5);
/// Before something that the client library wants tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// First rest before a producer that cannot go on is made anew; doubled for each that does not get as far as a commit.
const REST_FIRST: Duration = Duration::from_millis(100);
/// Longest rest.
const REST_LONGEST: Duration = Duration::from_secs(10);
/// A call that takes so much longer than it may shows that the process stood still: others may have taken over meanwhile.
const STOOD_STILL: Duration = Duration::from_secs(5);
/// So many times its timeout a transaction is tried to be ended. Tansu 0.6 never says to who was taken over from that it was.
const TIMEOUTS: u32 = 2;
/// Of what was not delivered within the time.
const NOT_DELIVERED: KafkaError = KafkaError::MessageProduction(Code::MessageTimedOut);

type Client = ThreadedProducer<Posting>;

/// Why a transaction was not confirmed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nothing of it is there for what these messages are, by place.
    OfMessages(BTreeMap<usize, KafkaError>),
    OfAll(Failure),
}

/// Begun, and not known to have ended.
#[derive(Debug)]
struct Open {
    begun: Instant,
    /// When this process was last seen to run.
    seen: Instant,
    stood_still: bool,
    /// Its commit was asked for; else it is to be aborted.
    is_commit: bool,
}

impl Open {
    /// Something has taken this long that may take no longer than `expected`.
    fn ran(&mut self, expected: Duration) {
        self.stood_still |= self.seen.elapsed() > expected + STOOD_STILL;
        self.seen = Instant::now();
    }
}

/// What the client library says to a call.
#[derive(Debug)]
enum Says {
    Again,
    Abort,
    Fenced,
    /// This client cannot go on.
    Over,
    /// What the broker cannot do, it never does.
    Unsupported,
}

pub(super) struct Producer {
    config: ClientConfig,
    place: Arc<str>,
    id: String,
    patience: Duration,
    timeout: Duration,
    client: Option<Client>,
    open: Option<Open>,
    fenced: bool,
    /// Why the last was aborted.
    why: Option<KafkaError>,
    /// Producers in a row that got as far as no commit.
    failures: u32,
    /// Until when no other is made, and why.
    rests: Option<(Instant, Failure)>,
}

impl Producer {
    pub(super) fn new(
        config: ClientConfig,
        place: Arc<str>,
        id: String,
        patience: Duration,
        timeout: Duration,
    ) -> Self {
        Self {
            config,
            place,
            id,
            patience: patience.min(timeout),
            timeout,
            client: None,
            open: None,
            fenced: false,
            why: None,
            failures: 0,
            rests: None,
        }
    }

    /// Takes the name over, if that has not been done. Who had it is refused from then on, and what it has left open is aborted.
    pub(super) fn begins(&mut self) -> Result<(), Failure> {
        if self.fenced {
            return Err(self.fenced_failure(false));
        }
        if self.client.is_some() {
            return Ok(());
        }
        if let Some((until, why)) = &self.rests
            && *until > Instant::now()
        {
            return Err(why.clone());
        }
        let context = Posting(Heard::new(self.place.clone()));
        let client: Client = match self.config.create_with_context(context) {
            Ok(client) => client,
            Err(_) => {
                let why = "cannot be sent to: the client library takes no such settings of transactions".to_owned();
                return Err(Failure::Refused(ErrorKind::Misconfigured, why));
            }
        };
        let until = Instant::now() + self.patience;
        loop {
            let Err(error) = client.init_transactions(left(until)) else { break };
            match says(&error, &client) {
                Says::Again if Instant::now() < until => sleep(AGAIN),
                Says::Fenced => {
                    self.fenced = true;
                    return Err(self.fenced_failure(false));
                }
                _ => {
                    let error = client.context().0.cause().unwrap_or(error);
                    return Err(self.over(&error));
                }
            }
        }
        self.client = Some(client);
        Ok(())
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Puts all of them in one transaction, confirmed.
    pub(super) fn transaction<'p>(&mut self, parcels: impl Iterator<Item = &'p Parcel>) -> Result<(), Trouble> {
        self.begins().map_err(Trouble::OfAll)?;
        self.ends_what_is_open(self.patience).map_err(Trouble::OfAll)?;
        self.begins().map_err(Trouble::OfAll)?;
        let Some(client) = &self.client else { return Err(Trouble::OfAll(Failure::gone())) };
        if let Err(error) = client.begin_transaction() {
            return Err(Trouble::OfAll(self.failed(&error, false)));
        }
        let now = Instant::now();
        self.open = Some(Open { begun: now, seen: now, stood_still: false, is_commit: false });
        let (tell, told) = mpsc::channel();
        let mut of_messages = BTreeMap::new();
        for (at, parcel) in parcels.enumerate() {
            if let Err(error) = post(client, parcel, Slot(at, tell.clone())) {
                of_messages.insert(at, error);
                break;
            }
        }
        drop(tell);
        let committed = if of_messages.is_empty() { self.commits() } else { Err(None) };
        let Err(failure) = committed else { return Ok(()) };
        let undelivered: Vec<(usize, KafkaError)> = told.try_iter().collect();
        // The client library asks for no commit then.
        let is_asked = undelivered.is_empty();
        of_messages.extend(undelivered.into_iter().filter(|(_, error)| !is_cleared(error)));
        match failure {
            Some(failure) if is_asked => Err(Trouble::OfAll(failure)),
            Some(failure) => Err(Trouble::OfAll(failure.certain(&self.id))),
            None => Err(self.abandoned(of_messages, &told)),
        }
    }

    /// `None`: it is to be aborted.
    fn commits(&mut self) -> Result<(), Option<Failure>> {
        let until = Instant::now() + self.patience + MARGIN;
        loop {
            let (Some(client), Some(open)) = (&self.client, &mut self.open) else { return Err(Some(Failure::gone())) };
            // First on its own, since what was not delivered in time is no commit that is not answered.
            if !open.is_commit && client.flush(left(until)).is_err() {
                return Err(None);
            }
            open.is_commit = true;
            let wait = left(until);
            let committed = client.commit_transaction(wait);
            open.ran(wait + self.patience);
            let Err(error) = committed else {
                (self.open, self.failures) = (None, 0);
                return Ok(());
            };
            match says(&error, client) {
                Says::Abort => {
                    open.is_commit = false;
                    // The broker has forgotten the producer: what it says of a commit that was asked for again is none of the first time.
                    let is_forgotten = error.rdkafka_error_code().is_some_and(is_forgotten);
                    self.why = Some(error.clone());
                    return Err(is_forgotten.then_some(Failure::Unknown(error)));
                }
                Says::Again if Instant::now() < until => sleep(AGAIN),
                Says::Again => return Err(Some(Failure::Unknown(error))),
                // It was never asked: nothing of it is there, nor can it be told so.
                Says::Unsupported => return Err(Some(self.over(&error))),
                Says::Fenced | Says::Over => return Err(Some(self.failed(&error, true))),
            }
        }
    }

    /// Aborts; why nothing is there, or that this is not known.
    fn abandoned(
        &mut self,
        mut of_messages: BTreeMap<usize, KafkaError>,
        told: &mpsc::Receiver<(usize, KafkaError)>,
    ) -> Trouble {
        let ended = self.ends_what_is_open(self.patience);
        of_messages.extend(told.try_iter().filter(|(_, error)| !is_cleared(error)));
        if of_messages.values().any(is_unknown_topic) {
            // It goes on saying so of its own accord, for minutes.
            self.client = if self.open.is_none() { None } else { self.client.take() };
        }
        if let Err(failure @ (Failure::Fenced { .. } | Failure::Refused(..))) = ended {
            return Trouble::OfAll(failure);
        }
        match of_messages.values().find(|error| !is_its_own(error)).cloned() {
            Some(error) => Trouble::OfAll(Failure::aborted(&error, &self.id)),
            None if of_messages.is_empty() => {
                let why = self.why.take().unwrap_or(NOT_DELIVERED);
                Trouble::OfAll(Failure::aborted(&why, &self.id))
            }
            None => Trouble::OfMessages(of_messages),
        }
    }

    /// Ends a transaction that is not known to have ended, within a time.
    pub(super) fn ends_what_is_open(&mut self, within: Duration) -> Result<(), Failure> {
        let until = Instant::now() + within;
        loop {
            let (Some(client), Some(open)) = (&self.client, &mut self.open) else { return Ok(()) };
            let wait = left(until);
            let ended = if open.is_commit { client.commit_transaction(wait) } else { client.abort_transaction(wait) };
            open.ran(wait + self.patience);
            let Err(error) = ended else {
                self.open = None;
                return Ok(());
            };
            match says(&error, client) {
                Says::Abort => open.is_commit = false,
                Says::Again if Instant::now() < until => sleep(AGAIN),
                // The broker has ended it by itself long since, and this one will never hear of it.
                Says::Again if open.begun.elapsed() > self.timeout.saturating_mul(TIMEOUTS) => {
                    return Err(self.lost(&error));
                }
                Says::Again => {
                    return Err(Failure::Rests(format!("the transaction before has not ended yet ({error})")));
                }
                Says::Unsupported => return Err(self.over(&error)),
                Says::Fenced | Says::Over => return Err(self.failed(&error, false)),
            }
        }
    }

    /// The broker does not let a transaction be ended that is over. Who stood still meanwhile does not know whether another took over.
    fn lost(&mut self, error: &KafkaError) -> Failure {
        let stood_still = self.open.as_ref().is_some_and(|open| open.stood_still);
        let failure = self.over(error);
        if stood_still {
            self.fenced = true;
            return self.fenced_failure(false);
        }
        failure
    }

    /// What comes of an error after which this client cannot go on. `is_unknown`: a commit was asked for, and its first answer may be lost.
    fn failed(&mut self, error: &KafkaError, is_unknown: bool) -> Failure {
        let fenced = self.client.as_ref().is_some_and(|client| matches!(says(error, client), Says::Fenced));
        // The broker itself ends what is open for too long, and refuses who had it just the same. Who was awake all the time knows that.
        let timed_out =
            self.open.as_ref().is_some_and(|open| !open.stood_still && open.begun.elapsed() >= self.timeout);
        let failure = self.over(error);
        if fenced && !timed_out {
            self.fenced = true;
            tracing::error!("{}", self.fenced_failure(is_unknown).told("dispatching messages", &self.place));
            return self.fenced_failure(is_unknown);
        }
        if is_unknown { Failure::Unknown(error.clone()) } else { failure }
    }

    /// The client goes, and the next is made after a rest. What that is for, where nothing was sent.
    fn over(&mut self, error: &KafkaError) -> Failure {
        const DOUBLINGS_MAX: u32 = 10;
        let failure = Failure::aborted(error, &self.id);
        tracing::warn!(error = %error, id = %self.id, "{}: a producer of transactions cannot go on; it is made anew", self.place);
        let rest = REST_FIRST.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX)).min(REST_LONGEST);
        self.failures = self.failures.saturating_add(1);
        (self.client, self.open) = (None, None);
        self.rests = Some((Instant::now() + rest, failure.clone()));
        failure
    }

    fn fenced_failure(&self, is_unknown: bool) -> Failure {
        Failure::Fenced { id: self.id.clone(), is_unknown }
    }
}

/// At least a millisecond: the client library takes none for "do not wait".
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn says(error: &KafkaError, client: &Client) -> Says {
    if matches!(error, KafkaError::Flush(_)) {
        return Says::Again;
    }
    let KafkaError::Transaction(of_transaction) = error else { return Says::Over };
    let fatal = client.client().fatal_error().map(|(code, _)| code);
    let code = fatal.unwrap_or_else(|| of_transaction.code());
    match () {
        () if matches!(code, Code::UnsupportedFeature | Code::UnsupportedVersion) => Says::Unsupported,
        () if is_fenced(code) => Says::Fenced,
        () if fatal.is_some() || of_transaction.is_fatal() => Says::Over,
        () if of_transaction.txn_requires_abort() => Says::Abort,
        () if of_transaction.is_retriable() => Says::Again,
        () => Says::Over,
    }
}

/// A message's place in its transaction, and who is told that it was not taken.
struct Slot(usize, mpsc::Sender<(usize, KafkaError)>);

/// What the client library tells of messages.
struct Posting(Heard);

impl ClientContext for Posting {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl ProducerContext for Posting {
    type DeliveryOpaque = Box<Slot>;

    fn delivery(&self, result: &DeliveryResult<'_>, slot: Box<Slot>) {
        if let Err((error, _)) = result {
            drop(slot.1.send((slot.0, error.clone()))); // Of a transaction that is over nobody listens.
        }
    }
}

fn post(client: &Client, parcel: &Parcel, slot: Slot) -> Result<(), KafkaError> {
    let mut headers = OwnedHeaders::new_with_capacity(parcel.headers.len());
    for (name, value) in &parcel.headers {
        headers = headers.insert(Header { key: name, value: Some(value) });
    }
    let mut record = BaseRecord::with_opaque_to(&parcel.topic, Box::new(slot)).headers(headers);
    record.key = parcel.key.as_deref();
    record.payload = parcel.body.as_deref();
    record.partition = parcel.partition;
    client.send(record).map_err(|(error, _)| error)
}
