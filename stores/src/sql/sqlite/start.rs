//! Opening: everything that could break the promise later is found now, and said in one line.

use std::{
    path::Path,
    str::FromStr,
    sync::{Arc, Mutex as StdMutex, RwLock, atomic::AtomicBool},
    time::{Duration, Instant},
};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc},
};

use super::{
    super::{frames, versions},
    Shared, Sqlite,
    connection::{Link, number},
    error::Failure,
    generations::Keeper,
    migrate::{self, APPLICATION_ID, Contents},
    options::{SqliteOptions, Synchronous},
    read::Reader,
    ride::Schema,
    write::Writer,
};

/// Requests that wait for the writer or for the readers; who finds no room waits for it.
const QUEUE_MAX: usize = 4096;
/// What each connection keeps of the file in memory, in KiB: the upper pages of every tree of a large store. Not more,
/// because SQLite goes through all of it at commits that rearranged pages: 256 MiB was slower than 16.
const CACHE_KIB: u32 = 32 * 1024;
/// Pages in the log at which the writer moves them into the file. A page that many commits change is moved once: 1000,
/// SQLite's own default, was slower.
const CHECKPOINT_PAGES: u32 = 8000;
/// What is left of a log that has grown, in bytes.
const LOG_BYTES_MAX: u32 = 256 << 20;
/// Texts that stay prepared: ten sizes of group, seven kinds each, with and without riders, and the others.
const STATEMENTS: usize = 256;
/// The same where texts have their values in them.
const STATEMENTS_FEW: usize = 16;
/// How long to wait before another try at what SQLite does not wait for itself.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// A file that is what the promises need, with the tables of `schema` in it: how it is reached, a connection, its name.
async fn prepare(
    options: &SqliteOptions,
    schema: &'static Schema,
) -> Result<(SqliteConnectOptions, SqliteConnection, String), StoreError> {
    let (place, file) = place(options, schema)?;
    let failed = |e: sqlx::Error| Failure::from(e).store_error(schema.opening, &file);

    let write_options = writing(place, options);
    let mut connection = SqliteConnection::connect_with(&write_options).await.map_err(failed)?;
    let contents = migrate::contents(&mut connection, schema).await.map_err(failed)?;
    check_owner(&contents, options.share_file, schema, &file)?;
    check_version(&contents, options.migrate, schema, &file)?;
    use_log(&mut connection, options.busy_timeout, schema, &file).await?;
    if contents.version < schema.latest() {
        let found = migrate::migrate(&mut connection, schema).await.map_err(failed)?;
        check_version(&found, true, schema, &file)?;
    }
    check_whole(&mut connection, schema, &file).await?;
    check_durable(&mut connection, options.synchronous, schema, &file).await?;
    // A read-only file shows itself only when something is written.
    let probe = AssertSqlSafe(format!("BEGIN IMMEDIATE; {}; ROLLBACK", schema.probe));
    connection.execute(sqlx::raw_sql(probe)).await.map_err(failed)?;
    // SQLite shows a commit once it is on the disk. But what a program has written to the log and was killed before it was on
    // the disk is shown to who opens the file next. Moving the log into the file puts it there first.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").await.map_err(failed)?;
    Ok((write_options.create_if_missing(false), connection, file)) // A file that is gone is not begun anew.
}

/// Two connections to a file, for tables that go on by themselves, and its name. What they run is seldom the same text again.
pub(super) async fn links(options: &SqliteOptions, schema: &'static Schema) -> Result<([Link; 2], String), StoreError> {
    let (options, connection, file) = prepare(options, schema).await?;
    drop(connection.close().await); // With the other settings it is opened anew.
    let options = options.statement_cache_capacity(STATEMENTS_FEW);
    Ok(([Link::closed(options.clone()), Link::closed(options)], file))
}

