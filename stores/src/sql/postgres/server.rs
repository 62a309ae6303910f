//! Connecting: what could break the promise of a server is found now, and said in one line. Looked at anew with every
//! connection, since a fail-over may put another server behind the same address.

use std::sync::{Arc, atomic::Ordering};

use hapax_core::ports::ErrorKind;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, Row, postgres::PgRow};
use tokio::time::timeout;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

use super::{
    super::{clock, missing, versions},
    connection::Dial,
    error::Failure,
    migrate::Contents,
    names::Names,
    wire::Schema,
};

/// The oldest server that gets security fixes as this is written; 15 is what is tested.
const OLDEST: i32 = 140_000;
pub(super) const POOLER: &str = "a connection pooler stands before the server and does not pass on the settings of the \
                                 session: connect to the server itself, or set `pooler(true)`";
const QUESTION: &str = "\
    SELECT current_setting('server_version_num')::int, current_setting('fsync'), \
      current_setting('synchronous_commit'), pg_is_in_recovery(), current_setting('server_encoding'), \
      current_setting('full_page_writes'), current_setting('transaction_read_only'), \
      coalesce(current_setting('hapax.session', true), ''), (date_part('epoch', clock_timestamp()) * 1000)::bigint, \
      current_setting('transaction_isolation'), current_setting('synchronous_standby_names')";
/// Beside it in a session of our own: what was found stays, whatever the server's settings become while it lasts, and it is
/// not ended because nobody has asked for anything. Older servers have no such limit, and are refused.
const OWN: &str = ", set_config('synchronous_commit', current_setting('synchronous_commit'), false), \
      CASE WHEN current_setting('server_version_num')::int >= 140000 \
        THEN set_config('idle_session_timeout', '0', false) END";

/// The tables that a server must have, so far as its own record says.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    record: Arc<str>,
    latest: i32,
    remedy: &'static str,
    names: Names,
}

impl Tables {
    pub(super) fn of(schema: &Schema, names: &Names) -> Self {
        let record = names.put_into(schema.version) + "; " + &kept(schema, names);
        let record = record.into();
        Self { record, latest: schema.latest(), remedy: schema.remedy, names: names.clone() }
    }

    /// Whether this program may use a database with `contents`.
    pub(super) fn check(&self, contents: Contents) -> Result<(), Failure> {
        let Self { latest, remedy, names, .. } = self;
        let Contents { version, usable_from } = contents;
        versions::check(names, version.into(), usable_from, (*latest).into(), remedy)
            .map_err(|(kind, why)| Failure::unfit(kind, why))
    }
}

/// Asks for tables of `schema` that a crash of the server empties, and for those that are missing.
pub(super) fn kept(schema: &Schema, names: &Names) -> String {
    const CREATE: &str = "CREATE TABLE IF NOT EXISTS hapax.";
    let texts = schema.migrations.iter().flat_map(|(_, sql)| sql.split(CREATE).skip(1));
    let tables: Vec<String> = texts
        .filter_map(|text| text.split([' ', '(']).next())
        .map(|table| format!("'{}'", names.table(table)))
        .collect();
    format!(
        "SELECT string_agg(needed, ', ') FILTER (WHERE relpersistence <> 'p'), \
         string_agg(needed, ', ') FILTER (WHERE relname IS NULL) FROM unnest(ARRAY[{}]) AS needed \
         LEFT JOIN pg_catalog.pg_class ON relname = needed AND relnamespace = '{}'::regnamespace",
        tables.join(", "),
        names.schema()
    )
}

/// A connection to a server that is what the promises need: what it has confirmed is on its disk, it is the primary, and
/// its schema is the one that was found when the store was opened, or one that it may be used with. One round trip beside
/// the connecting itself.
pub(super) async fn connect(dial: &Dial) -> Result<PgConnection, Failure> {
    let connecting = async {
        let mut connection = dial.options.connect().await.map_err(Failure::of_read)?;
        let rows = look(&mut connection, dial).await?;
        if let Some((tables, row)) = dial.tables.as_ref().zip(rows.get(1)) {
            tables.check(Contents::of(row).map_err(Failure::of_read)?)?;
        }
        if let Some(row) = rows.get(2) {
            check_kept(row).map_err(Failure::of_read)??;
        }
        Ok(connection)
    };
    timeout(dial.limit, connecting).await.unwrap_or_else(|_| Err(Failure::unreachable()))
}

