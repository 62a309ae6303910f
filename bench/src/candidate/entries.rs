//! Dedup entries of messages that were handled long before the run.

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    MessageId,
    entity::DedupEntry,
    envelope::Envelope,
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, SagaKey, TypeName},
    ports::DedupStore,
    time::Timestamp,
};
use uuid::Uuid;

use super::scope;
use crate::{
    AnyError,
    run::Shape,
    workload::{Deposit, key_of, now_millis},
};

/// Entries of one call, and calls at a time.
const CHUNK: u64 = 1000;
const AT_A_TIME: usize = 32;
/// The messages were sent over the last hour, one after the other.
const SENT_OVER_MS: u64 = 3_600_000;
/// Of the messages: no round has it, else some would come again.
const SEED: u64 = u64::MAX;

/// Puts `shape.entries` in through the store's port.
pub(crate) async fn insert(store: &impl DedupStore, shape: &Shape) -> Result<(), AnyError> {
    let mut messages = Messages::new(shape)?;
    let chunks = (0..shape.entries).step_by(CHUNK as usize).map(|first| {
        let numbers = first..shape.entries.min(first + CHUNK);
        let entries: Result<Vec<DedupEntry>, AnyError> = numbers.map(|number| messages.entry(number)).collect();
        async move { Ok::<_, AnyError>(store.insert(&entries?).await?) }
    });
    stream::iter(chunks).buffered(AT_A_TIME).try_collect().await
}

/// Messages of the past, uniform over the entities.
struct Messages {
    shape: Shape,
    keys: Vec<EntityKey>,
    message_type: TypeName,
    random: fastrand::Rng,
    began: u64,
}

impl Messages {
    fn new(shape: &Shape) -> Result<Self, AnyError> {
        use hapax::Message;
        let scope = scope()?;
        let key = |number| Ok::<_, AnyError>(EntityKey::new(scope.clone(), SagaKey::parse(key_of(number))?));
        Ok(Self {
            shape: *shape,
            keys: (0..shape.entities).map(key).collect::<Result<_, _>>()?,
            message_type: TypeName::parse(Deposit::TYPE)?,
            random: fastrand::Rng::with_seed(SEED),
            began: now_millis() - SENT_OVER_MS,
        })
    }

    fn entry(&mut self, number: u64) -> Result<DedupEntry, AnyError> {
        let sent = self.began + number * SENT_OVER_MS / self.shape.entries;
        let id = MessageId::from(Uuid::from_bytes(self.shape.ids.next(&mut self.random, sent)));
        let envelope = Envelope::new(id, self.message_type.clone(), number.to_string());
        let key = self.random.choice(&self.keys).ok_or("there are no entities")?;
        Ok(DedupEntry {
            key: DedupKey::of(key, &envelope),
            attempt: AttemptId::from_bytes(self.random.u128(..).to_be_bytes()),
            fingerprint: Fingerprint::of(&envelope),
            reply: None,
            time: Timestamp::from_millis(sent),
        })
    }
}
