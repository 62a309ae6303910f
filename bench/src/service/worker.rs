//! Workers: this program once more, in a process of its own, told what to do by its arguments and telling what it does on
//! its standard output.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sqlite, SqliteQueue, ports::DedupStore,
};
use serde::{Deserialize, Serialize};

use super::counted::beside;
use crate::AnyError;

/// The argument that makes this program a worker.
pub(crate) const ROLE: &str = "service-worker";
/// The endpoint of every worker.
pub(super) const ENDPOINT: &str = "service";
/// The lease of every queue here.
pub(super) const LEASE: Duration = Duration::from_secs(1);
/// Entries of one insert of a worker that fills a log.
const FILL: u64 = 500;
/// A worker that says nothing for so long is stuck: far beyond any bar.
const SILENCE: Duration = Duration::from_secs(60);

/// To be handled.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ping {
    pub(super) number: u64,
}

impl Message for Ping {
    const TYPE: &'static str = "bench.ping";
}

/// Remembers nothing but that it was called.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Pinged {
    count: u64,
}

impl Saga for Pinged {
    const NAME: &'static str = "pinged";
}

/// A worker that takes messages and never ends with them.
#[derive(Debug, Clone, Copy)]
struct Hangs(bool);

impl Handle<Ping> for Pinged {
    fn correlate(ping: &Ping) -> Correlation<'_> {
        Correlation::of("ping", ping.number.to_string())
    }

    async fn handle(&mut self, ping: Ping, cx: &mut Context) -> Result<(), HandlerError> {
        self.count += 1;
        say(&format!("{} {}", ping.number, now_micros()));
        if cx.get::<Hangs>()?.0 {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// Microseconds since 1970.
pub(super) fn now_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listens may be gone, and then nobody misses it.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

pub(super) async fn open(file: &Path) -> Result<(Sqlite, SqliteQueue), AnyError> {
    let store = Sqlite::open(file).await?;
    let queue = SqliteQueue::options().lease(LEASE).on(&store).await?;
    Ok((store, queue))
}

/// What a worker does: `serve` or `hang`, `fill` or `hold`, `memory` or `memory-queue`, on a file.
///
/// # Errors
/// When it cannot.
pub(crate) fn run(mut args: impl Iterator<Item = String>) -> Result<(), AnyError> {
    let task = args.next().ok_or("a worker needs a task")?;
    let file = args.next().ok_or("a worker needs a file")?;
    let file = Path::new(&file);
    super::runtime()?.block_on(async {
        match task.as_str() {
            "serve" => serve(file, Hangs(false)).await,
            "hang" => serve(file, Hangs(true)).await,
            "fill" => fill(file).await,
            "hold" => hold(file).await,
            "memory" | "memory-queue" => {
                let messages = args.next().ok_or("this worker needs a number of messages")?.parse()?;
                super::memory::work(file, messages, task == "memory-queue").await
            }
            other => Err(format!("no worker does `{other}`").into()),
        }
    })
}

/// Handles pings for ever.
async fn serve(file: &Path, hangs: Hangs) -> Result<(), AnyError> {
    let (store, queue) = open(file).await?;
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(store)
        .transport(queue)
        .saga::<Pinged>(|pinged| pinged.starts::<Ping>())
        .with(hangs)
        .start()
        .await?;
    say("ready");
    endpoint.run_until(std::future::pending::<()>()).await?;
    Ok(())
}

/// Inserts for ever, and says the number of the last entry that is confirmed.
async fn fill(file: &Path) -> Result<(), AnyError> {
    let store = Sqlite::open(file).await?;
    say("ready");
    // Each worker its own entries.
    let mut first = now_micros();
    loop {
        store.insert(&super::startup::entries(first, FILL)).await?;
        first += FILL;
        say(&(first - 1).to_string());
    }
}

/// Reads for ever as of one moment, so that the log cannot begin anew.
async fn hold(file: &Path) -> Result<(), AnyError> {
    let mut connection = beside(file).await?;
    for statement in ["BEGIN", "SELECT count(*) FROM hapax_meta"] {
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    say("ready");
    std::future::pending().await
}

/// A running worker, which is killed with the guard.
pub(super) struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    pub(super) fn start(task: &str, file: &Path, more: &[&str]) -> Result<Self, AnyError> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args([ROLE, task]).arg(file).args(more).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("a worker without output")?;
        let (said, lines) = channel();
        // A thread, because a pipe is read without a time limit.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// One that is ready.
    pub(super) fn ready(task: &str, file: &Path) -> Result<Self, AnyError> {
        let worker = Self::start(task, file, &[])?;
        worker.line()?;
        Ok(worker)
    }

    /// The next line that it says.
    pub(super) fn line(&self) -> Result<String, AnyError> {
        let line = self.lines.recv_timeout(SILENCE);
        Ok(line.map_err(|e| format!("a worker has ended before its time, or is stuck: {e}"))?)
    }

    /// The next message that it handles: its number, and when.
    pub(super) fn handled(&self) -> Result<(u64, u64), AnyError> {
        loop {
            let line = self.line()?;
            if let Some((number, micros)) = line.split_once(' ') {
                return Ok((number.parse()?, micros.parse()?));
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, without waiting for what comes of it.
    pub(super) fn kill(&mut self) -> Result<(), AnyError> {
        Ok(self.child.kill()?)
    }

    /// SIGKILL. What it said before is what is left to be read.
    pub(super) fn end(mut self) -> Result<Vec<String>, AnyError> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.lines.iter().collect())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
