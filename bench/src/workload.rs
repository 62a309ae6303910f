//! Workload W: random ids, 200-byte bodies, uniform entities, every twentieth delivery a repeat, unless told otherwise. The
//! same stream for both sides, from a seed.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hapax::{Context, Correlation, Handle, HandlerError, Message, Saga};
use serde::{Deserialize, Serialize};

/// Share of deliveries that repeat an earlier id.
pub(crate) const REPEATS: f64 = 0.05;
/// How far back a repeat reaches, in distinct messages: "the recent past" of a broker that redelivers.
const RECENT: usize = 4096;
/// Length of every body, in bytes.
const BODY_BYTES: usize = 200;
/// Digits of an entity's number in its key.
const DIGITS: usize = 7;
const KEY_PREFIX: &str = "account-";
/// When that is due which is sent later, and to whom: nobody is there before it.
const LATER: Duration = Duration::from_secs(24 * 3600);
const NOBODY: &str = "nobody";

/// A message that makes its saga send another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Deposit {
    account: String,
    amount: u32,
    note: String,
}

impl Message for Deposit {
    const TYPE: &'static str = "bench.deposit";
}

/// The same message where nothing is to be sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Quiet(Deposit);

impl Message for Quiet {
    const TYPE: &'static str = "bench.quiet";
}

/// The same message where its sender awaits an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Asked(Deposit);

impl Asked {
    /// What `message` says.
    pub(crate) fn of(message: &Incoming) -> serde_json::Result<Self> {
        serde_json::from_slice(&message.body)
    }
}

impl Message for Asked {
    const TYPE: &'static str = "bench.asked";
}

/// The same message where what is sent goes to another endpoint, the [`Next`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Passed(Deposit);

impl Message for Passed {
    const TYPE: &'static str = "bench.passed";
}

/// The same message where what is sent is not due before long after the run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Later(Deposit);

impl Message for Later {
    const TYPE: &'static str = "bench.later";
}

/// To whom what was [passed](Passed) goes on: a service of the handlers.
#[derive(Debug)]
pub(crate) struct Next(pub(crate) String);

/// What is sent: to a topic that nobody subscribes to, or to who has asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changed {
    account: String,
    effects: u64,
    balance: u64,
    note: String,
}

impl Message for Changed {
    const TYPE: &'static str = "bench.changed";
}

/// The state, about 200 bytes as JSON. `effects` counts what the books must find.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) effects: u64,
    balance: u64,
    note: String,
}

impl Account {
    /// An account of the usual size that no message has reached.
    pub(crate) fn usual() -> Self {
        const NOTE_BYTES: usize = 140;
        Self { effects: 0, balance: 0, note: "n".repeat(NOTE_BYTES) }
    }

    /// The handler of both sides.
    pub(crate) fn apply(&mut self, deposit: Deposit) -> Changed {
        let Deposit { account, amount, note } = deposit;
        self.effects += 1;
        self.balance += u64::from(amount);
        self.note.clone_from(&note);
        Changed { account, effects: self.effects, balance: self.balance, note }
    }

    /// The handler of both sides for a message with nothing outgoing.
    pub(crate) fn apply_quietly(&mut self, deposit: Deposit) {
        self.effects += 1;
        self.balance += u64::from(deposit.amount);
        self.note = deposit.note;
    }
}

impl Deposit {
    /// Key of the entity.
    pub(crate) fn account(&self) -> &str {
        &self.account
    }
}

impl Saga for Account {
    const NAME: &'static str = "account";
}

impl Handle<Deposit> for Account {
    fn correlate(deposit: &Deposit) -> Correlation<'_> {
        (&deposit.account).into()
    }

    async fn handle(&mut self, deposit: Deposit, cx: &mut Context) -> Result<(), HandlerError> {
        cx.publish(self.apply(deposit))
    }
}

impl Handle<Quiet> for Account {
    fn correlate(quiet: &Quiet) -> Correlation<'_> {
        (&quiet.0.account).into()
    }

    async fn handle(&mut self, quiet: Quiet, _cx: &mut Context) -> Result<(), HandlerError> {
        self.apply_quietly(quiet.0);
        Ok(())
    }
}

impl Handle<Asked> for Account {
    fn correlate(asked: &Asked) -> Correlation<'_> {
        (&asked.0.account).into()
    }

    async fn handle(&mut self, asked: Asked, cx: &mut Context) -> Result<(), HandlerError> {
        cx.reply(self.apply(asked.0))
    }
}

impl Handle<Passed> for Account {
    fn correlate(passed: &Passed) -> Correlation<'_> {
        (&passed.0.account).into()
    }

    async fn handle(&mut self, passed: Passed, cx: &mut Context) -> Result<(), HandlerError> {
        let next = cx.get::<Next>()?.0.clone();
        cx.send(&next, self.apply(passed.0))
    }
}

impl Handle<Later> for Account {
    fn correlate(later: &Later) -> Correlation<'_> {
        (&later.0.account).into()
    }

    async fn handle(&mut self, later: Later, cx: &mut Context) -> Result<(), HandlerError> {
        cx.send_after(LATER, NOBODY, self.apply(later.0))
    }
}

/// What message ids are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ids {
    /// Version 4.
    Random,
    /// Version 7, as the clock of this machine is: the one thing in the stream that is not from the seed.
    Ordered,
}

