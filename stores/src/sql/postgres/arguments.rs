//! How values get into what is sent: bound as a rule; as literals in rare work of several statements, which behind a connection pooler has to be
//! one message.

use std::{sync::Arc, time::Duration};

use sqlx::{Arguments, Encode, Postgres, Type, postgres::PgArguments};

/// How long upkeep waits for a table that others use. Others wait behind it meanwhile; it is as good later.
const LOCK_LIMIT: Duration = Duration::from_secs(1);

/// Binding that cannot fail, in a chain.
pub(super) trait Bind {
    fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(&mut self, value: T) -> &mut Self;
}

impl Bind for PgArguments {
    fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(&mut self, value: T) -> &mut Self {
        self.add(value).expect("numbers, text and bytes of less than a gigabyte are bound as they are");
        self
    }
}

/// `sql` with `numbers` in place of `$1`, `$2` .., to be sent as one message, for rare work that is of several statements.
/// What is prepared takes two, and outside a transaction a connection pooler may send the second to another session, where
/// another client has prepared something else under the same name.
pub(super) fn put_in(sql: &str, numbers: &[i64]) -> String {
    let last_first = numbers.iter().enumerate().rev(); // `$1` is the beginning of `$10`.
    last_first
        .fold(sql.to_owned(), |sql, (at, number)| sql.replace(&format!("${}", at + 1), &format!("'{number}'::bigint")))
}

/// How rare work of several statements begins a transaction: at the level and with the time limit that a session of our own
/// has, which behind a connection pooler is nobody's own.
#[derive(Debug, Clone)]
pub(super) struct Begin(Option<Arc<str>>);

impl Begin {
    /// With the text that begins each transaction behind a connection pooler, if there is one.
    pub(super) const fn new(pooled: Option<Arc<str>>) -> Self {
        Self(pooled)
    }

    pub(super) fn text(&self) -> &str {
        self.0.as_deref().unwrap_or("BEGIN")
    }

    /// For what takes a table for itself: whoever comes later waits behind it, so it waits for [`LOCK_LIMIT`] only.
    pub(super) fn with_lock_limit(&self) -> String {
        format!("{}; SET LOCAL lock_timeout = {}", self.text(), LOCK_LIMIT.as_millis())
    }

    /// `sql` in a transaction of its own, as one message.
    pub(super) fn alone(&self, sql: String) -> String {
        match &self.0 {
            Some(begin) => format!("{begin}; {sql}; COMMIT"),
            None => sql,
        }
    }
}
