//! Reading items: one, many, and an entity with its chunks. All reads are strongly consistent; those of dedup entries do not
//! overtake a transaction either.

use std::collections::{HashMap, HashSet};

use aws_sdk_dynamodb::types::{ConsumedCapacity, Get, KeysAndAttributes, ReturnConsumedCapacity, TransactGetItem};
use futures_util::future::{BoxFuture, FutureExt, try_join_all};
use hapax_core::{
    entity::Version,
    ids::EntityKey,
    ports::{ErrorKind, StoreError, Stored},
};
use tokio::time::sleep;

use super::{
    DynamoDb,
    call::{Doing, Failed, backoff},
    entity::{CHUNK_BYTES_MAX, Read, damaged, into_bytes},
    keys::{BYTES, Item, Place},
};

/// Most keys in one BatchGetItem.
const BATCH_MAX: usize = 100;
/// So many items of any size are within the 4 MB of one TransactGetItems.
const ALWAYS_FIT: usize = 9;
/// How often the service may answer only a part before it is an error. It answers up to 16 MB at a time.
const PARTS_MAX: u32 = 8;
/// How often an entity is read again because its chunks were replaced meanwhile.
const LOADS_MAX: u32 = 5;

impl DynamoDb {
    pub(super) async fn item(&self, doing: Doing, place: &Place) -> Result<Option<Item>, StoreError> {
        self.get(doing, place, None).await
    }

    /// Only the attribute `only`, if one is given.
    pub(super) async fn get(
        &self,
        doing: Doing,
        place: &Place,
        only: Option<&str>,
    ) -> Result<Option<Item>, StoreError> {
        let mut request = self.0.client.get_item().table_name(&self.0.table).set_key(Some(place.key()));
        if let Some(only) = only {
            request = request.projection_expression("#only").expression_attribute_names("#only", only);
        }
        let request = request.consistent_read(true).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let answer = self.0.limits.plainly(doing, || request.clone().send()).await?;
        is_answer(doing, answer.consumed_capacity())?;
        self.spent(answer.consumed_capacity());
        Ok(answer.item)
    }

    /// Those of the items at `places` that are there. All or an error.
    pub(super) async fn items(&self, doing: Doing, places: &[Place]) -> Result<Vec<Item>, StoreError> {
        if let [place] = places {
            return Ok(self.item(doing, place).await?.into_iter().collect());
        }
        let batches = places.chunks(BATCH_MAX).map(|places| self.batch(doing, places));
        Ok(try_join_all(batches).await?.into_iter().flatten().collect())
    }

    async fn batch(&self, doing: Doing, places: &[Place]) -> Result<Vec<Item>, StoreError> {
        let mut wanted: Vec<Item> = places.iter().map(Place::key).collect();
        let mut found = Vec::new();
        for tries in 1..=PARTS_MAX {
            let keys = KeysAndAttributes::builder().set_keys(Some(wanted)).consistent_read(true).build();
            let keys =
                keys.map_err(|e| doing.error(ErrorKind::Misconfigured, "the request could not be made").caused_by(e))?;
            let request = self.0.client.batch_get_item().request_items(&self.0.table, keys);
            let request = request.return_consumed_capacity(ReturnConsumedCapacity::Total);
            let answer = self.0.limits.plainly(doing, || request.clone().send()).await?;
            is_answer(doing, answer.consumed_capacity())?;
            self.spent(answer.consumed_capacity());
            let mut answered = answer.responses.unwrap_or_default();
            found.extend(answered.remove(&self.0.table).unwrap_or_default());
            wanted = answer.unprocessed_keys.unwrap_or_default().into_values().flat_map(|left| left.keys).collect();
            if wanted.is_empty() {
                return Ok(found);
            }
            sleep(backoff(tries)).await;
        }
        // What was not answered may be there: never "not seen".
        let why = format!("{} of {} items were not answered in {PARTS_MAX} tries", wanted.len(), places.len());
        Err(doing.error(ErrorKind::Unavailable, why))
    }

