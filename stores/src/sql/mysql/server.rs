//! Connecting: what could break the promise of a server is found now, and said in one line. Looked at anew with every
//! connection, since a fail-over may put another server behind the same address.

use std::{collections::HashMap, sync::Arc};

use hapax_core::ports::ErrorKind;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySqlConnection, Row, mysql::MySqlRow};
use tokio::time::timeout;

use super::{
    super::clock,
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
        if version > *latest && usable_from.is_none_or(|from| from > *latest) {
            let why =
                format!("{names} has schema {version} of a newer hapax, this one knows {latest}: update this program");
            return Err(Failure::unfit(ErrorKind::Malformed, why));
        }
        if version < *latest {
            let has = if version == 0 { "no schema".to_owned() } else { format!("schema {version}") };
            let why = format!("{names} has {has}, this hapax needs {latest}: {remedy}");
            return Err(Failure::unfit(ErrorKind::Misconfigured, why));
        }
        Ok(())
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
        let checked = check(rows(&answers, 0))?;
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

/// What is wrong with a server, by its answer to [`QUESTION`].
fn check(rows: &[MySqlRow]) -> Result<Checked, Failure> {
    let complain = |why: &str| Err(Failure::unfit(ErrorKind::Misconfigured, why.to_owned()));
    let mut variables = HashMap::new();
    for row in rows {
        let text = |at: usize| row.try_get::<String, _>(at).map_err(Failure::of_read);
        variables.insert(text(0)?, text(1)?);
    }
    let value = |name: &str| variables.get(name).map_or("", String::as_str);
    let is_on = |name: &str| !matches!(value(name), "" | "OFF" | "0");

    let (number, oldest, name) = match value("version").contains("MariaDB") {
        true => (version(value("version")), OLDEST_MARIADB, "MariaDB"),
        false => (version(value("version")), OLDEST_MYSQL, "MySQL"),
    };
    if number < oldest {
        let why =
            format!("the server is {name} {}.{}, hapax needs {}.{} or later", number.0, number.1, oldest.0, oldest.1);
        return complain(&why);
    }
    if !matches!(value("innodb_flush_log_at_trx_commit"), "1" | "3") {
        return complain(
            "`innodb_flush_log_at_trx_commit` is not 1, so that a crash loses what was confirmed: set it to 1",
        );
    }
    let method = value("innodb_flush_method");
    if method.eq_ignore_ascii_case("nosync") || method.eq_ignore_ascii_case("littlesync") {
        return complain(&format!(
            "`innodb_flush_method` is {method}, so that a power failure loses what was confirmed: set it to O_DIRECT or fsync"
        ));
    }
    if is_on("log_bin") && value("sync_binlog") != "1" {
        return complain(
            "`sync_binlog` is not 1 while there is a binary log, and what is missing in that log after a power failure is \
             undone, though it was confirmed: set it to 1",
        );
    }
    if is_on("log_bin") && value("binlog_format") == "STATEMENT" {
        return complain(
            "`binlog_format` is STATEMENT, which goes without the isolation level read committed: set it to MIXED or ROW",
        );
    }
    if is_on("read_only") || is_on("innodb_read_only") {
        return complain(
            "`read_only` is on, the server is a replica: connect to the primary, or set `read_only = OFF`",
        );
    }
    let packet_bytes_max = value("max_allowed_packet").parse().unwrap_or(0);
    if packet_bytes_max < PACKET_BYTES_MIN {
        return complain("`max_allowed_packet` is below 1 MiB: set it to 64M");
    }
    let (writes_pages_once, is_in_a_cluster) = (!is_on("innodb_doublewrite"), is_on("wsrep_on"));
    Ok(Checked { packet_bytes_max, writes_pages_once, is_in_a_cluster })
}

/// `8.0.36` or `10.11.6-MariaDB-log`.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
