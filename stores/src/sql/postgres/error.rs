//! What a driver's error means: whether anything was written, and what a person can do.

use std::{fmt, sync::Arc};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

pub(super) use super::super::rows::malformed;
use super::super::{connections, tls};
use super::{names::Names, server::POOLER};

/// What the server says of tables, columns and types that a statement names and that are not there.
const TABLES_CHANGED: [&str; 6] = ["42P01", "42703", "42883", "3F000", "42P10", "42804"];

const WAIT_CUT: &str = "the wait for a standby was ended";

/// A statement that failed. One error may be the answer of all members of a group.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    cause: Arc<Cause>,
    unknown: bool,
}

enum Cause {
    Driver(sqlx::Error),
    /// No answer in time; the connection was given up.
    TooLate,
    /// The server warned that it did not wait for the standby.
    WaitCut,
    /// The generations of dedup entries changed each time it was tried.
    Rotating,
    /// The server that was reached is not what the promises need.
    Unfit(ErrorKind, String),
}

impl Failure {
    /// Of something that wrote nothing.
    pub(super) fn of_read(error: sqlx::Error) -> Self {
        Self { cause: Arc::new(Cause::Driver(error)), unknown: false }
    }

    /// Of a statement that commits by itself, or of a `COMMIT`. Where the server has said that the statement failed,
    /// nothing of it is kept; whatever else happened to the answer, nobody knows.
    pub(super) fn of_write(error: sqlx::Error) -> Self {
        let unknown = !refused(&error);
        Self { cause: Arc::new(Cause::Driver(error)), unknown }
    }

    pub(super) fn too_late(writes: bool) -> Self {
        Self { cause: Arc::new(Cause::TooLate), unknown: writes }
    }

    pub(super) fn wait_cut() -> Self {
        Self { cause: Arc::new(Cause::WaitCut), unknown: true }
    }

    pub(super) fn rotating() -> Self {
        Self { cause: Arc::new(Cause::Rotating), unknown: false }
    }

    pub(super) fn unfit(kind: ErrorKind, why: String) -> Self {
        Self { cause: Arc::new(Cause::Unfit(kind, why)), unknown: false }
    }

    /// There is always one: without it nothing says which dedup entries count.
    pub(super) fn no_generation(names: &Names) -> Self {
        let why = format!(
            "the table `generation` of {names} has no row, so nobody knows which dedup entries count: restore it from a \
             backup"
        );
        Self::unfit(ErrorKind::Malformed, why)
    }

    /// Too many others have connections.
    pub(super) fn no_place() -> Self {
        Self::unfit(ErrorKind::Unavailable, connections::NO_PLACE.to_owned())
    }

    pub(super) fn unreachable() -> Self {
        Self::of_read(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
    }

    /// Of something that was done before it, of which nobody knows now whether it is kept.
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
        let of_tables = self.code().is_some_and(|code| TABLES_CHANGED.contains(&code));
        matches!(&*self.cause, Cause::Driver(error) if refused(error)) && !of_tables
    }

    /// Whether the connection has ended, or the server has ended it.
    pub(super) fn is_of_the_connection(&self) -> bool {
        match &*self.cause {
            Cause::Driver(error) => {
                error.as_database_error().is_none() || self.code().is_some_and(|code| code.starts_with("57P"))
            }
            Cause::TooLate | Cause::WaitCut | Cause::Rotating | Cause::Unfit(..) => false,
        }
    }

    /// A lost race with another transaction: the server has rolled it back, and it may be tried again at once.
    pub(super) fn is_of_a_race(&self) -> bool {
        !self.unknown && matches!(self.code(), Some("40001" | "40P01"))
    }

    /// Something with the same key is there already.
    pub(super) fn is_of_a_known_key(&self) -> bool {
        !self.unknown && self.code() == Some("23505")
    }

    /// Others hold a lock for longer than was waited for.
    pub(super) fn is_of_a_lock(&self) -> bool {
        !self.unknown && matches!(self.code(), Some("55P03" | "40P01"))
    }

    /// The server or the way to it is at fault, not what was asked: trying members of a group one by one would only repeat
    /// it.
    pub(super) fn is_of_all(&self) -> bool {
        match self.code() {
            // One row that somebody keeps.
            Some("55P03") => false,
            Some(code) => ["08", "25", "28", "42", "53", "55", "57", "58", "40", "3D", "3F"].contains(&&code[..2]),
            None => true,
        }
    }

