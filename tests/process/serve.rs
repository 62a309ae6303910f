//! A whole endpoint, as a version of a program runs it.

use std::{io::Read, path::Path, time::Duration};

use hapax::{
    Endpoint, MySql, MySqlQueue, Postgres, PostgresQueue, Registry, Sqlite, SqliteQueue,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, ErrorKind, Settings},
    ports::{DeadLetters, DedupStore, EntityStore, StoreError, Transport},
    stores::sqlite::ride,
};

use crate::{
    OFTEN,
    forgetful::Forgetful,
    log, next,
    next::{NoteNext, NotesNext, StepNext, TallyNext},
    sagas::{Note, Notes, Ring, Tally},
    stored::server_of,
    tally::{ENDPOINT, Step},
};

/// Above what handling takes on a busy machine, so that workers do not hand each other the same messages to and fro; below
/// the patience of who waits for those of a killed one.
const LEASE: Duration = Duration::from_millis(400);
/// Of a worker that has refused its file.
const REFUSED: i32 = 3;
/// Above any wait for the disk here; what is left over is swept after it.
const DEADLINE: Duration = Duration::from_secs(2);

/// Handles messages until whoever has started this process closes its standard input, or is gone.
pub(crate) async fn serve(folder: &Path, version: &str) {
    log::begin();
    if let Some((url, schema)) = server_of(folder) {
        return if url.starts_with("mysql") {
            serve_on_server(async || on_mysql(&url, &schema).await, version).await
        } else {
            serve_on_server(async || on_postgres(&url, &schema).await, version).await
        };
    }
    let (store, queue) = match open(folder, version).await {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(REFUSED);
        }
    };
    let endpoint = endpoint(store.clone(), queue);
    let endpoint = if version == "next-sagas" { next_sagas(endpoint) } else { sagas(endpoint) };
    let endpoint = endpoint.start().await.unwrap();
    endpoint.run_until(input_closed()).await.unwrap();
    store.close().await;
}

fn endpoint<S: EntityStore + DedupStore + DeadLetters + 'static>(
    store: S,
    queue: impl Transport + 'static,
) -> EndpointBuilder {
    Endpoint::builder(ENDPOINT).store(store).transport(queue).settings(settings())
}

/// The same with store and queue in a schema on a server. It may be away when a worker starts, which then tries again: as
/// whoever looks after processes would start it again.
async fn serve_on_server<S, Q>(open: impl AsyncFn() -> Result<(S, Q), StoreError>, version: &str)
where
    S: EntityStore + DedupStore + DeadLetters + Clone + 'static,
    Q: Transport + 'static,
{
    const AGAIN: Duration = Duration::from_millis(50);
    let mut closed = std::pin::pin!(input_closed());
    let begun = async {
        loop {
            match begin_on_server(&open, version).await {
                Some(begun) => return begun,
                None => tokio::time::sleep(AGAIN).await,
            }
        }
    };
    let (_store, endpoint) = tokio::select! {
        begun = begun => begun,
        () = &mut closed => return,
    };
    endpoint.run_until(closed).await.unwrap();
}

/// `None`: the server is away.
async fn begin_on_server<S, Q>(
    open: &impl AsyncFn() -> Result<(S, Q), StoreError>,
    version: &str,
) -> Option<(S, Endpoint)>
where
    S: EntityStore + DedupStore + DeadLetters + Clone + 'static,
    Q: Transport + 'static,
{
    let away = |error: StoreError| assert!(error.is_transient() || error.is_unknown_outcome(), "{error:?}");
    let (store, queue) = open().await.map_err(away).ok()?;
    let endpoint = match version {
        "today" => endpoint(store.clone(), queue),
        "forgetful" => endpoint(Forgetful(store.clone()), queue),
        other => panic!("there is no version {other} on a server"),
    };
    let away = |error: hapax::endpoint::Error| assert_eq!(error.kind(), ErrorKind::Transport, "{error:?}");
    Some((store, sagas(endpoint).start().await.map_err(away).ok()?))
}

pub(crate) async fn on_postgres(url: &str, schema: &str) -> Result<(Postgres, PostgresQueue), StoreError> {
    let store = Postgres::options(url).schema(schema).migrate(true).writers(1).open().await?;
    let queue = PostgresQueue::options().lease(LEASE).migrate(true).writers(1).on(&store).await?;
    Ok((store, queue))
}

async fn on_mysql(url: &str, prefix: &str) -> Result<(MySql, MySqlQueue), StoreError> {
    let store = MySql::options(url).table_prefix(prefix).migrate(true).writers(1).open().await?;
    let queue = MySqlQueue::options().lease(LEASE).migrate(true).writers(1).on(&store).await?;
    Ok((store, queue))
}

fn sagas(endpoint: EndpointBuilder) -> EndpointBuilder {
    endpoint.saga::<Tally>(|tally| tally.starts::<Step>().handles::<Ring>()).saga::<Notes>(Registry::starts::<Note>)
}

fn next_sagas(endpoint: EndpointBuilder) -> EndpointBuilder {
    endpoint
        .saga::<TallyNext>(|tally| tally.starts::<StepNext>().handles::<Ring>())
        .saga::<NotesNext>(Registry::starts::<NoteNext>)
}

/// Store and queue as this version of the program knows them, in one file unless the folder holds one for the queue.
pub(crate) async fn open(folder: &Path, version: &str) -> Result<(Sqlite, SqliteQueue), StoreError> {
    let file = Sqlite::options(folder.join("store.db")).create_if_missing(true).migrate(true);
    let options = SqliteQueue::options().lease(LEASE);
    let (store, options) = match version {
        "today" | "next-sagas" => (file.open().await?, options),
        "adds" => (ride::open_store(file, next::adds()).await?, options.schema(next::queue_adds())),
        "breaks" => (ride::open_store(file, next::breaks()).await?, options.schema(next::queue_adds())),
        other => panic!("there is no version {other}"),
    };
    let apart = folder.join("queue.db");
    let queue = if apart.exists() { options.open(apart).await } else { options.on(&store).await };
    Ok((store, queue?))
}

/// Impatient, and never at an end with its patience: a fault here is not the message's.
pub(crate) fn settings() -> Settings {
    Settings {
        deadline: DEADLINE,
        recoverability: Recoverability {
            attempts_max: OFTEN,
            poison_above: OFTEN,
            retry_delay: Duration::from_millis(20),
            retry_delay_max: Duration::from_millis(200),
            ..Recoverability::default()
        },
        sweep_age: DEADLINE,
        sweep_interval: Duration::from_millis(200),
        stop_limit: DEADLINE,
        ..Settings::default()
    }
}

pub(crate) async fn input_closed() {
    let (closed, waits) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = closed.send(());
    });
    let _ = waits.await;
}
