//! How another library's outbox table is read, in the words of each database.

use super::EnqueueError;

/// What databases say in different words.
pub(in crate::sql) trait Dialect {
    /// Around a name.
    const QUOTE: char;
    /// Finds a row again, within a transaction that has it locked.
    fn place(id: &str) -> String;
    /// A text.
    fn literal(text: &str) -> String;
    /// `expression` as a text.
    fn text(expression: &str) -> String;
    /// The bytes of `expression`, which is one or is a text.
    fn bytes(expression: &str, is_bytes: bool) -> String;
    /// Whether bytes of `expression` would be other ones as a text, as a number; of the id, or of the body.
    fn damaged(expression: &str, is_id: bool) -> String;
    /// `expression` as a number of 64 bits.
    fn number(expression: &str) -> String;
    /// The condition that a row is none of those that were refused, which may be parameters.
    fn none_of(id: &str, refused: &[String]) -> String;
    /// Removes the rows `t` of `table` for which `condition` holds.
    fn delete(table: &str, condition: &str) -> String {
        format!("DELETE FROM {table} AS t WHERE {condition}")
    }
    /// Behind everything: rows are locked. Where order is kept one that somebody has locked is waited for: what comes behind it must
    /// not overtake it.
    fn lock(ordered: bool) -> &'static str;
}

/// Rows of one transaction. Default 500: a commit of some tens of milliseconds.
const BATCH: i64 = 500;

/// All rows are unsent.
const ALL: &str = "1 = 1";

/// From where a part of a message comes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A column, by its name as it is in the catalogue.
    Column(String),
    /// The same text for all.
    Text(String),
    /// An expression of SQL over the table's columns. It is run as it is: never make it of what a stranger has said.
    Sql(String),
}

impl Source {
    /// A column.
    pub fn column(name: impl Into<String>) -> Self {
        Self::Column(name.into())
    }

    /// The same for all.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// An expression of SQL.
    pub fn sql(sql: impl Into<String>) -> Self {
        Self::Sql(sql.into())
    }

    fn in_sql<D: Dialect>(&self) -> String {
        match self {
            Self::Column(name) => format!("t.{}", quoted::<D>(name)),
            Self::Text(text) => D::literal(text),
            Self::Sql(sql) => format!("({sql})"),
        }
    }
}

/// How another table's rows become messages, and what becomes of those rows.
///
/// ```
/// use hapax_stores::sql::postgres::outbox::{Import, Source}; // In `mysql` and `sqlite` too.
///
/// let import = Import::new("public.outbox", Source::column("id"), Source::column("type"), Source::column("payload"))
///     .destination(Source::sql("'topic:' || aggregatetype"))
///     .key(Source::column("aggregateid"))
///     .unsent("sent_at IS NULL")
///     .order("id")
///     .mark("sent_at = now()");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Import {
    table: String,
    id: Source,
    message_type: Source,
    body: Source,
    body_is_bytes: bool,
    salt: Option<String>,
    destination: Option<Source>,
    key: Option<Source>,
    content_type: Source,
    correlation_id: Option<Source>,
    headers: Option<Source>,
    occurred_at: Option<String>,
    due_at: Option<String>,
    expires_at: Option<String>,
    unsent: String,
    order: Option<String>,
    mark: Option<String>,
    batch: i64,
}

impl Import {
    /// Rows of `table` (`TABLE` or `SCHEMA.TABLE`, as in the catalogue) as messages: `id` is the message id if it is a UUID, or else
    /// what it is derived from, always alike; `body` is a text or JSON. All rows, in the order of `id`; those that were imported are
    /// deleted.
    pub fn new(table: impl Into<String>, id: Source, message_type: Source, body: Source) -> Self {
        Self {
            table: table.into(),
            id,
            message_type,
            body,
            body_is_bytes: false,
            salt: None,
            destination: None,
            key: None,
            content_type: Source::text("application/json"),
            correlation_id: None,
            headers: None,
            occurred_at: None,
            due_at: None,
            expires_at: None,
            unsent: ALL.to_owned(),
            order: None,
            mark: None,
            batch: BATCH,
        }
    }

    /// The body is of bytes: `bytea`, `BLOB`.
    pub const fn body_is_bytes(mut self) -> Self {
        self.body_is_bytes = true;
        self
    }

    /// What message ids are made of beside the rows' ids, where those are no UUIDs. Default the table's name as it was given. Tables of one
    /// name in several databases need one each if their messages meet at a receiver, and so does a table that gives its ids again.
    pub fn salt(mut self, salt: impl Into<String>) -> Self {
        self.salt = Some(salt.into());
        self
    }

    /// Where messages go: `endpoint:NAME` or `topic:TYPE`. Default: where the outbox sends their type.
    pub fn destination(mut self, destination: Source) -> Self {
        self.destination = Some(destination);
        self
    }

    /// The partition key.
    pub fn key(mut self, key: Source) -> Self {
        self.key = Some(key);
        self
    }

    /// The content type. Default `application/json`.
    pub fn content_type(mut self, content_type: Source) -> Self {
        self.content_type = content_type;
        self
    }

