//! What the sweeper and the purge look for.

use std::{sync::Arc, time::Duration};

use azure_data_cosmos::{FeedScope, Query};
use futures_util::{StreamExt, stream};
use hapax_core::{
    ids::{EntityKey, Scope},
    ports::{Pending, PendingEntry, StoreError},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    CosmosDb,
    documents::WaitingRow,
    error,
    places::{order_of, scope_of},
    rows::{readable, row_in},
};

const LISTING: &str = "listing what waits";
const PURGING: &str = "purging tombstones";
/// The service's clock counts in seconds: what is a second apart by it may be next to nothing apart.
const TICK_SECONDS: u64 = 1;
/// Tombstones that are removed at a time.
const SIDE_BY_SIDE: usize = 16;

impl CosmosDb {
    pub(super) async fn list_pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let name = scope_of(scope);
        let from = match after {
            Some(after) if after.scope() > scope => return Ok(Vec::new()),
            Some(after) if after.scope() == scope => order_of(after),
            _ => format!("{name} "), // Of a scope before: all come after it, and none of its own.
        };
        let now = self.0.everything.second(LISTING).await?;
        let (mut from, mut found) = (from, Vec::new());
        // Again where some of a page were left out: to whoever asks, a page that is not full is the last.
        loop {
            let rows = self.waiting_rows(&name, &from, latest(now, older_than), limit - found.len()).await?;
            let is_last = rows.len() < limit - found.len();
            let Some(last) = rows.last().and_then(|row| row["waits"].as_str()) else { break };
            last.clone_into(&mut from);
            found.extend(rows.into_iter().filter_map(|row| readable(pending_in(scope, row, now, older_than))));
            if is_last || found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    /// What waits behind `from`, as it is stored: one that is damaged must not hold up the others.
    async fn waiting_rows(&self, scope: &str, from: &str, latest: i64, limit: usize) -> Result<Vec<Value>, StoreError> {
        // An entry without a second of its own waits since the stamp of its document.
        let query = Query::from(format!(
            "SELECT TOP {limit} c.pk, c.entity, c.waiting, c._ts, c.waits FROM c WHERE c.waits > @from AND c.waits < @to AND \
             (c.oldest <= @latest OR c._ts <= @latest) ORDER BY c.waits"
        ));
        let query = query
            .with_parameter("@from", from)
            .and_then(|query| query.with_parameter("@to", format!("{scope}!"))) // Right behind the space.
            .and_then(|query| query.with_parameter("@latest", latest))
            .map_err(|e| error::malformed(LISTING, e))?;
        self.0.everything.query(LISTING, query, FeedScope::full_container(), limit).await
    }

    pub(super) async fn purge_tombstones(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        limit: usize,
    ) -> Result<usize, StoreError> {
        if limit == 0 {
            return Ok(0);
        }
        let entities = &self.0.everything;
        let now = entities.second(PURGING).await?;
        let query = Query::from(format!(
            "SELECT TOP {limit} c.pk, c.id, c._etag FROM c WHERE c.ended = @scope AND c._ts <= @latest"
        ));
        let query = query
            .with_parameter("@scope", scope_of(scope))
            .and_then(|query| query.with_parameter("@latest", latest(now, older_than)))
            .map_err(|e| error::malformed(PURGING, e))?;
        let found: Vec<Value> = entities.query(PURGING, query, FeedScope::full_container(), limit).await?;
        let found = found.into_iter().filter_map(|row| readable(row_in::<Tombstone>(PURGING, row)));
        let found: Vec<Tombstone> = found.collect();
        // One that has been saved since has another etag, and stays.
        let deletes =
            found.iter().map(|tombstone| entities.delete(PURGING, &tombstone.pk, &tombstone.id, &tombstone.etag));
        let mut deletes = Box::pin(stream::iter(deletes.collect::<Vec<_>>()).buffer_unordered(SIDE_BY_SIDE));
        let mut purged = 0;
        while let Some(deleted) = deletes.next().await {
            purged += usize::from(deleted?);
        }
        Ok(purged)
    }
}

fn pending_in(scope: &Arc<Scope>, row: Value, now: u32, older_than: Duration) -> Result<Pending, StoreError> {
    let row: WaitingRow = row_in(LISTING, row)?;
    let key = row.key(scope);
    let key = key.ok_or_else(|| error::malformed(LISTING, format!("what waits in {} is no key", row.pk)))?;
    let waiting = row.waiting()?;
    let entries = waiting.entries().filter_map(|(attempt, since)| {
        let age = age(now, since, older_than)?;
        Some(PendingEntry { attempt, age })
    });
    Ok(Pending { key, entries: entries.collect() })
}

#[derive(Debug, Deserialize)]
struct Tombstone {
    pk: String,
    id: String,
    #[serde(rename = "_etag")]
    etag: String,
}

/// The last second whose documents are as old as asked for, for sure.
fn latest(now: u32, older_than: Duration) -> i64 {
    let tick = if older_than.is_zero() { 0 } else { TICK_SECONDS };
    let whole = older_than.as_secs().saturating_add(u64::from(older_than.subsec_nanos() > 0)).saturating_add(tick);
    i64::from(now).saturating_sub(i64::try_from(whole).unwrap_or(i64::MAX))
}

/// How long something waits at least, if that is as long as asked for.
fn age(now: u32, since: u32, older_than: Duration) -> Option<Duration> {
    let age = Duration::from_secs(u64::from(now.saturating_sub(since)).saturating_sub(TICK_SECONDS));
    (i64::from(since) <= latest(now, older_than)).then_some(age.max(older_than))
}
