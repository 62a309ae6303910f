//! What a driver's error means: whether anything was written, and what a person can do.

use std::sync::Arc;

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::mysql::MySqlDatabaseError;

pub(super) use super::super::rows::malformed;
use super::super::{connections, races, tls};

/// Numbers that MariaDB and MySQL give to errors, those that we tell apart.
mod number {
    pub(super) const RECORD_CHANGED: u16 = 1020;
    pub(super) const DISK_FULL: u16 = 1021;
    pub(super) const TABLE_FULL: u16 = 1114;
    pub(super) const TOO_MANY_CONNECTIONS: u16 = 1040;
    pub(super) const TOO_MANY_CONNECTIONS_OF_USER: u16 = 1203;
    pub(super) const USER_LIMIT: u16 = 1226;
    pub(super) const DENIED_DATABASE: u16 = 1044;
    pub(super) const DENIED: u16 = 1045;
    pub(super) const DENIED_WITHOUT_PASSWORD: u16 = 1698;
    pub(super) const DENIED_HOST: u16 = 1130;
    pub(super) const DENIED_TABLE: u16 = 1142;
    pub(super) const DENIED_COLUMN: u16 = 1143;
    pub(super) const DENIED_PRIVILEGE: u16 = 1227;
    pub(super) const NO_DATABASE: u16 = 1049;
    pub(super) const SHUTDOWN: u16 = 1053;
    pub(super) const UNKNOWN_COLUMN: u16 = 1054;
    pub(super) const NULL: u16 = 1048;
    pub(super) const DUPLICATE: u16 = 1062;
    pub(super) const NOT_NULL: u16 = 1048;
    pub(super) const NO_DEFAULT: u16 = 1364;
    pub(super) const NO_TABLE: u16 = 1146;
    pub(super) const PACKET_TOO_LARGE: u16 = 1153;
    pub(super) const COMMIT: u16 = 1180;
    pub(super) const LOCK_WAIT: u16 = 1205;
    pub(super) const DEADLOCK: u16 = 1213;
    pub(super) const READ_ONLY_OPTION: u16 = 1290;
    pub(super) const INTERRUPTED: u16 = 1317;
    pub(super) const WRONG_VALUE: u16 = 1366;
    pub(super) const TOO_LONG: u16 = 1406;
    pub(super) const TABLE_CHANGED: u16 = 1412;
    pub(super) const FOREIGN_KEY_PARENT: u16 = 1451;
    pub(super) const FOREIGN_KEY_CHILD: u16 = 1452;
    pub(super) const SIGNAL: u16 = 1644;
    pub(super) const BINLOG_FORMAT: u16 = 1665;
    pub(super) const READ_ONLY_TRANSACTION: u16 = 1792;
    pub(super) const READ_ONLY_MODE: u16 = 1836;
    pub(super) const KILLED_MARIADB: u16 = 1927;
    pub(super) const TIME_LIMIT_MARIADB: u16 = 1969;
    pub(super) const TIME_LIMIT_MYSQL: u16 = 3024;
    pub(super) const KILLED_MYSQL: u16 = 3169;
    pub(super) const CHECK_MYSQL: u16 = 3819;
    pub(super) const CHECK_MARIADB: u16 = 4025;
    pub(super) const IDLE_MYSQL: u16 = 4031;
}

use number as n;

/// Races that were lost so far.
#[derive(Debug, Default)]
pub(super) struct Races(races::Races);

impl Races {
    /// Whether it may be tried again after one more, which `failure` tells of.
    pub(super) fn allow(&mut self, failure: &Failure) -> bool {
        self.0.allow(failure.is_of_a_wait())
    }
}

/// A statement that failed. One error may be the answer of all members of a group.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    cause: Arc<Cause>,
    unknown: bool,
}

#[derive(Debug)]
enum Cause {
    Driver(sqlx::Error),
    /// No answer in time; the connection was given up.
    TooLate,
    /// The generations of dedup entries changed each time it was tried.
    Rotating,
    /// A server that is not what the promises need.
    Unfit(ErrorKind, String),
}