/// Whether the server keeps what it confirms. The answers to what else was asked in the same message come behind the first.
/// Behind a connection pooler it is asked as everything is: in a transaction with settings of its own.
pub(super) async fn look(connection: &mut PgConnection, dial: &Dial) -> Result<Vec<PgRow>, Failure> {
    let record = dial.tables.as_ref().map_or(String::new(), |tables| format!("; {}", tables.record));
    let question = match &dial.pooled {
        Some(begin) => format!("{begin}; {QUESTION}{record}; COMMIT"),
        None => format!("{QUESTION}{OWN}{record}"),
    };
    let before = (dial.now)();
    let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(question))).await.map_err(Failure::of_read)?;
    let after = (dial.now)();
    let row = rows.first().ok_or_else(|| Failure::of_read(sqlx::Error::RowNotFound))?;
    check(row, dial.mark.as_deref()).map_err(Failure::of_read)?.map_err(misconfigured)?;
    let server = row.try_get(8).map_err(Failure::of_read)?;
    clock::compare(&dial.place, &dial.told_of_clock, before, server, after);
    let standbys: &str = row.try_get(10).map_err(Failure::of_read)?;
    if !standbys.is_empty() && STATIC_MAX_LEVEL < LevelFilter::WARN {
        return Err(misconfigured(
            "`synchronous_standby_names` is set, and this program is built without warnings (`max_level_..` of tracing), by \
             which a commit is known that was not waited for: build it with `max_level_warn` at least"
                .to_owned(),
        ));
    }
    dial.standbys.store(!standbys.is_empty(), Ordering::Relaxed);
    Ok(rows)
}

/// The answer to [`kept`].
pub(super) fn check_kept(row: &PgRow) -> Result<Result<(), Failure>, sqlx::Error> {
    let (unlogged, gone): (Option<String>, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
    let emptied = |unlogged| {
        format!("UNLOGGED tables, which a crash of the server empties: {unlogged}; `ALTER TABLE .. SET LOGGED`")
    };
    let why = gone.as_deref().map(missing::tables).or_else(|| unlogged.map(emptied));
    Ok(why.map_or(Ok(()), |why| Err(misconfigured(why))))
}

fn misconfigured(why: String) -> Failure {
    Failure::unfit(ErrorKind::Misconfigured, why)
}

/// What is wrong with a server. And whether the session is our own, with the settings that were asked for: a pooler may
/// swallow them and say nothing.
fn check(row: &PgRow, mark: Option<&str>) -> Result<Result<(), String>, sqlx::Error> {
    let text = |at: usize| row.try_get::<String, _>(at);
    let version: i32 = row.try_get(0)?;
    if let Some(mark) = mark
        && text(7)? != mark
    {
        return Ok(Err(POOLER.to_owned()));
    }
    Ok(Err(if let Some(why) = too_old(version) {
        why
    } else if text(1)? != "on" {
        "`fsync` is off, so a power failure loses what was confirmed: set `fsync = on`".to_owned()
    } else if text(5)? != "on" {
        "`full_page_writes` is off, so a power failure may damage what was confirmed: set it to on".to_owned()
    } else if text(2)? == "off" {
        "`synchronous_commit` is off, so a crash of the server loses what was confirmed: `ALTER ROLE .. SET \
         synchronous_commit = on`, or `local` at least"
            .to_owned()
    } else if ["local", "remote_write"].contains(&&*text(2)?) && !text(10)?.is_empty() {
        format!(
            "`synchronous_commit` is {} beside `synchronous_standby_names`, so a fail-over loses what was confirmed: `ALTER \
             ROLE .. SET synchronous_commit = on`",
            text(2)?
        )
    } else if text(9)? != "read committed" {
        // Who waits for a rotation's lock has to see what it has done.
        format!("transactions are {} and not read committed, although that was asked for: {POOLER}", text(9)?)
    } else if row.try_get(3)? {
        "the server is a standby and takes no writes: connect to the primary".to_owned()
    } else if text(6)? != "off" {
        "`default_transaction_read_only` is on, so that nothing can be written: `ALTER ROLE .. SET \
         default_transaction_read_only = off`, or of the database"
            .to_owned()
    } else if text(4)? != "UTF8" {
        format!("the database keeps text as {}: create one with `ENCODING 'UTF8'`", text(4)?)
    } else {
        return Ok(Ok(()));
    }))
}

fn too_old(version: i32) -> Option<String> {
    let is = format!("the server has version {}, hapax needs {} or later", version / 10_000, OLDEST / 10_000);
    (version < OLDEST).then_some(is)
}

#[cfg(test)]
mod tests {
    use super::too_old;

    #[test]
    fn a_server_that_gets_no_fixes_any_more_is_refused() {
        assert_eq!(too_old(139_999).as_deref(), Some("the server has version 13, hapax needs 14 or later"));
        assert_eq!((too_old(140_000), too_old(180_001)), (None, None));
    }
}
