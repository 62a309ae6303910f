//! What a relay asks of a table whose rows its users store in transactions of their own: rows are claimed, and a claim that was overtaken changes
//! nothing.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::StoreError;
use crate::{envelope::Outgoing, ids::MessageId, relay::PushLine};

/// A table of outgoing messages that were stored in its users' own transactions, as a [relay](crate::relay) sees it.
///
/// A row waits, is claimed by a relay for as long as a lease, and then is sent, waits again or has failed. All times are those
/// of the table's own clock.
///
/// # Promises
/// 1. *One owner:* a row that waits is given to one claim at a time, until its lease is over or the claim ends it.
/// 2. *Fenced:* a claim that was overtaken by another one of the same row changes nothing any more.
/// 3. *Counted before:* a row's attempts are counted with the claim, before anything is sent.
/// 4. *Never forgotten:* a row that was not reported as sent is given again, or is kept as failed or expired.
/// 5. *In order:* where order is kept, a row is given when all of its key that were committed before it are sent or have
///    expired, or are given with it. One that has failed, or is to be tried again later, holds up those behind it.
/// 6. *Not before:* a row with a due time, or one that is to be tried again later, is given when that time has come.
#[async_trait]
pub trait OutboxTable: fmt::Debug + Send + Sync {
    /// What it is called, for logs and metrics: database and table.
    fn name(&self) -> &str;

    /// Whether messages of one partition key are sent in the order of their commits: then what is claimed is the relay's for as
    /// long as that is alive, and what is stored waits for a claim.
    fn is_ordered(&self) -> bool;

    /// Whether the relay is woken when other processes have stored something. Where it is not, it looks more often.
    fn is_told(&self) -> bool;

    /// From now on what this handle stores belongs to the relay behind `line` from its birth, and is handed to it once it is
    /// committed. `false`: a relay is there already, and stays.
    fn attach(&self, line: &Arc<PushLine>) -> bool;

    /// What this handle stores from now on belongs to nobody, and waits for a claim; unless another relay than the one behind
    /// `line` is there by now.
    fn detach(&self, line: &Arc<PushLine>);

    /// Everything a relay asks for, in one call: that it is alive, what has become of its claims, which leases are to go on,
    /// and what it wants next.
    ///
    /// # Errors
    /// [`StoreError`]. After an unknown outcome the same may be asked for again, with [`Claiming::again`] set.
    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError>;

    /// One small batch of removing what is over, apart from what is relayed.
    ///
    /// # Errors
    /// [`StoreError`]; the same may be asked for again.
    async fn care(&self, care: &Care) -> Result<Cared, StoreError>;

    /// What waits and what has failed. It takes as long as there are such rows, and no longer for those that were sent.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn state(&self) -> Result<OutboxState, StoreError>;

    /// The relay `instance` is gone and holds nothing any more.
    ///
    /// # Errors
    /// [`StoreError`]; nothing rests on it.
    async fn leave(&self, instance: &Instance) -> Result<(), StoreError>;
}

/// A relay, for the table and for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// A random number for each start.
    pub id: i64,
    /// The program's name for itself.
    pub service: String,
    /// Where it runs.
    pub host: String,
    /// Its process id there.
    pub process: u32,
}

/// A row, and the right to say what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The message's.
    pub id: MessageId,
    /// Of the claim: another one of the same row has another token.
    pub token: i64,
}

/// What has become of a claim. Complete: there is no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The transport has confirmed it.
    Sent,
    /// It was not sent, or nobody knows; the next attempt comes after so long.
    Later(Duration, String),
    /// It cannot be sent, or was tried too often. It stays until a person decides.
    Failed(String),
    /// It was no longer worth sending.
    Expired,
    /// Nothing was tried; it is free again, and the attempt does not count.
    GivenBack,
}

/// A claim that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The claim.
    pub claim: Claim,
    /// What has become of it.
    pub outcome: Outcome,
}