    /// The correlation id.
    pub fn correlation_id(mut self, id: Source) -> Self {
        self.correlation_id = Some(id);
        self
    }

    /// Headers, as a JSON object of texts.
    pub fn headers(mut self, headers: Source) -> Self {
        self.headers = Some(headers);
        self
    }

    /// When it has happened: an expression of SQL that is milliseconds since 1970.
    pub fn occurred_at(mut self, millis: impl Into<String>) -> Self {
        self.occurred_at = Some(millis.into());
        self
    }

    /// Before when it is not to be sent, as [`Import::occurred_at`].
    pub fn due_at(mut self, millis: impl Into<String>) -> Self {
        self.due_at = Some(millis.into());
        self
    }

    /// After when it is not worth sending, as [`Import::occurred_at`].
    pub fn expires_at(mut self, millis: impl Into<String>) -> Self {
        self.expires_at = Some(millis.into());
        self
    }

    /// Which rows were not sent yet: a condition of SQL over the columns of `t`. Default all.
    pub fn unsent(mut self, condition: impl Into<String>) -> Self {
        self.unsent = condition.into();
        self
    }

    /// In which order: as behind `ORDER BY`. It is that of messages of one key, where the outbox keeps order.
    pub fn order(mut self, columns: impl Into<String>) -> Self {
        self.order = Some(columns.into());
        self
    }

    /// Rows that were imported stay, and are changed: as behind `SET`. [`Import::unsent`] must not hold for them any more.
    pub fn mark(mut self, set: impl Into<String>) -> Self {
        self.mark = Some(set.into());
        self
    }

    /// Rows of one transaction, at least 1. Default 500.
    pub fn batch(mut self, rows: u32) -> Self {
        self.batch = i64::from(rows.max(1));
        self
    }

    fn table<D: Dialect>(&self) -> String {
        match self.table.split_once('.') {
            Some((schema, table)) => format!("{}.{}", quoted::<D>(schema), quoted::<D>(table)),
            None => quoted::<D>(&self.table),
        }
    }

    /// The id's expression.
    pub(in crate::sql) fn id<D: Dialect>(&self) -> String {
        self.id.in_sql::<D>()
    }

    pub(in crate::sql) fn has_destination(&self) -> bool {
        self.destination.is_some()
    }

    /// What ids that are no UUIDs are made of, beside themselves.
    pub(in crate::sql) fn salted(&self) -> &str {
        self.salt.as_deref().unwrap_or(&self.table)
    }

    /// Rows that are over stay where they are.
    pub(in crate::sql) const fn marks(&self) -> bool {
        self.mark.is_some()
    }

    /// That it can end.
    pub(in crate::sql) fn check(&self) -> Result<(), EnqueueError> {
        if self.mark.is_none() || self.unsent != ALL {
            return Ok(());
        }
        Err(self.wrong("its rows are marked and stay: say by `Import::unsent` which of them are not marked yet"))
    }

    /// An error of the mapping.
    pub(in crate::sql) fn wrong(&self, why: &str) -> EnqueueError {
        EnqueueError::Refused(format!("importing `{}`: {why}", self.table))
    }

    /// The next rows, as [`Read`](super::Read) has them.
    pub(in crate::sql) fn select<D: Dialect>(&self, ordered: bool, refused: &[String]) -> String {
        let text = |from: Option<&Source>| D::text(&from.map_or_else(|| "NULL".to_owned(), Source::in_sql::<D>));
        let millis = |sql: &Option<String>| D::number(sql.as_deref().unwrap_or("NULL"));
        let id = self.id::<D>();
        let columns = [
            D::place(&id),
            D::text(&id),
            text(self.destination.as_ref()),
            text(self.key.as_ref()),
            text(Some(&self.message_type)),
            text(Some(&self.content_type)),
            text(self.correlation_id.as_ref()),
            millis(&self.occurred_at),
            millis(&self.due_at),
            millis(&self.expires_at),
            text(self.headers.as_ref()),
            D::number(&D::damaged(&id, true)),
            D::number(&if self.body_is_bytes { "0".to_owned() } else { D::damaged(&self.body.in_sql::<D>(), false) }),
            D::bytes(&self.body.in_sql::<D>(), self.body_is_bytes),
        ];
        format!(
            "SELECT {} FROM {} AS t WHERE ({}) AND {} ORDER BY {} LIMIT {}{}",
            columns.join(", "),
            self.table::<D>(),
            self.unsent,
            D::none_of(&id, refused),
            self.order.as_deref().unwrap_or(&id),
            self.batch,
            D::lock(ordered)
        )
    }

    /// What becomes of the rows for which `condition` holds.
    pub(in crate::sql) fn over<D: Dialect>(&self, condition: &str) -> String {
        let table = self.table::<D>();
        match &self.mark {
            Some(set) => format!("UPDATE {table} AS t SET {set} WHERE {condition}"),
            None => D::delete(&table, condition),
        }
    }
}

fn quoted<D: Dialect>(name: &str) -> String {
    let (one, two) = (D::QUOTE.to_string(), D::QUOTE.to_string().repeat(2));
    format!("{one}{}{one}", name.replace(&one, &two))
}
