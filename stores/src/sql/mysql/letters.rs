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
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    super::{
        readable::{hides_others, readable},
        rows::{as_i64, millis},
    },
    MySql,
    arguments::Bind,
    error::malformed,
    rows,
};

#[async_trait]
impl DeadLetters for MySql {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        const OPERATION: &str = "setting a message aside";
        let envelope = record::encode_envelope(&letter.envelope).map_err(|e| {
            StoreError::new(ErrorKind::TooLarge, OPERATION, "its envelope cannot be encoded").caused_by(e)
        })?;
        let mut arguments = MySqlArguments::default();
        identify(letter, &mut arguments);
        arguments.bind(i64::from(letter.attempts)).bind(millis(letter.time)).bind(&*letter.reason).bind(envelope);
        self.rare(OPERATION, &self.0.texts.letter_add, arguments).await?;
        self.settle(OPERATION).await // It may have been there already, which is no change of ours.
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        const OPERATION: &str = "listing dead letters";
        let mut skip = page.skip;
        loop {
            let mut arguments = MySqlArguments::default();
            let message = page.message_id.as_ref().map(|id| id.to_string().into_bytes());
            arguments.bind(endpoint.as_str().as_bytes()).bind(message.as_deref()).bind(message.as_deref());
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
            let mut arguments = MySqlArguments::default();
            identify(letter, &mut arguments);
            let text = self.0.texts.letter_discard.clone();
            let gone = self.rarely(OPERATION, move |link| {
                let (text, arguments) = (text.clone(), arguments.clone());
                Box::pin(async move { Ok(link.write(&text, arguments).await?.affected) })
            });
            discarded += usize::from(gone.await? == 1);
        }
        self.settle(OPERATION).await?; // Somebody else may have removed one, which is no change of ours.
        Ok(discarded)
    }
}

/// Which letter it is: endpoint, message id, saga or empty, destination or empty, fingerprint.
fn identify(letter: &DeadLetter, arguments: &mut MySqlArguments) {
    arguments.bind(letter.endpoint.as_str().as_bytes()).bind(letter.envelope.message_id.to_string().into_bytes());
    arguments.bind(letter.saga.as_ref().map_or(&b""[..], |saga| saga.as_str().as_bytes()));
    arguments.bind(letter.destination.as_ref().map_or(String::new(), Destination::to_string).into_bytes());
    arguments.bind(&Fingerprint::of(&letter.envelope).as_bytes()[..]);
}

fn letter(endpoint: &EndpointName, row: &MySqlRow) -> Option<DeadLetter> {
    let saga = rows::text(row, 0).ok()?;
    let destination = rows::text(row, 1).ok()?;
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
