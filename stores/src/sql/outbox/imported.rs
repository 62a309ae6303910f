//! Another library's rows as messages.

use std::collections::HashSet;

use hapax_core::{
    envelope::Outgoing,
    ids::{MessageId, TypeName},
    relay::PushLine,
};
use sha2::{Digest, Sha256};
use sqlx::{ColumnIndex, Database, Decode, Type};
use uuid::Uuid;

use super::{EnqueueError, Import, Row, Writes};

/// Rows that cannot become messages, after which an import ends: the mapping is wrong.
const REFUSED_MAX: usize = 1000;

/// What an import has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Messages that are in the outbox now.
    pub messages: u64,
    /// Rows whose message was there already.
    pub known: u64,
    /// Rows that cannot become messages, and are as they were: their ids, and why. After 1,000 of them the import ends.
    pub refused: Vec<(String, String)>,
}

/// A row of the other table.
pub(in crate::sql) struct Read {
    place: String,
    id: Option<String>,
    destination: Option<String>,
    key: Option<String>,
    message_type: Option<String>,
    content_type: Option<String>,
    correlation_id: Option<String>,
    times: [Option<i64>; 3],
    headers: Option<String>,
    body: Option<Vec<u8>>,
}

impl Read {
    /// Of what [`Import::select`] asks for.
    pub(in crate::sql) fn of<R>(row: &R) -> Result<Self, sqlx::Error>
    where
        R: sqlx::Row,
        usize: ColumnIndex<R>,
        String: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        Vec<u8>: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        R::Database: Database,
    {
        let text = |at: usize| row.try_get::<Option<String>, _>(at);
        Ok(Self {
            place: text(0)?.unwrap_or_default(),
            id: text(1)?,
            destination: text(2)?,
            key: text(3)?,
            message_type: text(4)?,
            content_type: text(5)?,
            correlation_id: text(6)?,
            times: [row.try_get(7)?, row.try_get(8)?, row.try_get(9)?],
            headers: text(10)?,
            body: row.try_get(11)?,
        })
    }

    /// As a message, or why it cannot be one.
    fn outgoing(self, import: &Import, writes: &Writes, line: Option<&PushLine>) -> Result<Outgoing, String> {
        let id = self.id.ok_or("it has no id")?;
        let message_type = self.message_type.ok_or("it has no type")?;
        let destination = match self.destination {
            Some(destination) => destination,
            None if import.has_destination() => return Err("it has no destination".to_owned()),
            None => {
                let name = TypeName::parse(message_type.as_str()).map_err(|error| format!("column `type`: {error}"))?;
                writes.routes.of(&name).to_string()
            }
        };
        let [occurred_at, due_at, expires_at] = self.times;
        let row = Row {
            id: id_of(&id, import.salt()),
            destination,
            key: self.key,
            message_type,
            content_type: self.content_type.ok_or("it has no content type")?,
            correlation_id: self.correlation_id,
            occurred_at,
            due_at,
            expires_at,
            headers: self.headers,
            body: self.body.ok_or("it has no body")?.into(),
            ..Row::default()
        };
        let outgoing = row.outgoing()?;
        match writes.row(&outgoing, line) {
            Ok(_) => Ok(outgoing),
            Err(EnqueueError::Refused(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// An import on its way.
#[derive(Default)]
pub(in crate::sql) struct Importing {
    pub(in crate::sql) imported: Imported,
    /// Where the rows are that cannot be messages.
    pub(in crate::sql) refused: Vec<String>,
}

/// What one transaction brings over.
#[derive(Default)]
pub(in crate::sql) struct Batch {
    /// Of all rows that are over with it.
    pub(in crate::sql) places: Vec<String>,
    pub(in crate::sql) messages: Vec<Outgoing>,
}

impl Importing {
    /// The messages of `rows`. `None`: there is nothing left, or too much of it cannot be a message.
    pub(in crate::sql) fn batch(
        &mut self,
        rows: Vec<Read>,
        import: &Import,
        writes: &Writes,
        line: Option<&PushLine>,
    ) -> Option<Batch> {
        if rows.is_empty() || self.imported.refused.len() >= REFUSED_MAX {
            return None;
        }
        let mut batch = Batch::default();
        for row in rows {
            let (place, id) = (row.place.clone(), row.id.clone().unwrap_or_default());
            match row.outgoing(import, writes, line) {
                Ok(outgoing) => {
                    batch.places.push(place);
                    batch.messages.push(outgoing);
                }
                Err(why) => {
                    self.refused.push(place);
                    self.imported.refused.push((id, why));
                }
            }
        }
        Some(batch)
    }

    /// It is committed.
    pub(in crate::sql) fn count(&mut self, batch: &Batch) {
        self.imported.messages += batch.messages.len() as u64;
        self.imported.known += (batch.places.len() - batch.messages.len()) as u64;
    }
}

impl Batch {
    /// Without the messages of `known`, and without what comes twice.
    pub(in crate::sql) fn without(&mut self, known: impl IntoIterator<Item = MessageId>) {
        let mut seen: HashSet<MessageId> = known.into_iter().collect();
        self.messages.retain(|outgoing| seen.insert(outgoing.envelope.message_id.clone()));
    }
}

/// The id itself, or one that is made of it by its name (UUIDv8 of SHA-256: RFC 9562, appendix B.2).
fn id_of(id: &str, salt: &str) -> Uuid {
    Uuid::parse_str(id).unwrap_or_else(|_| {
        let mut bytes = [0; 16];
        for (byte, hashed) in bytes.iter_mut().zip(Sha256::digest(format!("{salt}/{id}"))) {
            *byte = hashed;
        }
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    })
}

#[cfg(test)]
mod tests {
    use super::id_of;

    #[test]
    fn an_id_that_is_no_uuid_is_always_made_into_the_same() {
        let made = id_of("17", "theirs");
        assert_eq!((made, made.get_version_num()), (id_of("17", "theirs"), 8));
        assert_ne!(made, id_of("17", "others"));
        let own = "018f0000-0000-7000-8000-000000000001";
        assert_eq!(id_of(own, "theirs").to_string(), own);
    }
}
