//! What the promises need of a server, looked at with every connection, since a fail-over may put another one behind the same
//! address.

use std::collections::HashMap;

use hapax_core::ports::ErrorKind;
use sqlx::{Executor, MySqlConnection, Row};

use super::error::Failure;

/// The oldest servers that get security fixes as this is written; MariaDB 10.11 is what is tested.
const OLDEST_MARIADB: (u32, u32) = (10, 6);
const OLDEST_MYSQL: (u32, u32) = (8, 0);
/// What is sent in one message at least: what belongs to an entity besides its bytes, and a group's own text.
const PACKET_BYTES_MIN: usize = 1 << 20;
/// Those that a server does not have are not listed.
const QUESTION: &str = "SHOW VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', \
     'log_bin', 'sync_binlog', 'binlog_format', 'read_only', 'innodb_read_only', 'max_allowed_packet', 'wsrep_on')";

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

/// What it has confirmed is on its disk, and it is the primary.
pub(super) async fn check(connection: &mut MySqlConnection) -> Result<Checked, Failure> {
    let complain = |why: &str| Err(Failure::unfit(ErrorKind::Misconfigured, why.to_owned()));
    let rows = connection.fetch_all(sqlx::raw_sql(QUESTION)).await.map_err(Failure::of_read)?;
    let mut variables = HashMap::new();
    for row in &rows {
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
