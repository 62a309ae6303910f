//! What stands in columns of all databases, held still: see [`crate::golden`]. Tables with their rows are in the tests of SQLite.
#![allow(clippy::unwrap_used)]

use hapax_core::ports::Receipt;

use super::{
    rows::{DedupRow, EntityRow},
    schedule,
};
use crate::golden;

#[test]
fn an_entity_keeps_its_columns_in_sql() {
    let entity = golden::entity();
    let row = EntityRow::new(1, golden::key().key(), None, &entity, None::<String>).unwrap();
    assert_eq!((row.key.as_str(), row.completed, row.expected), ("7", false, None));
    assert_eq!(golden::hex(&row.outbox), golden::OUTBOX);
    assert_eq!(golden::hex(&row.state), "01017b226974656d73223a5b22746561225d7d");
}

#[test]
fn a_dedup_entry_keeps_its_columns_in_sql() {
    let DedupRow { key, attempt, fingerprint, time, reply } = DedupRow::of(&golden::mark()).unwrap();
    assert_eq!(golden::hex(key.as_bytes()), "04".repeat(24));
    assert_eq!(golden::hex(attempt.as_bytes()), "14".repeat(16));
    assert_eq!(golden::hex(fingerprint.as_bytes()), "33".repeat(16));
    assert_eq!((time, reply.map(|reply| golden::hex(&reply)).as_deref()), (1_700_000_000_000, Some(golden::ANSWER)));
}

#[test]
fn a_message_of_the_schedule_keeps_its_columns_in_sql() {
    let put =
        [golden::outgoing("endpoint:shop", golden::full()), golden::outgoing("topic:shop.item-added", golden::small())];
    let rows = schedule::rows(&put, 1 << 20).unwrap();
    let row =
        |row: &schedule::Row| (row.message_id.clone(), row.destination.clone(), row.due_at, golden::hex(&row.envelope));
    let kept = [
        ("order 7/ü", "endpoint:shop", Some(1_700_000_000_001_i64), golden::FULL),
        ("0190163d-8694-739b-aea5-966c26f8ad91", "topic:shop.item-added", None, golden::SMALL),
    ];
    let owned = kept.map(|(id, to, due_at, envelope)| (id.to_owned(), to.to_owned(), due_at, envelope.to_owned()));
    assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), owned);
    for ((_, to, _, envelope), message) in kept.into_iter().zip(put) {
        let (place, due) = schedule::taken(3, 9, 1_700_000_000_001, to, &golden::unhex(envelope)).unwrap();
        assert!(due.outgoing == message, "read: {:+#?}\nkept: {message:+#?}", due.outgoing);
        assert_eq!((place, due.receipt), ((1_700_000_000_001, 3), Receipt::text("3:9")));
    }
}

/// As PostgreSQL and MariaDB keep them: what waits is of fixed places, and rows are read by the order of their columns.
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers {
    use std::time::Duration;

    use hapax_core::{
        entity::{DedupEntry, Version},
        ids::AttemptId,
        ports::{PendingEntry, Stored},
    };

    use super::{
        super::columns::{Columns, Found, pending, pending_entries, stored},
        *,
    };

    #[derive(Debug)]
    enum Column {
        Number(i64),
        Bytes(Vec<u8>),
        Null,
    }

    /// A row as a server gives it.
    struct Given<const N: usize>([Column; N]);

    impl<const N: usize> Columns for Given<N> {
        fn number(&self, at: usize) -> Result<i64, sqlx::Error> {
            match &self.0[at] {
                Column::Number(number) => Ok(*number),
                other => panic!("{at} is {other:?}"),
            }
        }

        fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error> {
            match &self.0[at] {
                Column::Bytes(bytes) => Ok(Some(bytes)),
                Column::Null => Ok(None),
                other => panic!("{at} is {other:?}"),
            }
        }
    }

    #[test]
    fn what_waits_keeps_its_bytes_on_postgres_and_mysql() {
        let given = format!("{}{}", "04".repeat(24), "14".repeat(16));
        assert_eq!(pending(&golden::entity()).map(|bytes| golden::hex(&bytes)), Some(given.clone()));
        assert_eq!(pending(&golden::tombstone()), None);
        // The server has added when it has seen it first.
        let stored = golden::unhex(&format!("{given}0000018bcfe56800"));
        let (now, age) = (1_700_000_000_700, Duration::from_millis(700));
        let attempt = AttemptId::from_bytes([0x14; AttemptId::BYTES]);
        assert_eq!(pending_entries(&stored, now, 700), Some(vec![PendingEntry { attempt, age }]));
    }

    #[test]
    fn an_entity_and_a_dedup_entry_are_read_from_the_columns_of_postgres_and_mysql() {
        let bytes = |hex: &str| Column::Bytes(golden::unhex(hex));
        let entity = golden::entity();
        let row = Given([Column::Null, Column::Number(9), bytes(golden::OUTBOX), Column::Bytes(entity.state.to_vec())]);
        let read = stored(&row, None, "a test").unwrap();
        golden::same_read(&read.entity, &entity);
        assert_eq!(read.version, Version::number(9));

        for (reply, answer) in [(bytes(golden::ANSWER), golden::mark().reply), (Column::Null, None)] {
            let row = Given([
                Column::Null,
                Column::Number(1),
                bytes(&"04".repeat(24)),
                bytes(&"14".repeat(16)),
                bytes(&"33".repeat(16)),
                Column::Number(1_700_000_000_000),
                reply,
            ]);
            let mut found = Found::default();
            found.add(1, &row, "a test").unwrap();
            let mark = DedupEntry { reply: answer, ..golden::mark() };
            let known = found.known(&[], Some(&Stored { version: Version::number(9), entity: golden::entity() }));
            golden::same_read(known.entry(&mark.key).unwrap(), &mark);
        }
    }
}
