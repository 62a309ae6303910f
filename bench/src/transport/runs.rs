//! One run of one side: a backlog that is handled, or one message at a time.

use std::{
    collections::HashSet,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use hapax::{
    Endpoint, InProcess, Memory, Message, Postgres,
    endpoint::Settings,
    ids::TypeName,
    ports::{DeadLetters, DedupStore, EntityStore, Transport},
};
use uuid::Uuid;

use super::{
    desk::Desk,
    history::History,
    place::{Load, Place, Queues, fill},
    progress::{Counted, Progress},
};
use crate::{
    AnyError,
    books::Books,
    candidate::{endpoint::outgoing, in_books},
    figure::percentile,
    measure::Sample,
    postgres::Schema,
    run::Run,
    sql::{Place as _, candidate::Candidate},
    workload::{Account, Next, Passed},
};

/// Between two messages that come one at a time: both sides have gone to sleep.
const REST: Duration = Duration::from_millis(2);
/// Messages before the first that is timed.
const WARM_UP: usize = 20;

/// The loop by hand on a backlog.
pub(super) async fn by_hand<P: Place>(place: &P, load: &Load) -> Result<Run, AnyError> {
    let (queues, transport) = (place.named().queues()?, place.transport().await?);
    let ids = fill(&transport, &queues, load).await?;
    let (mut desk, progress) = (Desk::new(load.entities)?, Progress::default());
    tokio::select! {
        ended = place.by_hand(&queues, load.in_flight, &mut desk, &progress) => match ended? {},
        () = progress.reaches(settled_of::<P>(&ids, load)) => {}
    }
    let sample = progress.sample();
    let books = desk_books(&desk, &ids)?;
    balanced(&transport, &queues, &ids, Run { sample, books }).await
}

/// hapax on a backlog, with its state in memory.
pub(super) async fn in_memory<P: Place>(place: &P, load: &Load) -> Result<Run, AnyError> {
    let (queues, transport, store) = (place.named().queues()?, place.transport().await?, Memory::new());
    let ids = fill(&transport, &queues, load).await?;
    let expected = settled_of::<P>(&ids, load);
    let done = drained(store.clone(), transport.clone(), &queues, load, expected).await?;
    let done = in_books(&store, done)?;
    balanced(&transport, &queues, &ids, done).await
}

/// hapax on a backlog at the broker, with its state in PostgreSQL.
pub(super) async fn in_postgres<P: Place>(place: &P, server: &str, load: &Load) -> Result<Run, AnyError> {
    let (queues, transport) = (place.named().queues()?, place.transport().await?);
    let ids = fill(&transport, &queues, load).await?;
    with_postgres(server, &transport, &queues, &ids, load).await
}

/// The same without a broker.
pub(super) async fn postgres_alone(server: &str, load: &Load) -> Result<Run, AnyError> {
    // The last queue holds what the first has held, and for a moment both have it.
    let room = usize::try_from(2 * load.messages)? + hapax::transports::in_process::MESSAGES_MAX;
    let (queues, hub) = (Queues::of(0)?, InProcess::new("bench").messages_max(room));
    let ids = fill(&hub, &queues, load).await?;
    with_postgres(server, &hub, &queues, &ids, load).await
}

async fn with_postgres(
    server: &str,
    transport: &(impl Transport + Clone + 'static),
    queues: &Queues,
    ids: &HashSet<Uuid>,
    load: &Load,
) -> Result<Run, AnyError> {
    let schema = Schema::create(server, "transport").await?;
    let store: Postgres = Schema::open_usual(schema.address(), true).await?;
    let done = drained(store.clone(), transport.clone(), queues, load, ids.len() as u64).await;
    Schema::close(store).await;
    let done = async {
        let done = done?;
        let (effects, left) = (schema.effects().await?, schema.left().await?);
        let books = Books { effects, dedup_entries: Some(left.dedup_entries), outbox_left: left.waiting, ..done.books };
        balanced(transport, queues, ids, Run { books, ..done }).await
    };
    let done = done.await;
    schema.remove().await?;
    done
}

/// Messages that will be settled.
fn settled_of<P: Place>(ids: &HashSet<Uuid>, load: &Load) -> u64 {
    if P::DROPS_REPEATS { ids.len() as u64 } else { load.messages }
}

/// Until `expected` messages are settled. The books lack what the store knows.
async fn drained<S>(
    store: S,
    transport: impl Transport + 'static,
    queues: &Queues,
    load: &Load,
    expected: u64,
) -> Result<Run, AnyError>
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
{
    let progress = Arc::new(Progress::default());
    let until = async {
        progress.reaches(expected).await;
        progress.sample()
    };
    let sample = handled(store, transport, queues, load.in_flight, &progress, until).await?;
    Ok(Run { sample, books: Books { disturbed: progress.disturbed(), ..Books::default() } })
}

/// Runs an endpoint on the first of `queues` until `until` ends.
async fn handled<S, T>(
    store: S,
    transport: impl Transport + 'static,
    queues: &Queues,
    in_flight: usize,
    progress: &Arc<Progress>,
    until: impl Future<Output = T>,
) -> Result<T, AnyError>
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
{
    let endpoint = Endpoint::builder(queues.first.as_str())
        .store(store)
        .transport(Counted { transport: Arc::new(transport), progress: progress.clone() })
        .saga::<Account>(|account| account.starts::<Passed>())
        .with(Next(queues.last.to_string()))
        .metrics(progress.clone())
        .settings(Settings { in_flight_max: in_flight, ..Settings::default() })
        .start()
        .await?;
    let mut done = None;
    endpoint.run_until(async { done = Some(until.await) }).await?;
    done.ok_or_else(|| "the endpoint has ended by itself".into())
}

/// Adds what was sent; an error unless the books add up.
async fn balanced(transport: &impl Transport, queues: &Queues, ids: &HashSet<Uuid>, run: Run) -> Result<Run, AnyError> {
    let history = History::read(transport, &queues.last, ids).await?;
    let void = |problem: String| Err(format!("void: {problem}").into());
    if let Some(problem) = history.problem(ids) {
        return void(problem);
    }
    let (distinct, sent) = (ids.len() as u64, history.effects() + history.copies);
    let books = Books { distinct, sent, sent_each: 1, ..run.books };
    // What was sent again under its id was disturbed, be it at the broker.
    let books = Books { disturbed: books.disturbed + history.copies, ..books };
    match books.problem() {
        Some(problem) => void(problem),
        None => Ok(Run { books, ..run }),
    }
}

fn desk_books(desk: &Desk, ids: &HashSet<Uuid>) -> Result<Books, AnyError> {
    let (effects, dedup_entries) = (desk.effects()?, Some(desk.seen()));
    Ok(Books { distinct: ids.len() as u64, effects, dedup_entries, ..Books::default() })
}

/// One message at a time, by hand: seconds until half of them are settled.
pub(super) async fn idle_by_hand<P: Place>(place: &P, load: &Load, time: Duration) -> Result<f64, AnyError> {
    let (queues, transport) = (place.named().queues()?, place.transport().await?);
    fill(&transport, &queues, &Load { messages: 0, ..*load }).await?;
    let (mut desk, progress) = (Desk::new(load.entities)?, Arc::new(Progress::default()));
    let sending = one_at_a_time(place.transport().await?, queues.clone(), progress.clone(), *load, time);
    let mut sending = tokio::spawn(sending);
    let (ids, median) = tokio::select! {
        ended = place.by_hand(&queues, load.in_flight, &mut desk, &progress) => match ended? {},
        sent = &mut sending => sent??,
    };
    let books = desk_books(&desk, &ids)?;
    balanced(&transport, &queues, &ids, Run { sample: Sample::default(), books }).await?;
    Ok(median)
}

/// The same by hapax.
pub(super) async fn idle_by_hapax<P: Place>(place: &P, load: &Load, time: Duration) -> Result<f64, AnyError> {
    let (queues, transport, store) = (place.named().queues()?, place.transport().await?, Memory::new());
    fill(&transport, &queues, &Load { messages: 0, ..*load }).await?;
    let progress = Arc::new(Progress::default());
    let sending = one_at_a_time(place.transport().await?, queues.clone(), progress.clone(), *load, time);
    let sending = tokio::spawn(sending);
    let sent = handled(store.clone(), transport.clone(), &queues, load.in_flight, &progress, sending).await?;
    let (ids, median) = sent??;
    let books = Books { disturbed: progress.disturbed(), ..Books::default() };
    let done = in_books(&store, Run { sample: Sample::default(), books })?;
    balanced(&transport, &queues, &ids, done).await?;
    Ok(median)
}

/// Sends, waits until it is settled, rests, and so on. The ids, and the median.
async fn one_at_a_time(
    transport: impl Transport,
    queues: Queues,
    progress: Arc<Progress>,
    load: Load,
    time: Duration,
) -> Result<(HashSet<Uuid>, f64), AnyError> {
    let dispatcher = transport.connect(&queues.first, &[]).await?.dispatcher;
    let (message_type, mut workload) = (TypeName::parse(Passed::TYPE)?, load.workload());
    let (mut ids, mut times, mut end) = (HashSet::new(), Vec::new(), Instant::now());
    while ids.len() <= WARM_UP || Instant::now() < end {
        tokio::time::sleep(REST).await;
        let message = workload.next();
        ids.insert(Uuid::from_bytes(message.id));
        let message = [outgoing(&queues.first, &message_type, message)];
        let begun = Instant::now();
        for result in dispatcher.dispatch(&message).await {
            result?;
        }
        progress.reaches(ids.len() as u64).await;
        match ids.len() {
            warm if warm < WARM_UP => {}
            WARM_UP => end = Instant::now() + time,
            _ => times.push(begun.elapsed().as_secs_f64()),
        }
    }
    let median = percentile(&mut times, 50).ok_or("no message was timed")?;
    Ok((ids, median))
}
