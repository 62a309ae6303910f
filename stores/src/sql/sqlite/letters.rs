//! Dead letters.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_core::{
    codec::record,
    envelope::Destination,
    ids::{EndpointName, Fingerprint},
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, StoreError},
    time::Timestamp,
};
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::{
        readable::{hides_others, readable},
        rows::{as_i64, millis},
    },
    Sqlite,
    arguments::Bind,
    error::malformed,
    statements,
};

#[async_trait]
impl DeadLetters for Sqlite {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        const OPERATION: &str = "setting a message aside";
        let envelope = record::encode_envelope(&letter.envelope).map_err(|e| {
            StoreError::new(ErrorKind::TooLarge, OPERATION, "its envelope cannot be encoded").caused_by(e)
        })?;
        let mut arguments = SqliteArguments::default();
        identify(letter, &mut arguments);
        arguments.bind(letter.attempts).bind(millis(letter.time)).bind(letter.reason.as_str()).bind(envelope);
        self.write_alone(OPERATION, statements::LETTER_ADD, 1, arguments).await?;
        Ok(())
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        const OPERATION: &str = "listing dead letters";
        let mut skip = page.skip;
        loop {
            let mut arguments = SqliteArguments::default();
            arguments.bind(endpoint.as_str()).bind(page.message_id.as_ref().map(ToString::to_string));
            arguments.bind(as_i64(page.limit)).bind(as_i64(skip));
            let rows = self.read_alone(OPERATION, statements::LETTER_LIST, arguments).await?;
            let damaged = || malformed(OPERATION, self.file(), "a dead letter");
            let found = rows.iter().map(|row| letter(endpoint, row).ok_or_else(damaged));
            let letters = readable(found, skip == page.skip);
            if !hides_others(letters.len(), rows.len(), page) {
                return Ok(letters);
            }
            skip = skip.saturating_add(rows.len());
        }
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut discarded = 0;
        for letter in letters {
            let mut arguments = SqliteArguments::default();
            identify(letter, &mut arguments);
            let ran = self.write_alone("discarding dead letters", statements::LETTER_DISCARD, 1, arguments).await?;
            discarded += usize::from(ran.changed.first() == Some(&1));
        }
        Ok(discarded)
    }
}

/// Which letter it is: endpoint, message id, saga or empty, destination or empty, fingerprint.
fn identify(letter: &DeadLetter, arguments: &mut SqliteArguments) {
    arguments.bind(letter.endpoint.as_str()).bind(letter.envelope.message_id.to_string());
    arguments.bind(letter.saga.as_ref().map_or("", |saga| saga.as_str()));
    arguments.bind(letter.destination.as_ref().map_or(String::new(), Destination::to_string));
    arguments.bind(&Fingerprint::of(&letter.envelope).as_bytes()[..]);
}

fn letter(endpoint: &EndpointName, row: &SqliteRow) -> Option<DeadLetter> {
    let saga: &str = row.try_get(0).ok()?;
    let destination: &str = row.try_get(1).ok()?;
    let time: i64 = row.try_get(3).ok()?;
    Some(DeadLetter {
        envelope: Arc::new(record::decode_envelope(row.try_get(5).ok()?).ok()?),
        endpoint: endpoint.clone(),
        saga: if saga.is_empty() { None } else { Some(saga.parse().ok()?) },
        destination: if destination.is_empty() { None } else { Some(Destination::parse(destination).ok()?) },
        attempts: row.try_get(2).ok()?,
        time: Timestamp::from_millis(u64::try_from(time).ok()?),
        reason: row.try_get(4).ok()?,
    })
}
