//! The hand-written limits: what somebody who knows the driver and the server well would write for this one workload.
//!
//! Each connection owns its share of the entities, so no two messages of one are ever handled at once; the version check of
//! every write is a belt to that. An error ends the run. Ids are checked once more when they are inserted, and the states
//! only change if all of them were new.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use futures_util::future::try_join_all;

use super::{Load, Place};
use crate::{
    AnyError,
    books::Books,
    figure::percentile,
    measure::Window,
    run::Run,
    workload::{Account, Deposit, Incoming, Workload, key_of},
};

/// Where hand-written loops are run.
pub(crate) trait Anchor: Sized {
    type Hand: Hand;

    /// Makes the tables, with an account in `state` for each of `keys`.
    async fn prepare(&self, keys: Vec<String>, state: Vec<u8>) -> Result<(), AnyError>;

    /// A connection of a loop.
    async fn hand(&self) -> Result<Self::Hand, AnyError>;

    /// How many ids are marked, and the effects in all states.
    async fn audit_by_hand(&self) -> Result<(u64, u64), AnyError>;

    /// Makes an outbox with rows 1 to `rows`, of `bytes` each, that wait to be sent.
    async fn fill_outbox(&self, rows: u64, bytes: usize) -> Result<(), AnyError>;
}

/// One connection of a hand-written loop, with its statements.
pub(crate) trait Hand: Sized {
    /// Which outgoing messages were stored.
    type Stored;

