//! Bodies that are too large to travel, by the server's clock.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    ids::EndpointName,
    ports::{Bodies, BodyCapabilities, BodyName, BodyRecord, BodyReference, Got, NewBody, Staged, StoreError},
};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};

use super::{
    super::{
        bodies::{
            BODY_BYTES_MAX, COLLECTING, GETTING, KEEPING, LISTING, PUTTING, RELEASING, TRIES_MAX, UNSTAGING,
            check_size, overtaken, staged_of,
        },
        rows::{as_i64, millis_of},
    },
    Postgres,
    arguments::Bind,
    error::malformed,
};

impl Postgres {
    fn damaged_body(
        &self,
        operation: &'static str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> StoreError {
        malformed(operation, self.place(), "a row of the bodies").caused_by(error)
    }

    fn count_of(&self, operation: &'static str, rows: &[PgRow]) -> Result<usize, StoreError> {
        let count = rows.first().map_or(Ok(0_i64), |row| row.try_get(0));
        Ok(usize::try_from(count.map_err(|e| self.damaged_body(operation, e))?).unwrap_or_default())
    }

    /// Changes the record of a body by compare-and-set. Answers whether there is one.
    async fn change_body(
        &self,
        operation: &'static str,
        name: &BodyName,
        change: impl Fn(&mut BodyRecord, i64) -> bool + Send,
    ) -> Result<bool, StoreError> {
        let texts = &self.0.texts.bodies;
        for _ in 0..TRIES_MAX {
            let mut arguments = PgArguments::default();
            arguments.bind(name.as_str());
            let rows = self.read_alone(operation, &texts.record, arguments).await?;
            let Some(row) = rows.first() else { return Ok(false) };
            let revision: i64 = row.try_get(0).map_err(|e| self.damaged_body(operation, e))?;
            let text: &str = row.try_get(1).map_err(|e| self.damaged_body(operation, e))?;
            let now: i64 = row.try_get(2).map_err(|e| self.damaged_body(operation, e))?;
            let mut record = BodyRecord::decode(text).map_err(|e| self.damaged_body(operation, e))?;
            if !change(&mut record, now) {
                self.settle(operation).await?; // Somebody else has changed it, and is not waited for.
                return Ok(true);
            }
            let mut arguments = PgArguments::default();
            arguments.bind(name.as_str()).bind(revision).bind(record.over_at());
            arguments.bind(record.encode()).bind(record.needs_body(now));
            let rows = self.rare(operation, &texts.change, arguments).await?;
            if self.count_of(operation, &rows)? == 1 {
                return Ok(true);
            }
        }
        Err(overtaken(operation, self.place()))
    }
}

#[async_trait]
impl Bodies for Postgres {
    fn body_capabilities(&self) -> BodyCapabilities {
        BodyCapabilities { name: "postgres", body_bytes_max: BODY_BYTES_MAX, durable: true }
    }

    async fn put(&self, body: &NewBody) -> Result<(), StoreError> {
        check_size(body)?;
        let mut arguments = PgArguments::default();
        arguments.bind(body.staged.name.as_str()).bind(body.staged.entity.scope().endpoint.as_str());
        arguments.bind(BodyRecord::new(body).encode()).bind(body.bytes.to_vec());
        self.rare(PUTTING, &self.0.texts.bodies.put, arguments).await?;
        self.settle(PUTTING).await // One that was there already was not written, nor waited for.
    }

    async fn keep(&self, name: &BodyName, for_all: Duration) -> Result<bool, StoreError> {
        self.change_body(KEEPING, name, |record, now| record.keep(now, millis_of(for_all))).await
    }

    async fn get(&self, name: &BodyName, reference: Option<&BodyReference>) -> Result<Got, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(name.as_str());
        let rows = self.read_alone(GETTING, &self.0.texts.bodies.get, arguments).await?;
        self.settle(GETTING).await?; // A release that is told is acted on without another write.
        let Some(row) = rows.first() else { return Ok(Got::Missing) };
        let text: &str = row.try_get(0).map_err(|e| self.damaged_body(GETTING, e))?;
        let record = BodyRecord::decode(text).map_err(|e| self.damaged_body(GETTING, e))?;
        let body: Option<Vec<u8>> = row.try_get(1).map_err(|e| self.damaged_body(GETTING, e))?;
        Ok(record.got(reference, body.map(Bytes::from)))
    }

    async fn release(
        &self,
        name: &BodyName,
        reference: &BodyReference,
        instead: &[BodyReference],
        told: Duration,
    ) -> Result<(), StoreError> {
        let release = |record: &mut BodyRecord, now| record.release(now, reference, instead, millis_of(told));
        self.change_body(RELEASING, name, release).await.map(drop)
    }

    async fn staged(&self, endpoint: &EndpointName, age: Duration, limit: usize) -> Result<Vec<Staged>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(millis_of(age)).bind(as_i64(limit));
        let rows = self.read_alone(LISTING, &self.0.texts.bodies.staged, arguments).await?;
        let mut staged = Vec::with_capacity(rows.len());
        for row in &rows {
            let name: &str = row.try_get(0).map_err(|e| self.damaged_body(LISTING, e))?;
            let text: &str = row.try_get(1).map_err(|e| self.damaged_body(LISTING, e))?;
            staged.push(staged_of(name, text).map_err(|e| self.damaged_body(LISTING, e))?);
        }
        Ok(staged)
    }

    async fn unstage(&self, name: &BodyName) -> Result<bool, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(name.as_str());
        let rows = self.rare(UNSTAGING, &self.0.texts.bodies.unstage, arguments).await?;
        Ok(self.count_of(UNSTAGING, &rows)? > 0)
    }

    async fn collect(&self, limit: usize) -> Result<usize, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(as_i64(limit));
        let rows = self.rare(COLLECTING, &self.0.texts.bodies.collect, arguments).await?;
        self.count_of(COLLECTING, &rows)
    }
}
