//! Opening: everything that could break the promise later is found now, and said in one line.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex as StdMutex, RwLock, atomic::AtomicU64},
    time::Duration,
};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{ConnectOptions, Executor, MySqlConnection, Row};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc},
};

use super::{
    MySql, Shared, Texts,
    connection::{Dial, Link},
    error::Failure,
    generations::{Generations, View},
    migrate::{self, Contents, SCHEMA},
    names::Names,
    options::MySqlOptions,
    read::Reader,
    settled::Confirmed,
    wire::Schema,
    write::Writer,
};

pub(super) const OPENING: &str = "opening the MariaDB store";
/// Requests that wait for one writer, or for the readers; who finds no room waits for it.
const QUEUE_MAX: usize = 4096;
/// Who asks may wait for less, but a statement goes on for as long: cutting it off costs the connection.
const STATEMENT_LIMIT_MIN: Duration = Duration::from_secs(1);
/// Texts that stay prepared on one connection.
const STATEMENTS: usize = 128;
/// How long a row that another transaction holds is waited for. Ours hold theirs for one round trip.
const LOCK_WAIT_SECONDS: u32 = 3;
/// A transaction that its program has left is ended after so long, where the server can: what it has locked others wait for.
const IDLE_TRANSACTION_SECONDS: u32 = 10;
/// Bytes of a list of numbers that the server makes. It cuts longer ones, and a number with them: the longest list, of a take,
/// has some thousand of twenty digits.
const AGGREGATE_BYTES_MAX: u32 = 1 << 20;
/// Largest entity, in bytes: the server takes more, but each save writes the whole of it, so a runaway one must be noticed.
pub(super) const ENTITY_BYTES_MAX: usize = 16 << 20;
/// What is sent in one message at least: what belongs to an entity besides its bytes, and a group's own text.
const PACKET_BYTES_MIN: usize = 1 << 20;

pub(super) async fn open(options: MySqlOptions) -> Result<MySql, StoreError> {
    let runtime =
        Handle::try_current().map_err(|_| misconfigured("there is no tokio runtime: open it within one".to_owned()))?;
    let names = Names::new(&options.table_prefix)?;
    let (dial, place) = dial(&options)?;
    let mut connection = connect(&dial, &place).await?;
    let Checked { packet_bytes_max } = check_server(&mut connection, &place).await?;
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
        let link = Link::new(dial.clone(), Some(connect(&dial, &place).await?));
        let (group_max, generations) = (options.group_max, generations.clone());
        let writer = Writer::new(link, place.clone(), group_max, packet_bytes_max, &names, generations);
        tasks.push(runtime.spawn(writer.run(queue)));
        writers.push(writes);
    }
    let (reads, queue) = mpsc::channel(QUEUE_MAX);
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..options.readers {
        let read_dial = Dial { limit: options.read_limit.max(STATEMENT_LIMIT_MIN), ..dial.clone() };
        let link = Link::new(read_dial, Some(connect(&dial, &place).await?));
        let reader = Reader::new(link, place.clone(), options.group_max, names.clone(), generations.clone());
        tasks.push(runtime.spawn(reader.run(queue.clone())));
    }
    let MySqlOptions { write_limit, read_limit, .. } = options;
    let (rare, scopes, tasks) = (Arc::new(Mutex::new(rare)), RwLock::default(), StdMutex::new(tasks));
    let commits = dial.commits;
    // What comes with an entity in its message is far less than a sixteenth of it.
    let entity_bytes_max = ENTITY_BYTES_MAX.min(packet_bytes_max - packet_bytes_max / 16);
    let shared = Shared {
        place,
        names,
        texts,
        writers,
        reads,
        rare,
        commits,
        entity_bytes_max,
        confirmed: Confirmed::default(),
        write_limit,
        read_limit,
        scopes,
        tasks,
        runtime,
    };
    Ok(MySql::new(shared))
}

/// Applies the schema and closes again.
pub(super) async fn migrate(options: MySqlOptions) -> Result<(), StoreError> {
    let names = Names::new(&options.table_prefix)?;
    let (dial, place) = dial(&options)?;
    let mut connection = connect(&dial, &place).await?;
    check_schema(&mut connection, &names, &SCHEMA, true, &place).await?;
    Link::new(dial, Some(connection)).close().await;
    Ok(())
}