    /// Accounts and marks of a batch.
    async fn look(
        &mut self,
        keys: &[&str],
        ids: &[&[u8]],
        seen: impl FnMut(Seen<'_>) -> Result<(), AnyError>,
    ) -> Result<(), AnyError>;

    /// Writes a batch in one commit: all of it or nothing. How many states were written, and what is to be sent.
    async fn write(&mut self, batch: Batch<'_>) -> Result<(u64, Self::Stored), AnyError>;

    /// Deletes what was sent.
    async fn sent(&mut self, stored: Self::Stored) -> Result<(), AnyError>;

    /// One account with its version; `None`: the id is marked.
    async fn look_one(&mut self, key: &str, id: &[u8]) -> Result<Option<(i64, Account)>, AnyError>;

    /// Writes one message in one commit, and gives the number of what is to be sent.
    async fn write_one(&mut self, one: One<'_>) -> Result<i64, AnyError>;

    async fn sent_one(&mut self, number: i64) -> Result<(), AnyError>;

    /// One message in one transaction as a textbook has it, with a lock on the entity: six round trips. `handled` makes a new
    /// state and an outgoing message of a state; it is not asked where the message is not new.
    async fn classic(
        &mut self,
        key: &str,
        id: &[u8],
        handled: impl FnOnce(&[u8]) -> Result<(Vec<u8>, Vec<u8>), AnyError>,
    ) -> Result<(), AnyError>;

    /// Rows of the outbox behind `last`, at most `max`, in their order: how many, and the number of the last one.
    async fn look_outbox(&mut self, last: i64, max: i64) -> Result<Option<(u64, i64)>, AnyError>;

    /// Deletes those behind `last` up to `end`.
    async fn sent_up_to(&mut self, last: i64, end: i64) -> Result<(), AnyError>;
}

/// What a look shows.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// Key, version, state.
    Account(&'a str, i64, &'a [u8]),
    /// An id that is marked.
    Known(&'a [u8]),
}

/// What a batch writes. Everything is in the order of its keys.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) ids: Vec<&'a [u8]>,
    /// Of the accounts that change: key, version as it was, new state.
    pub(crate) accounts: Vec<(String, i64, Vec<u8>)>,
    pub(crate) outbox: Vec<Vec<u8>>,
}

/// What one message writes.
#[derive(Debug)]
pub(crate) struct One<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) key: &'a str,
    /// As it was.
    pub(crate) version: i64,
    pub(crate) state: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Messages in batches, each on the connection that owns its entity.
pub(super) async fn batched<P: Place>(place: &P, load: &Load) -> Result<Run, AnyError> {
    run(place, load, async |owner| owner.batch().await).await
}

/// Each message by itself: a look, one write, and one after it was sent. `clients` at a time.
pub(super) async fn unbatched<P: Place>(place: &P, load: &Load) -> Result<Run, AnyError> {
    run(place, load, async |owner| owner.one().await).await
}

/// Each message in one transaction as a textbook has it, with a lock on the entity: six round trips.
pub(super) async fn classic<P: Place>(place: &P, load: &Load) -> Result<Run, AnyError> {
    run(place, load, async |owner| owner.classic().await).await
}

/// One connection and its share of the entities.
struct Owner<H> {
    hand: H,
    workload: Workload,
    batch: usize,
    deliveries: u64,
}

async fn run<P: Place>(
    place: &P,
    load: &Load,
    step: impl AsyncFn(&mut Owner<P::Hand>) -> Result<(), AnyError>,
) -> Result<Run, AnyError> {
    let keys: Vec<String> = (0..load.shape.entities).map(key_of).collect();
    place.prepare(keys, serde_json::to_vec(&Account::usual())?).await?;
    let share = load.shape.entities / load.clients as u32;
    let mut owners = Vec::with_capacity(load.clients);
    for number in 0..load.clients as u32 {
        let seed = load.shape.seed * 1000 + u64::from(number);
        let workload = Workload::new(share.max(1), seed).from(number * share).repeats(load.shape.repeats);
        owners.push(Owner { hand: place.hand().await?, workload, batch: load.shape.batch, deliveries: 0 });
    }
    let until = |end: Instant| {
        let step = &step;
        async move |mut owner: Owner<P::Hand>, times: bool| -> Result<(Owner<P::Hand>, Vec<f64>), AnyError> {
            let mut took = Vec::new();
            while Instant::now() < end {
                let begun = Instant::now();
                step(&mut owner).await?;
                if times {
                    took.push(begun.elapsed().as_secs_f64());
                }
            }
            Ok((owner, took))
        }
    };
    let warm = until(Instant::now() + load.shape.warm_up());
    let owners = try_join_all(owners.into_iter().map(|owner| warm(owner, false))).await?;
    let before = place.cost().await?;
    let (owners, done): (Vec<Owner<P::Hand>>, Vec<u64>) = owners
        .into_iter()
        .map(|(owner, _)| {
            let done = owner.deliveries;
            (owner, done)
        })
        .unzip();
    let window = Window::open();
    let timed = until(Instant::now() + load.shape.time);
    let one = load.shape.batch == 1;
    let ended = try_join_all(owners.into_iter().map(|owner| timed(owner, one))).await?;
    let deliveries: u64 = ended.iter().map(|(owner, _)| owner.deliveries).sum::<u64>() - done.iter().sum::<u64>();
    let mut sample = window.close(deliveries);
    let after = place.cost().await?;
    sample.cpu_seconds += after.cpu_seconds - before.cpu_seconds;
    sample.flushes = u64::try_from(after.flushes - before.flushes).ok();
    let mut took: Vec<f64> = ended.into_iter().flat_map(|(_, took)| took).collect();
    (sample.median_seconds, sample.p99_seconds) = (percentile(&mut took, 50), percentile(&mut took, 99));
    // The ids that took effect are the dedup entries: those of the warm-up count too.
    let (distinct, effects) = place.audit_by_hand().await?;
    let books = Books { distinct, effects, dedup_entries: Some(distinct), ..Books::default() };
    Ok(Run { sample, books })
}

impl<H: Hand> Owner<H> {
    async fn batch(&mut self) -> Result<(), AnyError> {
        let messages: Vec<Incoming> = (0..self.batch).map(|_| self.workload.next()).collect();
        self.deliveries += messages.len() as u64;
        let mut deposits = Vec::with_capacity(messages.len());
        let mut accounts: HashMap<String, (i64, Account, bool)> = HashMap::with_capacity(messages.len());
        for message in &messages {
            let deposit: Deposit = serde_json::from_slice(&message.body)?;
            accounts.entry(deposit.account().to_owned()).or_default();
            deposits.push(deposit);
        }
        let keys: Vec<String> = accounts.keys().cloned().collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let ids: Vec<&[u8]> = messages.iter().map(|message| &message.id[..]).collect();
        let mut known: HashSet<Vec<u8>> = HashSet::new();
        let seen = |seen: Seen<'_>| {
            match seen {
                Seen::Account(key, version, state) => {
                    let account = accounts.get_mut(key).ok_or("an account nobody asked for")?;
                    (account.0, account.1) = (version, serde_json::from_slice(state)?);
                }
                Seen::Known(id) => drop(known.insert(id.to_vec())),
            }
            Ok(())
        };
        self.hand.look(&keys, &ids, seen).await?;
        let (mut handled, mut outbox) = (Vec::new(), Vec::new());
        for (message, deposit) in messages.iter().zip(deposits) {
            if !known.insert(message.id.to_vec()) {
                continue; // A repeat.
            }
            let account = accounts.get_mut(deposit.account()).ok_or("an account is missing")?;
            account.2 = true;
            handled.push(&message.id[..]);
            outbox.push(serde_json::to_vec(&account.1.apply(deposit))?);
        }
        if handled.is_empty() {
            return Ok(());
        }
        handled.sort_unstable();
        let mut changed: Vec<_> = accounts.into_iter().filter(|(_, (.., c))| *c).collect();
        changed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let row = |(key, (version, state, _)): (String, (i64, Account, bool))| -> Result<_, AnyError> {
            Ok((key, version, serde_json::to_vec(&state)?))
        };
        let accounts = changed.into_iter().map(row).collect::<Result<Vec<_>, _>>()?;
        let count = accounts.len() as u64;
        let (written, stored) = self.hand.write(Batch { ids: handled, accounts, outbox }).await?;
        if written != count {
            return Err("an account was changed by somebody else".into());
        }
        self.hand.sent(stored).await // The sending itself is nothing.
    }

    async fn one(&mut self) -> Result<(), AnyError> {
        let message = self.workload.next();
        self.deliveries += 1;
        let deposit: Deposit = serde_json::from_slice(&message.body)?;
        let key = deposit.account().to_owned();
        let Some((version, mut account)) = self.hand.look_one(&key, &message.id).await? else {
            return Ok(()); // A repeat.
        };
        let body = serde_json::to_vec(&account.apply(deposit))?;
        let state = serde_json::to_vec(&account)?;
        let number = self.hand.write_one(One { id: &message.id, key: &key, version, state, body }).await?;
        self.hand.sent_one(number).await
    }

    async fn classic(&mut self) -> Result<(), AnyError> {
        let message = self.workload.next();
        self.deliveries += 1;
        let deposit: Deposit = serde_json::from_slice(&message.body)?;
        let key = deposit.account().to_owned();
        let handled = |state: &[u8]| {
            let mut account: Account = serde_json::from_slice(state)?;
            let body = serde_json::to_vec(&account.apply(deposit))?;
            Ok((serde_json::to_vec(&account)?, body))
        };
        self.hand.classic(&key, &message.id, handled).await
    }
}