impl Failure {
    /// Of something that wrote nothing.
    pub(super) fn of_read(error: sqlx::Error) -> Self {
        Self { cause: Arc::new(Cause::Driver(error)), unknown: false }
    }

    /// Of a statement that commits by itself. Where the server has refused the statement, nothing of it is kept; whatever else
    /// has failed may be its commit, or the answer.
    pub(super) fn of_write(error: sqlx::Error) -> Self {
        let unknown = !comes_before_a_commit(&error);
        Self { cause: Arc::new(Cause::Driver(error)), unknown }
    }

    /// Of a `COMMIT`: it may have reached a log, or a replica.
    pub(super) fn of_commit(error: sqlx::Error) -> Self {
        let unknown = !rolled_back(&error);
        Self { cause: Arc::new(Cause::Driver(error)), unknown }
    }

    pub(super) fn too_late(writes: bool) -> Self {
        Self { cause: Arc::new(Cause::TooLate), unknown: writes }
    }

    pub(super) fn rotating() -> Self {
        Self { cause: Arc::new(Cause::Rotating), unknown: false }
    }

    pub(super) fn unfit(kind: ErrorKind, why: String) -> Self {
        Self { cause: Arc::new(Cause::Unfit(kind, why)), unknown: false }
    }

    /// Too many others have connections.
    pub(super) fn no_place() -> Self {
        Self::unfit(ErrorKind::Unavailable, connections::NO_PLACE.to_owned())
    }

