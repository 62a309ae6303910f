//! What has to be looked after: found through the index, which is behind by a moment. A hint, then: whoever acts loads first,
//! or writes under a condition.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    operation::{
        delete_item::{DeleteItemError, DeleteItemOutput},
        query::builders::QueryFluentBuilder,
        transact_write_items::TransactWriteItemsError,
    },
    types::{Delete, ReturnConsumedCapacity, TransactWriteItem},
};
use futures_util::{StreamExt, future::try_join_all, stream::FuturesUnordered};
use hapax_core::{
    ids::{EntityKey, SagaKey, Scope},
    ports::{ErrorKind, Pending, PendingEntry, StoreError},
};

use super::{
    DynamoDb,
    call::{Doing, Failed},
    entity::{in_order, version_of},
    keys::{Care, INDEX, INDEX_PK, INDEX_SK, Item, Place, SHARDS, VERSION, text},
    read::is_answer,
    token::Token,
};

/// Items in one answer of the index: some 30 KB.
const PAGE: usize = 256;
/// Tombstones that are removed at a time: one by one, more would come than go.
const SIDE_BY_SIDE: usize = 16;

impl DynamoDb {
    pub(super) async fn list_pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        let after = match after {
            Some(after) if after.scope() > scope => return Ok(Vec::new()),
            Some(after) if after.scope() == scope => Some(after.key().as_str()),
            _ => None,
        };
        let shards = (0..SHARDS).map(|shard| Shard::new(self.waiting(scope, shard, after), limit));
        let (mut shards, mut found) = (shards.collect::<Vec<_>>(), Vec::new());
        while found.len() < limit {
            let empty = shards.iter_mut().filter(|shard| shard.is_unknown());
            try_join_all(empty.map(|shard| self.read_on(shard, scope, older_than))).await?;
            // The smallest of all, as long as each that may have a smaller one says which it has next.
            while found.len() < limit && !shards.iter().any(Shard::is_unknown) {
                let next = shards.iter_mut().filter(|shard| !shard.rows.is_empty());
                let Some(next) = next.min_by(|a, b| a.first().cmp(&b.first())) else { return Ok(found) };
                found.extend(next.rows.pop_front());
            }
        }
        Ok(found)
    }

    /// What asks one shard for what waits behind `after`.
    fn waiting(&self, scope: &Arc<Scope>, shard: u32, after: Option<&str>) -> QueryFluentBuilder {
        let query = self.index(Care::Pending.shard(scope, shard));
        match after {
            None => query.key_condition_expression("#pk = :pk"),
            Some(after) => query
                .key_condition_expression("#pk = :pk AND #sk > :after")
                .expression_attribute_names("#sk", INDEX_SK)
                .expression_attribute_values(":after", text(after)),
        }
    }

    /// The next page of a shard, perhaps with nothing in it that is old enough.
    async fn read_on(&self, shard: &mut Shard, scope: &Arc<Scope>, older_than: Duration) -> Result<(), StoreError> {
        let doing = Doing::reading("listing pending entities");
        let query = shard.query.clone().limit(to_limit(shard.page));
        let (items, next) = self.page(doing, &query, shard.start.take()).await?;
        let now = self.0.clock.now();
        let rows =
            items.iter().filter_map(|item| self.readable(pending(doing, scope, item, now, older_than)).flatten());
        shard.rows.extend(rows);
        (shard.is_read, shard.start) = (next.is_none(), next);
        shard.page = shard.page.saturating_mul(2);
        Ok(())
    }

    /// Begins anywhere, so that processes that purge at the same time seldom meet.
    pub(super) async fn purge_tombstones(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let doing = Doing::writing("purging tombstones");
        let age = u64::try_from(older_than.as_millis()).unwrap_or(u64::MAX);
        let Some(until) = self.0.clock.now().checked_sub(age) else { return Ok(0) };
        let (mut purged, first) = (0, fastrand::u32(..SHARDS));
        for shard in (0..SHARDS).map(|number| (first + number) % SHARDS) {
            let query = self.index(Care::Over.shard(scope, shard)).limit(to_limit(limit - purged));
            let query = query
                .key_condition_expression("#pk = :pk AND #sk < :until")
                .expression_attribute_names("#sk", INDEX_SK)
                .expression_attribute_values(":until", text(in_order(until.saturating_add(1))));
            let mut start = None;
            loop {
                let (mut items, next) = match self.page(doing, &query, start).await {
                    Ok(page) => page,
                    Err(_) if purged > 0 => return Ok(purged), // The next call meets it again.
                    Err(e) => return Err(e),
                };
                items.truncate(limit - purged);
                let (removed, failed) = self.remove_all(doing, &items).await;
                purged += removed;
                match failed {
                    Some(_) if purged > 0 => return Ok(purged), // It too.
                    Some(e) => return Err(e),
                    None if purged >= limit => return Ok(purged),
                    None => {}
                }
                match next {
                    Some(next) => start = Some(next),
                    None => break,
                }
            }
        }
        Ok(purged)
    }

    /// Removes tombstones side by side, until one cannot be; answers how many, and why no more.
    async fn remove_all(&self, doing: Doing, items: &[Item]) -> (usize, Option<StoreError>) {
        let (mut waiting, mut removals) = (items.iter(), FuturesUnordered::new());
        let (mut removed, mut failed) = (0, None);
        loop {
            if failed.is_none() {
                let room = SIDE_BY_SIDE - removals.len();
                removals.extend(waiting.by_ref().take(room).map(|item| self.remove(doing, item)));
            }
            match removals.next().await {
                Some(Ok(is_gone)) => removed += usize::from(is_gone),
                Some(Err(e)) => failed = failed.or(Some(e)),
                None => return (removed, failed),
            }
        }
    }

    /// Removes a tombstone if it still is the one that was listed; answers whether it has.
    async fn remove(&self, doing: Doing, item: &Item) -> Result<bool, StoreError> {
        let Some((place, version, token)) = self.readable(read(doing, item)) else { return Ok(false) };
        if token.parts.is_empty() {
            let request = self.0.client.delete_item().table_name(&self.0.table).set_key(Some(place.key()));
            let request = request
                .condition_expression("#v = :v")
                .expression_attribute_names("#v", VERSION)
                .expression_attribute_values(":v", text(version))
                .return_consumed_capacity(ReturnConsumedCapacity::Total);
            let whole = |answer: &DeleteItemOutput| answer.consumed_capacity().is_some();
            return match self.0.limits.call_whole(doing, whole, || request.clone().send()).await {
                Ok(answer) => {
                    self.spent(answer.consumed_capacity());
                    Ok(true)
                }
                Err(Failed::Refused(DeleteItemError::ConditionalCheckFailedException(_))) => Ok(false),
                Err(failed) => Err(failed.into_error(doing)),
            };
        }
        let delete = Delete::builder().table_name(&self.0.table).set_key(Some(place.key()));
        let delete = delete
            .condition_expression("#v = :v")
            .expression_attribute_names("#v", VERSION)
            .expression_attribute_values(":v", text(version))
            .build()
            .map_err(|e| doing.error(ErrorKind::Misconfigured, "the request could not be made").caused_by(e))?;
        let mut actions = vec![TransactWriteItem::builder().delete(delete).build()];
        for part in &token.parts {
            for number in 0..part.chunks {
                actions.push(self.deletion(doing, &place.chunk(&part.name(), number))?);
            }
        }
        match self.transaction(doing, actions).await {
            Ok(()) => Ok(true),
            Err(Failed::Refused(TransactWriteItemsError::TransactionCanceledException(_))) => Ok(false),
            Err(failed) => Err(failed.into_error(doing)),
        }
    }

    /// What is not readable is told of and left out: it must not hold up what is.
    fn readable<T>(&self, row: Result<T, StoreError>) -> Option<T> {
        let tell = |error: &StoreError| {
            let table = &self.0.table;
            tracing::warn!(
                table,
                %error,
                "an entity in the index of the upkeep is left out: nothing of it is sent or removed until a person repairs it"
            );
        };
        row.inspect_err(tell).ok()
    }

    /// Asks the index for one of its partitions.
    fn index(&self, partition: String) -> QueryFluentBuilder {
        let query = self.0.client.query().table_name(&self.0.table).index_name(INDEX);
        query.expression_attribute_names("#pk", INDEX_PK).expression_attribute_values(":pk", text(partition))
    }

    /// One page of what `query` asks for, and where the next begins.
    pub(super) async fn page(
        &self,
        doing: Doing,
        query: &QueryFluentBuilder,
        start: Option<Item>,
    ) -> Result<(Vec<Item>, Option<Item>), StoreError> {
        let query =
            query.clone().set_exclusive_start_key(start).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let doing = Doing::reading(doing.operation);
        let answer = self.0.limits.plainly(doing, || query.clone().send()).await?;
        is_answer(doing, answer.consumed_capacity())?;
        self.spent(answer.consumed_capacity());
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key.filter(|key| !key.is_empty())))
    }
}

