//! What is sent to the first endpoint, as fast as it comes out at the end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax::{
    Sender,
    envelope::{Destination, Envelope, Outgoing},
    ids::EndpointName,
    ports::{Dispatcher, Transport},
};

use crate::{
    AnyError,
    messages::{Add, FRONT, SINK, Step},
    place::QueuePlace,
    sink::Sink,
    worker::Times,
};

/// Entities at each endpoint.
pub(crate) const KEYS: u32 = 200;
/// Steps that may be on their way.
const ON_THEIR_WAY_MAX: u64 = 2_000;
const LOOK: Duration = Duration::from_millis(10);

/// How far the load has come.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Rounds of one step of each key, all of them sent.
    pub(crate) rounds: AtomicU32,
    /// Of their steps those that are to come out.
    due: AtomicU64,
    /// No more.
    pub(crate) ends: AtomicBool,
}

impl Load {
    /// Steps that were sent and are to come out, where `out` have.
    pub(crate) fn on_their_way(&self, out: u64) -> u64 {
        self.due.load(Ordering::SeqCst).saturating_sub(out)
    }

    /// The next round, of this number.
    fn has_sent(&self, number: u32) {
        let due = (0..KEYS).filter(|&key| !Step { key, number }.is_ruined()).count();
        self.due.fetch_add(due as u64, Ordering::SeqCst);
        self.rounds.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn envelope(sender: &Sender, step: Step) -> Result<Envelope, AnyError> {
    let id = format!("soak-{}-{}", step.key, step.number).parse()?;
    let mut envelope = sender.envelope(id, &Add(step))?;
    envelope.partition_key = Some(step.key.to_string().parse()?);
    Ok(envelope)
}

/// What has to be sent for `steps`: some of it twice.
pub(crate) fn outgoing(sender: &Sender, steps: impl Iterator<Item = Step>) -> Result<Vec<Outgoing>, AnyError> {
    let (front, mut all) = (Destination::Endpoint(FRONT.parse()?), Vec::new());
    for step in steps {
        let outgoing = Outgoing { destination: front.clone(), envelope: Arc::new(envelope(sender, step)?) };
        all.extend(std::iter::repeat_n(outgoing, 1 + usize::from(step.is_doubled())));
    }
    Ok(all)
}

/// Until it is told to end.
pub(crate) async fn send(queues: QueuePlace, load: Arc<Load>, sink: Arc<Sink>) -> Result<(), AnyError> {
    let here: EndpointName = SINK.parse()?;
    let transport: Arc<dyn Transport> = queues.open(Times::USUAL.lease).await?.transport();
    let mut dispatcher: Arc<dyn Dispatcher> = transport.connect(&here, &[]).await?.dispatcher;
    let sender = Sender::new(dispatcher.clone());
    while !load.ends.load(Ordering::SeqCst) {
        if load.on_their_way(sink.distinct()) > ON_THEIR_WAY_MAX {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let number = load.rounds.load(Ordering::SeqCst);
        let mut left = outgoing(&sender, (0..KEYS).map(|key| Step { key, number }))?;
        loop {
            let mut results = dispatcher.dispatch(&left).await.into_iter();
            left.retain(|_| results.next().is_none_or(|result| result.is_err()));
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(LOOK * 10).await; // The broker is away, or says no.
            if let Ok(connected) = transport.connect(&here, &[]).await {
                dispatcher = connected.dispatcher;
            }
        }
        load.has_sent(number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a million steps nothing else would be.
    #[test]
    fn what_can_never_come_out_is_not_on_its_way() {
        const ROUNDS: u32 = 10_000;
        let load = Load::default();
        (0..ROUNDS).for_each(|number| load.has_sent(number));
        let all = u64::from(ROUNDS) * u64::from(KEYS);
        let due = load.on_their_way(0);
        assert!(due < all - ON_THEIR_WAY_MAX, "{due} of {all}");
        assert_eq!((load.on_their_way(due - 3), load.on_their_way(due + 1)), (3, 0));
    }
}
