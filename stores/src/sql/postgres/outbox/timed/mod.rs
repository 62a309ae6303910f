//! A table whose rows go by dropping partitions, each with what was stored in a stretch of time.
//!
//! The table is partitioned by its key, the message's id: ids that hapax gives begin with the milliseconds of their making
//! (UUIDv7, and those that handlers derive), so that a range of ids is a stretch of time, and one key over all of the table still
//! refuses an id that is there already. By `stored_at` it could not: a key that is unique over partitions holds the column that
//! they are made by. Nothing rests on what time an id tells: one that tells a wrong time, or none, is in another partition, or in
//! that for the rest, and each partition is looked through before it is dropped.
//!
//! "Partition" alone is a part of all lanes elsewhere in the outbox; here it is always a *time* partition, and in code a [`Span`].

mod upkeep;

use std::{
    sync::{LazyLock, Mutex, atomic::AtomicBool},
    time::{Duration, Instant},
};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{Row as _, postgres::PgArguments};
use uuid::Uuid;

use super::{
    super::{
        super::outbox::{lanes, millis},
        arguments::Bind,
        wire::{Fault, Schema, Server},
    },
    statements::{self, INITIAL},
};

/// Shorter ones would be made and dropped all the time, under locks that others wait for.
const EVERY_MIN: Duration = Duration::from_secs(60);
/// Longer ones gain nothing, and their ends are far from the last time that an id can tell. Ten years.
const EVERY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// What a table of rows is told, and a partitioned one is not: its partitions are.
const STORAGE: &str = "\
WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
)";

/// The tables, with a partition for the rest: without it a message whose id tells any other time could not be stored.
pub(super) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema {
    opening: statements::SCHEMA.opening,
    remedy: "set `migrate(true)`, or apply `PostgresOutboxOptions::schema_sql` by hand",
    tables: statements::SCHEMA.tables,
    version: statements::SCHEMA.version,
    rows: &[],
    framed: None,
    // Made once in a process.
    migrations: Box::leak(Box::new([(1, &*with_partitions(INITIAL).leak())])),
});

fn with_partitions(initial: &str) -> String {
    // On two lines: whether it is there is looked at once it is known that the table is such a one.
    let rest =
        format!("CREATE TABLE IF NOT EXISTS\n    hapax.outbox_rest PARTITION OF hapax.outbox DEFAULT {STORAGE};");
    initial.replace(&format!(") {STORAGE};"), &format!(") PARTITION BY RANGE (id);\n{rest}"))
}

/// Whether the table is partitioned, for how long each partition is, and whether there is one for the rest.
const IS_TIMED: &str = "\
    SELECT t.relkind = 'p', (SELECT value FROM hapax.outbox_meta WHERE name = 'time_partitions'), \
      to_regclass('hapax.outbox_rest') IS NOT NULL \
    FROM pg_catalog.pg_class AS t WHERE t.oid = 'hapax.outbox'::regclass";

/// It is decided when such a table is first opened: `$1` milliseconds.
const DECIDE: &str = "\
    INSERT INTO hapax.outbox_meta (name, value) VALUES ('time_partitions', $1::bigint) ON CONFLICT DO NOTHING";

/// The partitions of a table.
#[derive(Debug)]
pub(super) struct Timed {
    /// How long each is, in milliseconds.
    every: i64,
    /// Of the table, among advisory locks: who makes or drops partitions.
    lock: i64,
    /// Whether it was said that the role may do neither.
    told: AtomicBool,
    /// When a lock that others would wait behind may be asked for again.
    drops_from: Mutex<Option<Instant>>,
    /// When the partition for the rest may be read again, which was too large for that.
    makes_from: Mutex<Option<Instant>>,
}

/// One partition, by the time from which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: i64,
    until: i64,
}

impl Span {
    fn table(self) -> String {
        format!("hapax.outbox_t{}", self.from)
    }

    /// The first id that is behind it, after the first one that is in it.
    fn ids(self) -> [Uuid; 2] {
        // Six bytes, as in UUIDv7 and UUIDv8.
        [self.from, self.until].map(|millis| Uuid::from_u128(u128::from(millis.cast_unsigned()) << 80))
    }

    /// Of a row `m`.
    fn holds(self) -> String {
        let [first, behind] = self.ids();
        format!("m.id >= '{first}' AND m.id < '{behind}'")
    }
}

/// What was asked for, in milliseconds.
pub(super) fn asked(every: Option<Duration>) -> Result<Option<i64>, StoreError> {
    let Some(every) = every else { return Ok(None) };
    if (EVERY_MIN..=EVERY_MAX).contains(&every) && every.subsec_nanos().is_multiple_of(1_000_000) {
        return Ok(Some(millis(every)));
    }
    let why = format!("time partitions of {every:?}: use whole milliseconds, from a minute to ten years");
    Err(StoreError::new(ErrorKind::Misconfigured, statements::SCHEMA.opening, why))
}

