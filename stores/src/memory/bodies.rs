//! Bodies that are too large to travel.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    ids::EndpointName,
    ports::{
        Bodies, BodyCapabilities, BodyName, BodyRecord, BodyReference, ErrorKind, Got, NewBody, Staged, StoreError,
    },
};
// Beside queues that are inside the process too, whose time a test may let pass.
use tokio::time::Instant;

use super::Memory;

/// Largest body, in bytes: what one message may claim of a process that holds a thousand of them has to end somewhere.
const BODY_BYTES_MAX: usize = 256 << 20;
/// All bodies together: who needs more wants them to outlive the process, too.
const BYTES_MAX: usize = 1 << 30;
const PUT: &str = "putting a body";

/// Bodies by name.
#[derive(Default)]
pub(super) struct Kept {
    all: BTreeMap<BodyName, Row>,
    bytes: usize,
    /// From which milliseconds are counted.
    begun: Option<Instant>,
}

struct Row {
    record: BodyRecord,
    put_at: i64,
    endpoint: EndpointName,
    body: Option<bytes::Bytes>,
}

impl Kept {
    pub(super) fn size(&self) -> (usize, usize) {
        (self.all.len(), self.bytes)
    }

    fn now(&mut self) -> i64 {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        millis(begun.elapsed())
    }

    fn put(&mut self, body: &NewBody) -> Result<(), StoreError> {
        let (now, bytes) = (self.now(), body.bytes.len());
        if bytes > BODY_BYTES_MAX {
            let why = format!("it has {bytes} bytes, more than the {BODY_BYTES_MAX} that memory takes");
            return Err(StoreError::new(ErrorKind::TooLarge, PUT, why));
        }
        let full = self.bytes.saturating_add(bytes) > BYTES_MAX;
        let Entry::Vacant(vacant) = self.all.entry(body.staged.name.clone()) else { return Ok(()) };
        if full {
            let why = format!("bodies in memory have {BYTES_MAX} bytes and no more are taken: use a store on disk");
            return Err(StoreError::new(ErrorKind::Unavailable, PUT, why));
        }
        let endpoint = body.staged.entity.scope().endpoint.clone();
        vacant.insert(Row { record: BodyRecord::new(body), put_at: now, endpoint, body: Some(body.bytes.clone()) });
        self.bytes += bytes;
        Ok(())
    }

    fn change(&mut self, name: &BodyName, change: impl FnOnce(&mut BodyRecord, i64) -> bool) -> bool {
        let now = self.now();
        let Some(row) = self.all.get_mut(name) else { return false };
        change(&mut row.record, now);
        if !row.record.needs_body(now) {
            self.bytes -= row.body.take().map_or(0, |body| body.len());
        }
        true
    }

    fn remove(&mut self, name: &BodyName) {
        if let Some(row) = self.all.remove(name) {
            self.bytes -= row.body.map_or(0, |body| body.len());
        }
    }

    fn staged(&mut self, endpoint: &EndpointName, age: i64, limit: usize) -> Result<Vec<Staged>, StoreError> {
        let now = self.now();
        let is_old = |row: &Row| row.record.is_staged() && row.endpoint == *endpoint && now - row.put_at > age;
        let mut old: Vec<(&BodyName, &Row)> = self.all.iter().filter(|(_, row)| is_old(row)).collect();
        old.sort_by_key(|(_, row)| row.put_at);
        let staged = old.into_iter().take(limit).map(|(name, row)| row.record.staged(name.clone()));
        staged.collect::<Result<_, _>>().map_err(|e| {
            StoreError::new(ErrorKind::Malformed, "listing staged bodies", "a record is damaged").caused_by(e)
        })
    }

    fn collect(&mut self, limit: usize) -> usize {
        let now = self.now();
        let is_over = |row: &Row| row.record.over_at().is_some_and(|over| over <= now);
        let over = self.all.iter().filter(|(_, row)| is_over(row)).map(|(name, _)| name.clone());
        let over: Vec<BodyName> = over.take(limit).collect();
        over.iter().for_each(|name| self.remove(name));
        over.len()
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[async_trait]
impl Bodies for Memory {
    fn body_capabilities(&self) -> BodyCapabilities {
        BodyCapabilities { name: "memory", body_bytes_max: BODY_BYTES_MAX, durable: false }
    }

    async fn put(&self, body: &NewBody) -> Result<(), StoreError> {
        self.state().bodies.put(body)
    }

    async fn keep(&self, name: &BodyName, for_all: Duration) -> Result<bool, StoreError> {
        Ok(self.state().bodies.change(name, |record, now| record.keep(now, millis(for_all))))
    }

    async fn get(&self, name: &BodyName, reference: Option<&BodyReference>) -> Result<Got, StoreError> {
        let state = self.state();
        Ok(state.bodies.all.get(name).map_or(Got::Missing, |row| row.record.got(reference, row.body.clone())))
    }

    async fn release(
        &self,
        name: &BodyName,
        reference: &BodyReference,
        instead: &[BodyReference],
        told: Duration,
    ) -> Result<(), StoreError> {
        let release = |record: &mut BodyRecord, now| record.release(now, reference, instead, millis(told));
        self.state().bodies.change(name, release);
        Ok(())
    }

    async fn staged(&self, endpoint: &EndpointName, age: Duration, limit: usize) -> Result<Vec<Staged>, StoreError> {
        self.state().bodies.staged(endpoint, millis(age), limit)
    }

    async fn unstage(&self, name: &BodyName) -> Result<bool, StoreError> {
        let mut state = self.state();
        let is_staged = state.bodies.all.get(name).is_some_and(|row| row.record.is_staged());
        if is_staged {
            state.bodies.remove(name);
        }
        Ok(is_staged)
    }

    async fn collect(&self, limit: usize) -> Result<usize, StoreError> {
        Ok(self.state().bodies.collect(limit))
    }
}
