//! Opening: everything that could break the promise later is found now, and said in one line.

use std::{
    sync::{Arc, Mutex as StdMutex, RwLock, atomic::AtomicU64},
    time::Duration,
};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{ConnectOptions, Executor, PgConnection, Row, postgres::PgConnectOptions};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc},
};

use super::{
    Postgres, Shared, Texts,
    connection::{Dial, Link},
    error::Failure,
    generations::{Generations, View},
    migrate::{self, Contents, SCHEMA},
    names::Names,
    options::PostgresOptions,
    read::Reader,
    wire::Schema,
    write::Writer,
};

pub(super) const OPENING: &str = "opening the PostgreSQL store";
/// Requests that wait for one writer, or for the readers; who finds no room waits for it.
const QUEUE_MAX: usize = 4096;
/// Who asks may wait for less, but a statement goes on for as long: cutting it off costs the connection.
const STATEMENT_LIMIT_MIN: Duration = Duration::from_secs(1);
/// Texts that stay prepared on one connection.
const STATEMENTS: usize = 128;
/// Set on our own connections, never on the user's pool. Plans are made once for all arrays: made anew for each group they
/// took a third of the server's time. Tables are never read whole, even while the server takes them for small: neither as
/// they are nor through an index, for a join.
const SETTINGS: [(&str, &str); 6] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("default_transaction_isolation", "read committed"),
];

/// A setting that the server keeps for anybody who asks. By its value a session is known as the one that was asked for.
const MARK: &str = "hapax.session";
const POOLER: &str = "a connection pooler stands before the server and does not pass on the settings of the session: connect \
                      to the server itself, or set `pooler(true)`";

pub(super) async fn open(options: PostgresOptions) -> Result<Postgres, StoreError> {
    let runtime =
        Handle::try_current().map_err(|_| misconfigured("there is no tokio runtime: open it within one".to_owned()))?;
    let names = Names::new(&options.schema, &options.table_prefix)?;
    let (dial, place) = dial(&options)?;
    let mut connection = connect(&dial.options, &place).await?;
    check_server(&mut connection, &place, dial.mark.as_deref()).await?;
    check_schema(&mut connection, &names, &SCHEMA, options.migrate, &place).await?;

    let place: Arc<str> = place.into();
    let mut rare = Link::new(dial.clone(), Some(connection));
    let generations = Generations::new(&names, View { live: Vec::new() });
    generations.look(&mut rare).await.map_err(|e| e.store_error(OPENING, &place))?;
    let generations = Arc::new(generations);
    let texts = Texts::new(&names);

    let mut tasks = Vec::new();
    let mut writers = Vec::new();
    for _ in 0..options.writers {
        let (writes, queue) = mpsc::channel(QUEUE_MAX);
        let link = Link::new(dial.clone(), Some(connect(&dial.options, &place).await?));
        let writer = Writer::new(link, place.clone(), options.group_max, names.clone(), generations.clone());
        tasks.push(runtime.spawn(writer.run(queue)));
        writers.push(writes);
    }
    let (reads, queue) = mpsc::channel(QUEUE_MAX);
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..options.readers {
        let read_dial = Dial { limit: options.read_limit.max(STATEMENT_LIMIT_MIN), ..dial.clone() };
        let link = Link::new(read_dial, Some(connect(&dial.options, &place).await?));
        let reader = Reader::new(link, place.clone(), options.group_max, names.clone(), generations.clone());
        tasks.push(runtime.spawn(reader.run(queue.clone())));
    }
    let PostgresOptions { write_limit, read_limit, .. } = options;
    let (rare, scopes, tasks) = (Arc::new(Mutex::new(rare)), RwLock::default(), StdMutex::new(tasks));
    let commits = dial.commits;
    let shared =
        Shared { place, names, texts, writers, reads, rare, commits, write_limit, read_limit, scopes, tasks, runtime };
    Ok(Postgres::new(shared))
}

/// Applies the schema and closes again.
pub(super) async fn migrate(options: PostgresOptions) -> Result<(), StoreError> {
    let names = Names::new(&options.schema, &options.table_prefix)?;
    let (dial, place) = dial(&options)?;
    let mut connection = connect(&dial.options, &place).await?;
    check_schema(&mut connection, &names, &SCHEMA, true, &place).await?;
    Link::new(dial, Some(connection)).close().await;
    Ok(())
}

