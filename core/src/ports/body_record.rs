//! What is kept beside a body: who may still need it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{BodyName, BodyReference, Got, NewBody, Staged};
use crate::ids::{AttemptId, EntityKey, InvalidId, PartitionKey, SagaKey, Scope};

/// What is kept beside a body, and the rules by which it changes, for stores of [`Bodies`](super::Bodies) that can replace a small text by
/// compare-and-set. Times are milliseconds by the store's own clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyRecord {
    owner: Owner,
    #[serde(default)]
    kept: bool,
    /// Until when everybody may ask for it.
    #[serde(default)]
    for_all_until: i64,
    references: Vec<Row>,
    /// References that were released, and until when that is to be told.
    #[serde(default)]
    released: Vec<(Row, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    endpoint: String,
    saga: String,
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    attempt: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    message: String,
    endpoint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saga: Option<String>,
}

impl From<&BodyReference> for Row {
    fn from(reference: &BodyReference) -> Self {
        let BodyReference { message_id, endpoint, saga } = reference;
        let saga = saga.as_ref().map(ToString::to_string);
        Self { message: message_id.to_string(), endpoint: endpoint.to_string(), saga }
    }
}

impl BodyRecord {
    /// Of a body that is put now.
    #[must_use]
    pub fn new(body: &NewBody) -> Self {
        let Staged { entity, attempt, .. } = &body.staged;
        let owner = Owner {
            endpoint: entity.scope().endpoint.to_string(),
            saga: entity.scope().saga.to_string(),
            key: entity.key().to_string(),
            partition: entity.partition().map(ToString::to_string),
            attempt: attempt.to_string(),
        };
        let references = body.references.iter().map(Row::from).collect();
        Self { owner, kept: false, for_all_until: 0, references, released: Vec::new() }
    }

    /// As [`Bodies::keep`](super::Bodies::keep). Answers whether anything was changed.
    pub fn keep(&mut self, now: i64, for_all: i64) -> bool {
        let until = if for_all > 0 { now.saturating_add(for_all) } else { 0 };
        let changed = !self.kept || until > self.for_all_until;
        self.kept = true;
        self.for_all_until = self.for_all_until.max(until);
        changed
    }

    /// As [`Bodies::release`](super::Bodies::release). Answers whether anything was changed.
    pub fn release(&mut self, now: i64, reference: &BodyReference, instead: &[BodyReference], told: i64) -> bool {
        let row = Row::from(reference);
        if !self.references.contains(&row) {
            return false;
        }
        // Who goes on in its own place has not let go.
        let stays = instead.contains(reference);
        self.references.retain(|held| stays || *held != row);
        self.kept = true; // Whoever has handled the message has got it, so it was saved.
        for row in instead.iter().map(Row::from) {
            self.released.retain(|(released, _)| *released != row);
            if !self.references.contains(&row) {
                self.references.push(row);
            }
        }
        if !stays {
            self.released.push((row, now.saturating_add(told)));
        }
        true
    }

    /// Whether it still is staged.
    #[must_use]
    pub const fn is_staged(&self) -> bool {
        !self.kept
    }

    /// Whether the body itself may be needed at `now`.
    #[must_use]
    pub const fn needs_body(&self, now: i64) -> bool {
        !self.kept || !self.references.is_empty() || self.for_all_until > now
    }

    /// From when on nothing of it is needed; `None`: that is not known yet.
    #[must_use]
    pub fn over_at(&self) -> Option<i64> {
        if !self.kept || !self.references.is_empty() {
            return None;
        }
        let told = self.released.iter().map(|(_, until)| *until).max();
        Some(told.unwrap_or_default().max(self.for_all_until))
    }

    /// What whoever asks by `reference` is given, where the body is `bytes` if it is there.
    #[must_use]
    pub fn got(&self, reference: Option<&BodyReference>, bytes: Option<bytes::Bytes>) -> Got {
        let is_released = |row: &Row| self.released.iter().any(|(released, _)| released == row);
        if let Some(row) = reference.map(Row::from) {
            // A saga that has no reference of its own was done when the message was over for all of them.
            let whole = Row { saga: None, ..row.clone() };
            if is_released(&row) || is_released(&whole) && !self.references.contains(&row) {
                return Got::Released;
            }
        }
        bytes.map_or(Got::Missing, Got::Body)
    }

    /// Whose outbox entry is to refer to the body named `name`.
    ///
    /// # Errors
    /// [`InvalidId`] for a record that is damaged.
    pub fn staged(&self, name: BodyName) -> Result<Staged, InvalidId> {
        let Owner { endpoint, saga, key, partition, attempt } = &self.owner;
        let scope = Scope { endpoint: endpoint.parse()?, saga: saga.parse()? };
        let mut entity = EntityKey::new(Arc::new(scope), SagaKey::parse(key.as_str())?);
        if let Some(partition) = partition {
            entity = entity.in_partition(PartitionKey::parse(partition.as_str())?);
        }
        let attempt =
            AttemptId::from_hex(attempt).ok_or_else(|| InvalidId::new("attempt id", "is not 32 hexadecimal digits"))?;
        Ok(Staged { name, entity, attempt })
    }

