//! Rows of the outbox in the server's log, as its output plugin `pgoutput` writes them, with binary values (protocol version 1:
//! the server's manual, chapter 55.9).

use std::collections::HashMap;

use bytes::{Buf, Bytes};
use uuid::Uuid;

use super::super::super::super::outbox::Row;

/// A row that was stored for whoever reads the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoggedRow {
    pub(super) row: Row,
    pub(super) token: i64,
    /// When its lease is over, by the server's clock.
    pub(super) until: i64,
}

/// What the log has said of tables so far.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The names of columns, in their order, by table: beside one that has time partitions the server describes each of these, once,
    /// though it tells of rows as of the one.
    tables: HashMap<u32, Vec<String>>,
}

impl Decoder {
    /// A row that was stored for whoever reads the log; `None` for everything else that the log has to say.
    ///
    /// # Errors
    /// What is not as the server's manual says.
    pub(super) fn read(&mut self, data: Bytes) -> Result<Option<LoggedRow>, String> {
        let mut data = Rest(data);
        match data.byte()? {
            b'R' => self.relation(data).map(|()| None),
            b'I' => self.insert(data),
            _ => Ok(None),
        }
    }

    fn relation(&mut self, mut data: Rest) -> Result<(), String> {
        let table = data.u32()?;
        let (_schema, _table) = (data.text()?, data.text()?);
        data.byte()?; // How old rows are told.
        let columns = (0..data.u16()?).map(|_| {
            data.byte()?; // Whether it is part of a key.
            let name = data.text()?;
            let (_type, _modifier) = (data.u32()?, data.u32()?);
            Ok(name)
        });
        let columns = columns.collect::<Result<_, String>>()?;
        self.tables.insert(table, columns);
        Ok(())
    }

    fn insert(&self, mut data: Rest) -> Result<Option<LoggedRow>, String> {
        let table = data.u32()?;
        let described = self.tables.get(&table);
        let columns =
            described.ok_or_else(|| format!("a row of the table {table}, which the log has not described"))?;
        data.byte()?; // `N`: the new row.
        let mut stored = LoggedRow { row: Row::default(), token: 0, until: 0 };
        let (mut owner, mut status) = (None, None);
        for at in 0..usize::from(data.u16()?) {
            let name = columns.get(at).ok_or("more values than columns")?;
            let Some(value) = data.value()? else { continue };
            let row = &mut stored.row;
            match name.as_str() {
                "id" => row.id = Uuid::from_slice(&value).map_err(|e| format!("column `id`: {e}"))?,
                "status" => status = Some(value),
                "token" => stored.token = number(&value, name)?,
                "owner" => owner = Some(number(&value, name)?),
                "ready_at" => stored.until = number(&value, name)?,
                "destination" => row.destination = text(&value, name)?,
                "key" => row.key = Some(text(&value, name)?),
                "type" => row.message_type = text(&value, name)?,
                "content_type" => row.content_type = text(&value, name)?,
                "correlation_id" => row.correlation_id = Some(text(&value, name)?),
                "causation_id" => row.causation_id = Some(text(&value, name)?),
                "tenant" => row.tenant = Some(text(&value, name)?),
                "traceparent" => row.traceparent = Some(text(&value, name)?),
                "occurred_at" => row.occurred_at = Some(number(&value, name)?),
                "due_at" => row.due_at = Some(number(&value, name)?),
                "expires_at" => row.expires_at = Some(number(&value, name)?),
                "headers" => row.headers = Some(text(&value, name)?),
                "body" => row.body = value,
                _ => {} // Of another version, or of no account here.
            }
        }
        let waits = status.is_some_and(|status| status.iter().all(|byte| *byte == 0));
        Ok((waits && stored.token != 0 && owner.is_none()).then_some(stored))
    }
}

fn number(value: &[u8], name: &str) -> Result<i64, String> {
    value.try_into().map(i64::from_be_bytes).map_err(|_| format!("column `{name}` has {} bytes, not 8", value.len()))
}

fn text(value: &[u8], name: &str) -> Result<String, String> {
    String::from_utf8(value.to_vec()).map_err(|e| format!("column `{name}`: {e}"))
}

/// What is left of a message.
struct Rest(Bytes);