pub(super) async fn open(options: SqliteOptions, schema: &'static Schema) -> Result<Sqlite, StoreError> {
    let runtime =
        Handle::try_current().map_err(|_| misconfigured(schema, "there is no tokio runtime: open it within one"))?;
    let (write_options, connection, file) = prepare(&options, schema).await?;
    let link = Link::new(write_options.clone(), connection);
    let file: Arc<str> = file.into();
    let group_max = options.group_max;
    let mut tasks = Vec::new();
    let (writes, queue) = mpsc::channel(QUEUE_MAX);
    let (idle, commits) = (Arc::new(AtomicBool::new(true)), link.commits());
    let (reads, read_queue) = mpsc::channel(QUEUE_MAX);
    let (keeper, generations) = Keeper::new(options.generation_entries, &reads, &writes, file.clone());
    let writer = Writer::new(link, file.clone(), group_max, idle.clone(), generations.clone());
    tasks.push(runtime.spawn(writer.run(queue)));

    let queue = Arc::new(Mutex::new(read_queue));
    let read_options = write_options.pragma("query_only", "ON");
    for _ in 0..options.readers {
        let failed = |e| Failure::from(e).store_error(schema.opening, &file);
        let connection = SqliteConnection::connect_with(&read_options).await.map_err(failed)?;
        let link = Link::new(read_options.clone(), connection);
        let reader = Reader { link, file: file.clone(), group_max, generations: generations.clone() };
        tasks.push(runtime.spawn(reader.run(queue.clone())));
    }
    let keeper = keeps_dedup(schema).then(|| runtime.spawn(keeper.run()).abort_handle());
    let SqliteOptions { write_limit, read_limit, .. } = options;
    let (scopes, tasks) = (RwLock::default(), StdMutex::new(tasks));
    let shared =
        Shared { file, writes, idle, commits, reads, generations, write_limit, read_limit, scopes, tasks, keeper };
    Ok(Sqlite::new(shared))
}

/// A file of others' tables alone has no dedup entries.
fn keeps_dedup(schema: &Schema) -> bool {
    schema.opening == migrate::STORE.opening
}

/// Applies the schema and closes again.
pub(super) async fn migrate(path: &Path) -> Result<(), StoreError> {
    let options = SqliteOptions::new(path).create_if_missing(true).migrate(true);
    open(options, &migrate::STORE).await?.close().await;
    Ok(())
}

/// Brings the tables of `schema` into a file that is open, or says why not.
pub(super) async fn add_schema(
    connection: &mut SqliteConnection,
    schema: &'static Schema,
    may_migrate: bool,
    file: &str,
) -> Result<(), StoreError> {
    let failed = |e: sqlx::Error| Failure::from(e).store_error(schema.opening, file);
    let contents = migrate::contents(connection, schema).await.map_err(failed)?;
    check_version(&contents, may_migrate, schema, file)?;
    if contents.version < schema.latest() {
        let found = migrate::migrate(connection, schema).await.map_err(failed)?;
        check_version(&found, true, schema, file)?;
    }
    check_whole(connection, schema, file).await
}

fn misconfigured(schema: &Schema, why: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, schema.opening, why)
}

/// Where the file is, and its name for messages.
fn place(options: &SqliteOptions, schema: &Schema) -> Result<(SqliteConnectOptions, String), StoreError> {
    let text = options.place.to_string_lossy();
    if text.is_empty() || text.contains(":memory:") || text.contains("mode=memory") {
        let why = "a database in memory is another one for each connection: name a file, or use the memory store";
        return Err(misconfigured(schema, why));
    }
    let place = if text.starts_with("sqlite:") {
        SqliteConnectOptions::from_str(&text).map_err(|e| {
            misconfigured(schema, format!("`{text}` is not an SQLite URL: write `sqlite://PATH` or the path alone"))
                .caused_by(e)
        })?
    } else {
        SqliteConnectOptions::new().filename(&options.place)
    };
    let path = place.get_filename().to_owned();
    let file = path.display().to_string();
    if path.is_dir() {
        return Err(misconfigured(schema, format!("{file}: it is a directory: name a file in it")));
    }
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
        && !parent.is_dir()
    {
        return Err(misconfigured(schema, format!("{file}: its directory does not exist: create it")));
    }
    if !options.create_if_missing && matches!(path.try_exists(), Ok(false)) {
        let why = format!("{file}: there is no such file: set `create_if_missing(true)`");
        return Err(StoreError::new(ErrorKind::Absent, schema.opening, why));
    }
    Ok((place, file))
}

