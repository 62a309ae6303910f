//! Connecting: what could break the promise of a server is found now, and said in one line. Looked at anew with every
//! connection, since a fail-over may put another server behind the same address.

use std::{collections::HashMap, sync::Arc};

use hapax_core::ports::ErrorKind;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySqlConnection, Row, mysql::MySqlRow};
use tokio::time::timeout;

use super::{
    super::{clock, versions},
    connection::{self, Answer, Dial},
    error::Failure,
    migrate::Contents,
    names::Names,
    rows::Columns,
    statements,
    wire::Schema,
};

/// The oldest servers that get security fixes as this is written; MariaDB 10.11 is what is tested.
const OLDEST_MARIADB: (u32, u32) = (10, 6);
const OLDEST_MYSQL: (u32, u32) = (8, 0);
/// What is sent in one message at least: what belongs to an entity besides its bytes, and a group's own text.
const PACKET_BYTES_MIN: usize = 1 << 20;
/// Those that a server does not have are not listed.
const QUESTION: &str = "SHOW VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', \
     'innodb_flush_method', 'log_bin', 'sync_binlog', 'binlog_format', 'read_only', 'innodb_read_only', \
     'max_allowed_packet', 'wsrep_on')";

/// The tables that a server must have, so far as its own record says.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    record: Arc<str>,
    latest: i64,
    remedy: &'static str,
    names: Names,
}

impl Tables {
    pub(super) fn of(schema: &Schema, names: &Names) -> Self {
        let record = names.put_into(schema.version).into();
        Self { record, latest: schema.latest(), remedy: schema.remedy, names: names.clone() }
    }

    /// Whether this program may use a database with `contents`.
    pub(super) fn check(&self, contents: Contents) -> Result<(), Failure> {
        let Self { latest, remedy, names, .. } = self;
        let Contents { version, usable_from } = contents;
        versions::check(names, version, usable_from, *latest, remedy).map_err(|(kind, why)| Failure::unfit(kind, why))
    }
}

/// What was learnt of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    pub(super) packet_bytes_max: usize,
    writes_pages_once: bool,
    is_in_a_cluster: bool,
}

impl Checked {
    /// Says what a person should know, and nothing is refused for.
    pub(super) fn told(self, place: &str) -> Self {
        if self.writes_pages_once {
            tracing::warn!(
                place,
                "`innodb_doublewrite` is off: unless the file system writes pages whole, a power failure may damage what \
                 was confirmed"
            );
        }
        if self.is_in_a_cluster {
            tracing::warn!(place, "a Galera cluster is not tested: connect all programs to one and the same node");
        }
        self
    }
}

/// A connection to a server that is what the promises need: what it has confirmed is on its disk, it is the primary, and
/// its schema is the one that was found when the store was opened, or one that it may be used with. Two round trips beside
/// the connecting itself. What listens there may be no MariaDB, and wait to be spoken to as this does.
pub(super) async fn connect(dial: &Dial) -> Result<(MySqlConnection, Checked), Failure> {
    let connecting = async {
        let mut connection = dial.options.connect().await.map_err(Failure::of_read)?;
        let settings = sqlx::raw_sql(AssertSqlSafe(dial.settings.clone()));
        connection.execute(settings).await.map_err(Failure::of_read)?;
        let record = dial.tables.iter().map(|tables| format!("; {}", tables.record));
        let question = [format!("{QUESTION}; {}", statements::now())].into_iter().chain(record).collect();
        let before = (dial.now)();
        let answers = connection::ask(&mut connection, question).await.map_err(Failure::of_read)?;
        let after = (dial.now)();
        let checked = check(&variables(rows(&answers, 0)).map_err(Failure::of_read)?).map_err(misconfigured)?;
        let server = row(&answers, 1)?.number(0).map_err(Failure::of_read)?;
        clock::compare(&dial.place, &dial.told_of_clock, before, server, after);
        if let Some(tables) = &dial.tables {
            tables.check(Contents::of(row(&answers, 2)?).map_err(Failure::of_read)?)?;
        }
        Ok((connection, checked))
    };
    timeout(dial.limit, connecting).await.unwrap_or_else(|_| Err(Failure::unreachable()))
}

fn rows(answers: &[Answer], at: usize) -> &[MySqlRow] {
    answers.get(at).map_or(&[], |answer| &answer.rows)
}

fn row(answers: &[Answer], at: usize) -> Result<&MySqlRow, Failure> {
    rows(answers, at).first().ok_or_else(|| Failure::of_read(sqlx::Error::RowNotFound))
}

fn misconfigured(why: String) -> Failure {
    Failure::unfit(ErrorKind::Misconfigured, why)
}

