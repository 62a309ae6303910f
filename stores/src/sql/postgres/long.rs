//! What is remembered of dedup entries that are gone: asking for it, and being asked.

use std::time::Duration;

use async_trait::async_trait;
use hapax_core::{
    ids::{DedupKey, EndpointName},
    ports::{Evicted, Keep, Known, LongMemory, Moment, StoreError},
};
use sqlx::{Row, postgres::PgArguments};

use super::{
    super::{
        long::Asked,
        rows::{malformed, millis_of},
    },
    Postgres,
    arguments::Bind,
    generations,
    migrate::LONG_MEMORY,
    rows::Found,
    statements::long::FOLDED,
};

const EVICTING: &str = "evicting dedup entries";

#[async_trait]
impl LongMemory for Postgres {
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        const OPERATION: &str = "asking what is remembered of dedup entries";
        let mut arguments = PgArguments::default();
        arguments.bind(keys.iter().map(|key| &key.as_bytes()[..]).collect::<Vec<&[u8]>>());
        let rows = self.read_alone(OPERATION, &self.0.texts.recall, arguments).await?;
        if rows.is_empty() {
            return Ok(Known::default());
        }
        let damaged = |e| malformed(OPERATION, self.place(), "a row").caused_by(e);
        let (mut found, mut folded) = (Found::default(), Vec::new());
        for row in &rows {
            if row.try_get::<i64, _>(0).map_err(damaged)? == FOLDED {
                let key = row.try_get::<&[u8], _>(2).map_err(damaged)?;
                folded.extend(keys.iter().filter(|asked| asked.as_bytes() == key).copied());
            } else {
                found.add(0, row, self.place())?;
            }
        }
        self.settle(OPERATION).await?; // It may be acted on without another write.
        Ok(found.known(keys, None).and_folded(folded))
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        const OPERATION: &str = "asking the server for the time";
        let rows = self.read_alone(OPERATION, &self.0.texts.moment, PgArguments::default()).await?;
        let time = rows.first().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get(0));
        time.map(Moment).map_err(|e| malformed(OPERATION, self.place(), "the server's time").caused_by(e))
    }

    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        let asked = Asked::of(keep);
        if !asked.is_nothing() {
            let shown = asked.shown();
            let mut arguments = PgArguments::default();
            arguments.bind(asked.fold).bind(asked.keys).bind(asked.endpoint.as_str());
            arguments.bind(shown.flatten()).bind(shown.is_some()).bind(i64::from(LONG_MEMORY));
            self.rare(EVICTING, &self.0.texts.ask, arguments).await?;
        }
        self.evict_all(keep.retention).await
    }

    async fn withdraw(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        const OPERATION: &str = "withdrawing an endpoint's evidence";
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str());
        self.rare(OPERATION, &self.0.texts.withdraw, arguments).await?;
        Ok(())
    }
}

impl Postgres {
    /// Removes what may go by all that was ever asked for.
    pub(super) async fn evict_all(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let (begin, names, retention) = (self.0.begin.clone(), self.0.names.clone(), millis_of(retention));
        let link = self.0.rare.clone();
        let looked = self.0.runtime.spawn(async move { link.lock().await.look_again().await });
        self.told(EVICTING, looked.await)?;
        let done = self
            .rarely(EVICTING, move |connection| {
                let (begin, names) = (begin.clone(), names.clone());
                Box::pin(async move { generations::evict(connection, &begin, &names, retention).await })
            })
            .await?;
        Ok(Evicted { entries: done.entries, more: done.more })
    }
}
