//! Opening: everything that could break the promise later is found now, and said in one line. What is said of the server
//! is in [`server`].

use std::{
    sync::{
        Arc, Mutex as StdMutex,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, SystemTime},
};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, Row};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc},
};

use super::{
    super::{clean_ups::CleanUps, connections::Seats, frames, group, missing, numbers::Numbers, tls},
    Postgres, Shared, Texts,
    arguments::Begin,
    connection::{Dial, Link},
    error::Failure,
    followed,
    generations::{Generations, View},
    migrate::{self, Contents, SCHEMA},
    names::Names,
    options::PostgresOptions,
    read::Reader,
    server::{self, Tables},
    settled::Settling,
    wire::Schema,
    write::Writer,
    write::{Change, Write},
};

pub(super) const OPENING: &str = "opening the PostgreSQL store";
/// Requests that wait for one writer, or for the readers; who finds no room waits for it.
const QUEUE_MAX: usize = 4096;
/// Who asks may wait for less, but a statement goes on for as long: cutting it off costs the connection.
const STATEMENT_LIMIT_MIN: Duration = Duration::from_secs(1);
/// Texts that stay prepared on one connection.
const STATEMENTS: usize = 128;
/// Set on our own connections, never on the user's pool. Plans are made once for all arrays: made anew for each group they
/// took much of the server's time. Tables are never read whole, even while the server takes them for small: neither as
/// they are nor through an index, for a join; and an index gives what is asked for in its order, instead of all of it being
/// collected and sorted.
pub(super) const SETTINGS: [(&str, &str); 9] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("enable_incremental_sort", "off"),
    ("jit", "off"),
    ("default_transaction_isolation", "read committed"),
];

/// A row that somebody keeps for longer is given up, and hurts nobody else in its group.
const LOCK_LIMIT: Duration = Duration::from_secs(3);
/// With a shorter limit for statements, this part of it, so that the other members of a group are still written in time.
const LOCK_PART: u32 = 10;
/// What is set behind a connection pooler besides, where another client may have set anything in the session. What the
/// server's settings ask for beyond `on` stays. No row, since more is asked for in the same message.
const SYNCHRONOUS: &str = "SELECT WHERE CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN false \
                           ELSE set_config('synchronous_commit', 'on', true) IS NULL END";

/// A setting that the server keeps for anybody who asks. By its value a session is known as the one that was asked for.
const MARK: &str = "hapax.session";

