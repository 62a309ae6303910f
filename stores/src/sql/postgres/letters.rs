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
    postgres::{PgArguments, PgRow},
};

use super::{
    super::{
        readable::{hides_others, readable},
        rows::{as_i64, millis},
    },
    Postgres,
    arguments::Bind,
    error::malformed,
};

#[async_trait]
impl DeadLetters for Postgres {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        const OPERATION: &str = "setting a message aside";
        let envelope = record::encode_envelope(&letter.envelope).map_err(|e| {
            StoreError::new(ErrorKind::TooLarge, OPERATION, "its envelope cannot be encoded").caused_by(e)
        })?;
        let mut arguments = PgArguments::default();
        identify(letter, &mut arguments);
        // The server's text holds every character but this one.
        let reason = letter.reason.replace('\0', "\u{fffd}");
        arguments.bind(i64::from(letter.attempts)).bind(millis(letter.time)).bind(reason).bind(envelope);
        self.rare(OPERATION, &self.0.texts.letter_add, arguments).await?;
        self.settle(OPERATION).await // One that was there already was not written, nor waited for.
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        const OPERATION: &str = "listing dead letters";
        let mut skip = page.skip;
        loop {
            let mut arguments = PgArguments::default();
            arguments.bind(endpoint.as_str()).bind(page.message_id.as_ref().map(ToString::to_string));
            arguments.bind(as_i64(page.limit)).bind(as_i64(skip));
            let rows = self.read_alone(OPERATION, &self.0.texts.letter_list, arguments).await?;
            let damaged = || malformed(OPERATION, self.place(), "a dead letter");
            let found = rows.iter().map(|row| letter(endpoint, row).ok_or_else(damaged));
            let letters = readable(found, skip == page.skip);
            if !hides_others(letters.len(), rows.len(), page) {
                return Ok(letters);
            }
            skip = skip.saturating_add(rows.len());
        }
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        const OPERATION: &str = "discarding dead letters";
        let mut discarded = 0;
        for letter in letters {
            let mut arguments = PgArguments::default();
            identify(letter, &mut arguments);
            let rows = self.rare(OPERATION, &self.0.texts.letter_discard, arguments).await?;
            discarded += usize::from(rows.first().and_then(|row| row.try_get(0).ok()) == Some(1_i64));
        }
        self.settle(OPERATION).await?; // One that somebody else has just removed was not written, nor waited for.
        Ok(discarded)
    }
}

/// Which letter it is: endpoint, message id, saga or empty, destination or empty, fingerprint.
fn identify(letter: &DeadLetter, arguments: &mut PgArguments) {
    arguments.bind(letter.endpoint.as_str()).bind(letter.envelope.message_id.to_string());
    arguments.bind(letter.saga.as_ref().map_or("", |saga| saga.as_str()));
    arguments.bind(letter.destination.as_ref().map_or(String::new(), Destination::to_string));
    arguments.bind(&Fingerprint::of(&letter.envelope).as_bytes()[..]);
}

fn letter(endpoint: &EndpointName, row: &PgRow) -> Option<DeadLetter> {
    let saga: &str = row.try_get(0).ok()?;
    let destination: &str = row.try_get(1).ok()?;
    let attempts: i64 = row.try_get(2).ok()?;
    let time: i64 = row.try_get(3).ok()?;
    Some(DeadLetter {
        envelope: Arc::new(record::decode_envelope(row.try_get(5).ok()?).ok()?),
        endpoint: endpoint.clone(),
        saga: if saga.is_empty() { None } else { Some(saga.parse().ok()?) },
        destination: if destination.is_empty() { None } else { Some(Destination::parse(destination).ok()?) },
        attempts: u32::try_from(attempts).ok()?,
        time: Timestamp::from_millis(u64::try_from(time).ok()?),
        reason: row.try_get(4).ok()?,
    })
}
