//! Connecting: what could break the promise of a server is found now, and said in one line. Looked at anew with every
//! connection, since a fail-over may put another server behind the same address.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hapax_core::ports::ErrorKind;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, Row, postgres::PgRow};
use tokio::time::timeout;

use super::{connection::Dial, error::Failure, migrate::Contents, names::Names, wire::Schema};

/// The oldest server that gets security fixes as this is written; 15 is what is tested.
const OLDEST: i32 = 140_000;
/// A clock of the server that is further from this process's is told of. A second: what is kept by time service is some
/// milliseconds off, and no delay or retention is set as fine as that.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(1);
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
        if version > *latest && usable_from.is_none_or(|from| from > i64::from(*latest)) {
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

/// Asks for tables of `schema` that a crash of the server empties.
pub(super) fn kept(schema: &Schema, names: &Names) -> String {
    const CREATE: &str = "CREATE TABLE IF NOT EXISTS hapax.";
    let texts = schema.migrations.iter().flat_map(|(_, sql)| sql.split(CREATE).skip(1));
    let tables: Vec<String> = texts
        .filter_map(|text| text.split([' ', '(']).next())
        .map(|table| format!("'{}'", names.table(table)))
        .collect();
    format!(
        "SELECT string_agg(relname, ', ') FROM pg_catalog.pg_class WHERE relnamespace = '{}'::regnamespace \
         AND relpersistence <> 'p' AND relname = ANY (ARRAY[{}])",
        names.schema(),
        tables.join(", ")
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
            check_kept(row.try_get(0).map_err(Failure::of_read)?)?;
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
    compare_clocks(dial, before, row.try_get(8).map_err(Failure::of_read)?, after);
    let standbys: &str = row.try_get(10).map_err(Failure::of_read)?;
    dial.standbys.store(!standbys.is_empty(), Ordering::Relaxed);
    Ok(rows)
}

/// `unlogged`: tables that a crash of the server empties.
pub(super) fn check_kept(unlogged: Option<String>) -> Result<(), Failure> {
    let Some(unlogged) = unlogged else { return Ok(()) };
    Err(misconfigured(format!(
        "UNLOGGED tables, which a crash of the server empties: {unlogged}; `ALTER TABLE .. SET LOGGED`"
    )))
}

fn check_version(version: i32) -> Result<(), String> {
    if version >= OLDEST {
        return Ok(());
    }
    Err(format!("the server has version {}, hapax needs {} or later", version / 10_000, OLDEST / 10_000))
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
    Ok(Err(if let Err(why) = check_version(version) {
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

/// Says so when the server's clock and this process's are far apart, once until they are not.
fn compare_clocks(dial: &Dial, before: SystemTime, server: i64, after: SystemTime) {
    let skew = skew(millis(before), server, millis(after));
    let is_far = skew.unsigned_abs() > CLOCK_SKEW_MAX.as_millis() as u64;
    if is_far && !dial.told_of_clock.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            place = %dial.place,
            "the server's clock is {} ms {} of this host's, so that delayed messages come as much {}: let a time service \
             (NTP) set both",
            skew.unsigned_abs(),
            if skew > 0 { "ahead" } else { "behind" },
            if skew > 0 { "too early" } else { "too late" },
        );
    }
    if !is_far {
        dial.told_of_clock.store(false, Ordering::Relaxed);
    }
}

/// How far the server's clock is ahead at least, or behind if less than nothing. It was read between `before` and `after`:
/// the middle of the two, give or take half of what is between them.
fn skew(before: i64, server: i64, after: i64) -> i64 {
    let (way, middle) = ((after - before).max(0) / 2, before.midpoint(after));
    let ahead = server - middle;
    ahead.signum() * (ahead.abs() - way).max(0)
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{check_version, skew};

    #[test]
    fn a_server_that_is_too_old_is_told_so() {
        assert_eq!(check_version(140_000), Ok(()));
        assert_eq!(check_version(180_001), Ok(()));
        assert_eq!(check_version(130_022), Err("the server has version 13, hapax needs 14 or later".to_owned()));
    }

    #[test]
    fn a_clock_is_no_further_off_than_the_way_to_it_leaves_no_doubt_of() {
        assert_eq!(skew(1000, 1000, 1000), 0);
        assert_eq!(skew(1000, 1300, 1400), 0, "read somewhere on the way");
        assert_eq!(skew(1000, 1000, 1400), 0);
        assert_eq!(skew(1000, 5400, 1400), 4000);
        assert_eq!(skew(9000, 5000, 9400), -4000);
        assert_eq!(skew(9000, 5000, 8000), -3500, "this process's own was set back meanwhile");
    }
}