impl Ids {
    /// A new UUID, of a message that is sent at `millis` since 1970.
    pub(crate) fn next(self, random: &mut fastrand::Rng, millis: u64) -> [u8; 16] {
        let bytes: [u8; 16] = random.u128(..).to_be_bytes();
        let builder = match self {
            Self::Random => uuid::Builder::from_random_bytes(bytes),
            Self::Ordered => {
                let mut end = [0; 10];
                end.copy_from_slice(&bytes[6..]);
                uuid::Builder::from_unix_timestamp_millis(millis, &end)
            }
        };
        builder.into_uuid().into_bytes()
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_millis() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// One delivery.
#[derive(Debug, Clone)]
pub(crate) struct Incoming {
    /// A UUID.
    pub(crate) id: [u8; 16],
    /// JSON of a [`Deposit`].
    pub(crate) body: Bytes,
}

/// The stream of deliveries.
#[derive(Debug)]
pub(crate) struct Workload {
    random: fastrand::Rng,
    /// The first entity's number.
    first: u32,
    entities: u32,
    repeats: f64,
    ids: Ids,
    template: Vec<u8>,
    recent: Vec<Incoming>,
    /// Distinct ids so far.
    pub(crate) distinct: u64,
}

/// Key of entity number `entity`.
pub(crate) fn key_of(entity: u32) -> String {
    format!("{KEY_PREFIX}{entity:0DIGITS$}")
}

impl Workload {
    pub(crate) fn new(entities: u32, seed: u64) -> Self {
        let amount = 10;
        let body = |note: String| {
            let deposit = Deposit { account: key_of(0), amount, note };
            serde_json::to_vec(&deposit).expect("strings and numbers are JSON")
        };
        let padding = BODY_BYTES - body(String::new()).len();
        let template = body("n".repeat(padding));
        let (random, recent) = (fastrand::Rng::with_seed(seed), Vec::new());
        Self { random, first: 0, entities, repeats: REPEATS, ids: Ids::Random, template, recent, distinct: 0 }
    }

    /// Of the entities from `first` on.
    pub(crate) fn from(self, first: u32) -> Self {
        Self { first, ..self }
    }

    /// With another share of deliveries that repeat an earlier id.
    pub(crate) fn repeats(self, repeats: f64) -> Self {
        Self { repeats, ..self }
    }

    /// With other ids.
    pub(crate) fn ids(self, ids: Ids) -> Self {
        Self { ids, ..self }
    }

    /// A new message for one entity, for warming up.
    pub(crate) fn fresh_for(&mut self, entity: u32) -> Incoming {
        self.distinct += 1;
        let millis = if self.ids == Ids::Ordered { now_millis() } else { 0 };
        let id = self.ids.next(&mut self.random, millis);
        let mut body = self.template.clone();
        let key_at = r#"{"account":""#.len() + KEY_PREFIX.len();
        let mut rest = entity;
        for digit in body[key_at..key_at + DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let note_at = body.len() - r#"n"}"#.len();
        body[note_at] = self.random.alphabetic() as u8;
        Incoming { id, body: body.into() }
    }

    /// The next delivery.
    pub(crate) fn next(&mut self) -> Incoming {
        if !self.recent.is_empty() && self.random.f64() < self.repeats {
            return self.recent[self.random.usize(..self.recent.len())].clone();
        }
        let entity = self.first + self.random.u32(..self.entities);
        let message = self.fresh_for(entity);
        if self.recent.len() < RECENT {
            self.recent.push(message.clone());
        } else {
            self.recent[(self.distinct % RECENT as u64) as usize] = message.clone();
        }
        message
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_body_is_a_deposit_of_200_bytes_for_its_entity() {
        let mut workload = Workload::new(200_000, 7);
        for entity in [0, 9, 123_456, 199_999] {
            let message = workload.fresh_for(entity);
            assert_eq!(message.body.len(), BODY_BYTES);
            let deposit: Deposit = serde_json::from_slice(&message.body).unwrap();
            assert_eq!(deposit.account, key_of(entity));
        }
    }

    #[test]
    fn one_in_twenty_deliveries_repeats_an_earlier_id_with_its_own_body() {
        let mut workload = Workload::new(1000, 7);
        let mut seen = std::collections::HashMap::new();
        for _ in 0..100_000 {
            let message = workload.next();
            let body = seen.entry(message.id).or_insert_with(|| message.body.clone());
            assert_eq!(*body, message.body);
        }
        assert_eq!(seen.len() as u64, workload.distinct);
        assert!((94_500..95_500).contains(&seen.len()), "{}", seen.len());
    }

    #[test]
    fn half_of_the_deliveries_repeat_if_asked_for() {
        let mut workload = Workload::new(1000, 7).repeats(0.5);
        for _ in 0..100_000 {
            workload.next();
        }
        assert!((49_000..51_000).contains(&workload.distinct), "{}", workload.distinct);
    }

    #[test]
    fn ids_are_of_the_asked_for_version_and_the_ordered_ones_begin_with_their_time() {
        let version = |workload: &mut Workload| uuid::Uuid::from_bytes(workload.next().id).get_version_num();
        assert_eq!(version(&mut Workload::new(1, 7)), 4);
        assert_eq!(version(&mut Workload::new(1, 7).ids(Ids::Ordered)), 7);
        let id = Ids::Ordered.next(&mut fastrand::Rng::with_seed(7), 0x0123_4567_89ab);
        assert_eq!(id[..6], [0x01, 0x23, 0x45, 0x67, 0x89, 0xab]);
    }

    #[test]
    fn one_seed_gives_one_stream() {
        let stream = |seed| {
            let mut workload = Workload::new(1000, seed);
            (0..100).map(|_| workload.next().id).collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }
}