    pub(super) fn unreachable() -> Self {
        Self::of_read(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
    }

    /// The same of what came after a commit: what was written before it is there.
    pub(super) fn into_unknown(self) -> Self {
        Self { unknown: true, ..self }
    }

    /// Whether the write may have taken effect.
    pub(super) const fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Whether the server has refused the statement itself, so that the connection is as good as before. One that finds
    /// other tables than it was made for is not: with the next connection it is found out why.
    pub(super) fn is_of_a_statement(&self) -> bool {
        let of_tables = matches!(self.number(), Some(n::NO_TABLE | n::UNKNOWN_COLUMN));
        matches!(&*self.cause, Cause::Driver(error) if refused(error)) && !of_tables
    }

    /// Whether the connection has ended, or the server has ended it.
    pub(super) fn is_of_the_connection(&self) -> bool {
        match &*self.cause {
            Cause::Driver(error) => !refused(error),
            Cause::TooLate | Cause::Rotating | Cause::Unfit(..) => false,
        }
    }

    /// A lost race with another transaction: the server has rolled it back, or it was for it, and it may be tried again at
    /// once.
    pub(super) fn is_of_a_race(&self) -> bool {
        !self.unknown && self.number().is_some_and(tells_of_a_race)
    }

    /// Others hold a lock for longer than was waited for.
    pub(super) fn is_of_a_lock(&self) -> bool {
        !self.unknown && matches!(self.number(), Some(n::LOCK_WAIT | n::DEADLOCK))
    }

    /// Others hold a row for longer than was waited for.
    pub(super) fn is_of_a_wait(&self) -> bool {
        !self.unknown && self.number() == Some(n::LOCK_WAIT)
    }

    /// A row was there already.
    pub(super) fn is_of_a_duplicate(&self) -> bool {
        !self.unknown && self.number() == Some(n::DUPLICATE)
    }

    /// A column that is never null was to be: so an update over versions says that one is not as it was expected.
    pub(super) fn is_of_a_lost_update(&self) -> bool {
        !self.unknown && self.number() == Some(n::NULL)
    }

    /// The server or the way to it is at fault, not what was asked: trying members of a group one by one would only repeat
    /// it. Whatever else the server refuses, one member may be at fault for, as for a lock that is held for too long.
    pub(super) fn is_of_all(&self) -> bool {
        let Some(number) = self.number() else { return true };
        let of_all = matches!(
            number,
            n::DISK_FULL
                | n::TABLE_FULL
                | n::TOO_MANY_CONNECTIONS
                | n::TOO_MANY_CONNECTIONS_OF_USER
                | n::USER_LIMIT
                | n::DENIED_DATABASE
                | n::DENIED
                | n::DENIED_WITHOUT_PASSWORD
                | n::DENIED_HOST
                | n::DENIED_TABLE
                | n::DENIED_COLUMN
                | n::DENIED_PRIVILEGE
                | n::NO_DATABASE
                | n::NO_TABLE
                | n::UNKNOWN_COLUMN
                | n::COMMIT
                | n::DEADLOCK
                | n::TABLE_CHANGED
                | n::INTERRUPTED
                | n::TIME_LIMIT_MARIADB
                | n::TIME_LIMIT_MYSQL
                | n::BINLOG_FORMAT
                | n::READ_ONLY_OPTION
                | n::READ_ONLY_TRANSACTION
                | n::READ_ONLY_MODE
        );
        of_all || ends_the_connection(number) && number != n::PACKET_TOO_LARGE
    }

    fn number(&self) -> Option<u16> {
        match &*self.cause {
            Cause::Driver(error) => number(error),
            Cause::TooLate | Cause::Rotating | Cause::Unfit(..) => None,
        }
    }

    pub(super) fn store_error(&self, operation: &'static str, place: &str) -> StoreError {
        let error = |kind, text: &str| StoreError::new(kind, operation, format!("{place}: {text}"));
        match &*self.cause {
            _ if self.unknown => {
                let error = error(ErrorKind::UnknownOutcome, "whether it was stored is not known: load again");
                error.caused_by(Shown(self.cause.clone()))
            }
            Cause::Driver(driver) => {
                let (kind, text) = meaning(driver);
                let why = tls::away(driver).unwrap_or_default();
                error(kind, &format!("{text}{why}")).caused_by(Shown(self.cause.clone()))
            }
            Cause::TooLate => error(
                ErrorKind::Unavailable,
                "no answer within the limit, nothing was changed: see what keeps the server busy, or raise the limit",
            ),
            Cause::Rotating => {
                error(ErrorKind::Unavailable, "generations of dedup entries are being rotated: try again")
            }
            Cause::Unfit(kind, why) => error(*kind, why),
        }
    }
}

/// The driver's error as a source.
#[derive(Debug)]
struct Shown(Arc<Cause>);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.0 {
            Cause::Driver(error) => error.fmt(f),
            Cause::TooLate => f.write_str("no answer within the limit"),
            Cause::Rotating => f.write_str("the generations changed"),
            Cause::Unfit(_, why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Shown {}

/// A deadlock, a lock that was waited for in vain, a table or row that has changed since it was looked at.
const fn tells_of_a_race(number: u16) -> bool {
    matches!(number, n::DEADLOCK | n::LOCK_WAIT | n::TABLE_CHANGED | n::RECORD_CHANGED)
}

/// Whether `error` is of a transaction that was in the way of another one.
pub(super) fn is_of_a_race(error: &sqlx::Error) -> bool {
    number(error).is_some_and(tells_of_a_race)
}

/// The server answered that it did not do it, and goes on serving this connection.
fn refused(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| !ends_the_connection(number))
}

fn ends_the_connection(number: u16) -> bool {
    let ends = matches!(number, n::SHUTDOWN | n::KILLED_MARIADB | n::KILLED_MYSQL | n::IDLE_MYSQL);
    ends || (1152..=1161).contains(&number) // The way to the client.
}

/// A `COMMIT` that has failed has committed nothing: of two transactions that wait for each other the server rolls back one.
pub(super) fn rolled_back(error: &sqlx::Error) -> bool {
    number(error) == Some(n::DEADLOCK)
}

/// The statement was refused, or rolled back, before it came to its commit. All else may be told by a statement whose commit
/// was made already, as a kill or a time limit, or by a commit that has reached the log, as a disk that is full.
fn comes_before_a_commit(error: &sqlx::Error) -> bool {
    let Some(number) = number(error) else { return false };
    let state = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    // Wrong data, broken constraints, what is not there or not allowed, and what a trigger says.
    let is_of_the_statement = ["21", "22", "23", "42", "44", "45"].iter().any(|class| state.starts_with(class));
    is_of_the_statement
        || matches!(
            number,
            n::NO_DEFAULT
                | n::TABLE_FULL
                | n::PACKET_TOO_LARGE // It was not read, though the connection ends.
                | n::LOCK_WAIT
                | n::DEADLOCK
                | n::READ_ONLY_OPTION
                | n::WRONG_VALUE
                | n::TABLE_CHANGED
                | n::BINLOG_FORMAT
                | n::READ_ONLY_TRANSACTION
                | n::READ_ONLY_MODE
                | n::SIGNAL
                | n::CHECK_MYSQL
                | n::CHECK_MARIADB
        )
}

fn number(error: &sqlx::Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

fn meaning(error: &sqlx::Error) -> (ErrorKind, &'static str) {
    use ErrorKind::{Denied, Misconfigured, TooLarge, Unavailable};
    match number(error) {
        Some(n::DEADLOCK | n::TABLE_CHANGED) => {
            (Unavailable, "it met other transactions again and again, and was rolled back each time")
        }
        Some(n::INTERRUPTED | n::TIME_LIMIT_MARIADB | n::TIME_LIMIT_MYSQL) => {
            (Unavailable, "the server has ended it after its time limit; nothing was changed")
        }
        Some(n::LOCK_WAIT) => (Unavailable, "another transaction has kept a lock for too long: end that transaction"),
        Some(n::TOO_MANY_CONNECTIONS | n::TOO_MANY_CONNECTIONS_OF_USER | n::USER_LIMIT) => (
            Unavailable,
            "the server has no connection left: raise `max_connections`, or use fewer (`writers`, `readers`)",
        ),
        Some(n::DISK_FULL | n::TABLE_FULL) => {
            (Unavailable, "the server's disk is full: make room and it goes on, nothing is lost")
        }
        Some(n::READ_ONLY_OPTION | n::READ_ONLY_TRANSACTION | n::READ_ONLY_MODE) => {
            (Unavailable, "the server takes no writes (a replica, or `read_only`): connect to the primary")
        }
        Some(n::DENIED_TABLE | n::DENIED_COLUMN | n::DENIED_PRIVILEGE) => {
            (Denied, "this account may not do it: grant what `MySql::grants_sql` lists")
        }
        Some(n::DENIED | n::DENIED_DATABASE | n::DENIED_HOST | n::DENIED_WITHOUT_PASSWORD) => {
            (Denied, "the server has refused the account, its password or its database: check the URL")
        }
        Some(n::NO_DATABASE) => (Misconfigured, "there is no such database: create it, or name another one in the URL"),
        Some(n::NO_TABLE | n::UNKNOWN_COLUMN) => (
            Misconfigured,
            "hapax's tables are not as this version needs them: apply `MySql::migrate`, or undo what changed them",
        ),
        Some(
            n::DUPLICATE
            | n::NOT_NULL
            | n::NO_DEFAULT
            | n::FOREIGN_KEY_PARENT
            | n::FOREIGN_KEY_CHILD
            | n::SIGNAL
            | n::CHECK_MARIADB
            | n::CHECK_MYSQL,
        ) => (Misconfigured, "a trigger or constraint on hapax's tables refuses it: remove it"),
        Some(n::PACKET_TOO_LARGE | n::TOO_LONG) => {
            (TooLarge, "it is larger than the server takes: raise `max_allowed_packet`, and open the store again")
        }
        Some(n::WRONG_VALUE) => (Misconfigured, "a table cannot hold this text: it needs the character set utf8mb4"),
        Some(n::BINLOG_FORMAT) => {
            (Misconfigured, "the server's binary log takes statements only: set `binlog_format` to `MIXED` or `ROW`")
        }
        Some(_) => (Unavailable, "the server refused it; the cause is in the source of this error"),
        None => tls::meaning(error).unwrap_or((
            Unavailable,
            "the server cannot be reached: see that it runs, and that host, port and TLS in the URL are right; what the driver says is the \
             source of this error",
        )),
    }
}
