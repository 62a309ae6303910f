//! Dead letters, those of one endpoint in one partition.

use async_trait::async_trait;
use azure_data_cosmos::{FeedScope, Query};
use hapax_core::{
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page, StoreError},
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    CosmosDb,
    documents::{LetterDocument, id_of},
    error,
    places::letters_of,
    rows::{readable, row_in},
};

const ADDING: &str = "setting a message aside";
const DISCARDING: &str = "discarding messages set aside";
const LISTING: &str = "listing messages set aside";

/// What has to be known of a document to delete it.
#[derive(Deserialize)]
struct Found {
    #[serde(rename = "_etag")]
    etag: String,
}

#[async_trait]
impl DeadLetters for CosmosDb {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let document = LetterDocument::of(letter)?;
        // The same letter has the same id: that it is there is success.
        self.0.everything.create(ADDING, (document.partition(), &document.id), &document, false).await.map(drop)
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        if page.limit == 0 {
            return Ok(Vec::new());
        }
        let wanted = if page.message_id.is_some() { " WHERE c.message = @message" } else { "" };
        let (mut skip, limit) = (page.skip, page.limit);
        loop {
            let text = format!("SELECT * FROM c{wanted} ORDER BY c.sorted OFFSET {skip} LIMIT {limit}");
            let mut query = Query::from(text);
            if let Some(id) = &page.message_id {
                query = query.with_parameter("@message", id.to_string()).map_err(|e| error::malformed(LISTING, e))?;
            }
            let scope = FeedScope::partition(letters_of(endpoint));
            let found: Vec<Value> = self.0.everything.query(LISTING, query, scope, limit).await?;
            let count = found.len();
            let letter = |row| row_in::<LetterDocument>(LISTING, row)?.into_letter(endpoint);
            let letters: Vec<DeadLetter> = match skip == page.skip {
                true => found.into_iter().filter_map(|row| readable(letter(row))).collect(),
                // What is looked at in the place of the page that was asked for is told of when it is asked for itself.
                false => found.into_iter().filter_map(|row| letter(row).ok()).collect(),
            };
            if !letters.is_empty() || count < limit {
                return Ok(letters);
            }
            skip = skip.saturating_add(count);
        }
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut discarded = 0;
        for letter in letters {
            let (partition, id) = (letters_of(&letter.endpoint), id_of(letter));
            // Whoever has replaced it has replaced it by itself.
            while let Some(Found { etag }) = self.0.everything.read(DISCARDING, &partition, &id).await? {
                if self.0.everything.delete(DISCARDING, &partition, &id, &etag).await? {
                    discarded += 1;
                    break;
                }
            }
        }
        Ok(discarded)
    }
}
