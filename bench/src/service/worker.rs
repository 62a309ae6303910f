//! Workers: this program once more, in a process of its own, told what to do by its arguments and telling what it does on
//! its standard output.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, Saga, Sqlite, SqliteQueue, ports::DedupStore,
};
use serde::{Deserialize, Serialize};

use crate::AnyError;

/// The argument that makes this program a worker.
pub(crate) const ROLE: &str = "service-worker";
/// The endpoint of every worker.
pub(super) const ENDPOINT: &str = "service";
/// The lease of every queue here.
pub(super) const LEASE: Duration = Duration::from_secs(1);
/// Entries of one insert of a worker that fills a log.
const FILL: u64 = 500;

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

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listens may be gone, and then nobody misses it.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

pub(super) async fn open(file: &Path) -> Result<(Sqlite, SqliteQueue), AnyError> {
    let store = Sqlite::open(file).await?;
    let queue = SqliteQueue::options().lease(LEASE).on(&store).await?;
    Ok((store, queue))
}

/// What a worker does: `serve`, `hang` or `fill`, on a file.
///
/// # Errors
/// When it cannot.
pub(crate) fn run(mut args: impl Iterator<Item = String>) -> Result<(), AnyError> {
    let task = args.next().ok_or("a worker needs a task")?;
    let file = args.next().ok_or("a worker needs a file")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if task == "fill" {
            return fill(Path::new(&file)).await;
        }
        let (store, queue) = open(Path::new(&file)).await?;
        let endpoint = Endpoint::builder(ENDPOINT)
            .store(store)
            .transport(queue)
            .saga::<Pinged>(|pinged| pinged.starts::<Ping>())
            .with(Hangs(task == "hang"))
            .start()
            .await?;
        say("ready");
        endpoint.run_until(std::future::pending::<()>()).await?;
        Ok(())
    })
}

/// Inserts for ever.
async fn fill(file: &Path) -> Result<(), AnyError> {
    let store = Sqlite::open(file).await?;
    say("ready");
    let mut first = 1 << 40;
    loop {
        store.insert(&super::startup::entries(first, FILL)).await?;
        first += FILL;
        say("more");
    }
}

/// A running worker, which is killed with the guard.
pub(super) struct Worker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    pub(super) fn start(task: &str, file: &Path) -> Result<Self, AnyError> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args([ROLE, task]).arg(file).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("a worker without output")?;
        Ok(Self { child, lines: BufReader::new(out) })
    }

    /// One that is ready.
    pub(super) fn ready(task: &str, file: &Path) -> Result<Self, AnyError> {
        let mut worker = Self::start(task, file)?;
        worker.line()?;
        Ok(worker)
    }

    /// The next line that it says.
    pub(super) fn line(&mut self) -> Result<String, AnyError> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Err("a worker has ended before its time".into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// The next message that it handles: its number, and when.
    pub(super) fn handled(&mut self) -> Result<(u64, u64), AnyError> {
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

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> Result<(), AnyError> {
        self.child.kill()?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
