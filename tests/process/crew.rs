//! Workers that go on until they are stopped or killed.
#![allow(dead_code)] // Each test program uses a part of it.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::Pid;

/// Far above what anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often a file is looked at that others write.
const LOOK: Duration = Duration::from_millis(5);

/// A worker that runs. It is killed when it goes out of scope, and when this process dies its input is closed.
pub(crate) struct Worker {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Worker {
    /// A worker of `version` on the files in `folder`.
    pub(crate) fn serving(folder: &Path, version: &str) -> Self {
        Self::run(folder, version, &mut program())
    }

    /// The same, begun by `command`, to which the worker's arguments are added.
    pub(crate) fn run(folder: &Path, version: &str, command: &mut Command) -> Self {
        Self::run_task(folder, ["serve", version], command)
    }

    /// A worker that sells, and relays what it has sold.
    pub(crate) fn selling(folder: &Path, mode: &str) -> Self {
        Self::run_task(folder, ["sell", mode], &mut program())
    }

    pub(crate) fn run_task(folder: &Path, task: [&str; 2], command: &mut Command) -> Self {
        let command = command.arg(folder).args(task);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (mut lines, written) = (BufReader::new(child.stderr.take().unwrap()), log.clone());
        let reader = std::thread::spawn(move || {
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).unwrap() > 0 {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self { child, log, reader }
    }

    /// Its process.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until it handles messages.
    pub(crate) async fn started(mut self) -> Self {
        until("a worker starts", async || self.log().contains("started") || !self.is_alive()).await;
        assert!(self.is_alive(), "it has ended: {}", self.log());
        self
    }

    /// Waits until it has logged `words`.
    pub(crate) async fn says(&self, words: &str) {
        until(&format!("a worker says `{words}`"), async || self.log().contains(words)).await;
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// SIGKILL. It must have been alive.
    pub(crate) fn kill(mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "it had ended: {}", self.log());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Lets it end by itself.
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// Waits for the end of one that ends by itself.
    pub(crate) fn ended(&mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        while !self.reader.is_finished() {
            std::thread::yield_now();
        }
        (status, self.log())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker's program, without arguments.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_hapax-test-worker"))
}

/// Looks until `there` is: what another process does can only be looked for.
pub(crate) async fn until(what: &str, mut there: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !there().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("in vain: {what}"));
}