fn writing(place: SqliteConnectOptions, options: &SqliteOptions) -> SqliteConnectOptions {
    let synchronous = match options.synchronous {
        Synchronous::Full => SqliteSynchronous::Full,
        Synchronous::Normal => SqliteSynchronous::Normal,
    };
    let place = if options.create_if_missing { place.create_if_missing(true) } else { place };
    place
        .synchronous(synchronous)
        .busy_timeout(options.busy_timeout)
        .foreign_keys(true)
        .pragma("cache_size", format!("-{CACHE_KIB}"))
        .pragma("temp_store", "MEMORY")
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES.to_string())
        .pragma("journal_size_limit", LOG_BYTES_MAX.to_string())
        // Room for the rows of a group, so that SQLite's thread does not wait for ours in the middle of it.
        .row_buffer_size(2 * options.group_max + 16)
        .statement_cache_capacity(STATEMENTS)
        .thread_name(|id| format!("hapax-sqlite-{id}"))
        .disable_statement_logging()
}

/// Another program's file is neither given tables nor switched to a write-ahead log, unless that was asked for.
fn check_owner(contents: &Contents, may_share: bool, schema: &Schema, file: &str) -> Result<(), StoreError> {
    let Contents { application_id, shared, ref foreign, .. } = *contents;
    match foreign {
        Some(table) if !(may_share || shared || application_id == APPLICATION_ID) => Err(misconfigured(
            schema,
            format!(
                "{file}: it belongs to another program (application id {application_id:#x}, it holds `{table}`): name \
                 another file, or set `share_file(true)` if hapax is to keep its tables beside those"
            ),
        )),
        _ => Ok(()),
    }
}

/// A newer schema that only added something is as good as the known one, so that versions may run side by side.
fn check_version(contents: &Contents, may_migrate: bool, schema: &Schema, file: &str) -> Result<(), StoreError> {
    let Contents { version, usable_from, .. } = *contents;
    if may_migrate && version < schema.latest() {
        return Ok(());
    }
    versions::check(&format!("{file}: it"), version, usable_from, schema.latest(), schema.remedy)
        .map_err(|(kind, why)| StoreError::new(kind, schema.opening, why))
}

/// Whether all is there that the file's record of migrations promises, since somebody may have tidied up by hand, and whether
/// this program can read it.
async fn check_whole(connection: &mut SqliteConnection, schema: &Schema, file: &str) -> Result<(), StoreError> {
    let failed = |e| Failure::from(e).store_error(schema.opening, file);
    if let Some(missing) = migrate::missing(connection, schema).await.map_err(failed)? {
        return Err(misconfigured(schema, format!("{file}: {missing}")));
    }
    match schema.framed {
        Some(table) => frames::look(&mut *connection, file, table).await.map_err(failed),
        None => Ok(()),
    }
}

/// Switches the file to a write-ahead log. SQLite does not wait for the lock that the first switch needs.
async fn use_log(
    connection: &mut SqliteConnection,
    limit: Duration,
    schema: &Schema,
    file: &str,
) -> Result<(), StoreError> {
    let begun = Instant::now();
    loop {
        match connection.fetch_one("PRAGMA journal_mode = WAL").await {
            Ok(_) => return Ok(()), // What it is now is checked once more in the end.
            Err(e) => {
                let failure = Failure::from(e);
                if !failure.is_busy() || begun.elapsed() >= limit {
                    return Err(failure.store_error(schema.opening, file));
                }
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

async fn check_durable(
    connection: &mut SqliteConnection,
    wanted: Synchronous,
    schema: &Schema,
    file: &str,
) -> Result<(), StoreError> {
    let failed = |e: sqlx::Error| Failure::from(e).store_error(schema.opening, file);
    let mode: String =
        connection.fetch_one("PRAGMA journal_mode").await.and_then(|row| row.try_get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(misconfigured(
            schema,
            format!(
                "{file}: its journal mode is {mode} and cannot be made wal: put it on a local disk that may be written"
            ),
        ));
    }
    let synchronous = number(connection, "PRAGMA synchronous").await.map_err(failed)?;
    let needed = match wanted {
        Synchronous::Full => 2,
        Synchronous::Normal => 1,
    };
    if synchronous != needed {
        return Err(misconfigured(
            schema,
            format!("{file}: `PRAGMA synchronous` is {synchronous} and cannot be made {needed}"),
        ));
    }
    Ok(())
}
