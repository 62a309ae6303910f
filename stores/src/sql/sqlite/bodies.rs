//! Bodies that are too large to travel. SQLite runs on this host, so the clock is this one.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    ids::EndpointName,
    ports::{Bodies, BodyCapabilities, BodyName, BodyRecord, BodyReference, Got, NewBody, Staged, StoreError},
};
use sqlx::{Row, sqlite::SqliteArguments};

use super::{
    super::{
        bodies::{
            BODY_BYTES_MAX, COLLECTING, GETTING, KEEPING, LISTING, PUTTING, RELEASING, TRIES_MAX, UNSTAGING,
            check_size, overtaken, staged_of,
        },
        rows::{as_i64, millis_of},
    },
    Sqlite,
    arguments::Bind,
    error::malformed,
    rows::now,
    statements::bodies::{CHANGE, COLLECT, GET, PUT, RECORD, STAGED, UNSTAGE},
};

impl Sqlite {
    fn damaged_body(
        &self,
        operation: &'static str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> StoreError {
        malformed(operation, self.file(), "a row of the bodies").caused_by(error)
    }

    /// Changes the record of a body by compare-and-set. Answers whether there is one.
    async fn change_body(
        &self,
        operation: &'static str,
        name: &BodyName,
        change: impl Fn(&mut BodyRecord, i64) -> bool + Send,
    ) -> Result<bool, StoreError> {
        for _ in 0..TRIES_MAX {
            let mut arguments = SqliteArguments::default();
            arguments.bind(name.as_str());
            let rows = self.read_alone(operation, RECORD, arguments).await?;
            let Some(row) = rows.first() else { return Ok(false) };
            let revision: i64 = row.try_get(0).map_err(|e| self.damaged_body(operation, e))?;
            let text: &str = row.try_get(1).map_err(|e| self.damaged_body(operation, e))?;
            let mut record = BodyRecord::decode(text).map_err(|e| self.damaged_body(operation, e))?;
            let now = now();
            if !change(&mut record, now) {
                return Ok(true);
            }
            let mut arguments = SqliteArguments::default();
            arguments.bind(name.as_str()).bind(revision).bind(record.over_at());
            arguments.bind(record.encode()).bind(record.needs_body(now));
            let ran = self.write_alone(operation, CHANGE, 1, arguments).await?;
            if ran.changed.first() == Some(&1) {
                return Ok(true);
            }
        }
        Err(overtaken(operation, self.file()))
    }
}

#[async_trait]
impl Bodies for Sqlite {
    fn body_capabilities(&self) -> BodyCapabilities {
        BodyCapabilities { name: "sqlite", body_bytes_max: BODY_BYTES_MAX, durable: true }
    }

    async fn put(&self, body: &NewBody) -> Result<(), StoreError> {
        check_size(body)?;
        let mut arguments = SqliteArguments::default();
        arguments.bind(body.staged.name.as_str()).bind(body.staged.entity.scope().endpoint.as_str()).bind(now());
        arguments.bind(BodyRecord::new(body).encode()).bind(body.bytes.to_vec());
        self.write_alone(PUTTING, PUT, 1, arguments).await.map(drop)
    }

    async fn keep(&self, name: &BodyName, for_all: Duration) -> Result<bool, StoreError> {
        self.change_body(KEEPING, name, |record, now| record.keep(now, millis_of(for_all))).await
    }

    async fn get(&self, name: &BodyName, reference: Option<&BodyReference>) -> Result<Got, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(name.as_str());
        let rows = self.read_alone(GETTING, GET, arguments).await?;
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
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(now().saturating_sub(millis_of(age))).bind(as_i64(limit));
        let rows = self.read_alone(LISTING, STAGED, arguments).await?;
        let mut staged = Vec::with_capacity(rows.len());
        for row in &rows {
            let name: &str = row.try_get(0).map_err(|e| self.damaged_body(LISTING, e))?;
            let text: &str = row.try_get(1).map_err(|e| self.damaged_body(LISTING, e))?;
            staged.push(staged_of(name, text).map_err(|e| self.damaged_body(LISTING, e))?);
        }
        Ok(staged)
    }

    async fn unstage(&self, name: &BodyName) -> Result<bool, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(name.as_str());
        let ran = self.write_alone(UNSTAGING, UNSTAGE, 1, arguments).await?;
        Ok(ran.changed.first() == Some(&1))
    }

    async fn collect(&self, limit: usize) -> Result<usize, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(now()).bind(as_i64(limit));
        let ran = self.write_alone(COLLECTING, COLLECT, 1, arguments).await?;
        Ok(ran.changed.first().map_or(0, |gone| usize::try_from(*gone).unwrap_or(usize::MAX)))
    }
}
