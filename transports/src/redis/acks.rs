//! Acknowledgements that are asked for at the same time go together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_core::ports::{ErrorKind, Settled, TransportError};
use tokio::sync::oneshot;

use super::{
    answer::{array, number},
    errors::{again, malformed},
    lease::{Lease, SETTLING},
    receiver::End,
    scripts::Script,
};

/// Leases that are ended at a time: nobody else is served meanwhile.
const TOGETHER_MAX: usize = 512;

type Answer = Result<Settled, TransportError>;

/// What waits while the server has others. Whatever was asked for meanwhile is one call then, without a timer.
#[derive(Default)]
pub(super) struct Acks(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    asked: Vec<(Lease, oneshot::Sender<Answer>)>,
    /// Somebody takes care of them.
    is_cared_for: bool,
}

impl Acks {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    /// Acknowledges a message, if its lease is still held. It goes on if whoever asks is dropped.
    pub(super) async fn acknowledge(self: &Arc<Self>, lease: Lease) -> Answer {
        let (answer, answered) = oneshot::channel();
        let is_cared_for = {
            let mut waiting = self.acks.waiting();
            waiting.asked.push((lease, answer));
            std::mem::replace(&mut waiting.is_cared_for, true)
        };
        if !is_cared_for {
            tokio::spawn(self.clone().care_for_acks());
        }
        answered.await.unwrap_or_else(|_| {
            let why = "the runtime in which it was asked is ending";
            Err(TransportError::new(ErrorKind::UnknownOutcome, SETTLING, why))
        })
    }

    async fn care_for_acks(self: Arc<Self>) {
        loop {
            let mut these = {
                let mut waiting = self.acks.waiting();
                if waiting.asked.is_empty() {
                    waiting.is_cared_for = false;
                    return;
                }
                std::mem::take(&mut waiting.asked)
            };
            while !these.is_empty() {
                let rest = these.split_off(these.len().min(TOGETHER_MAX));
                let (leases, answers): (Vec<Lease>, Vec<_>) = these.into_iter().unzip();
                let settled = self.acknowledged(&leases).await;
                for (place, answer) in answers.into_iter().enumerate() {
                    // Who asked may be gone.
                    drop(answer.send(match &settled {
                        Ok(settled) => Ok(settled[place]),
                        Err(e) => Err(again(e, SETTLING)),
                    }));
                }
                these = rest;
            }
        }
    }

    /// What became of each.
    async fn acknowledged(&self, leases: &[Lease]) -> Result<Vec<Settled>, TransportError> {
        let broker = &self.broker;
        let asked = broker.link.ask(&self.lane, SETTLING, true, |scripts| {
            let mut call = scripts.call(Script::Acknowledge, &[&self.queue, &self.uncounted]);
            call.arg(broker.group()).arg(&self.consumer).arg(self.lease_millis());
            for lease in leases {
                call.arg(&lease.id).arg(lease.deliveries);
            }
            call
        });
        let read = |answer| match number(&answer) {
            Some(1) => Some(Settled::Done),
            Some(0) => Some(Settled::LeaseLost),
            _ => None,
        };
        let asked = asked.await;
        if self.broker.options.ordered_keys {
            leases.iter().for_each(|lease| self.held.ended(lease));
        }
        let settled: Option<Vec<Settled>> = array(asked?).and_then(|all| all.into_iter().map(read).collect());
        let settled = settled.filter(|settled| settled.len() == leases.len());
        settled.ok_or_else(|| malformed(SETTLING, broker.link.place()))
    }
}
