//! What has left the second endpoint, as the broker gives it: every copy is looked at.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use hapax::{
    ids::EndpointName,
    ports::{Delivery, Receiver, Settlement, Transport},
};

use crate::{
    AnyError,
    messages::{SINK, Step, Told},
    place::QueuePlace,
    worker::Times,
};

/// Messages that are taken at a time.
const TAKEN_MAX: usize = 256;
const AGAIN: Duration = Duration::from_millis(100);
/// Faults that are named.
const NAMED_MAX: usize = 5;

/// What was told of a step.
#[derive(Debug, Clone)]
pub(crate) struct Come {
    pub(crate) places: [u32; 2],
    /// The id that all copies have.
    id: String,
    /// The message at the second endpoint that it came of.
    pub(crate) cause: Option<String>,
    pub(crate) copies: u64,
}

#[derive(Debug, Default)]
struct Seen {
    come: HashMap<Step, Come>,
    copies: u64,
    again: u64,
    faults: Vec<String>,
}

/// What has come.
#[derive(Debug, Default)]
pub(crate) struct Sink(Mutex<Seen>);

impl Sink {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps of which anything has come.
    pub(crate) fn distinct(&self) -> u64 {
        self.seen().come.len() as u64
    }

    /// What came a second time, or more often, each time as a message of its own: it was sent so often. Where a transport does not count how often
    /// it gives one, also what it gave again.
    pub(crate) fn copies(&self) -> u64 {
        self.seen().copies
    }

    /// What had come and was given again by the broker, which had not heard, or has forgotten, that it was taken: nobody has sent it twice.
    pub(crate) fn again(&self) -> u64 {
        self.seen().again
    }

    pub(crate) fn of(&self, step: Step) -> Option<Come> {
        self.seen().come.get(&step).cloned()
    }

    /// What was wrong by itself.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.seen().faults.clone()
    }

    fn takes(&self, Delivery { envelope, attempts, .. }: &Delivery) {
        let mut seen = self.seen();
        let told: Told = match serde_json::from_slice(&envelope.body) {
            Ok(told) => told,
            Err(e) => return seen.fault(format!("a message that cannot be read came out: {e}")),
        };
        let come = Come {
            places: told.places,
            id: envelope.message_id.to_string(),
            cause: envelope.causation_id.as_ref().map(ToString::to_string),
            copies: 1,
        };
        let Some(first) = seen.come.get_mut(&told.step) else {
            seen.come.insert(told.step, come);
            return;
        };
        first.copies += 1;
        let is_same = (first.places, &first.id, &first.cause) == (come.places, &come.id, &come.cause);
        let fault = format!("two different messages of {:?} came out: {first:?} and {come:?}", told.step);
        if *attempts > 1 {
            seen.again += 1;
        } else {
            seen.copies += 1;
        }
        if !is_same {
            seen.fault(fault);
        }
    }
}

impl Seen {
    fn fault(&mut self, fault: String) {
        if self.faults.len() < NAMED_MAX {
            self.faults.push(fault);
        }
    }
}

/// Takes all that comes, for ever.
pub(crate) async fn drain(queues: QueuePlace, sink: &Sink) -> Result<(), AnyError> {
    let here: EndpointName = SINK.parse()?;
    loop {
        let drained = async {
            let receiver = queues.open(Times::USUAL.lease).await?.transport().connect(&here, &[]).await?.receiver;
            loop {
                take(receiver.as_ref(), sink).await?;
            }
        };
        let drained: Result<(), AnyError> = drained.await;
        if let Err(why) = drained {
            tracing::debug!("what comes out cannot be taken for now: {why}");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn take(receiver: &dyn Receiver, sink: &Sink) -> Result<(), AnyError> {
    let deliveries: Vec<Delivery> = receiver.receive(TAKEN_MAX).await?;
    for delivery in &deliveries {
        sink.takes(delivery);
    }
    // All at the same time: each may be a commit, and whoever made them one after the other would be slower than those whose messages come here.
    let settled = join_all(deliveries.iter().map(|delivery| receiver.settle(&delivery.receipt, Settlement::Ack))).await;
    for settled in settled {
        settled?;
    }
    Ok(())
}