    /// As text, which [`decode`](Self::decode) reads.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`InvalidId`] for anything else.
    pub fn decode(text: &str) -> Result<Self, InvalidId> {
        serde_json::from_str(text).map_err(|e| InvalidId::new("record of a body", e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ids::{MessageId, SagaName};

    const TOLD: i64 = 100;

    fn reference(message: &str) -> BodyReference {
        let message_id = MessageId::parse(message).unwrap();
        BodyReference { message_id, endpoint: "shop".parse().unwrap(), saga: None }
    }

    fn record(references: Vec<BodyReference>) -> BodyRecord {
        let scope = Scope { endpoint: "front".parse().unwrap(), saga: "order".parse().unwrap() };
        let entity = EntityKey::new(Arc::new(scope), "7".parse().unwrap());
        let attempt = AttemptId::from_bytes([7; AttemptId::BYTES]);
        let staged = Staged { name: BodyName::of(&attempt, 0), entity, attempt };
        BodyRecord::new(&NewBody { staged, references, bytes: "body".into() })
    }

    /// Goal: nothing is over before everybody has let go of it, whatever comes in which order, and however often. Method: every order of
    /// five steps with repeats; what must hold is worked out from the steps alone.
    #[test]
    fn no_order_of_keeps_and_releases_ends_a_body_before_its_last_reference() {
        let saga: SagaName = "order".parse().unwrap();
        let [first, second] = ["m-1", "m-2"].map(reference);
        let letter = BodyReference { saga: Some(saga), ..first.clone() };
        for order in 0..5_usize.pow(6) {
            let mut record = record(vec![first.clone(), second.clone()]);
            let (mut held, mut kept) = (vec![first.clone(), second.clone()], false);
            for step in 0..6_u32 {
                let now = i64::from(step) * 10;
                match order / 5_usize.pow(step) % 5 {
                    0 => {
                        record.keep(now, 0);
                        kept = true;
                    }
                    1 => {
                        record.release(now, &first, std::slice::from_ref(&letter), TOLD);
                        if let Some(at) = held.iter().position(|held| *held == first) {
                            held[at] = letter.clone();
                            kept = true;
                        }
                    }
                    other => {
                        let gone = [&first, &second, &letter][other - 2];
                        kept |= held.contains(gone);
                        record.release(now, gone, &[], TOLD);
                        held.retain(|held| held != gone);
                    }
                }
                record = BodyRecord::decode(&record.encode()).unwrap();
                assert_eq!(record.needs_body(now), !kept || !held.is_empty(), "order {order}, step {step}");
                assert_eq!(record.over_at().is_none(), !kept || !held.is_empty(), "order {order}, step {step}");
                assert!(record.over_at().is_none_or(|at| at >= TOLD), "order {order}, step {step}");
            }
        }
    }

    /// In every store of bodies for as long as the body is there. What nobody said at first is left out of the oldest ones.
    #[test]
    fn a_record_keeps_its_text_and_one_that_says_less_is_read() {
        const WHOLE: &str = r#"{"owner":{"endpoint":"front","saga":"order","key":"7","partition":"customer-7","attempt":"07070707070707070707070707070707"},"kept":true,"for_all_until":1500,"references":[{"message":"m-1","endpoint":"shop","saga":"order"}],"released":[[{"message":"m-1","endpoint":"shop"},2100]]}"#;
        const OLDEST: &str = r#"{"owner":{"endpoint":"front","saga":"order","key":"7","attempt":"07070707070707070707070707070707"},"references":[{"message":"m-1","endpoint":"shop"}]}"#;
        let first = reference("m-1");
        let letter = BodyReference { saga: Some("order".parse().unwrap()), ..first.clone() };
        let mut whole = record(vec![first.clone(), letter]);
        whole.owner.partition = Some("customer-7".to_owned());
        whole.keep(1_000, 500);
        whole.release(2_000, &first, &[], TOLD);
        assert_eq!(whole.encode(), WHOLE);
        assert_eq!(BodyRecord::decode(WHOLE).unwrap(), whole);
        let staged = whole.staged(BodyName::parse("a-1").unwrap()).unwrap();
        assert_eq!(staged.entity.to_string(), "front/order/7 in customer-7");
        assert_eq!(BodyRecord::decode(OLDEST).unwrap(), record(vec![first]));
    }

    #[test]
    fn what_is_for_all_stays_for_the_longest_that_was_asked_for() {
        let mut record = record(Vec::new());
        assert!(record.over_at().is_none() && record.needs_body(i64::MAX), "it is staged");
        assert!(record.keep(1_000, 500));
        assert!(!record.keep(900, 500), "a clock that goes back shortens nothing");
        assert_eq!(record.over_at(), Some(1_500));
        assert!(record.keep(1_400, 500));
        assert_eq!(record.over_at(), Some(1_900));
        assert!(record.needs_body(1_899) && !record.needs_body(1_900));
    }

    #[test]
    fn a_record_tells_whose_it_is_and_what_is_damaged_is_no_record() {
        let record = record(vec![reference("m-1")]);
        let staged = record.staged(BodyName::parse("a-1").unwrap()).unwrap();
        assert_eq!(staged.entity.to_string(), "front/order/7");
        assert_eq!(staged.attempt.as_bytes(), &[7; AttemptId::BYTES]);
        assert!(BodyRecord::decode("{}").is_err() && BodyName::parse("../x").is_err());
    }
}
