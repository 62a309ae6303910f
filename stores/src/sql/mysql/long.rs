//! What is remembered of dedup entries that are gone: asking for it, and being asked.

use std::time::Duration;

use async_trait::async_trait;
use hapax_core::{
    ids::{DedupKey, EndpointName},
    ports::{Evicted, Keep, Known, LongMemory, Moment, StoreError},
};
use sqlx::mysql::MySqlArguments;

use super::{
    super::{
        long::Asked,
        rows::{malformed, millis_of},
    },
    MySql,
    arguments::{Bind, Text},
    generations,
    migrate::LONG_MEMORY,
    rows::{Columns, Found},
    statements::{
        SETTLE,
        long::{self, FOLDED},
    },
};

const EVICTING: &str = "evicting dedup entries";
/// Keys that are asked for at once: what is prepared takes only so many values.
const RECALLED_AT_ONCE: usize = 200;

#[async_trait]
impl LongMemory for MySql {
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        const OPERATION: &str = "asking what is remembered of dedup entries";
        let (mut found, mut folded) = (Found::default(), Vec::new());
        let damaged = |e| malformed(OPERATION, self.place(), "a row").caused_by(e);
        let mut is_any = false;
        for some in keys.chunks(RECALLED_AT_ONCE) {
            let mut arguments = MySqlArguments::default();
            for key in some.iter().chain(some.iter().flat_map(|key| [key, key])) {
                arguments.bind(&key.as_bytes()[..]);
            }
            let sql = self.0.names.put_into(&long::recall(some.len())).into();
            for row in &self.read_alone(OPERATION, &sql, arguments).await? {
                is_any = true;
                if row.number(0).map_err(damaged)? == FOLDED {
                    let at = usize::try_from(row.number(1).map_err(damaged)?).unwrap_or(usize::MAX);
                    folded.extend(some.get(at));
                } else {
                    found.add(0, row, self.place())?;
                }
            }
        }
        if is_any {
            self.settle(OPERATION).await?; // It may be acted on without another write.
        }
        Ok(found.known(keys, None).and_folded(folded))
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        const OPERATION: &str = "asking the server for the time";
        let rows = self.read_alone(OPERATION, &self.0.texts.moment, MySqlArguments::default()).await?;
        let time = rows.first().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.number(0));
        time.map(Moment).map_err(|e| malformed(OPERATION, self.place(), "the server's time").caused_by(e))
    }

    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        let asked = Asked::of(keep);
        if !asked.is_nothing() {
            let names = self.0.names.clone();
            self.rarely(EVICTING, move |link| {
                let text = ask(&asked, &|sql| names.put_into(sql));
                Box::pin(async move { link.transaction(text).await.map(drop) })
            })
            .await?;
        }
        self.evict_all(keep.retention).await
    }

    async fn withdraw(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        const OPERATION: &str = "withdrawing an endpoint's evidence";
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes());
        self.rare(OPERATION, &self.0.texts.withdraw, arguments).await?;
        self.settle(OPERATION).await // Somebody else may have done it, which is no change of ours.
    }
}

/// The last write changes something also where others have asked for as much, which is kept then.
fn ask(asked: &Asked, named: &dyn Fn(&str) -> String) -> Text {
    let mut text = Text::with_capacity(1000);
    text.sql(&named(long::ASK_FOLD)).number(asked.fold.into()).sql(long::ASK_KEYS).number(asked.keys);
    text.sql(long::ASK_END).end();
    if let Some(until) = asked.shown() {
        text.sql(&named(long::SHOW)).bytes(asked.endpoint.as_str().as_bytes()).sql(", ").number_or_null(until);
        text.sql(long::UNLESS_LATER).end();
    }
    text.sql(&named(long::USABLE_FROM)).number(LONG_MEMORY).sql(long::UNLESS_NEWER).end();
    text.sql(&named(SETTLE)).end();
    text
}

impl MySql {
    /// Removes what may go by all that was ever asked for.
    pub(super) async fn evict_all(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let (names, retention) = (self.0.names.clone(), millis_of(retention));
        let done = self
            .rarely(EVICTING, move |link| {
                let names = names.clone();
                Box::pin(async move { generations::evict(link, &names, retention).await })
            })
            .await?;
        Ok(Evicted { entries: done.entries, more: done.more })
    }
}