/// How many items an answer may have.
fn to_limit(wanted: usize) -> i32 {
    i32::try_from(wanted.clamp(1, PAGE)).unwrap_or(1)
}

/// What waits in one shard, read page by page in the order of its keys.
struct Shard {
    query: QueryFluentBuilder,
    start: Option<Item>,
    /// There is no other page.
    is_read: bool,
    /// What was read and not yet asked for.
    rows: VecDeque<Pending>,
    /// Items in the next page: at first its share of what is wanted and a quarter more, for shards are not quite even; then
    /// twice as many each time, for most may be too young.
    page: usize,
}

impl Shard {
    fn new(query: QueryFluentBuilder, wanted: usize) -> Self {
        let page = wanted.div_ceil(SHARDS as usize).saturating_mul(5).div_ceil(4);
        Self { query, start: None, is_read: false, rows: VecDeque::new(), page }
    }

    /// Whether what it has next is not known yet.
    fn is_unknown(&self) -> bool {
        self.rows.is_empty() && !self.is_read
    }

    fn first(&self) -> Option<&EntityKey> {
        self.rows.front().map(|pending| &pending.key)
    }
}

pub(super) fn pending(
    doing: Doing,
    scope: &Arc<Scope>,
    item: &Item,
    now: u64,
    older_than: Duration,
) -> Result<Option<Pending>, StoreError> {
    let (place, _, token) = read(doing, item)?;
    let key = item.get(INDEX_SK).and_then(|key| key.as_s().ok()).and_then(|key| SagaKey::parse(key.as_str()).ok());
    let key = key.ok_or_else(|| super::entity::damaged(doing, &place))?;
    let entries = token.waiting.iter().map(|(attempt, since)| PendingEntry {
        attempt: *attempt,
        age: Duration::from_millis(now.saturating_sub(*since)),
    });
    let entries: Vec<_> = entries.filter(|entry| entry.age >= older_than).collect();
    Ok((!entries.is_empty()).then(|| Pending { key: EntityKey::new(scope.clone(), key), entries }))
}

fn read(doing: Doing, item: &Item) -> Result<(Place, String, Token), StoreError> {
    let place = Place::of(item).unwrap_or_else(Place::meta);
    let version = version_of(item);
    let token = version.as_deref().and_then(Token::parse);
    match (version, token) {
        (Some(version), Some(token)) => Ok((place, version, token)),
        _ => Err(super::entity::damaged(doing, &place)),
    }
}
