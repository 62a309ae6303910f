//! Messages set aside, with what is known of them.

use std::time::Duration;

use async_trait::async_trait;
use hapax_core::{
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page, StoreError},
};
use hapax_stores::sql::{
    readable::{hides_others, readable},
    sqlite::ride,
};
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::set_aside::{ADDING, Columns, DISCARDING, Identity, Row as Letter},
    SetAside, SqliteQueue,
    arguments::{Bind, as_i64},
    statements,
};

impl SqliteQueue {
    /// The letters of `endpoint` with what the queue knows of them, oldest first, one page at a time. A page lacks letters that cannot be
    /// read; they are warned of. Where nothing of it can be read, it has letters of a later page, and an empty one is the last.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read.
    pub async fn set_aside(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<SetAside>, StoreError> {
        const OPERATION: &str = "listing dead letters";
        let mut skip = page.skip;
        loop {
            let mut arguments = SqliteArguments::default();
            arguments.bind(endpoint.as_str()).bind(page.message_id.as_ref().map(ToString::to_string));
            arguments.bind(as_i64(page.limit)).bind(as_i64(skip));
            let rows = self.0.file.read_text(OPERATION, statements::LETTER_LIST, arguments).await?;
            let damaged = || self.damaged(OPERATION, "a dead letter");
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
        let mut arguments = SqliteArguments::default();
        arguments.bind(ride::before(ride::now(), age)).bind(as_i64(limit));
        let purged = self.0.file.write_text("purging dead letters", statements::LETTER_PURGE, 1, arguments).await?;
        Ok(purged.1.first().copied().unwrap_or_default())
    }
}

#[async_trait]
impl DeadLetters for SqliteQueue {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let columns = Columns::of(letter)?;
        let mut arguments = SqliteArguments::default();
        identify(columns.identity, &mut arguments);
        arguments.bind(columns.attempts).bind(columns.time).bind(letter.reason.as_str()).bind(columns.envelope);
        self.0.file.write_text(ADDING, statements::LETTER_ADD, 1, arguments).await?;
        Ok(())
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(self.set_aside(endpoint, page).await?.into_iter().map(|set_aside| set_aside.letter).collect())
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut discarded = 0;
        for letter in letters {
            let mut arguments = SqliteArguments::default();
            identify(Identity::of(letter), &mut arguments);
            let gone = self.0.file.write_text(DISCARDING, statements::LETTER_DISCARD, 1, arguments).await?;
            discarded += usize::from(gone.1.first() == Some(&1));
        }
        Ok(discarded)
    }
}

fn identify(identity: Identity<'_>, arguments: &mut SqliteArguments) {
    arguments.bind(identity.endpoint).bind(identity.message_id).bind(identity.saga).bind(identity.destination);
    arguments.bind(&identity.fingerprint.as_bytes()[..]);
}

fn set_aside(endpoint: &EndpointName, row: &SqliteRow) -> Option<SetAside> {
    let letter = Letter {
        saga: row.try_get(0).ok()?,
        destination: row.try_get(1).ok()?,
        attempts: row.try_get(2).ok()?,
        time: row.try_get(3).ok()?,
        reason: row.try_get(4).ok()?,
        envelope: row.try_get(5).ok()?,
        sent_at: row.try_get(6).ok()?,
        first_given_at: row.try_get(7).ok()?,
    };
    letter.of(endpoint)
}
