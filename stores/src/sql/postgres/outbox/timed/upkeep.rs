//! Partitions are made ahead, and dropped when all in them is over.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use hapax_core::ports::{Care, Cared, StoreError};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _, postgres::PgArguments, postgres::PgRow};

use super::{
    super::{
        super::{
            super::outbox::millis,
            arguments::Bind,
            error::Failure,
            wire::{Fault, Server, Wire},
        },
        statements::{self, NOW, WITH_NOW},
    },
    STORAGE, Span, Timed,
};

/// How long a lock is waited for that excludes everybody: those who come meanwhile wait behind it, so it is about what a person
/// does not notice, and longer than usual transactions are open.
const LOCK_WAIT: Duration = Duration::from_millis(200);
/// How long nobody is made to wait behind that lock again once it was not had: a fiftieth of all time at most.
const LOCK_PAUSE: Duration = LOCK_WAIT.saturating_mul(50);
/// How long the partition for the rest may be read when one is made, which relays wait for: some millions of rows.
const MAKE_LIMIT: Duration = Duration::from_secs(3);
/// How many partitions there are beyond the one that is written to: two, since nobody may look after them while relays are
/// stopped, or be let to.
const AHEAD: i64 = 2;

/// The server's time, whether the role may make and drop partitions, the owner's name and the role's; and each partition's time.
const LOOK: &str = "\
    SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint, \
      pg_has_role(t.relowner, 'USAGE') AND has_schema_privilege(t.relnamespace, 'CREATE'), \
      quote_ident(pg_get_userbyid(t.relowner)::text), quote_ident(current_user::text), \
      substring(p.relname::text FROM 'outbox_t([0-9]{1,18})$')::bigint \
    FROM pg_catalog.pg_class AS t LEFT JOIN pg_catalog.pg_inherits AS i ON i.inhparent = t.oid \
      LEFT JOIN pg_catalog.pg_class AS p ON p.oid = i.inhrelid WHERE t.oid = 'hapax.outbox'::regclass";

/// What [`LOOK`] has found.
#[derive(Debug)]
struct Look {
    now: i64,
    may: bool,
    owner: String,
    role: String,
    /// The oldest first.
    spans: Vec<Span>,
}

/// What became of a partition that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// With so many rows, as the server has last counted them.
    Dropped(i64),
    /// Not all in it is over.
    Kept,
    /// Others use the table, or look after it.
    InTheWay,
}

impl Timed {
    /// Makes partitions for what is stored next.
    pub(in super::super) async fn open(&self, server: &Server) -> Result<(), StoreError> {
        let mut wire = server.wire();
        let made = match self.look(server, &mut wire).await {
            Ok(look) => self.make_ahead(server, &mut wire, &look).await,
            Err(fault) => Err(fault),
        };
        wire.close().await;
        made.map_err(|fault| fault.store_error(statements::SCHEMA.opening, server.place()))
    }

    /// As one batch; whole partitions are not counted, since to count them is to read them.
    pub(in super::super) async fn remove(&self, server: &Server, wire: &mut Wire, care: &Care) -> Result<Cared, Fault> {
        let Care { keep, archive, rows } = *care;
        // What would be archived stays where it is.
        let age = millis(keep.saturating_add(archive.unwrap_or_default()));
        let look = self.look(server, wire).await?;
        if !look.may {
            self.tell(server, &look);
            let ended = batch(server, wire, "hapax.outbox", "true", (age, rows)).await?;
            return Ok(Cared { ended, archived: 0 });
        }
        self.make_ahead(server, wire, &look).await?;
        let mut left = rows;
        for span in look.spans.iter().copied() {
            let due_for = look.now.saturating_sub(age).saturating_sub(span.until);
            if due_for < 0 {
                break;
            }
            if self.try_drop(server, wire, span, age).await? || due_for < self.every {
                continue;
            }
            // It could not be dropped in all that time, and what is over in it must not stay for that.
            left -= batch(server, wire, "hapax.outbox", &span.holds(), (age, left)).await?;
        }
        left -= batch(server, wire, "hapax.outbox_rest", "true", (age, left)).await?;
        Ok(Cared { ended: rows - left, archived: 0 })
    }

    async fn look(&self, server: &Server, wire: &mut Wire) -> Result<Look, Fault> {
        let rows = wire.read(&server.text(LOOK), PgArguments::default()).await?;
        self.looked(&rows).map_err(Fault::of_answer)
    }

