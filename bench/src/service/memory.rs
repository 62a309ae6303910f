//! Resident memory over a great many messages, of which the old ones are evicted: in a process of its own, which does
//! nothing else.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::TryStreamExt;
use hapax::{
    Endpoint, InProcess, Message, MessageId, Sqlite, SqliteQueue,
    codec::FRAME_BYTES,
    endpoint::Settings,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    metrics::{Event, Metrics},
    ports::{Connected, Dispatcher, Transport, TransportCapabilities, TransportError},
};
use sqlx::{Connection, Row};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use super::{
    Figure, Options,
    counted::{self, beside},
    mib,
    worker::{Worker, say},
};
use crate::{
    AnyError,
    measure::resident,
    template::with_file,
    workload::{Account, Deposit, Workload},
};

/// What may come on top of a tenth more: the allocator's and the page caches' share that fills late.
const SLACK_MIB: f64 = 16.0;
/// A message through the durable queue costs several times as much.
const QUEUE_SHARE: u64 = 10;
/// Each worker says so often how far it is.
const REPORTS: u64 = 100;
/// Messages that wait or are handled at a time.
const QUEUED: u64 = 2048;
const ENTITIES: u32 = 1000;
const ENDPOINT: &str = "memory";
/// As short as the deadline of a pass allows: so that there is something to evict soon.
const RETENTION: Duration = Duration::from_secs(12);
const DEADLINE: Duration = Duration::from_secs(5);
const REDELIVERY: Duration = Duration::from_secs(1);

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let runtime = super::runtime()?;
    let mut figures = Vec::new();
    let kinds = [
        ("memory", "from within the process", options.messages),
        ("memory-queue", "through a durable queue", (options.messages / QUEUE_SHARE).max(REPORTS)),
    ];
    for (task, from, messages) in kinds {
        figures.extend(with_file(dir, None, |path| {
            let begun = Instant::now();
            let samples = watch(task, path, messages)?;
            let rate = messages as f64 / begun.elapsed().as_secs_f64();
            runtime.block_on(audit(path, messages))?;
            let rows = runtime.block_on(counted::number(path, "SELECT count(*) FROM hapax_dedup"))?;
            Ok(told(&format!("{messages} messages {from}"), &samples, rate, rows))
        })?);
    }
    Ok(figures)
}

/// MiB after each hundredth of the messages.
#[derive(Debug, Clone, Copy)]
struct Sample {
    resident: f64,
    file: f64,
}

fn watch(task: &str, path: &Path, messages: u64) -> Result<Vec<Sample>, AnyError> {
    let worker = Worker::start(task, path, &[&messages.to_string()])?;
    let mut samples = Vec::new();
    for _ in 0..REPORTS {
        let resident = worker.line()?.parse()?;
        samples.push(Sample { resident, file: mib(size(path)) });
    }
    // It stores what it has, and ends.
    match worker.line()?.as_str() {
        "over" => Ok(samples),
        other => Err(format!("a worker said {other}").into()),
    }
}

/// Of the file and its log.
fn size(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    [path.as_os_str(), &log].into_iter().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum()
}

fn told(of: &str, samples: &[Sample], rate: f64, rows: u64) -> Vec<Figure> {
    let tenth = samples.len() / 10;
    // The most over some samples: between two of them, memory comes and goes.
    let most = |samples: &[Sample]| samples.iter().map(|sample| sample.resident).fold(f64::NAN, f64::max);
    let (early, late) = (most(&samples[tenth / 2..tenth]), most(&samples[samples.len() - tenth / 2..]));
    let file = |at: usize| samples.get(at).map_or(f64::NAN, |sample| sample.file);
    vec![
        Figure::of(format!("memory: after a tenth of {of}"), "MiB", vec![early]),
        Figure::of(format!("memory: after all of {of}"), "MiB", vec![late]),
        Figure::of(
            format!("memory: growth beyond a tenth and {SLACK_MIB} MiB, {of}"),
            "MiB",
            vec![late - early * 1.1 - SLACK_MIB],
        )
        .all_at_most(0.0),
        Figure::of(format!("memory: file and log after a tenth of {of}"), "MiB", vec![file(tenth)]),
        Figure::of(format!("memory: file and log after all of {of}"), "MiB", vec![file(samples.len() - 1)]),
        Figure::of(format!("memory: dedup entries left of {of}"), "", vec![rows as f64]),
        Figure::of(format!("memory: rate of {of}"), "/s", vec![rate]),
    ]
}

