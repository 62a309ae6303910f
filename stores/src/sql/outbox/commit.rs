//! What a commit of the user's own transaction may end with.

use std::fmt;

use hapax_core::relay::Ticket;

/// Why a transaction with messages in it does not count as committed.
///
/// A commit has three ends and not two: the answer may be lost on its way (a connection that broke, a server that was stopped). Who repeats such a transaction blindly stores it twice, and who does not may
/// have stored nothing. So give what you store a key that is unique, from outside (an order's number, an `Idempotency-Key`):
/// then the repetition meets what is there.
///
/// On PostgreSQL with synchronous standbys a commit whose wait for them is cancelled (`pg_cancel_backend`) is one that the server
/// says has succeeded, with a warning that is not looked at here: should a standby be promoted then, a message may have been sent whose
/// transaction is not there.
///
/// It shows no row that the database has refused; the `Debug` of the driver's own error, which is its source, may.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Nothing of it is stored, neither your rows nor a message. It may be done again as a whole.
    #[error("the transaction was not committed and nothing of it is stored: repeat it as a whole")]
    NotCommitted(#[source] sqlx::Error),
    /// All of it is stored, or nothing; or, where the database had ended the transaction in the middle and statements went on
    /// (MariaDB after a deadlock, SQLite after a full disk), what came after that. If it is, a relay finds its messages once the lease of their birth is over
    /// ([`RelayOptions::birth_lease`](hapax_core::relay::RelayOptions::birth_lease)), and sends them under their ids.
    #[error(
        "whether the transaction was committed is not known: look for a row of it before you repeat it, or repeat it where a \
         unique key refuses what is stored already"
    )]
    Unknown(#[source] sqlx::Error),
}

impl fmt::Debug for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotCommitted(error) | Self::Unknown(error)) = self;
        write!(f, "{self}: {error}")
    }
}

impl CommitError {
    pub(in crate::sql) const fn new(error: sqlx::Error, unknown: bool) -> Self {
        if unknown { Self::Unknown(error) } else { Self::NotCommitted(error) }
    }

    /// That all of `ticket` was stored in a transaction of `database`, as far as it is known. What was stored in another one's is
    /// not committed by this one, and must not be sent after it.
    pub(in crate::sql) fn unless_of(database: &str, ticket: &Ticket) -> Result<(), Self> {
        let Some(other) = ticket.stored().find(|stored| stored.database != database) else { return Ok(()) };
        let why = format!(
            "the ticket has messages that were stored in {}, and this is a transaction of {database}: commit each with its own",
            other.database
        );
        Err(Self::NotCommitted(sqlx::Error::Protocol(why)))
    }

    /// Whether the transaction may be stored all the same.
    #[must_use]
    pub const fn is_unknown_outcome(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

/// For functions that answer with the driver's errors. What is known about the outcome gets lost.
impl From<CommitError> for sqlx::Error {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::NotCommitted(error) | CommitError::Unknown(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use hapax_core::relay::{Stored, Ticket};

    use super::CommitError;

    fn of(database: &'static str) -> Ticket {
        Ticket::waiting(None, None).storing(Stored { database, table: "outbox".into(), messages: Vec::new() })
    }

    #[test]
    fn what_was_stored_in_a_transaction_of_another_database_is_not_committed_with_this_one() {
        let told = CommitError::unless_of("MariaDB", &of("MariaDB").and(of("SQLite")));
        assert!(matches!(&told, Err(CommitError::NotCommitted(why)) if why.to_string().contains("SQLite")), "{told:?}");
        assert!(CommitError::unless_of("MariaDB", &of("MariaDB").and(Ticket::empty())).is_ok());
    }
}