    fn looked(&self, rows: &[PgRow]) -> Result<Look, sqlx::Error> {
        let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let mut spans = Vec::new();
        for row in rows {
            // That for the rest has no time.
            if let Some(from) = row.try_get::<Option<i64>, _>(4)? {
                spans.push(self.span(from));
            }
        }
        spans.sort_unstable_by_key(|span| span.from);
        let (owner, role) = (first.try_get(2)?, first.try_get(3)?);
        Ok(Look { now: first.try_get(0)?, may: first.try_get(1)?, owner, role, spans })
    }

    const fn span(&self, from: i64) -> Span {
        Span { from, until: from.saturating_add(self.every) }
    }

    fn tell(&self, server: &Server, look: &Look) {
        if self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        let Look { owner, role, .. } = look;
        tracing::warn!(
            place = %server.place(), role, owner,
            "the role may not make and drop the outbox's time partitions, so that what is over is deleted in batches: let a role \
             relay that may, or `GRANT {owner} TO {role}` and `GRANT CREATE ON SCHEMA` of the table to it"
        );
    }

    async fn make_ahead(&self, server: &Server, wire: &mut Wire, look: &Look) -> Result<(), Fault> {
        if !look.may || waits(&self.makes_from) {
            return Ok(());
        }
        let current = look.now.div_euclid(self.every);
        for span in (current..=current + AHEAD).map(|number| self.span(number * self.every)) {
            if look.spans.contains(&span) {
                continue;
            }
            let owner = (look.owner != look.role).then_some(&*look.owner);
            let [lock, is_free, make] = to_make(span, self.lock, owner).map(|text| server.text(&text));
            let making = wire.transaction(move |connection| {
                Box::pin(async move {
                    if !had(connection, &lock).await? || !told(connection, &is_free).await? {
                        return Ok((false, false));
                    }
                    let made = had(connection, &make).await?;
                    Ok((made, made))
                })
            });
            let (began, place, table) = (Instant::now(), server.place(), server.text(&span.table()));
            if making.await? {
                tracing::info!(%place, %table, "a time partition of the outbox was made");
            } else if began.elapsed() >= MAKE_LIMIT {
                pause(&self.makes_from, Duration::from_millis(self.every.cast_unsigned()));
                tracing::warn!(
                    %place, %table,
                    "a time partition of the outbox cannot be made, since the one for the rest is too large to be read: let ids \
                     of messages begin with their time (UUIDv7), or use another table without time partitions"
                );
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether it was dropped.
    async fn try_drop(&self, server: &Server, wire: &mut Wire, span: Span, age: i64) -> Result<bool, Fault> {
        if waits(&self.drops_from) {
            return Ok(false);
        }
        let [turn, is_over, lock, drop] = to_drop(span, self.lock, age).map(|text| server.text(&text));
        let dropping = wire.transaction(move |connection| {
            Box::pin(async move {
                if !told(connection, &turn).await? {
                    return Ok((false, Tried::InTheWay));
                }
                // Nobody is to wait behind the lock for nothing.
                if !told(connection, &is_over).await? {
                    return Ok((false, Tried::Kept));
                }
                if !had(connection, &lock).await? {
                    return Ok((false, Tried::InTheWay));
                }
                // Again, since others may have stored something there until the lock was had.
                let Some(rows) = over(connection, &is_over).await? else {
                    return Ok((false, Tried::Kept));
                };
                let dropped = had(connection, &drop).await?;
                Ok((dropped, if dropped { Tried::Dropped(rows) } else { Tried::InTheWay }))
            })
        });
        let tried = dropping.await?;
        let (place, table) = (server.place(), server.text(&span.table()));
        match tried {
            Tried::Dropped(rows) => tracing::info!(%place, %table, rows, "a time partition of the outbox was dropped"),
            Tried::Kept => tracing::debug!(%place, %table, "a time partition of the outbox holds what is not over"),
            Tried::InTheWay => {
                tracing::debug!(%place, %table, "a time partition of the outbox cannot be dropped now: others use the table");
                pause(&self.drops_from, LOCK_PAUSE);
            }
        }
        Ok(matches!(tried, Tried::Dropped(_)))
    }
}

fn waits(until: &Mutex<Option<Instant>>) -> bool {
    until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > Instant::now())
}

fn pause(until: &Mutex<Option<Instant>>, pause: Duration) {
    *until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + pause);
}

/// Removes what has been over for `age`, and tells how much it was.
async fn batch(
    server: &Server,
    wire: &mut Wire,
    table: &str,
    of: &str,
    (age, rows): (i64, usize),
) -> Result<usize, Fault> {
    if rows == 0 {
        return Ok(0);
    }
    let mut arguments = PgArguments::default();
    arguments.bind(age).bind(i64::try_from(rows).unwrap_or(i64::MAX)).bind(false);
    let removed = wire.write(&server.text(&statements::remove(table, of)), arguments).await?;
    let count = removed.first().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get::<i64, _>(0));
    count.map(|count| usize::try_from(count).unwrap_or_default()).map_err(Fault::of_answer)
}

