//! How soon a message that one process sends is handled in another and in the same one, and how often an idle one wakes up.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use hapax::{Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sender};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    Figure, Options, counted, millis,
    recovery::emptied,
    worker::{ENDPOINT, Ping, Worker, now_micros, open},
};
use crate::{AnyError, figure::percentile};

/// Between two messages of a busy queue.
const BUSY: Duration = Duration::from_millis(4);
const BUSY_MESSAGES: u64 = 500;
/// The first come out of silence.
const BUSY_FIRST: usize = 50;
/// Silence after which a queue is idle: it looks after a sixteenth of the silence at the latest, which is twice the bar, so
/// that nothing but its longest interval keeps it below.
const IDLE: Duration = Duration::from_secs(8);
const IDLE_MESSAGES: u64 = 2;
/// How long wake-ups are counted.
const COUNTED: Duration = Duration::from_secs(5);
/// Far beyond any bar.
const STUCK: Duration = Duration::from_secs(60);

const BUSY_MS: f64 = 5.0;
const IDLE_MS: f64 = 250.0;
const LOOKS_A_SECOND: f64 = 5.0;

/// Of one round, in milliseconds and in wake-ups a second.
#[derive(Debug)]
struct Round {
    busy: (f64, f64),
    /// The sends themselves: a commit each, as there is one on the way to the handler.
    sends: (f64, f64),
    idle: Vec<f64>,
    own: (f64, f64),
    wake_ups: WakeUps,
}

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        rounds.push(round(&dir.join(format!("wake-{number}.db")), &dir.join(format!("own-{number}.db")))?);
    }
    let of = |value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
    let idle = rounds.iter().flat_map(|round| round.idle.iter().copied()).collect();
    Ok(vec![
        Figure::of(
            "wake-up: from a confirmed send to the handler of another process, busy, median",
            "ms",
            of(|r| r.busy.0),
        )
        .median_at_most(BUSY_MS),
        Figure::of("wake-up: the same, 99 of 100", "ms", of(|r| r.busy.1)).median_at_most(BUSY_MS),
        Figure::of("wake-up: such a send itself, one commit, median", "ms", of(|r| r.sends.0)),
        Figure::of("wake-up: such a send itself, 99 of 100", "ms", of(|r| r.sends.1)),
        Figure::of("wake-up: to the handler of another process after 8 s of silence", "ms", idle).all_at_most(IDLE_MS),
        Figure::of("wake-up: within one process, median", "ms", of(|r| r.own.0)),
        Figure::of("wake-up: within one process, 99 of 100", "ms", of(|r| r.own.1)),
        Figure::of("wake-up: looks of an idle process at its file", "/s", of(|r| r.wake_ups.looks))
            .median_at_most(LOOKS_A_SECOND),
        Figure::of("wake-up: of all threads of an idle process", "/s", of(|r| r.wake_ups.all)),
    ])
}

fn round(file: &Path, own: &Path) -> Result<Round, AnyError> {
    let runtime = super::runtime()?;
    let worker = Worker::ready("serve", file)?;
    let (store, queue) = runtime.block_on(open(file))?;
    let sender = queue.sender();
    let (mut sends, mut times) = (Vec::new(), Vec::new());
    for number in 0..BUSY_MESSAGES {
        std::thread::sleep(BUSY);
        let (send, time) = runtime.block_on(one(&sender, number, &worker))?;
        sends.push(send);
        times.push(time);
    }
    let (sends, busy) = (quantiles(sends), quantiles(times));
    std::thread::sleep(IDLE);
    let wake_ups = wake_ups(&worker)?;
    let mut idle = Vec::new();
    for number in 0..IDLE_MESSAGES {
        // Each at another moment between two looks.
        std::thread::sleep(IDLE + Duration::from_millis(fastrand::u64(..250)));
        idle.push(runtime.block_on(one(&sender, BUSY_MESSAGES + number, &worker))?.1);
    }
    runtime.block_on(async {
        store.close().await;
        emptied(file).await
    })?;
    drop(worker);
    runtime.block_on(counted::each_once(file, BUSY_MESSAGES + IDLE_MESSAGES))?;
    let own = runtime.block_on(within(own))?;
    Ok(Round { busy, sends, idle, own, wake_ups })
}

