//! Reading items: one, many, and an entity with its chunks. All reads are strongly consistent.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{KeysAndAttributes, ReturnConsumedCapacity};
use futures_util::future::try_join_all;
use hapax_core::{
    entity::Version,
    ids::EntityKey,
    ports::{ErrorKind, StoreError, Stored},
};
use tokio::time::sleep;

use super::{
    DynamoDb,
    call::{Doing, backoff},
    entity::{CHUNK_BYTES_MAX, Read, damaged, into_bytes},
    keys::{BYTES, Item, Place},
};

/// Most keys in one BatchGetItem.
const BATCH_MAX: usize = 100;
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

    /// The entity of `key`, whole.
    pub(super) async fn stored(&self, doing: Doing, key: &EntityKey) -> Result<Option<Stored>, StoreError> {
        let place = Place::entity(key);
        let mut last = None;
        for tries in 1..=LOADS_MAX {
            let Some(item) = self.item(doing, &place).await? else { return Ok(None) };
            let read = Read::of(doing, place.clone(), item)?;
            let (version, places) = (read.version.clone(), read.chunks());
            let mut chunks = if places.is_empty() { HashMap::new() } else { self.chunks(doing, &places).await? };
            if let Some(entity) = read.into_entity(doing, |place| chunks.remove(place))? {
                return Ok(Some(Stored { version: Version::text(version), entity }));
            }
            // Whoever saved it meanwhile has removed them, unless nobody has.
            if last.as_ref() == Some(&version) {
                return Err(damaged(doing, &place));
            }
            last = Some(version);
            sleep(backoff(tries)).await;
        }
        Err(doing.error(ErrorKind::Unavailable, format!("it changed {LOADS_MAX} times while it was read")))
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