    /// The same, but none of them as it was before a transaction that anybody has seen done elsewhere. A plain read is either before
    /// or after each transaction, consistent or not, and of a transaction over two items one may be read after it and then the
    /// other before it. This one is refused, and asked again, while a transaction holds an item.
    pub(super) async fn items_at_rest(&self, doing: Doing, places: &[Place]) -> Result<Vec<Item>, StoreError> {
        let batches = places.chunks(BATCH_MAX).map(|places| self.at_rest(doing, places));
        Ok(try_join_all(batches).await?.into_iter().flatten().collect())
    }

    fn at_rest<'a>(&'a self, doing: Doing, places: &'a [Place]) -> BoxFuture<'a, Result<Vec<Item>, StoreError>> {
        async move {
            let gets = places.iter().map(|place| self.get_at_rest(doing, place)).collect::<Result<Vec<_>, _>>()?;
            let request = self.0.client.transact_get_items().set_transact_items(Some(gets));
            let request = request.return_consumed_capacity(ReturnConsumedCapacity::Total);
            match self.0.limits.call(doing, || request.clone().send()).await {
                Ok(answer) => {
                    self.spent(answer.consumed_capacity());
                    let answers = answer.responses.unwrap_or_default();
                    if answers.len() != places.len() {
                        let why = format!("{} of {} items were answered", answers.len(), places.len());
                        return Err(doing.error(ErrorKind::Unavailable, why));
                    }
                    Ok(answers.into_iter().filter_map(|answer| answer.item).filter(|item| !item.is_empty()).collect())
                }
                // Together they may be too many bytes for one answer, by whatever name that is told.
                Err(Failed::Refused(_)) if places.len() > ALWAYS_FIT => {
                    let (some, others) = places.split_at(places.len() / 2);
                    let mut found = self.at_rest(doing, some).await?;
                    found.extend(self.at_rest(doing, others).await?);
                    Ok(found)
                }
                Err(failed) => Err(failed.into_error(doing)),
            }
        }
        .boxed()
    }

    fn get_at_rest(&self, doing: Doing, place: &Place) -> Result<TransactGetItem, StoreError> {
        let get = Get::builder().table_name(&self.0.table).set_key(Some(place.key())).build();
        let get =
            get.map_err(|e| doing.error(ErrorKind::Misconfigured, "the request could not be made").caused_by(e))?;
        Ok(TransactGetItem::builder().get(get).build())
    }

    /// The entity of `key`, whole.
    pub(super) async fn stored(&self, doing: Doing, key: &EntityKey) -> Result<Option<Stored>, StoreError> {
        let place = Place::entity(key);
        let mut versions = HashSet::new();
        for tries in 1..=LOADS_MAX {
            let Some(item) = self.item(doing, &place).await? else { return Ok(None) };
            let read = Read::of(doing, place.clone(), item)?;
            let (version, places) = (read.version.clone(), read.chunks());
            let mut chunks = if places.is_empty() { HashMap::new() } else { self.chunks(doing, &places).await? };
            if let Some(entity) = read.into_entity(doing, |place| chunks.remove(place))? {
                return Ok(Some(Stored { version: Version::text(version), entity }));
            }
            versions.insert(version);
            sleep(backoff(tries)).await;
        }
        // Whoever saved it meanwhile has removed them, or they are not to be seen yet, unless nobody has saved.
        if versions.len() == 1 {
            return Err(damaged(doing, &place));
        }
        Err(doing.error(ErrorKind::Unavailable, format!("it changed again and again in {LOADS_MAX} reads")))
    }

    pub(super) async fn chunks(&self, doing: Doing, places: &[Place]) -> Result<HashMap<Place, Vec<u8>>, StoreError> {
        let doing = doing.of_bytes(places.len() * CHUNK_BYTES_MAX);
        let found = self.items(doing, places).await?.into_iter().filter_map(|mut item| {
            let place = Place::of(&item)?;
            Some((place, into_bytes(item.remove(BYTES)?).ok()?))
        });
        Ok(found.collect())
    }
}

/// That it is an answer: the client library reads an empty body as one that found nothing, which would say "not seen" of what is
/// over. Each answer tells what it cost, as it was asked to.
pub(super) fn is_answer<'a>(
    doing: Doing,
    cost: impl IntoIterator<Item = &'a ConsumedCapacity>,
) -> Result<(), StoreError> {
    match cost.into_iter().next() {
        Some(_) => Ok(()),
        None => Err(doing.error(ErrorKind::Unavailable, "the answer does not tell what it cost, so it is not whole")),
    }
}