fn quantiles(mut times: Vec<f64>) -> (f64, f64) {
    times.drain(..BUSY_FIRST.min(times.len()));
    let mut of = |percent| percentile(&mut times, percent).unwrap_or(f64::NAN);
    (of(50), of(99))
}

/// How long a send takes, and how long it is from its end to the handler.
async fn one(sender: &Sender, number: u64, worker: &Worker) -> Result<(f64, f64), AnyError> {
    let begun = Instant::now();
    sender.send(ENDPOINT, &Ping { number }).await?;
    let (send, sent_at) = (millis(begun.elapsed()), now_micros());
    let (handled, at) = worker.handled()?;
    // Handled before the sender knew that it was sent: no time at all.
    let time = millis(Duration::from_micros(at.saturating_sub(sent_at)));
    if handled == number { Ok((send, time)) } else { Err(format!("{handled} was handled instead of {number}").into()) }
}

/// Sender and endpoint in one process, with one handle to the queue.
async fn within(file: &Path) -> Result<(f64, f64), AnyError> {
    let (store, queue) = open(file).await?;
    let sender = queue.sender();
    let (handled, mut when) = mpsc::unbounded_channel();
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(store.clone())
        .transport(queue)
        .saga::<Noted>(|noted| noted.starts::<Note>())
        .with(Handled(handled))
        .start()
        .await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let sending = tokio::spawn(async move {
        let mut times = Vec::new();
        for number in 0..BUSY_MESSAGES {
            sleep(BUSY).await;
            sender.send(ENDPOINT, &Note { number }).await?;
            let sent_at = Instant::now();
            let at = timeout(STUCK, when.recv()).await?.ok_or("the endpoint has ended")?;
            times.push(millis(at.saturating_duration_since(sent_at)));
        }
        drop(stop);
        Ok::<_, AnyError>(times)
    });
    endpoint.run_until(stopped).await?;
    let times = sending.await??;
    store.close().await;
    counted::each_once(file, BUSY_MESSAGES).await?;
    Ok(quantiles(times))
}

/// How often a second threads wake up.
#[derive(Debug, Clone, Copy)]
struct WakeUps {
    /// Those that work on the file: each look is a hand-over to one of them.
    looks: f64,
    all: f64,
}

fn wake_ups(worker: &Worker) -> Result<WakeUps, AnyError> {
    let (looks, all) = switches(worker.id())?;
    let begun = Instant::now();
    std::thread::sleep(COUNTED);
    let (looks_then, all_then) = switches(worker.id())?;
    let rate = |before: u64, then: u64| (then - before) as f64 / begun.elapsed().as_secs_f64();
    Ok(WakeUps { looks: rate(looks, looks_then), all: rate(all, all_then) })
}

/// How often the threads of a process have waited of their own accord: those that work on the file, and all.
fn switches(process: u32) -> Result<(u64, u64), AnyError> {
    let (mut file, mut all) = (0, 0);
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let count: u64 = field("voluntary_ctxt_switches:").ok_or("the system does not count")?.parse()?;
        all += count;
        if field("Name:").is_some_and(|name| name.starts_with("hapax-sqlite")) {
            file += count;
        }
    }
    if file == 0 { Err("no thread works on the file: they have another name now".into()) } else { Ok((file, all)) }
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    number: u64,
}

impl Message for Note {
    const TYPE: &'static str = "bench.note";
}

/// Tells when it was called.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Noted;

impl Saga for Noted {
    const NAME: &'static str = "noted";
}

#[derive(Debug, Clone)]
struct Handled(mpsc::UnboundedSender<Instant>);

impl Handle<Note> for Noted {
    fn correlate(note: &Note) -> Correlation<'_> {
        Correlation::of("note", note.number.to_string())
    }

    async fn handle(&mut self, _note: Note, cx: &mut Context) -> Result<(), HandlerError> {
        let _ = cx.get::<Handled>()?.0.send(Instant::now()); // Who asked may be gone.
        Ok(())
    }
}
