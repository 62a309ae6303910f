//! A broker that is measured: how hapax connects to it, and the loop over its bare client library.
//!
//! Both sides work on queues that hapax has declared and filled, with new names for each run, so that the broker has the same to do
//! for both.

use std::{
    collections::HashSet,
    convert::Infallible,
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Message,
    ids::{EndpointName, TypeName},
    ports::Transport,
};
use uuid::Uuid;

use super::{desk::Desk, options::Options, progress::Progress};
use crate::{
    AnyError,
    candidate::endpoint::outgoing,
    workload::{Passed, Workload},
};

/// Messages of one call that fills a queue, and such calls at a time: the broker's disk is to have something to do meanwhile.
const CHUNK: usize = 500;
const CHUNKS: usize = 4;

pub(super) trait Place: Sized {
    type Transport: Transport + Clone + 'static;

    /// Whether it takes a message under an id that it has had a moment ago for a repeat, and keeps it no second time.
    const DROPS_REPEATS: bool;

    fn open(options: &Options) -> impl Future<Output = Result<Self, AnyError>> + Send;

    fn named(&self) -> &Named;

    /// hapax's, with connections of its own.
    fn transport(&self) -> impl Future<Output = Result<Self::Transport, AnyError>> + Send;

    /// Receives from the first of `queues`, with at most `in_flight` messages that are not settled; handles each at `desk`; sends what
    /// comes of it to the last, and settles once that is confirmed. It goes on until it is dropped.
    fn by_hand(
        &self,
        queues: &Queues,
        in_flight: usize,
        desk: &mut Desk,
        progress: &Progress,
    ) -> impl Future<Output = Result<Infallible, AnyError>> + Send;

    /// Removes all that was declared.
    fn remove(self) -> impl Future<Output = Result<(), AnyError>> + Send;
}

/// The queues of one run.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    pub(super) first: EndpointName,
    pub(super) last: EndpointName,
}

impl Queues {
    pub(super) fn of(number: u32) -> Result<Self, AnyError> {
        let name = |place: &str| EndpointName::parse(format!("{place}-{number}"));
        Ok(Self { first: name("first")?, last: name("last")? })
    }
}

/// Names of one process on a broker that others use, too.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) prefix: String,
    next: AtomicU32,
}

impl Named {
    pub(super) fn new() -> Self {
        Self { prefix: format!("bench-{:012x}", fastrand::u64(..) >> 16), next: AtomicU32::new(0) }
    }

    /// Nobody's yet.
    pub(super) fn queues(&self) -> Result<Queues, AnyError> {
        Queues::of(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// All that were given.
    pub(super) fn all(&self) -> Result<Vec<EndpointName>, AnyError> {
        let mut all = Vec::new();
        for number in 0..self.next.load(Ordering::Relaxed) {
            let Queues { first, last } = Queues::of(number)?;
            all.extend([first, last]);
        }
        Ok(all)
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) messages: u64,
    pub(super) entities: u32,
    /// Share of messages that repeat an earlier one.
    pub(super) repeats: f64,
    pub(super) in_flight: usize,
    pub(super) seed: u64,
}

impl Load {
    pub(super) fn workload(&self) -> Workload {
        Workload::new(self.entities, self.seed).repeats(self.repeats)
    }
}

/// Declares `queues`, and puts the messages of `load` into the first; their ids.
pub(super) async fn fill(transport: &impl Transport, queues: &Queues, load: &Load) -> Result<HashSet<Uuid>, AnyError> {
    transport.connect(&queues.last, &[]).await?;
    let dispatcher = transport.connect(&queues.first, &[]).await?.dispatcher;
    let (message_type, mut workload) = (TypeName::parse(Passed::TYPE)?, load.workload());
    let mut ids = HashSet::new();
    let messages = (0..load.messages).map(|_| {
        let message = workload.next();
        ids.insert(Uuid::from_bytes(message.id));
        outgoing(&queues.first, &message_type, message)
    });
    let filled = stream::iter(messages).chunks(CHUNK).map(|chunk| {
        let dispatcher = dispatcher.clone();
        async move {
            for result in dispatcher.dispatch(&chunk).await {
                result?;
            }
            Ok::<(), AnyError>(())
        }
    });
    filled.buffer_unordered(CHUNKS).try_collect::<()>().await?;
    Ok(ids)
}
