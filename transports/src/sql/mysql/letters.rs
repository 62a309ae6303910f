//! Messages set aside, with what is known of them.

use std::time::Duration;

use async_trait::async_trait;
use hapax_core::{
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page, StoreError},
};
use hapax_stores::sql::readable::{hides_others, readable};
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    super::{
        millis,
        set_aside::{ADDING, Columns, DISCARDING, Identity, Row as Letter},
    },
    MySqlQueue, SetAside,
    arguments::{Bind, as_i64},
};

impl MySqlQueue {
    /// The letters of `endpoint` with what the queue knows of them, oldest first, one page at a time. A page lacks letters that cannot be
    /// read; they are warned of. Where nothing of it can be read, it has letters of a later page, and an empty one is the last.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn set_aside(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<SetAside>, StoreError> {
        const OPERATION: &str = "listing dead letters";
        let mut skip = page.skip;
        loop {
            let mut arguments = MySqlArguments::default();
            let message_id = page.message_id.as_ref().map(|id| id.to_string().into_bytes());
            arguments.bind(endpoint.as_str().as_bytes()).bind(message_id.clone()).bind(message_id);
            arguments.bind(as_i64(page.limit)).bind(as_i64(skip));
            let rows = self.read(OPERATION, &self.0.texts.letter_list, arguments).await?;
            let damaged = || self.0.hub.damaged(OPERATION, "a dead letter");
            let found = rows.iter().map(|row| set_aside(endpoint, row).ok_or_else(damaged));
            let letters = readable(found, skip == page.skip);
            if !hides_others(letters.len(), rows.len(), page) {
                return Ok(letters);
            }
            skip = skip.saturating_add(rows.len());
        }
    }

    /// Removes up to `limit` dead letters that were set aside longer ago than `age`, oldest first. Tells how many; call
    /// again until they are fewer than `limit`.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn purge(&self, age: Duration, limit: usize) -> Result<u64, StoreError> {
        const OPERATION: &str = "purging dead letters";
        let mut arguments = MySqlArguments::default();
        arguments.bind(millis(age)).bind(as_i64(limit));
        self.rare(OPERATION, &self.0.texts.letter_purge, arguments).await
    }
}

#[async_trait]
impl DeadLetters for MySqlQueue {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let columns = Columns::of(letter)?;
        let mut arguments = MySqlArguments::default();
        identify(columns.identity, &mut arguments);
        arguments.bind(columns.attempts).bind(columns.time);
        arguments.bind(letter.reason.as_str()).bind(columns.envelope);
        self.rare(ADDING, &self.0.texts.letter_add, arguments).await?;
        // It may have been there already, shown and not yet on the disk, and the commit of no change waits for none.
        self.transaction(ADDING, Vec::new()).await.map(drop)
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(self.set_aside(endpoint, page).await?.into_iter().map(|set_aside| set_aside.letter).collect())
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut discarded = 0;
        for letter in letters {
            let mut arguments = MySqlArguments::default();
            identify(Identity::of(letter), &mut arguments);
            let gone = self.rare(DISCARDING, &self.0.texts.letter_discard, arguments).await?;
            discarded += usize::from(gone == 1);
        }
        // Somebody else may have removed one, shown and not yet on the disk.
        self.transaction(DISCARDING, Vec::new()).await?;
        Ok(discarded)
    }
}

fn identify(identity: Identity<'_>, arguments: &mut MySqlArguments) {
    arguments.bind(identity.endpoint.as_bytes()).bind(identity.message_id.into_bytes());
    arguments.bind(identity.saga.as_bytes()).bind(identity.destination.into_bytes());
    arguments.bind(&identity.fingerprint.as_bytes()[..]);
}

fn set_aside(endpoint: &EndpointName, row: &MySqlRow) -> Option<SetAside> {
    let letter = Letter {
        saga: std::str::from_utf8(row.try_get(0).ok()?).ok()?,
        destination: std::str::from_utf8(row.try_get(1).ok()?).ok()?,
        attempts: row.try_get(2).ok()?,
        time: row.try_get(3).ok()?,
        reason: row.try_get(4).ok()?,
        envelope: row.try_get(5).ok()?,
        sent_at: row.try_get(6).ok()?,
        first_given_at: row.try_get(7).ok()?,
    };
    letter.of(endpoint)
}