/// How the table is partitioned is the same for all who use it.
pub(super) async fn decide(server: &Server, asked: Option<i64>) -> Result<Option<Timed>, StoreError> {
    let failed = |fault: Fault| fault.store_error(statements::SCHEMA.opening, server.place());
    let mut wire = server.wire();
    let mut rows = wire.read(&server.text(IS_TIMED), PgArguments::default()).await.map_err(failed)?;
    let mut found = rows.first().map(is_timed).transpose().map_err(|error| failed(Fault::of_answer(error)))?;
    if let (Some((true, None, _)), Some(asked)) = (found, asked) {
        let mut arguments = PgArguments::default();
        arguments.bind(asked);
        wire.write(&server.text(DECIDE), arguments).await.map_err(failed)?;
        rows = wire.read(&server.text(IS_TIMED), PgArguments::default()).await.map_err(failed)?;
        found = rows.first().map(is_timed).transpose().map_err(|error| failed(Fault::of_answer(error)))?;
    }
    wire.close().await;
    let (is_timed, every, has_rest) = found.unwrap_or_default();
    let why = match (asked, is_timed) {
        (None, false) => return Ok(None),
        (Some(asked), true) if every == Some(asked) && has_rest => {
            let lock = lanes::number(&format!("{}outbox: time partitions", server.channel())).cast_signed();
            return Ok(Some(Timed {
                every: asked,
                lock,
                told: AtomicBool::new(false),
                drops_from: Mutex::default(),
                makes_from: Mutex::default(),
            }));
        }
        (Some(asked), true) if every == Some(asked) => format!(
            "the time partition for what no other is for is missing, so that messages may be refused: apply `{}`",
            server.text("CREATE TABLE hapax.outbox_rest PARTITION OF hapax.outbox DEFAULT")
        ),
        (_, true) => format!(
            "the outbox has time partitions of {} ms, and was opened {}: open it as all others do, or use another table prefix",
            every.unwrap_or_default(),
            asked.map_or_else(|| "without any".to_owned(), |asked| format!("with {asked} ms")),
        ),
        (Some(_), false) => "the outbox was made without time partitions, and does not get any later: open it without \
                             `time_partitions`, or use another table prefix and drain this one"
            .to_owned(),
    };
    Err(StoreError::new(ErrorKind::Misconfigured, statements::SCHEMA.opening, format!("{}: {why}", server.place())))
}

fn is_timed(row: &sqlx::postgres::PgRow) -> Result<(bool, Option<i64>, bool), sqlx::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}

/// Every text, for the test that prepares them.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    let mut all = upkeep::all(Span { from: 0, until: 60_000 });
    all.extend([IS_TIMED, DECIDE].map(str::to_owned));
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::{super::statements::INITIAL, SCHEMA, Span, asked};

    #[test]
    fn only_the_table_and_what_it_is_told_differ() {
        let (_, sql) = SCHEMA.migrations[0];
        assert_eq!(sql.matches("PARTITION BY RANGE (id);").count(), 1);
        assert_eq!(sql.matches("fillfactor = 80").count(), 1, "its partitions are told");
        let without = |sql: &str| sql.lines().filter(|line| !line.contains("PARTITION")).count();
        assert_eq!(without(sql), without(INITIAL));
    }

    #[test]
    fn a_stretch_of_time_is_a_range_of_ids() {
        let span = Span { from: 0x0199_0000_0000, until: 0x0199_0000_0001 };
        let [first, behind] = span.ids();
        assert_eq!(first.to_string(), "01990000-0000-0000-0000-000000000000");
        assert_eq!(behind.to_string(), "01990000-0001-0000-0000-000000000000");
        let id: uuid::Uuid = "01990000-0000-7fff-bfff-ffffffffffff".parse().unwrap();
        assert!(first <= id && id < behind);
        let name = Span { from: i64::MAX, until: i64::MAX }.table().len() - "hapax.".len();
        assert!(name + 30 <= 63, "with the longest prefix it is no longer than the server takes");
    }

    #[test]
    fn a_length_that_is_none_is_refused() {
        assert_eq!(asked(None).unwrap(), None);
        assert_eq!(asked(Some(Duration::from_secs(60))).unwrap(), Some(60_000));
        for wrong in
            [Duration::ZERO, Duration::from_millis(59_999), Duration::from_nanos(60_000_000_001), Duration::MAX]
        {
            assert!(asked(Some(wrong)).unwrap_err().to_string().contains("whole milliseconds"), "{wrong:?}");
        }
    }
}