/// Makes a partition, unless it is there or the one for the rest holds what would belong to it: then it goes on doing so. Added to
/// the table only once it is one of its own: so nobody who stores in another one waits for this, nor is waited for.
fn to_make(span: Span, lock: i64, owner: Option<&str>) -> [String; 3] {
    let (table, holds, [first, behind]) = (span.table(), span.holds(), span.ids());
    let owner = owner.map_or(String::new(), |owner| format!("; ALTER TABLE {table} OWNER TO {owner}"));
    [
        format!(
            "{}; SET LOCAL statement_timeout = '{}ms'; SELECT pg_advisory_xact_lock({lock})",
            wait(),
            MAKE_LIMIT.as_millis()
        ),
        format!(
            "SELECT to_regclass('{table}') IS NULL AND NOT EXISTS (SELECT FROM hapax.outbox_rest AS m WHERE {holds})"
        ),
        format!(
            "CREATE TABLE {table} (LIKE hapax.outbox INCLUDING ALL EXCLUDING INDEXES) {STORAGE}; \
             ALTER TABLE hapax.outbox ATTACH PARTITION {table} FOR VALUES FROM ('{first}') TO ('{behind}'){owner}"
        ),
    ]
}

/// Drops a partition: the turn, whether all in it is over and how many rows that is, the locks, the drop.
fn to_drop(span: Span, lock: i64, age: i64) -> [String; 4] {
    let table = span.table();
    [
        format!("{}; SELECT pg_try_advisory_xact_lock({lock})", wait()),
        // Each is a look into an index that holds such rows only.
        format!(
            "WITH {WITH_NOW} SELECT NOT EXISTS (SELECT FROM {table} AS m WHERE m.status = 0) \
               AND NOT EXISTS (SELECT FROM {table} AS m WHERE m.status = 2) \
               AND NOT EXISTS (SELECT FROM {table} AS m WHERE m.status IN (1, 3) AND m.ended_at > {NOW} - {age}), \
               greatest((SELECT reltuples::bigint FROM pg_catalog.pg_class WHERE oid = '{table}'::regclass), 0)"
        ),
        // Whoever uses the partition through the table has the table's lock. Others, such as a vacuum, are not waited for, since
        // everybody would be waiting behind the first lock.
        format!(
            "LOCK TABLE ONLY hapax.outbox IN ACCESS EXCLUSIVE MODE; \
             LOCK TABLE ONLY {table}, ONLY hapax.outbox_rest IN ACCESS EXCLUSIVE MODE NOWAIT"
        ),
        format!("DROP TABLE {table}"),
    ]
}

fn wait() -> String {
    format!("SET LOCAL lock_timeout = '{}ms'", LOCK_WAIT.as_millis())
}

/// Whether others are not in the way of `text`. If they are, the transaction can only be given up.
async fn had(connection: &mut PgConnection, text: &Arc<str>) -> Result<bool, Failure> {
    match connection.execute(sqlx::raw_sql(AssertSqlSafe(text.clone()))).await {
        Err(error) if is_in_the_way(&error) => Ok(false),
        done => done.map(|_| true).map_err(Failure::of_read),
    }
}

/// What `text` says; no if others are in the way.
async fn told(connection: &mut PgConnection, text: &Arc<str>) -> Result<bool, Failure> {
    match connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(text.clone()))).await {
        Err(error) if is_in_the_way(&error) => Ok(false),
        row => row.and_then(|row| row.try_get(0)).map_err(Failure::of_read),
    }
}

/// How many rows there are if all are over.
async fn over(connection: &mut PgConnection, text: &Arc<str>) -> Result<Option<i64>, Failure> {
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(text.clone()))).await.map_err(Failure::of_read)?;
    let is_over: bool = row.try_get(0).map_err(Failure::of_read)?;
    is_over.then(|| row.try_get(1)).transpose().map_err(Failure::of_read)
}

/// A lock that was not had; a partition that others have dropped; rows in the partition for the rest that came just now, or that are
/// too many to be looked at in time.
fn is_in_the_way(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| ["55P03", "40P01", "42P01", "23514", "57014"].contains(&&*code))
}

/// Every text that can be prepared while there is no partition for `span`.
#[cfg(test)]
pub(super) fn all(span: Span) -> Vec<String> {
    let [_, is_free, _] = to_make(span, 1, None);
    let mut all = vec![LOOK.to_owned(), is_free];
    all.extend([statements::remove("hapax.outbox", &span.holds()), statements::remove("hapax.outbox_rest", "true")]);
    all
}
