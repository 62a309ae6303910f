//! The record of what was done: one entity of the endpoint's store, so that every store keeps it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    codec::{Codec, Schema},
    entity::{Entity, Expected},
    ids::{EndpointName, EntityKey, InvalidId, SagaKey, SagaName, Scope},
    ports::{EntityStore, ErrorKind, Saved, StoreError},
    time::Timestamp,
};

/// Under which saga name the record is kept, in the scope of its endpoint.
const NAME: &str = "hapax.dead-letters";
const KEY: &str = "actions";
/// Actions that are kept.
const ACTIONS_MAX: usize = 500;
/// What all of them may take: every store keeps an entity of this size.
const BYTES_MAX: usize = 64 * 1024;
/// Ids that an action names: those of a call for some letters, all of them; those of a call for thousands would push out what was done before.
const IDS_MAX: usize = 200;
/// Others record at the same time; so many in a row that each is overtaken means that something is wrong.
const TRIES_MAX: u32 = 50;
const OPERATION: &str = "recording what is done with dead letters";

/// Something that a person has set out to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// When.
    pub time: Timestamp,
    /// Who.
    pub by: String,
    /// What.
    pub deed: Deed,
    /// With how many letters. One call is one action, however many batches it takes: each is counted before it is done, so that of a call
    /// that ended early the last may have had no effect.
    pub count: usize,
    /// With the letters about which messages: the ids of the first 200.
    pub messages: Vec<String>,
}

/// One call of somebody.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) deed: Deed,
    /// Which: drawn at random, so that no two are the same.
    id: u64,
    /// Batches so far.
    batch: u32,
}

impl Call {
    pub(super) fn new(deed: Deed) -> Self {
        Self { deed, id: fastrand::u64(1..), batch: 0 }
    }
}

/// What is done with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Deed {
    /// Given to the endpoint again, or sent on their way.
    Retried,
    /// The same although dedup entries of their time may be gone.
    RetriedBeyondRetention,
    /// Changed.
    Edited,
    /// Given up.
    Discarded,
}

/// As stored.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    actions: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    time: u64,
    by: String,
    deed: Deed,
    messages: Vec<String>,
    /// None of what was recorded before there were calls: then it is as many as are named.
    #[serde(default)]
    count: usize,
    #[serde(default)]
    call: u64,
    /// The last of its batches that is in it.
    #[serde(default)]
    batch: u32,
}

impl Record {
    /// Adds a batch to what is there of its call. Whether it was not there yet.
    fn add(&mut self, row: &Row) -> bool {
        let known = self.actions.iter_mut().rfind(|known| known.call == row.call);
        match known {
            Some(known) if known.batch >= row.batch => return false,
            Some(known) => {
                (known.count, known.batch) = (known.count + row.count, row.batch);
                let room = IDS_MAX.saturating_sub(known.messages.len());
                known.messages.extend(row.messages.iter().take(room).cloned());
            }
            None => {
                let mut first = row.clone();
                first.messages.truncate(IDS_MAX);
                self.actions.push(first);
            }
        }
        true
    }
}

const SCHEMA: Schema<Record> =
    Schema { what: "the record of what is done with dead letters", version: 1, upcast: |older| older.unknown() };

#[derive(Clone)]
pub(super) struct Actions {
    endpoint: EndpointName,
    entities: Arc<dyn EntityStore>,
}

impl Actions {
    pub(super) fn new(endpoint: EndpointName, entities: Arc<dyn EntityStore>) -> Self {
        Self { endpoint, entities }
    }

    /// Adds the next batch of a call; where there is no store, or one that takes less than the whole record, nothing is kept.
    pub(super) async fn add(
        &self,
        call: &mut Call,
        (time, by): (Timestamp, &str),
        messages: Vec<String>,
    ) -> Result<(), StoreError> {
        if self.entities.capabilities().entity_bytes_max < BYTES_MAX {
            return Ok(());
        }
        call.batch += 1;
        let row = Row {
            time: time.as_millis(),
            by: by.to_owned(),
            deed: call.deed,
            count: messages.len(),
            messages,
            call: call.id,
            batch: call.batch,
        };
        let key = self.key()?;
        for _ in 0..TRIES_MAX {
            let (expected, mut record, commits) = self.load(&key).await?;
            if !record.add(&row) {
                return Ok(()); // What was not answered had been stored all the same.
            }
            let state = encode(&mut record)?;
            let entity = Entity { state: state.into(), commits: commits + 1, ..Entity::default() };
            match self.entities.save(&key, &expected, &entity, &[]).await {
                Ok(Saved::At(_)) => return Ok(()),
                Ok(Saved::Conflict) => {} // It may have been our own, repeated.
                Err(e) if e.is_unknown_outcome() => {}
                Err(e) => return Err(e),
            }
        }
        let why = "others record all the time; nothing was done: try again";
        Err(StoreError::new(ErrorKind::Unavailable, OPERATION, why))
    }

    pub(super) async fn list(&self) -> Result<Vec<Action>, StoreError> {
        let (_, record, _) = self.load(&self.key()?).await?;
        let action = |Row { time, by, deed, messages, count, .. }| {
            let count = count.max(messages.len());
            Action { time: Timestamp::from_millis(time), by, deed, count, messages }
        };
        Ok(record.actions.into_iter().map(action).collect())
    }

