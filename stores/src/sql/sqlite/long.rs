//! What is remembered of dedup entries that are gone: asking for it, being asked, and putting it by.

use async_trait::async_trait;
use hapax_core::{
    ids::{DedupKey, EndpointName},
    ports::{Evicted, Keep, Known, LongMemory, Moment, StoreError},
};
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::{
        long::{Asked, FOLDED_AT_ONCE, Joined, MOVED_AT_ONCE, Run},
        rows::as_i64,
    },
    Sqlite,
    arguments::Bind,
    error::malformed,
    migrate::LONG_MEMORY,
    rows::{Array, Found, now},
    statements::long,
};

const EVICTING: &str = "evicting dedup entries";

#[async_trait]
impl LongMemory for Sqlite {
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        const OPERATION: &str = "asking what is remembered of dedup entries";
        let mut array = Array::with_room(keys.len(), 8, keys.len() * DedupKey::BYTES);
        for key in keys {
            array.push(&array.blob.len());
            array.blob.extend_from_slice(key.as_bytes());
        }
        let (offsets, blob) = array.close();
        let mut arguments = SqliteArguments::default();
        arguments.bind(offsets).bind(blob);
        let rows = self.read_alone(OPERATION, long::RECALL, arguments).await?;
        let damaged = |e| malformed(OPERATION, self.file(), "a row").caused_by(e);
        let (mut found, mut folded) = (Found::default(), Vec::new());
        for row in &rows {
            match row.try_get::<Option<i64>, _>(0).map_err(damaged)? {
                Some(offset) => {
                    let at = usize::try_from(offset).unwrap_or(usize::MAX) / DedupKey::BYTES;
                    folded.extend(keys.get(at));
                }
                None => drop(found.add(row, self.file())?),
            }
        }
        Ok(found.known(keys, None).and_folded(folded))
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        Ok(Moment(now()))
    }

    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        let asked = Asked::of(keep);
        if !asked.is_nothing() {
            let shown = asked.shown();
            let mut arguments = SqliteArguments::default();
            arguments.bind(asked.fold).bind(asked.keys).bind(asked.endpoint.as_str());
            arguments.bind(shown.flatten()).bind(shown.is_some()).bind(LONG_MEMORY);
            self.write_alone(EVICTING, long::ASK, long::ASK_STATEMENTS, arguments).await?;
        }
        self.evict_all(keep.retention).await
    }

    async fn withdraw(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        const OPERATION: &str = "withdrawing an endpoint's evidence";
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str());
        self.write_alone(OPERATION, long::WITHDRAW, 1, arguments).await.map(drop)
    }
}

impl Sqlite {
    /// Puts by what has to be remembered of generations whose time is over: some of it, in one commit. There is more until it finds
    /// nothing.
    pub(super) async fn put_by(&self, retention: i64) -> Result<Evicted, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(now()).bind(retention);
        let rows = self.read_alone(EVICTING, long::LOOK, arguments).await?;
        let Some(row) = rows.first() else { return Ok(Evicted::default()) };
        let damaged = |e| malformed(EVICTING, self.file(), "what is to be remembered").caused_by(e);
        let token: i64 = row.try_get(0).map_err(damaged)?;
        if row.try_get(3).map_err(damaged)? {
            let mut arguments = SqliteArguments::default();
            arguments.bind(now()).bind(as_i64(MOVED_AT_ONCE));
            self.write_alone(EVICTING, long::FORGET_KEYS, 1, arguments).await?;
        }
        if let Some(generation) = row.try_get::<Option<i64>, _>(1).map_err(damaged)? {
            return self.fold(generation, token).await;
        }
        let Some(generation) = row.try_get::<Option<i64>, _>(2).map_err(damaged)? else {
            return Ok(Evicted::default());
        };
        let mut arguments = SqliteArguments::default();
        arguments.bind(generation).bind(as_i64(MOVED_AT_ONCE));
        let ran = self.write_alone(EVICTING, long::KEEP_KEYS, long::KEEP_KEYS_STATEMENTS, arguments).await?;
        Ok(Evicted { entries: ran.changed.get(2).copied().unwrap_or_default(), more: true })
    }

    /// Folds numbers of a closed generation, of which nothing is written but here. What is read was so when `token` was: else nothing is
    /// written.
    async fn fold(&self, generation: i64, token: i64) -> Result<Evicted, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(generation).bind(as_i64(FOLDED_AT_ONCE));
        let rows = self.read_alone(EVICTING, long::NUMBERS, arguments).await?;
        let damaged = |e| malformed(EVICTING, self.file(), "a dedup key").caused_by(e);
        let keys: Vec<DedupKey> = rows.iter().map(|row| key(row, 0)).collect::<Result<_, _>>().map_err(damaged)?;
        let Some(last) = keys.last().copied() else {
            return Ok(Evicted { entries: 0, more: true }); // Somebody else has folded them.
        };
        let new = Run::all(keys);
        let mut arguments = SqliteArguments::default();
        arguments.bind(hex(new.iter().map(|run| (run.first, run.touches()))));
        let rows = self.read_alone(EVICTING, long::RUNS_AT, arguments).await?;
        let run = |row: &SqliteRow| Ok(Run { first: key(row, 0)?, last: key(row, 1)? });
        let stored: Vec<Run> = rows.iter().map(run).collect::<Result<_, _>>().map_err(damaged)?;
        let Joined { put, gone } = Joined::of(&new, &stored);
        let gone: Vec<String> = gone.iter().map(ToString::to_string).collect();
        let mut arguments = SqliteArguments::default();
        arguments.bind(token).bind(fastrand::i64(..)).bind(serde_json::json!(gone).to_string());
        arguments.bind(hex(put.iter().map(|run| (run.first, run.last)))).bind(generation).bind(&last.as_bytes()[..]);
        let ran = self.write_alone(EVICTING, long::FOLD, long::FOLD_STATEMENTS, arguments).await?;
        Ok(Evicted { entries: ran.changed.get(4).copied().unwrap_or_default(), more: true })
    }
}

fn key(row: &SqliteRow, at: usize) -> Result<DedupKey, sqlx::Error> {
    let bytes: &[u8] = row.try_get(at)?;
    let bytes = bytes.try_into().map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
    Ok(DedupKey::from_bytes(bytes))
}

fn hex(pairs: impl Iterator<Item = (DedupKey, DedupKey)>) -> String {
    let pairs: Vec<[String; 2]> = pairs.map(|(first, last)| [first.to_string(), last.to_string()]).collect();
    serde_json::json!(pairs).to_string()
}
