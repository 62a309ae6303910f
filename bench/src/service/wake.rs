//! How soon a message that one process sends is handled in another, and how often an idle one wakes up.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use hapax::Sender;

use super::{
    Figure, Options, millis,
    worker::{ENDPOINT, Ping, Worker, now_micros, open},
};
use crate::AnyError;

/// Between two messages of a busy queue.
const BUSY: Duration = Duration::from_millis(4);
const BUSY_MESSAGES: u64 = 500;
/// Silence after which a queue is idle.
const IDLE: Duration = Duration::from_secs(2);
const IDLE_MESSAGES: u64 = 4;
/// How long wake-ups are counted.
const COUNTED: Duration = Duration::from_secs(5);

const BUSY_MS: f64 = 5.0;
const IDLE_MS: f64 = 250.0;
const LOOKS_A_SECOND: f64 = 5.0;

pub(super) fn measure(dir: &Path, options: &Options) -> Result<Vec<Figure>, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut median, mut p99, mut idle, mut looks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let file = dir.join(format!("wake-{round}.db"));
        let mut worker = Worker::ready("serve", &file)?;
        let (store, queue) = runtime.block_on(open(&file))?;
        let sender = queue.sender();
        let mut times = Vec::new();
        for number in 0..BUSY_MESSAGES {
            std::thread::sleep(BUSY);
            times.push(runtime.block_on(one(&sender, number, &mut worker))?);
        }
        times.drain(..times.len() / 10); // The first come out of silence.
        times.sort_by(f64::total_cmp);
        median.push(times[times.len() / 2]);
        p99.push(times[times.len() * 99 / 100]);
        for number in 0..IDLE_MESSAGES {
            std::thread::sleep(IDLE);
            idle.push(runtime.block_on(one(&sender, BUSY_MESSAGES + number, &mut worker))?);
        }
        std::thread::sleep(IDLE);
        looks.push(wake_ups(&worker)?);
        runtime.block_on(store.close());
    }
    Ok(vec![
        Figure::new(
            "wake-up: from the send to the handler of another process, busy, median",
            "ms",
            Some(BUSY_MS),
            median,
        ),
        Figure::new("wake-up: the same, 99 of 100", "ms", Some(BUSY_MS), p99),
        Figure::new("wake-up: the same after 2 s of silence", "ms", Some(IDLE_MS), idle),
        Figure::new("wake-up: looks of an idle process at its file", "/s", Some(LOOKS_A_SECOND), looks),
    ])
}

async fn one(sender: &Sender, number: u64, worker: &mut Worker) -> Result<f64, AnyError> {
    sender.send(ENDPOINT, &Ping { number }).await?;
    let sent_at = now_micros();
    let (handled, at) = worker.handled()?;
    // Handled before the sender knew that it was sent: no time at all.
    let time = millis(Duration::from_micros(at.saturating_sub(sent_at)));
    if handled == number { Ok(time) } else { Err(format!("{handled} was handled instead of {number}").into()) }
}

/// How often a second the threads that work on the file wake up: each look is a hand-over to one of them.
fn wake_ups(worker: &Worker) -> Result<f64, AnyError> {
    let before = switches(worker.id())?;
    let begun = Instant::now();
    std::thread::sleep(COUNTED);
    let after = switches(worker.id())?;
    Ok((after - before) as f64 / begun.elapsed().as_secs_f64())
}

fn switches(process: u32) -> Result<u64, AnyError> {
    let mut all = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("Name:").is_some_and(|name| name.starts_with("hapax-sqlite")) {
            all += field("voluntary_ctxt_switches:").ok_or("the system does not count")?.parse::<u64>()?;
        }
    }
    Ok(all)
}
