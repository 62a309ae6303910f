//! Texts with their values in them, and several statements that are sent at once.

use std::fmt::Write;

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Either, Executor, MySqlConnection, mysql::MySqlRow};

use crate::AnyError;

/// What the server answers to one statement.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) rows: Vec<MySqlRow>,
    /// Rows that were written or found; of an upsert two for each that it has changed.
    pub(super) affected: u64,
    /// The number of the first row that was inserted.
    pub(super) inserted: u64,
}

/// Sends all statements of `text` in one round trip. Where one fails those behind it are not done.
pub(super) async fn exchange(connection: &mut MySqlConnection, text: String) -> Result<Vec<Answer>, AnyError> {
    let (mut answers, mut answer) = (Vec::new(), Answer::default());
    let mut events = connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(text)));
    while let Some(event) = events.try_next().await? {
        match event {
            Either::Right(row) => answer.rows.push(row),
            Either::Left(done) => {
                (answer.affected, answer.inserted) = (done.rows_affected(), done.last_insert_id());
                answers.push(std::mem::take(&mut answer));
            }
        }
    }
    Ok(answers)
}

/// The items, each pushed by `push`, with commas between them.
pub(super) fn list<T>(text: &mut String, items: impl IntoIterator<Item = T>, mut push: impl FnMut(&mut String, T)) {
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        push(text, item);
    }
}

/// Bytes that are no text.
pub(super) fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.push_str("x'");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('\'');
}

/// Bytes that are text, which takes half the room. Sessions are in UTF-8 and know the backslash, as the server's default is.
pub(super) fn push_quoted(text: &mut String, bytes: &[u8]) -> Result<(), AnyError> {
    let mut rest = std::str::from_utf8(bytes)?;
    text.push_str("_binary'");
    while let Some(at) = rest.find(['\'', '\\', '\0']) {
        text.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            0 => text.push_str("\\0"),
            byte => text.extend(['\\', char::from(byte)]),
        }
        rest = &rest[at + 1..];
    }
    text.push_str(rest);
    text.push('\'');
    Ok(())
}

pub(super) fn push_number(text: &mut String, number: i64) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{number}");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_could_end_a_literal_does_not() {
        let mut text = String::new();
        list(&mut text, [&b"a'b"[..], b"\\", b"\0", "\u{e4}".as_bytes()], |text, bytes| {
            push_quoted(text, bytes).unwrap()
        });
        assert_eq!(text, "_binary'a\\'b',_binary'\\\\',_binary'\\0',_binary'\u{e4}'");
        let mut text = String::new();
        push_hex(&mut text, b"\x00\xff'");
        assert_eq!(text, "x'00ff27'");
    }
}
