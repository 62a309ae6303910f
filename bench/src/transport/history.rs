//! What is in the last queue after a run, by ids: whether each message had its effect, and had it once.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    time::Duration,
};

use futures_util::future::join_all;
use hapax::{
    MessageId,
    envelope::Envelope,
    ids::EndpointName,
    ports::{Settlement, Transport},
};
use tokio::time::timeout;
use uuid::Uuid;

use crate::AnyError;

/// Messages of one receive.
const TAKEN: usize = 512;
/// What has not come for so long does not come any more.
const LONGEST: Duration = Duration::from_secs(10);
/// What nobody waits for comes at once, or not at all.
const REST: Duration = Duration::from_millis(300);

/// Of each message, what it made its handler send.
#[derive(Debug, Default)]
pub(super) struct History {
    effects: HashMap<Uuid, MessageId>,
    /// Ids of messages that had a second effect: something else was sent for them.
    pub(super) twice: u64,
    /// What was sent more than once under the same id, which is allowed.
    pub(super) copies: u64,
    /// What nobody has caused.
    pub(super) strange: u64,
}

impl History {
    /// Takes all from the queue of `last`, where each of `ids` is to have sent something.
    pub(super) async fn read(
        transport: &impl Transport,
        last: &EndpointName,
        ids: &HashSet<Uuid>,
    ) -> Result<Self, AnyError> {
        let receiver = transport.connect(last, &[]).await?.receiver;
        let mut history = Self::default();
        loop {
            let longest = if history.effects.len() < ids.len() { LONGEST } else { REST };
            let Ok(deliveries) = timeout(longest, receiver.receive(TAKEN)).await else { return Ok(history) };
            let deliveries = deliveries?;
            deliveries.iter().for_each(|delivery| history.add(&delivery.envelope, ids));
            let settled = deliveries.iter().map(|delivery| receiver.settle(&delivery.receipt, Settlement::Ack));
            for settled in join_all(settled).await {
                settled?;
            }
        }
    }

    fn add(&mut self, envelope: &Envelope, ids: &HashSet<Uuid>) {
        let cause = envelope.causation_id.as_ref().and_then(|cause| Uuid::parse_str(&cause.to_string()).ok());
        let Some(cause) = cause.filter(|cause| ids.contains(cause)) else {
            self.strange += 1;
            return;
        };
        match self.effects.entry(cause) {
            Entry::Vacant(first) => drop(first.insert(envelope.message_id.clone())),
            Entry::Occupied(first) if *first.get() == envelope.message_id => self.copies += 1,
            Entry::Occupied(_) => self.twice += 1,
        }
    }

    /// Messages whose effect was seen.
    pub(super) fn effects(&self) -> u64 {
        self.effects.len() as u64
    }

    /// What was not as it has to be, where there were so many `ids`.
    pub(super) fn problem(&self, ids: &HashSet<Uuid>) -> Option<String> {
        let Self { twice, strange, .. } = *self;
        let lost = ids.len() as u64 - self.effects();
        (lost + twice + strange > 0).then(|| {
            format!("of {} messages {lost} are lost, {twice} had two effects; {strange} were sent for none", ids.len())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use hapax::ids::{CausationId, TypeName};

    use super::*;

    fn sent(id: &str, cause: Option<Uuid>) -> Envelope {
        let kind = TypeName::parse("bench.changed").unwrap();
        let mut envelope = Envelope::new(MessageId::parse(id).unwrap(), kind, Bytes::new());
        envelope.causation_id = cause.map(|cause| CausationId(MessageId::from(cause)));
        envelope
    }

    #[test]
    fn what_is_lost_had_two_effects_or_was_caused_by_nobody_is_told() {
        let [one, two] = [1, 2].map(Uuid::from_u128);
        let ids = HashSet::from([one, two]);
        let mut history = History::default();
        history.add(&sent("a", Some(one)), &ids);
        assert!(history.problem(&ids).unwrap().contains("1 are lost"));
        history.add(&sent("b", Some(two)), &ids);
        history.add(&sent("b", Some(two)), &ids);
        assert_eq!((history.problem(&ids), history.copies), (None, 1));
        history.add(&sent("c", Some(two)), &ids);
        assert!(history.problem(&ids).unwrap().contains("1 had two effects"));
        history.add(&sent("d", Some(Uuid::from_u128(3))), &ids);
        history.add(&sent("e", None), &ids);
        assert!(history.problem(&ids).unwrap().contains("2 were sent for none"));
    }
}