pub(super) async fn open(options: PostgresOptions) -> Result<Postgres, StoreError> {
    let runtime =
        Handle::try_current().map_err(|_| misconfigured("there is no tokio runtime: open it within one".to_owned()))?;
    let names = Names::new(&options, OPENING)?;
    let mut dial = dial(&options, OPENING)?;
    let place = dial.place.clone();
    let failed = |failure: Failure| failure.store_error(OPENING, &place);
    let mut open = dial.open().await.map_err(failed)?;
    dial.tables = Some(check_tables(&mut open.connection, &names, &SCHEMA, options.migrate, &place).await?);
    followed::warn(&mut open.connection, &place).await.map_err(failed)?;

    let mut rare = Link::new(dial.clone(), Some(open));
    let generations = Generations::new(&names, View { live: Vec::new() });
    generations.look(&mut rare).await.map_err(failed)?;
    let generations = Arc::new(generations);
    let texts = Texts::new(&names);

    let mut tasks = Vec::new();
    let mut writers = Vec::new();
    for _ in 0..options.writers {
        let (writes, queue) = mpsc::channel(QUEUE_MAX);
        let link = dial.link().await.map_err(failed)?;
        let writer = Writer::new(link, place.clone(), options.group_max, names.clone(), generations.clone());
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
    let PostgresOptions { write_limit, read_limit, .. } = options;
    let (rare, tasks) = (Arc::new(Mutex::new(rare)), StdMutex::new(tasks));
    let scopes = Numbers::new(dial.lost.clone());
    // Behind a pooler nobody sees that another server has taken the place of the one that has the dedup entries.
    let wait = if options.pooler { Duration::ZERO } else { options.clean_up_wait };
    let (clean_ups, task) = CleanUps::new(wait, dial.lost.clone());
    let queues = writers.clone();
    let cleaning = runtime.spawn(task.run(async move |change: Change| {
        if let Some(queue) = queues.get(group::writer_of(queues.len(), change.entity.as_ref(), &change.done)) {
            let _ = queue.send(Write::Change(change)).await;
        }
    }));
    let scheduling = Arc::new(Mutex::new(Link::new(dial.clone(), None)));
    let (standbys, settling) = (dial.standbys.clone(), Arc::new(Settling::new(Link::new(dial.clone(), None))));
    let (commits, begin) = (dial.commits, Begin::new(dial.pooled));
    Ok(Postgres::new(Shared {
        place,
        names,
        begin,
        texts,
        writers,
        reads,
        rare,
        scheduling,
        commits,
        write_limit,
        read_limit,
        scopes,
        clean_ups,
        cleaning: StdMutex::new(Some(cleaning)),
        standbys,
        settling,
        tasks,
        runtime,
    }))
}

/// Applies the schema and closes again.
pub(super) async fn migrate(options: PostgresOptions) -> Result<(), StoreError> {
    let names = Names::new(&options, OPENING)?;
    let dial = dial(&options, OPENING)?;
    let mut open = dial.open().await.map_err(|failure| failure.store_error(OPENING, &dial.place))?;
    check_tables(&mut open.connection, &names, &SCHEMA, true, &dial.place).await?;
    Link::new(dial, Some(open)).close().await;
    Ok(())
}

/// How to reach the server.
pub(super) fn dial(options: &PostgresOptions, opening: &'static str) -> Result<Dial, StoreError> {
    let place = options.way(opening)?;
    let host =
        place.get_socket().map_or_else(|| tls::before_port(place.get_host()), |socket| socket.display().to_string());
    let database = place.get_database().unwrap_or_else(|| place.get_username());
    let name = format!("{host}:{}/{database}", place.get_port()); // Without the password.
    let write_limit = options.write_limit.max(STATEMENT_LIMIT_MIN);
    let limit = format!("{}ms", write_limit.as_millis().min(i32::MAX as u128));
    let settings = SETTINGS.map(|(name, value)| (name, value.to_owned())).into_iter();
    let lock_limit = (write_limit / LOCK_PART).clamp(STATEMENT_LIMIT_MIN, LOCK_LIMIT).as_millis();
    let settings = settings.chain([("statement_timeout", limit), ("lock_timeout", format!("{lock_limit}ms"))]);
    let mark: Option<Arc<str>> = (!options.pooler).then(|| format!("{:016x}", fastrand::u64(..)).into());
    let (connect, pooled) = if options.pooler {
        let set: Vec<String> = settings
            .filter(|(name, _)| *name != "default_transaction_isolation")
            .map(|(name, value)| format!("SET LOCAL {name} = '{value}'"))
            .collect();
        let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}; {SYNCHRONOUS}", set.join("; "));
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
    let lost = Arc::new(AtomicU64::new(0));
    Ok(Dial {
        options: connect,
        pooled,
        mark,
        limit: write_limit,
        commits: Arc::new(AtomicU64::new(0)),
        place: name.into(),
        tables: None,
        standbys: Arc::new(AtomicBool::new(false)),
        seats: options.connections.as_ref().map(|shared| Seats::new(shared, &lost)),
        lost,
        now: SystemTime::now,
        told_of_clock: Arc::new(AtomicBool::new(false)),
    })
}

fn misconfigured(why: String) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, OPENING, why)
}

/// Finds out whether `schema` is there, or brings it up to date.
pub(super) async fn check_tables(
    connection: &mut PgConnection,
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
    let refused = |failure: Failure| failure.store_error(schema.opening, place);
    tables.check(contents).map_err(refused)?;
    let kept = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(server::kept(schema, names)))).await.map_err(failed)?;
    server::check_kept(&kept).map_err(failed)?.map_err(refused)?;
    if let Some(question) = missing::row_question(schema.rows) {
        let row =
            connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(names.put_into(&question)))).await.map_err(failed)?;
        if let Some(gone) = row.try_get::<Option<String>, _>(0).map_err(failed)? {
            return Err(refused(Failure::unfit(ErrorKind::Misconfigured, format!("{names}: {}", missing::row(&gone)))));
        }
    }
    if let Some(table) = schema.framed {
        frames::look(&mut *connection, place, &names.put_into(table)).await.map_err(failed)?;
    }
    Ok(tables)
}