    fn key(&self) -> Result<EntityKey, StoreError> {
        let invalid = |e: InvalidId| StoreError::new(ErrorKind::Misconfigured, OPERATION, e.to_string());
        let saga = SagaName::parse(NAME).map_err(invalid)?;
        let scope = Scope { endpoint: self.endpoint.clone(), saga };
        Ok(EntityKey::new(Arc::new(scope), SagaKey::parse(KEY).map_err(invalid)?))
    }

    async fn load(&self, key: &EntityKey) -> Result<(Expected, Record, u64), StoreError> {
        let Some(stored) = self.entities.load(key, &[]).await?.stored else {
            return Ok((Expected::Absent, Record::default(), 0));
        };
        let record = SCHEMA.read_framed(&stored.entity.state).map_err(|e| {
            StoreError::new(ErrorKind::Malformed, OPERATION, "the record cannot be read; upgrade, or restore it")
                .caused_by(e)
        })?;
        Ok((Expected::Version(stored.version), record, stored.entity.commits))
    }
}

/// With the oldest left out that there is no room for; never the newest.
fn encode(record: &mut Record) -> Result<Vec<u8>, StoreError> {
    let over = record.actions.len().saturating_sub(ACTIONS_MAX);
    record.actions.drain(..over);
    loop {
        let state = SCHEMA.write_framed(Codec::Json, record).map_err(|e| {
            StoreError::new(ErrorKind::Malformed, OPERATION, "the record cannot be encoded").caused_by(e)
        })?;
        if state.len() <= BYTES_MAX || record.actions.len() <= 1 {
            return Ok(state);
        }
        // A quarter at a time: encoding is not cheap.
        record.actions.drain(..record.actions.len().div_ceil(4).min(record.actions.len() - 1));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_oldest_go_where_there_is_no_room_and_the_newest_stays() {
        let row = |time, bytes: usize| Row {
            time,
            by: "x".repeat(bytes),
            deed: Deed::Edited,
            messages: Vec::new(),
            count: 1,
            call: time,
            batch: 1,
        };
        let mut many = Record { actions: (0..ACTIONS_MAX as u64 + 7).map(|time| row(time, 1)).collect() };
        encode(&mut many).unwrap();
        assert_eq!((many.actions.len(), many.actions[0].time), (ACTIONS_MAX, 7));

        let mut large = Record { actions: (0..40).map(|time| row(time, 4000)).collect() };
        assert!(encode(&mut large).unwrap().len() <= BYTES_MAX);
        assert!(large.actions.len() > 8 && large.actions.last().unwrap().time == 39);

        let mut huge = Record { actions: vec![row(1, 10), row(2, 2 * BYTES_MAX)] };
        encode(&mut huge).unwrap();
        assert_eq!(huge.actions, [row(2, 2 * BYTES_MAX)]);
    }
    #[test]
    fn a_batch_is_counted_once_and_the_ids_are_those_of_the_first() {
        let batch = |batch: u32, count: usize| {
            let messages = (0..count).map(|n| format!("{batch}-{n}")).collect();
            Row { time: 0, by: "alice".into(), deed: Deed::Retried, messages, count, call: 7, batch }
        };
        let mut record = Record { actions: vec![Row { call: 0, ..batch(1, 1) }] };
        for (row, is_new) in
            [(batch(1, 150), true), (batch(1, 150), false), (batch(2, 150), true), (batch(2, 1), false)]
        {
            assert_eq!(record.add(&row), is_new);
        }
        let Row { count, messages, .. } = &record.actions[1];
        assert_eq!((record.actions.len(), *count, messages.len(), &*messages[199]), (2, 300, IDS_MAX, "2-49"));
    }

    /// In the endpoint's store for ever, under these names.
    #[test]
    fn the_record_keeps_its_bytes_and_its_place() {
        const KEPT: &str = concat!(
            "\u{1}\u{1}",
            r#"{"actions":[{"time":1700000000000,"by":"alice","deed":"retried-beyond-retention","messages":["m-1","m-2"],"count":300,"call":7,"batch":2}]}"#
        );
        let row = Row {
            time: 1_700_000_000_000,
            by: "alice".into(),
            deed: Deed::RetriedBeyondRetention,
            messages: vec!["m-1".into(), "m-2".into()],
            count: 300,
            call: 7,
            batch: 2,
        };
        let mut record = Record { actions: vec![row.clone()] };
        assert_eq!(String::from_utf8(encode(&mut record).unwrap()).unwrap(), KEPT);
        assert_eq!(SCHEMA.read_framed(KEPT.as_bytes()).unwrap().actions, [row]);
        let deeds = [Deed::Retried, Deed::RetriedBeyondRetention, Deed::Edited, Deed::Discarded];
        let names = r#"["retried","retried-beyond-retention","edited","discarded"]"#;
        assert_eq!(serde_json::to_string(&deeds).unwrap(), names);
        assert_eq!(serde_json::from_str::<[Deed; 4]>(names).unwrap(), deeds);
        assert_eq!((NAME, KEY), ("hapax.dead-letters", "actions"));
    }

    #[test]
    fn what_was_recorded_before_there_were_calls_is_read() {
        let old = r#"{"actions":[{"time":1,"by":"alice","deed":"edited","messages":["m"]}]}"#;
        let record: Record = serde_json::from_str(old).unwrap();
        assert_eq!((record.actions[0].count, record.actions[0].call), (0, 0));
    }
}