/// Each message has had its effect once, and nothing is left to be done. Dedup entries cannot be counted: the old are gone.
async fn audit(path: &Path, messages: u64) -> Result<(), AnyError> {
    let mut connection = beside(path).await?;
    let mut effects = 0;
    {
        let mut states = sqlx::query("SELECT state FROM hapax_entity").fetch(&mut connection);
        while let Some(row) = states.try_next().await? {
            let json = row.try_get::<&[u8], _>(0)?.get(FRAME_BYTES..).ok_or("a state without a frame")?;
            effects += serde_json::from_slice::<Account>(json)?.effects;
        }
    }
    connection.close().await?;
    let left = counted::number(path, "SELECT count(*) FROM hapax_entity WHERE pending_since IS NOT NULL").await?;
    if (effects, left) == (messages, 0) {
        Ok(())
    } else {
        Err(format!("of {messages} messages there were {effects} effects, and {left} entities wait to be sent").into())
    }
}

/// The worker: handles so many messages and says every so often how much memory it has.
pub(super) async fn work(file: &Path, messages: u64, queue: bool) -> Result<(), AnyError> {
    let store = Sqlite::open(file).await?;
    if queue {
        let queue = SqliteQueue::options().redelivery_max(REDELIVERY).on(&store).await?;
        handle(&store, queue.clone(), Arc::new(queue), messages).await?;
    } else {
        let hub = InProcess::new(ENDPOINT);
        handle(&store, Soon(hub.clone()), Arc::new(hub), messages).await?;
    }
    store.close().await;
    say("over");
    Ok(())
}

async fn handle<T>(store: &Sqlite, transport: T, to: Arc<dyn Dispatcher>, messages: u64) -> Result<(), AnyError>
where
    T: Transport + 'static,
{
    let settings = Settings {
        retention: RETENTION,
        sweep_age: DEADLINE,
        evict_interval: Duration::from_secs(1),
        deadline: DEADLINE,
        ..Settings::default()
    };
    let progress = Arc::new(Progress::default());
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(store.clone())
        .transport(transport)
        .saga::<Account>(|account| account.starts::<Deposit>())
        .settings(settings)
        .metrics(progress.clone())
        .start()
        .await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let fed = tokio::spawn(async move {
        let fed = feed(to, &progress, messages).await;
        drop(stop);
        fed
    });
    endpoint.run_until(stopped).await?;
    fed.await?
}

/// Keeps so many messages on their way until all are over.
async fn feed(to: Arc<dyn Dispatcher>, progress: &Progress, messages: u64) -> Result<(), AnyError> {
    let destination = Destination::Endpoint(EndpointName::parse(ENDPOINT)?);
    let message_type = TypeName::parse(Deposit::TYPE)?;
    let mut workload = Workload::new(ENTITIES, 1).repeats(0.0);
    let (mut sent, mut said) = (0, 0);
    while progress.done() < messages {
        let room = (QUEUED - (sent - progress.done()).min(QUEUED)).min(messages - sent);
        let chunk = (0..room).map(|_| {
            let message = workload.next();
            let id = MessageId::from(Uuid::from_bytes(message.id));
            let envelope = Arc::new(Envelope::new(id, message_type.clone(), message.body));
            Outgoing { destination: destination.clone(), envelope }
        });
        let chunk: Vec<_> = chunk.collect();
        for result in to.dispatch(&chunk).await {
            result?;
        }
        sent += room;
        let next = messages * (said + 1) / REPORTS;
        // Half of them are on their way when the others come.
        progress.reaches(next.min(sent.saturating_sub(QUEUED / 2).max(1))).await;
        while said < REPORTS && progress.done() >= messages * (said + 1) / REPORTS {
            said += 1;
            say(&resident().now_mib.to_string());
        }
        if sent == messages {
            progress.reaches((messages * (said + 1) / REPORTS).min(messages)).await;
        }
    }
    for _ in said..REPORTS {
        say(&resident().now_mib.to_string());
    }
    Ok(())
}

/// How many messages are over.
#[derive(Debug, Default)]
struct Progress {
    done: AtomicU64,
    wake_at: AtomicU64,
    wake: Notify,
}

impl Progress {
    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    async fn reaches(&self, count: u64) {
        self.wake_at.store(count, Ordering::Relaxed);
        while self.done() < count {
            self.wake.notified().await;
        }
    }
}

impl Metrics for Progress {
    fn observe(&self, event: Event<'_>) {
        if matches!(event, Event::Handled(_)) {
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            if done >= self.wake_at.load(Ordering::Relaxed) {
                self.wake.notify_one();
            }
        }
    }
}

/// Queues of this process whose messages do not come again, so that they need not be remembered for an hour.
#[derive(Debug)]
struct Soon(InProcess);

#[async_trait::async_trait]
impl Transport for Soon {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { redelivery_max: REDELIVERY, ..self.0.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.connect(endpoint, types).await
    }
}