/// How to reach the server, and its name for messages: without the password.
pub(super) fn dial(options: &PostgresOptions) -> Result<(Dial, String), StoreError> {
    let place = options.place()?;
    let host = place.get_socket().map_or_else(|| place.get_host().to_owned(), |socket| socket.display().to_string());
    let database = place.get_database().unwrap_or_else(|| place.get_username());
    let name = format!("{host}:{}/{database}", place.get_port());
    let write_limit = options.write_limit.max(STATEMENT_LIMIT_MIN);
    let limit = format!("{}ms", write_limit.as_millis().min(i32::MAX as u128));
    let settings = SETTINGS.map(|(name, value)| (name, value.to_owned())).into_iter();
    let settings = settings.chain([("statement_timeout", limit)]);
    let mark: Option<Arc<str>> = (!options.pooler).then(|| format!("{:016x}", fastrand::u64(..)).into());
    let (connect, pooled) = if options.pooler {
        let set: Vec<String> = settings
            .filter(|(name, _)| *name != "default_transaction_isolation")
            .map(|(name, value)| format!("SET LOCAL {name} = '{value}'"))
            .collect();
        let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}", set.join("; "));
        // What pgbouncer refuses of what the driver asks for by itself; nothing here is a floating-point number.
        (place.extra_float_digits(None).statement_cache_capacity(0), Some(begin.into()))
    } else {
        let settings = settings.chain(mark.iter().map(|mark| (MARK, mark.to_string())));
        (place.options(settings).statement_cache_capacity(STATEMENTS), None)
    };
    let connect = match connect.get_application_name() {
        Some(_) => connect,
        None => connect.application_name("hapax"),
    };
    let connect = connect.disable_statement_logging();
    let commits = Arc::new(AtomicU64::new(0));
    Ok((Dial { options: connect, pooled, mark, limit: write_limit, commits }, name))
}

pub(super) async fn connect(options: &PgConnectOptions, place: &str) -> Result<PgConnection, StoreError> {
    let failed = |e| {
        if matches!(e, sqlx::Error::Database(ref e) if e.message().contains("unsupported startup parameter")) {
            return misconfigured(format!("{place}: {POOLER}")).caused_by(e);
        }
        Failure::of_read(e).store_error(OPENING, place)
    };
    options.connect().await.map_err(failed)
}

fn misconfigured(why: String) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, OPENING, why)
}

/// What the promises need of a server: what it has confirmed is on its disk, and it is the primary. And that the session is
/// our own, with the settings that were asked for: a pooler may swallow them and say nothing.
pub(super) async fn check_server(
    connection: &mut PgConnection,
    place: &str,
    mark: Option<&str>,
) -> Result<(), StoreError> {
    let failed = |e| Failure::of_read(e).store_error(OPENING, place);
    let sql = "SELECT current_setting('server_version_num')::int, current_setting('fsync'), \
               current_setting('synchronous_commit'), pg_is_in_recovery(), current_setting('server_encoding'), \
               current_setting('full_page_writes'), current_setting('transaction_read_only'), \
               coalesce(current_setting('hapax.session', true), '')";
    let row = connection.fetch_one(sqlx::raw_sql(sql)).await.map_err(failed)?;
    let text = |at: usize| row.try_get::<String, _>(at).map_err(failed);
    let version: i32 = row.try_get(0).map_err(failed)?;
    let complain = |why: String| Err(misconfigured(format!("{place}: {why}")));
    if let Some(mark) = mark
        && text(7)? != mark
    {
        return complain(POOLER.to_owned());
    }
    if version < OLDEST {
        return complain(format!(
            "the server has version {}, hapax needs {} or later",
            version / 10_000,
            OLDEST / 10_000
        ));
    }
    if text(1)? != "on" {
        return complain("`fsync` is off, so a power failure loses what was confirmed: set `fsync = on`".to_owned());
    }
    if text(5)? != "on" {
        return complain(
            "`full_page_writes` is off, so a power failure may damage what was confirmed: set it to on".to_owned(),
        );
    }
    if text(2)? == "off" {
        return complain(
            "`synchronous_commit` is off, so a crash of the server loses what was confirmed: `ALTER ROLE .. SET \
             synchronous_commit = on`, or `local` at least"
                .to_owned(),
        );
    }
    if row.try_get(3).map_err(failed)? {
        return complain("the server is a standby and takes no writes: connect to the primary".to_owned());
    }
    if text(6)? != "off" {
        return complain(
            "`default_transaction_read_only` is on, so that nothing can be written: `ALTER ROLE .. SET \
             default_transaction_read_only = off`, or of the database"
                .to_owned(),
        );
    }
    if text(4)? != "UTF8" {
        return complain(format!("the database keeps text as {}: create one with `ENCODING 'UTF8'`", text(4)?));
    }
    Ok(())
}

/// The oldest server that gets security fixes as this is written; 15 is what is tested.
const OLDEST: i32 = 140_000;

pub(super) async fn check_schema(
    connection: &mut PgConnection,
    names: &Names,
    schema: &Schema,
    may_migrate: bool,
    place: &str,
) -> Result<(), StoreError> {
    let failed = |e| Failure::of_read(e).store_error(schema.opening, place);
    let latest = schema.latest();
    let mut contents = migrate::contents(connection, names, schema).await.map_err(failed)?;
    if contents.version < latest && may_migrate {
        let found = migrate::migrate(connection, names, schema).await.map_err(failed)?;
        contents = Contents { version: found.version.max(latest), ..found };
    }
    let Contents { version, usable_from } = contents;
    if version > latest && usable_from.is_none_or(|from| from > i64::from(latest)) {
        let why = format!(
            "{place}: {names} has schema {version} of a newer hapax, this one knows {latest}: update this program"
        );
        return Err(StoreError::new(ErrorKind::Malformed, schema.opening, why));
    }
    if version < latest {
        let has = if version == 0 { "no schema".to_owned() } else { format!("schema {version}") };
        let why = format!("{place}: {names} has {has}, this hapax needs {latest}: {}", schema.remedy);
        return Err(StoreError::new(ErrorKind::Misconfigured, schema.opening, why));
    }
    Ok(())
}