    fn code(&self) -> Option<&str> {
        match &*self.cause {
            Cause::Driver(error) => code(error),
            Cause::TooLate | Cause::WaitCut | Cause::Rotating | Cause::Unfit(..) => None,
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
            // Never of less than an unknown outcome.
            Cause::WaitCut => error(ErrorKind::UnknownOutcome, WAIT_CUT),
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

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => fmt::Display::fmt(error, f),
            Self::TooLate => f.write_str("no answer within the limit"),
            Self::WaitCut => f.write_str(WAIT_CUT),
            Self::Rotating => f.write_str("the generations changed"),
            Self::Unfit(_, why) => f.write_str(why),
        }
    }
}

/// Without the server's `DETAIL`, which the driver's own has: it may show the row that was refused, with its body.
impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => match code(error) {
                Some(code) => write!(f, "{error} ({code})"),
                None => fmt::Display::fmt(error, f),
            },
            other => fmt::Display::fmt(other, f),
        }
    }
}

/// The driver's error as a source.
#[derive(Debug)]
struct Shown(Arc<Cause>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.0, f)
    }
}

impl std::error::Error for Shown {}

/// The server answered that it did not do it, and goes on serving this connection. A fatal answer says nothing: it may
/// come while the server waits for a standby with the commit already made.
pub(super) fn refused(error: &sqlx::Error) -> bool {
    let severity = |error: &PgDatabaseError| matches!(error.severity(), PgSeverity::Error);
    error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()).is_some_and(severity)
}

fn code(error: &sqlx::Error) -> Option<&str> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    Some(error.code()).filter(|code| code.len() == 5)
}

fn meaning(error: &sqlx::Error) -> (ErrorKind, String) {
    use ErrorKind::{Denied, Misconfigured, TooLarge, Unavailable};
    let (kind, text) = match code(error) {
        Some("08P01") if error.to_string().contains("unsupported startup parameter") => (Misconfigured, POOLER),
        Some("40001" | "40P01") => {
            (Unavailable, "it met other transactions again and again, and was rolled back each time")
        }
        Some("57014") => (Unavailable, "the server has ended it after its time limit; nothing was changed"),
        Some("55P03") => (Unavailable, "another transaction has kept a lock for too long: end that transaction"),
        Some("53300") => (
            Unavailable,
            "the server has no connection left: raise `max_connections`, or use fewer (`writers`, `readers`)",
        ),
        Some("53100") => (Unavailable, "the server's disk is full: make room and it goes on, nothing is lost"),
        Some("25006") => (
            Unavailable,
            "the server takes no writes (a standby, or `default_transaction_read_only`): connect to the primary",
        ),
        Some("42501") => (Denied, "this role may not do it: grant what `Postgres::grants_sql` lists"),
        Some("28000" | "28P01") => (Denied, "the server has refused the role or its password: check the URL"),
        Some("3D000") => (Misconfigured, "there is no such database: create it, or name another one in the URL"),
        Some(code) if TABLES_CHANGED.contains(&code) => (
            Misconfigured,
            "hapax's tables are not as this version needs them: apply `Postgres::migrate`, or undo what changed them",
        ),
        Some("23505" | "23514" | "23502" | "23503" | "P0001") => {
            (Misconfigured, "a trigger or constraint on hapax's tables refuses it: remove it")
        }
        Some("54000") => (TooLarge, "it is larger than the server takes"),
        Some("22021" | "22P05") => {
            (Misconfigured, "the database cannot hold this text: use a database with the encoding UTF8")
        }
        Some("26000" | "42P05" | "08P01") => (
            Misconfigured,
            "prepared statements get lost between here and the server: behind a connection pooler set `pooler(true)`",
        ),
        Some(_) => (Unavailable, "the server refused it; the cause is in the source of this error"),
        None => tls::meaning(error).unwrap_or((
            Unavailable,
            "the server cannot be reached: see that it runs, and that host, port and TLS in the URL are right; what the driver says is the \
             source of this error",
        )),
    };
    (kind, text.to_owned())
}