/// How to reach the server, and its name for messages: without the password.
pub(super) fn dial(options: &MySqlOptions) -> Result<(Dial, String), StoreError> {
    let place = options.place()?;
    let host = place.get_socket().map_or_else(|| place.get_host().to_owned(), |socket| socket.display().to_string());
    let name = format!("{host}:{}/{}", place.get_port(), place.get_database().unwrap_or_default());
    let limit = options.write_limit.max(STATEMENT_LIMIT_MIN);
    let seconds = limit.as_secs_f64().ceil().min(31_536_000.0);
    // Set on our own connections, never on the user's pool. At read committed no gap between rows is ever locked. What is too
    // long for its column is refused, not cut; a commit begins nothing that nobody would end. What only MariaDB knows is a
    // comment to MySQL.
    let settings = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
         SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION autocommit = 1, \
         SESSION time_zone = '+00:00', SESSION sql_safe_updates = 0, SESSION unique_checks = 1, \
         SESSION foreign_key_checks = 1, SESSION completion_type = 'NO_CHAIN', \
         SESSION group_concat_max_len = {AGGREGATE_BYTES_MAX}, SESSION sql_select_limit = DEFAULT, \
         SESSION innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}, \
         SESSION lock_wait_timeout = {seconds} \
         /*M! , SESSION max_statement_time = {seconds}, SESSION idle_transaction_timeout = {IDLE_TRANSACTION_SECONDS}, \
         SESSION in_predicate_conversion_threshold = 0 */"
    );
    let connect =
        place.charset("utf8mb4").set_names(true).statement_cache_capacity(STATEMENTS).disable_statement_logging();
    let commits = Arc::new(AtomicU64::new(0));
    Ok((Dial { options: connect, settings: settings.into(), limit, commits }, name))
}

pub(super) async fn connect(dial: &Dial, place: &str) -> Result<MySqlConnection, StoreError> {
    dial.connect().await.map_err(|e| Failure::of_read(e).store_error(OPENING, place))
}

fn misconfigured(why: String) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, OPENING, why)
}

/// What was learnt of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    pub(super) packet_bytes_max: usize,
}

/// What the promises need of a server: what it has confirmed is on its disk, and it is the primary.
pub(super) async fn check_server(connection: &mut MySqlConnection, place: &str) -> Result<Checked, StoreError> {
    let failed = |e| Failure::of_read(e).store_error(OPENING, place);
    let complain = |why: &str| Err(misconfigured(format!("{place}: {why}")));
    // Those that a server does not have are not listed.
    let sql = "SHOW VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', \
               'log_bin', 'sync_binlog', 'binlog_format', 'read_only', 'innodb_read_only', 'max_allowed_packet', 'wsrep_on')";
    let rows = connection.fetch_all(sqlx::raw_sql(sql)).await.map_err(failed)?;
    let mut variables = HashMap::new();
    for row in &rows {
        let (name, value): (String, String) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        variables.insert(name, value);
    }
    let value = |name: &str| variables.get(name).map_or("", String::as_str);
    let is_on = |name: &str| !matches!(value(name), "" | "OFF" | "0");

    let (number, oldest, name) = match value("version").contains("MariaDB") {
        true => (version(value("version")), OLDEST_MARIADB, "MariaDB"),
        false => (version(value("version")), OLDEST_MYSQL, "MySQL"),
    };
    if number < oldest {
        let why =
            format!("the server is {name} {}.{}, hapax needs {}.{} or later", number.0, number.1, oldest.0, oldest.1);
        return complain(&why);
    }
    if !matches!(value("innodb_flush_log_at_trx_commit"), "1" | "3") {
        return complain(
            "`innodb_flush_log_at_trx_commit` is not 1, so that a crash loses what was confirmed: set it to 1",
        );
    }
    if is_on("log_bin") && value("sync_binlog") != "1" {
        return complain(
            "`sync_binlog` is not 1 while there is a binary log, and what is missing in that log after a power failure is \
             undone, though it was confirmed: set it to 1",
        );
    }
    if is_on("log_bin") && value("binlog_format") == "STATEMENT" {
        return complain(
            "`binlog_format` is STATEMENT, which goes without the isolation level read committed: set it to MIXED or ROW",
        );
    }
    if is_on("read_only") || is_on("innodb_read_only") {
        return complain(
            "`read_only` is on, the server is a replica: connect to the primary, or set `read_only = OFF`",
        );
    }
    let packet_bytes_max = value("max_allowed_packet").parse().unwrap_or(0);
    if packet_bytes_max < PACKET_BYTES_MIN {
        return complain("`max_allowed_packet` is below 1 MiB: set it to 64M");
    }
    if !is_on("innodb_doublewrite") {
        tracing::warn!(
            place,
            "`innodb_doublewrite` is off: unless the file system writes pages whole, a power failure may damage what was \
             confirmed"
        );
    }
    if is_on("wsrep_on") {
        tracing::warn!(place, "a Galera cluster is not tested: connect all programs to one and the same node");
    }
    Ok(Checked { packet_bytes_max })
}

/// The oldest servers that get security fixes as this is written; MariaDB 10.11 is what is tested.
const OLDEST_MARIADB: (u32, u32) = (10, 6);
const OLDEST_MYSQL: (u32, u32) = (8, 0);

/// `8.0.36` or `10.11.6-MariaDB-log`.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

pub(super) async fn check_schema(
    connection: &mut MySqlConnection,
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
    if version > latest && usable_from.is_none_or(|from| from > latest) {
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
    if let Some((table, engine)) = migrate::foreign_engine(connection, names, schema).await.map_err(failed)? {
        let why = format!(
            "{place}: the table {table} is of the storage engine {engine}, which knows no transactions: `ALTER TABLE \
             {table} ENGINE = InnoDB`"
        );
        return Err(StoreError::new(ErrorKind::Misconfigured, schema.opening, why));
    }
    Ok(())
}