/// What a relay asks for in one call.
#[derive(Debug, Clone)]
pub struct Tick {
    /// Who asks.
    pub instance: Arc<Instance>,
    /// Whether it asks for the first time. Where order is kept nothing is claimed before.
    pub joins: bool,
    /// An instance that has not asked for anything for so long is forgotten; where order is kept, after a lease.
    pub stale: Duration,
    /// Claims that are over.
    pub ended: Vec<Ended>,
    /// Claims whose lease is to begin anew.
    pub renewed: Vec<Claim>,
    /// How long leases last that begin with this call.
    pub lease: Duration,
    /// What is wanted next.
    pub claiming: Option<Claiming>,
}

/// Rows that a relay wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claiming {
    /// Their token: random, never used before.
    pub token: i64,
    /// How many at most.
    pub rows: usize,
    /// No more after so many bytes of bodies; at least one.
    pub bytes: usize,
    /// Only those that bear the token already: what an earlier call has claimed whose answer was lost.
    pub again: bool,
}

/// The answer to a [`Tick`].
#[derive(Debug, Default)]
pub struct Ticked {
    /// Where order is kept: the instance was forgotten, and others may have what was its. It has to join as another one.
    pub forgotten: bool,
    /// How many of the claims that are over were still the relay's. While something is claimed in the same call, those whose
    /// lease is over may be left as they are: tell them again without claiming.
    pub ended: usize,
    /// Claims that go on.
    pub renewed: Vec<Claim>,
    /// What was claimed.
    pub claimed: Vec<Claimed>,
    /// Whether there is more to claim.
    pub more: bool,
    /// When the next row may be claimed, if there is one that waits.
    pub next: Option<Duration>,
}

/// What is over, and for how long it is kept. Rows that wait or have failed are never removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Care {
    /// Rows that were sent, or have expired, stay for so long.
    pub keep: Duration,
    /// Then they go to the archive for so long; `None`: they are removed.
    pub archive: Option<Duration>,
    /// How many at most.
    pub rows: usize,
}

/// What one batch has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cared {
    /// From the table; to the archive, if there is one.
    pub ended: usize,
    /// From the archive.
    pub archived: usize,
}

/// What is in an outbox table that is not over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxState {
    /// Messages that wait to be sent, those that are not due included.
    pub stored: u64,
    /// Of these, how many a relay has.
    pub claimed: u64,
    /// How old the oldest of them is.
    pub oldest: Option<Duration>,
    /// For how long the first of those that are due could have been sent: since it was stored, or was due. A relay may have it, or
    /// it may be tried again later: it is not sent all the same.
    pub lag: Option<Duration>,
    /// Messages that have failed, which a person has to look at.
    pub failed: u64,
    /// How many relays there are.
    pub relays: u64,
    /// Where the server's log is relayed: bytes of it that are kept since they were not relayed yet. `None`: nobody reads it, or
    /// it is not relayed.
    pub log_lag: Option<u64>,
    /// Where the server's log is relayed: how often something of it was thrown away before it was. Messages may be lost then.
    pub log_gaps: u64,
}

impl OutboxState {
    /// For adapters.
    #[must_use]
    pub fn new(stored: u64, claimed: u64, failed: u64, relays: u64) -> Self {
        Self { stored, claimed, failed, relays, oldest: None, lag: None, log_lag: None, log_gaps: 0 }
    }
}

/// A row that was claimed.
#[derive(Debug)]
pub struct Claimed {
    /// The right to it.
    pub claim: Claim,
    /// How often it has been claimed, this time included, but for what was given back.
    pub attempts: u32,
    /// Whether it is no longer worth sending, by the table's clock.
    pub expired: bool,
    /// Where order is kept: its partition key, also where the rest cannot be read.
    pub key: Option<String>,
    /// What is to be sent, or why it cannot be read.
    pub outgoing: Result<Outgoing, String>,
}
