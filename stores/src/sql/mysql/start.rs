//! Opening: everything that could break the promise later is found now, and said in one line. What is said of the server
//! is in [`server`](super::server).

use std::{
    sync::{
        Arc, Mutex as StdMutex,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, SystemTime},
};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{ConnectOptions, MySqlConnection};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc},
};

use super::{
    super::{clean_ups::CleanUps, connections::Seats, frames, group, numbers::Numbers, tls},
    MySql, Shared, Texts,
    connection::{Dial, Link},
    error::Failure,
    generations::{Generations, View},
    migrate::{self, Contents, SCHEMA},
    names::Names,
    options::MySqlOptions,
    read::Reader,
    server::Tables,
    settled::Confirmed,
    wire::Schema,
    write::{Change, Write, Writer},
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
/// A session of ours is not ended for being idle, as the server's own setting may want it: the next write would be cut off, and
/// its outcome unknown. The most that every server takes: 24 days.
const IDLE_SECONDS: u32 = 2_147_483;
/// Bytes of a list of numbers that the server makes. It cuts longer ones, and a number with them: the longest list, of a take,
/// has some thousand of twenty digits.
const AGGREGATE_BYTES_MAX: u32 = 1 << 20;
/// Largest entity, in bytes: the server takes more, but each save writes the whole of it, so a runaway one must be noticed.
pub(super) const ENTITY_BYTES_MAX: usize = 16 << 20;

pub(super) async fn open(options: MySqlOptions) -> Result<MySql, StoreError> {
    let runtime =
        Handle::try_current().map_err(|_| misconfigured("there is no tokio runtime: open it within one".to_owned()))?;
    let names = Names::new(&options.table_prefix, OPENING)?;
    let mut dial = dial(&options, OPENING)?;
    let place = dial.place.clone();
    let failed = |failure: Failure| failure.store_error(OPENING, &place);
    let (mut open, checked) = dial.open().await.map_err(failed)?;
    let packet_bytes_max = checked.told(&place).packet_bytes_max;
    dial.tables = Some(check_tables(&mut open.connection, &names, &SCHEMA, options.migrate, &place).await?);

    let mut rare = Link::new(dial.clone(), Some(open));
    let generations = Generations::new(&names, View { live: Vec::new() });
    generations.look(&mut rare).await.map_err(|e| e.store_error(OPENING, &place))?;
    let generations = Arc::new(generations);
    let texts = Texts::new(&names);

    let mut tasks = Vec::new();
    let mut writers = Vec::new();
    for _ in 0..options.writers {
        let (writes, queue) = mpsc::channel(QUEUE_MAX);
        let link = dial.link().await.map_err(failed)?;
        let (group_max, generations) = (options.group_max, generations.clone());
        let writer = Writer::new(link, place.clone(), group_max, packet_bytes_max, &names, generations);
        tasks.push(runtime.spawn(writer.run(queue)));
        writers.push(writes);
    }
    let (reads, queue) = mpsc::channel(QUEUE_MAX);
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..options.readers {
        let read_dial = Dial { limit: options.read_limit.max(STATEMENT_LIMIT_MIN), ..dial.clone() };
        let link = read_dial.link().await.map_err(failed)?;
        let reader = Reader::new(link, place.clone(), options.group_max, names.clone(), generations.clone());
        tasks.push(runtime.spawn(reader.run(queue.clone())));
    }
    let MySqlOptions { write_limit, read_limit, .. } = options;
    let (clean_ups, task) = CleanUps::new(options.clean_up_wait, dial.lost.clone());
    let queues = writers.clone();
    let cleaning = runtime.spawn(task.run(async move |change: Change| {
        if let Some(queue) = queues.get(group::writer_of(queues.len(), change.entity.as_ref(), &change.done)) {
            let _ = queue.send(Write::Change(change)).await;
        }
    }));
    let scheduling = Arc::new(Mutex::new(Link::new(dial.clone(), None)));
    let (rare, scopes, tasks) = (Arc::new(Mutex::new(rare)), Numbers::new(dial.lost), StdMutex::new(tasks));
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
        scheduling,
        commits,
        entity_bytes_max,
        confirmed: Confirmed::default(),
        write_limit,
        read_limit,
        scopes,
        clean_ups,
        cleaning: StdMutex::new(Some(cleaning)),
        tasks,
        runtime,
    };
    Ok(MySql::new(shared))
}

/// Applies the schema and closes again.
pub(super) async fn migrate(options: MySqlOptions) -> Result<(), StoreError> {
    let names = Names::new(&options.table_prefix, OPENING)?;
    let dial = dial(&options, OPENING)?;
    let opened = dial.open().await.map_err(|failure| failure.store_error(OPENING, &dial.place));
    let (mut open, _) = opened?;
    check_tables(&mut open.connection, &names, &SCHEMA, true, &dial.place).await?;
    Link::new(dial, Some(open)).close().await;
    Ok(())
}

/// How to reach the server.
pub(super) fn dial(options: &MySqlOptions, opening: &'static str) -> Result<Dial, StoreError> {
    let place = options.way(opening)?;
    let host =
        place.get_socket().map_or_else(|| tls::before_port(place.get_host()), |socket| socket.display().to_string());
    // Without the password.
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
         SESSION lock_wait_timeout = {seconds}, SESSION wait_timeout = {IDLE_SECONDS} \
         /*M! , SESSION max_statement_time = {seconds}, SESSION idle_transaction_timeout = {IDLE_TRANSACTION_SECONDS}, \
         SESSION in_predicate_conversion_threshold = 0 */"
    );
    let connect =
        place.charset("utf8mb4").set_names(true).statement_cache_capacity(STATEMENTS).disable_statement_logging();
    let lost = Arc::new(AtomicU64::new(0));
    Ok(Dial {
        options: connect,
        settings: settings.into(),
        limit,
        commits: Arc::new(AtomicU64::new(0)),
        seats: options.connections.as_ref().map(|shared| Seats::new(shared, &lost)),
        lost,
        place: name.into(),
        tables: None,
        now: SystemTime::now,
        told_of_clock: Arc::new(AtomicBool::new(false)),
    })
}

fn misconfigured(why: String) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, OPENING, why)
}

/// Finds out whether `schema` is there, or brings it up to date.
pub(super) async fn check_tables(
    connection: &mut MySqlConnection,
    names: &Names,
    schema: &Schema,
    may_migrate: bool,
    place: &str,
) -> Result<Tables, StoreError> {
    let failed = |e| Failure::of_read(e).store_error(schema.opening, place);
    let latest = schema.latest();
    let mut contents = migrate::contents(connection, names, schema).await.map_err(failed)?;
    if contents.version < latest && may_migrate {
        let found = migrate::migrate(connection, names, schema).await.map_err(failed)?;
        contents = Contents { version: found.version.max(latest), ..found };
    }
    let tables = Tables::of(schema, names);
    tables.check(contents).map_err(|failure| failure.store_error(schema.opening, place))?;
    if let Some(why) = migrate::damage(connection, names, schema).await.map_err(failed)? {
        return Err(StoreError::new(ErrorKind::Misconfigured, schema.opening, format!("{place}: {why}")));
    }
    if let Some(table) = schema.framed {
        frames::look(&mut *connection, place, &names.put_into(table)).await.map_err(failed)?;
    }
    Ok(tables)
}
