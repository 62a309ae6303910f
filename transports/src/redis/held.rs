//! Where order is kept: what this receiver holds, and what it was given without hearing of it.
//!
//! An answer that is lost with its connection may have given messages. They would come again once their leases have run out, behind what is new: so
//! what is this receiver's, and not held by it, comes first after such an answer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use ::redis::cmd;
use hapax_core::ports::TransportError;
use tokio::time::Instant;

use super::{
    answer::{array, text},
    errors::malformed,
    lease::Lease,
    receiver::{End, RECEIVING},
};

/// Leases that are listed at a time.
const PAGE: usize = 1000;
/// What is held beyond so many is not known to be: it may be given once more, to the same receiver, and be recognised.
const HELD_MAX: usize = 100_000;

/// The leases of a receiver.
#[derive(Default)]
pub(super) struct Held(Mutex<State>);

#[derive(Default)]
struct State {
    /// Entries, each with how often the server has given it.
    leases: HashMap<String, i64>,
    /// When an answer was lost last that may have given some. What was asked then may be done a little later: so it is looked for until it would have run
    /// out.
    lost: Option<Instant>,
}

/// What was given in answers that were lost.
#[derive(Default)]
pub(super) struct Missed {
    pub(super) ids: Vec<String>,
    /// There are others: nothing new before these.
    pub(super) more: bool,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn given(&self, id: &str, deliveries: i64) {
        let mut state = self.state();
        if state.leases.len() < HELD_MAX {
            state.leases.insert(id.to_owned(), deliveries);
        }
    }

    /// It is settled, or nobody knows: then it is no longer held either.
    pub(super) fn ended(&self, lease: &Lease) {
        let mut state = self.state();
        if state.leases.get(&lease.id) == Some(&lease.deliveries) {
            state.leases.remove(&lease.id);
        }
    }

    pub(super) fn lost_answer(&self) {
        self.state().lost = Some(Instant::now());
    }
}

impl End {
    /// What this receiver was given and does not hold, oldest first, if that may be.
    pub(super) async fn missed(&self, max: usize) -> Result<Missed, TransportError> {
        let begun = Instant::now();
        let Some(lost) = self.held.state().lost else { return Ok(Missed::default()) };
        let (mut all, mut after) = (HashSet::new(), "-".to_owned());
        let mut ids = Vec::new();
        loop {
            let page = self.leases(&after).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map_or(after, |last| format!("({last}"));
            let is_missed = |id: &&String| !self.held.state().leases.contains_key(*id);
            ids.extend(page.iter().filter(is_missed).cloned());
            all.extend(page);
            if ids.len() > max {
                ids.truncate(max);
                return Ok(Missed { ids, more: true });
            }
            if is_last {
                break;
            }
        }
        let mut state = self.held.state();
        state.leases.retain(|id, _| all.contains(id));
        if ids.is_empty() && state.lost == Some(lost) && begun.duration_since(lost) >= self.broker.options.lease {
            state.lost = None;
        }
        Ok(Missed { ids, more: false })
    }

    /// A page of the entries that the server says are this receiver's.
    async fn leases(&self, after: &str) -> Result<Vec<String>, TransportError> {
        let broker = &self.broker;
        let asked = broker.link.ask(&self.lane, RECEIVING, false, |_| {
            let mut pending = cmd("XPENDING");
            pending.arg(&self.queue).arg(broker.group()).arg(after).arg("+").arg(PAGE).arg(&self.consumer);
            pending
        });
        let id = |row| array(row)?.into_iter().next().and_then(text);
        let rows = array(asked.await?).and_then(|rows| rows.into_iter().map(id).collect());
        rows.ok_or_else(|| malformed(RECEIVING, broker.link.place()))
    }
}