impl Rest {
    fn take(&mut self, count: usize) -> Result<Bytes, String> {
        if self.0.remaining() < count {
            return Err(format!("it ends {} bytes too soon", count - self.0.remaining()));
        }
        Ok(self.0.split_to(count))
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.take(1).map(|mut bytes| bytes.get_u8())
    }

    fn u16(&mut self) -> Result<u16, String> {
        self.take(2).map(|mut bytes| bytes.get_u16())
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.take(4).map(|mut bytes| bytes.get_u32())
    }

    /// Ends with a zero byte.
    fn text(&mut self) -> Result<String, String> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or("a text without an end")?;
        let text = self.take(end + 1)?;
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// `None`: null, or unchanged.
    fn value(&mut self) -> Result<Option<Bytes>, String> {
        match self.byte()? {
            b'n' | b'u' => Ok(None),
            b'b' => {
                let length = self.u32()?;
                self.take(usize::try_from(length).unwrap_or(usize::MAX)).map(Some)
            }
            other => Err(format!("a value of the kind `{}`", char::from(other).escape_default())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::{BufMut, Bytes, BytesMut};
    use uuid::Uuid;

    use super::{Decoder, LoggedRow};

    fn relation(columns: &[&str]) -> Bytes {
        let mut data = BytesMut::new();
        data.put_u8(b'R');
        data.put_u32(7);
        data.put_slice(b"hapax\0outbox\0d");
        data.put_u16(columns.len() as u16);
        for column in columns {
            data.put_u8(0);
            data.put_slice(column.as_bytes());
            data.put_u8(0);
            data.put_u64(0);
        }
        data.freeze()
    }

    fn insert(values: &[Option<&[u8]>]) -> Bytes {
        let mut data = BytesMut::new();
        data.put_u8(b'I');
        data.put_u32(7);
        data.put_u8(b'N');
        data.put_u16(values.len() as u16);
        for value in values {
            match value {
                None => data.put_u8(b'n'),
                Some(value) => {
                    data.put_u8(b'b');
                    data.put_u32(value.len() as u32);
                    data.put_slice(value);
                }
            }
        }
        data.freeze()
    }

    const COLUMNS: [&str; 7] = ["id", "status", "token", "owner", "ready_at", "destination", "body"];

    fn row<'v>(status: &'v [u8], token: &'v [u8], owner: Option<&'v [u8]>) -> Bytes {
        const ID: &[u8] = &[7; 16];
        const AT: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 9];
        insert(&[Some(ID), Some(status), Some(token), owner, Some(AT), Some(b"topic:t"), Some(b"{}")])
    }

    #[test]
    fn a_row_for_the_log_is_read_by_the_names_of_its_columns() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.read(relation(&COLUMNS)), Ok(None));
        let LoggedRow { row: read, token, until } =
            decoder.read(row(&[0, 0], &5_i64.to_be_bytes(), None)).unwrap().unwrap();
        assert_eq!((read.id, token, until), (Uuid::from_bytes([7; 16]), 5, 9));
        assert_eq!((read.destination.as_str(), &*read.body, read.key), ("topic:t", &b"{}"[..], None));
    }

    #[test]
    fn rows_of_others_are_left_to_them() {
        let mut decoder = Decoder::default();
        decoder.read(relation(&COLUMNS)).unwrap();
        let token = 5_i64.to_be_bytes();
        assert_eq!(decoder.read(row(&[0, 1], &token, None)), Ok(None), "sent already");
        assert_eq!(decoder.read(row(&[0, 0], &[0; 8], None)), Ok(None), "to be claimed");
        assert_eq!(decoder.read(row(&[0, 0], &token, Some(&token))), Ok(None), "of a relay beside its writer");
        assert_eq!(decoder.read(Bytes::from_static(b"D whatever")), Ok(None), "no row that was stored");
    }

    #[test]
    fn what_is_cut_off_is_an_error_and_no_panic() {
        let (described, whole) = (relation(&COLUMNS), row(&[0, 0], &5_i64.to_be_bytes(), None));
        for end in 0..described.len() {
            assert!(Decoder::default().read(described.slice(..end)).is_err(), "{end}");
        }
        let mut decoder = Decoder::default();
        assert!(decoder.read(whole.clone()).is_err(), "a table that was not described");
        decoder.read(described).unwrap();
        for end in 0..whole.len() {
            assert!(decoder.read(whole.slice(..end)).is_err(), "{end}");
        }
    }
}
