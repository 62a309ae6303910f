//! Interruptions: from the keyboard, from a terminal that was closed, from whoever ends processes. All of them end a run in the
//! same way, so that nothing of it is left behind.

use std::io;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Refusal;

/// Those that have come since it was made are not lost.
pub(crate) struct Interruptions {
    int: Signal,
    term: Signal,
    hup: Option<Signal>,
}

impl Interruptions {
    pub(crate) fn listen() -> Result<Self, Refusal> {
        let cannot = |e: io::Error| Refusal::new(format!("interruptions cannot be listened to: {e}"));
        let listen = |number: Number| signal(SignalKind::from_raw(number.as_raw())).map_err(cannot);
        let hup = if outlives_its_terminal() { None } else { Some(listen(Number::HUP)?) };
        Ok(Self { int: listen(Number::INT)?, term: listen(Number::TERM)?, hup })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Refusal {
        let Self { int, term, hup } = self;
        let hung_up = async {
            match hup {
                Some(hup) => hup.recv().await,
                None => std::future::pending().await,
            }
        };
        Refusal::interrupted(tokio::select! {
            _ = int.recv() => Number::INT,
            _ = term.recv() => Number::TERM,
            _ = hung_up => Number::HUP,
        })
    }
}

/// Whether this process was started with `nohup`. Where the system does not say, not.
fn outlives_its_terminal() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & (1 << (Number::HUP.as_raw() - 1)) != 0
}
