//! Another library's rows as messages.

use std::collections::{HashMap, HashSet};

use futures_util::{Stream, StreamExt as _};
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

/// Bodies of one batch, in bytes, after which it ends: what a process has to spare beside its work.
const BYTES_MAX: usize = 8 << 20;

/// What an import has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Messages that are in the outbox now.
    pub messages: u64,
    /// Rows whose message, by its UUID, was there already.
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
    /// The id's bytes, and the body's, are not those of the text that was read.
    damaged: [bool; 2],
    body: Option<Vec<u8>>,
}

impl Read {
    /// What [`Import::select`] answers with: no more of it than a batch is to hold in memory. What is left out is read again.
    pub(in crate::sql) async fn all<R>(
        mut rows: impl Stream<Item = Result<R, sqlx::Error>> + Unpin,
    ) -> Result<Vec<Self>, sqlx::Error>
    where
        R: sqlx::Row,
        usize: ColumnIndex<R>,
        String: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        Vec<u8>: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        R::Database: Database,
    {
        let (mut all, mut bytes) = (Vec::new(), 0);
        while bytes < BYTES_MAX {
            let Some(row) = rows.next().await else { break };
            let row = Self::of(&row?)?;
            bytes += row.body.as_ref().map_or(0, Vec::len);
            all.push(row);
        }
        Ok(all)
    }

    fn of<R>(row: &R) -> Result<Self, sqlx::Error>
    where
        R: sqlx::Row,
        usize: ColumnIndex<R>,
        String: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        Vec<u8>: for<'r> Decode<'r, R::Database> + Type<R::Database>,
        R::Database: Database,
    {
        let text = |at: usize| row.try_get::<Option<String>, _>(at);
        let is = |at: usize| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(at)?.is_some_and(|number| number != 0));
        let damaged = [is(11)?, is(12)?];
        // What is damaged may be no text at all.
        let id = if damaged[0] { None } else { text(1)? };
        Ok(Self {
            place: if damaged[0] { String::new() } else { text(0)?.unwrap_or_default() },
            id,
            destination: text(2)?,
            key: text(3)?,
            message_type: text(4)?,
            content_type: text(5)?,
            correlation_id: text(6)?,
            times: [row.try_get(7)?, row.try_get(8)?, row.try_get(9)?],
            headers: text(10)?,
            damaged,
            body: row.try_get(13)?,
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
            id: id_of(&id, import.salted()),
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
    /// The messages of the first batch, where rows stay.
    first: HashSet<MessageId>,
}

/// What one transaction brings over.
#[derive(Default)]
pub(in crate::sql) struct Batch {
    /// Of all rows that are over with it.
    pub(in crate::sql) places: Vec<String>,
    pub(in crate::sql) messages: Vec<Outgoing>,
    /// The rows' own ids, of those messages whose ids were made of them.
    made: HashMap<MessageId, Vec<(String, String)>>,
}

impl Importing {
    /// The messages of `rows`. `None`: there is nothing left, or too much of it cannot be a message.
    ///
    /// # Errors
    /// The mapping is wrong: nothing would come of going on.
    pub(in crate::sql) fn batch(
        &mut self,
        rows: Vec<Read>,
        import: &Import,
        writes: &Writes,
        line: Option<&PushLine>,
    ) -> Result<Option<Batch>, EnqueueError> {
        if rows.is_empty() || self.imported.refused.len() >= REFUSED_MAX {
            return Ok(None);
        }
        let mut batch = Batch::default();
        for row in rows {
            if row.damaged[0] {
                return Err(
                    import.wrong("an id is of bytes that are no text: give it as one, as `Source::sql(\"HEX(t.id)\")`")
                );
            }
            if row.damaged[1] {
                return Err(import.wrong("a body is of bytes: say so by `Import::body_is_bytes`"));
            }
            let (place, id) = (row.place.clone(), row.id.clone().unwrap_or_default());
            match row.outgoing(import, writes, line) {
                Ok(_) if batch.places.contains(&place) => {
                    return Err(import.wrong(&format!("the id `{}` is that of several rows", id.escape_debug())));
                }
                Ok(outgoing) => batch.add(place, id, outgoing),
                Err(why) => self.refuse(place, id, why),
            }
        }
        if import.marks() {
            let is_again = |outgoing: &Outgoing| self.first.contains(&outgoing.envelope.message_id);
            if batch.messages.iter().any(is_again) {
                return Err(import.wrong("`Import::unsent` still holds for rows that `Import::mark` has marked"));
            }
            if self.first.is_empty() {
                self.first.extend(batch.messages.iter().map(|outgoing| outgoing.envelope.message_id.clone()));
            }
        }
        Ok(Some(batch))
    }

    fn refuse(&mut self, place: String, id: String, why: String) {
        self.refused.push(place);
        self.imported.refused.push((id, why));
    }

    /// Takes out of `batch` the messages that are `known` in the outbox, and those that come twice. A UUID is of one message for ever: its
    /// row is over. Any other id may have been given to a new row once the old one was over, so that one is left and told of.
    pub(in crate::sql) fn without(&mut self, batch: &mut Batch, known: impl IntoIterator<Item = MessageId>) {
        let known: HashSet<MessageId> = known.into_iter().collect();
        let mut seen = known.clone();
        batch.messages.retain(|outgoing| seen.insert(outgoing.envelope.message_id.clone()));
        for (message, mut rows) in std::mem::take(&mut batch.made) {
            if !known.contains(&message) {
                rows.remove(0);
            }
            for (place, id) in rows {
                let why = format!(
                    "the message id {message} that is made of it is another message's: where ids are given again, import with an \
                     `Import::salt` of its own"
                );
                batch.places.retain(|kept| *kept != place);
                self.refuse(place, id, why);
            }
        }
    }

    /// It is committed.
    pub(in crate::sql) fn count(&mut self, batch: &Batch) {
        self.imported.messages += batch.messages.len() as u64;
        self.imported.known += (batch.places.len() - batch.messages.len()) as u64;
    }
}

impl Batch {
    fn add(&mut self, place: String, id: String, outgoing: Outgoing) {
        if Uuid::parse_str(&id).is_err() {
            let made = self.made.entry(outgoing.envelope.message_id.clone()).or_default();
            made.push((place.clone(), id));
        }
        self.places.push(place);
        self.messages.push(outgoing);
    }

    /// That just the rows that were read are over, of which there were `rows`: before it is committed.
    pub(in crate::sql) fn check(&self, import: &Import, rows: u64) -> Result<(), EnqueueError> {
        let meant = self.places.len();
        if rows == meant as u64 {
            return Ok(());
        }
        Err(import.wrong(&format!(
            "{meant} rows were to be over and {rows} were: an id or a `rowid` stands for several of them, or a trigger or a rule is in the way"
        )))
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
        assert_eq!(
            made.to_string(),
            "1db7c8f0-1217-8e58-bdaf-69c984c4cc73",
            "by every version: its copies are dropped by it"
        );
        assert_eq!((made, made.get_version_num()), (id_of("17", "theirs"), 8));
        assert_ne!(made, id_of("17", "others"));
        let own = "018f0000-0000-7000-8000-000000000001";
        assert_eq!(id_of(own, "theirs").to_string(), own);
    }
}