fn variables(rows: &[MySqlRow]) -> Result<HashMap<String, String>, sqlx::Error> {
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// What is wrong with a server, by its variables.
fn check(variables: &HashMap<String, String>) -> Result<Checked, String> {
    let value = |name: &str| variables.get(name).map_or("", String::as_str);
    let is_on = |name: &str| !matches!(value(name), "" | "OFF" | "0");
    let packet_bytes_max = value("max_allowed_packet").parse().unwrap_or(0);

    let (number, oldest, name) = match value("version").contains("MariaDB") {
        true => (version(value("version")), OLDEST_MARIADB, "MariaDB"),
        false => (version(value("version")), OLDEST_MYSQL, "MySQL"),
    };
    let why = if number < oldest {
        &*format!("the server is {name} {}.{}, hapax needs {}.{} or later", number.0, number.1, oldest.0, oldest.1)
    } else if !matches!(value("innodb_flush_log_at_trx_commit"), "1" | "3") {
        "`innodb_flush_log_at_trx_commit` is not 1, so that a crash loses what was confirmed: set it to 1"
    } else if ["nosync", "littlesync"].iter().any(|method| value("innodb_flush_method").eq_ignore_ascii_case(method)) {
        &*format!(
            "`innodb_flush_method` is {}, so that a power failure loses what was confirmed: set it to O_DIRECT or fsync",
            value("innodb_flush_method")
        )
    } else if is_on("log_bin") && value("sync_binlog") != "1" {
        "`sync_binlog` is not 1 while there is a binary log, and what is missing in that log after a power failure is \
         undone, though it was confirmed: set it to 1"
    } else if is_on("log_bin") && value("binlog_format") == "STATEMENT" {
        "`binlog_format` is STATEMENT, which goes without the isolation level read committed: set it to MIXED or ROW"
    } else if is_on("read_only") || is_on("innodb_read_only") {
        "`read_only` is on, the server is a replica: connect to the primary, or set `read_only = OFF`"
    } else if packet_bytes_max < PACKET_BYTES_MIN {
        "`max_allowed_packet` is below 1 MiB: set it to 64M"
    } else {
        let (writes_pages_once, is_in_a_cluster) = (!is_on("innodb_doublewrite"), is_on("wsrep_on"));
        return Ok(Checked { packet_bytes_max, writes_pages_once, is_in_a_cluster });
    };
    Err(why.to_owned())
}

/// `8.0.36` or `10.11.6-MariaDB-log`.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashMap;

    use super::{Checked, check};

    /// A server as it comes, but for `others`.
    fn with(others: &[(&str, &str)]) -> Result<Checked, String> {
        let usual = [
            ("version", "10.11.6-MariaDB-0+deb12u1-log"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_doublewrite", "ON"),
            ("log_bin", "OFF"),
            ("sync_binlog", "0"),
            ("binlog_format", "MIXED"),
            ("read_only", "OFF"),
            ("innodb_read_only", "OFF"),
            ("max_allowed_packet", "16777216"),
            ("wsrep_on", "OFF"),
        ];
        let all = usual.iter().chain(others).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        check(&all.collect::<HashMap<_, _>>())
    }

    #[test]
    fn a_server_that_may_lose_what_it_confirmed_or_takes_no_writes_is_refused() {
        for (others, why) in [
            (&[("version", "10.5.25-MariaDB")][..], "the server is MariaDB 10.5, hapax needs 10.6 or later"),
            (&[("version", "5.7.44-log")], "the server is MySQL 5.7, hapax needs 8.0 or later"),
            (&[("version", "")], "the server is MySQL 0.0, hapax needs 8.0 or later"),
            (&[("innodb_flush_log_at_trx_commit", "0")], "`innodb_flush_log_at_trx_commit` is not 1"),
            (&[("innodb_flush_log_at_trx_commit", "2")], "`innodb_flush_log_at_trx_commit` is not 1"),
            (&[("log_bin", "ON")], "`sync_binlog` is not 1"),
            (&[("log_bin", "ON"), ("sync_binlog", "1000")], "`sync_binlog` is not 1"),
            (
                &[("log_bin", "ON"), ("sync_binlog", "1"), ("binlog_format", "STATEMENT")],
                "`binlog_format` is STATEMENT",
            ),
            (&[("read_only", "ON")], "`read_only` is on"),
            (&[("innodb_read_only", "1")], "`read_only` is on"),
            (&[("max_allowed_packet", "1048575")], "`max_allowed_packet` is below 1 MiB"),
        ] {
            let refused = with(others).unwrap_err();
            assert!(refused.starts_with(why), "{others:?}: {refused}");
        }
    }

    #[test]
    fn a_server_that_keeps_what_it_confirmed_is_taken_and_what_a_person_should_know_is_known() {
        for others in [
            &[][..],
            &[("version", "10.6.0-MariaDB")],
            &[("version", "11.8.2-MariaDB-ubu2404")],
            &[("version", "8.0.36")],
            &[("innodb_flush_log_at_trx_commit", "3")],
            &[("log_bin", "ON"), ("sync_binlog", "1"), ("binlog_format", "ROW")],
        ] {
            let taken = with(others).unwrap();
            assert!(!taken.writes_pages_once && !taken.is_in_a_cluster, "{others:?}");
            assert_eq!(taken.packet_bytes_max, 16 << 20);
        }
        assert!(with(&[("innodb_doublewrite", "OFF")]).unwrap().writes_pages_once);
        assert!(with(&[("wsrep_on", "ON")]).unwrap().is_in_a_cluster);
    }
}
