//! The clock of the workers' host, stepped to and fro. By a library before the C library's, so that the shipped code runs as it is.

use std::{
    process::{Command, ExitStatus},
    time::{Duration, SystemTime},
};

use hapax_tests::Scratch;
use tokio::time::{Instant, sleep_until};

use crate::{
    AnyError,
    faults::{Fate, Timeline},
    shim,
};

/// Between two steps.
const EVERY: Duration = Duration::from_secs(15);
/// How far off the clock is at most: many leases. What a host that is ahead holds back for a moment is due by others' clocks only after this, and
/// twice this on a host that was as far behind: both below the patience of a run.
const OFF_MAX_MS: i64 = 25_000;

/// Where the clock is, in the environment of all that run on this host.
const VARIABLE: &str = "HAPAX_TEST_CLOCK";

pub(crate) struct Clock(shim::StepClock);

impl Clock {
    /// Runs this program once more on a host whose clock can be stepped, and answers how it ended; `None` where it is on such a host already.
    pub(crate) fn elsewhere() -> Result<Option<ExitStatus>, AnyError> {
        if std::env::var_os(VARIABLE).is_some() {
            // As by Ctrl-C, when the one that waits for it is killed: else a run would go on that nobody sees.
            #[cfg(target_os = "linux")]
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::INT))?;
            return Ok(None);
        }
        if !cfg!(target_os = "linux") {
            return Err("a clock is stepped by LD_PRELOAD, on Linux alone".into());
        }
        let scratch = Scratch::new("soak-clock");
        let (shim, clock) = (shim::shim(scratch.folder()), shim::StepClock::new(scratch.folder()));
        let mut again = Command::new(std::env::current_exe()?);
        again.args(std::env::args_os().skip(1)).env("LD_PRELOAD", shim).env(VARIABLE, clock.path());
        Ok(Some(again.status()?))
    }

    /// This host's. It is stepped once, and put right again: a library that cannot be loaded is passed over, and then no step would be one.
    pub(crate) fn here() -> Result<Self, AnyError> {
        const CANNOT: &str = "this host's clock cannot be stepped";
        let path = std::env::var_os(VARIABLE).ok_or(CANNOT)?;
        let clock = shim::StepClock::at(path.into());
        let before = SystemTime::now();
        clock.set(OFF_MAX_MS);
        let ahead = before.elapsed().unwrap_or_default();
        clock.set(0);
        if ahead < Duration::from_millis(OFF_MAX_MS.unsigned_abs()) / 2 {
            return Err(CANNOT.into());
        }
        Ok(Self(clock))
    }

    /// Until `until`; then it is as far ahead as it ever was, so that nothing has to wait for it. Answers how often.
    pub(crate) async fn steps(&self, until: Instant, mut fate: Fate, timeline: &Timeline) -> u64 {
        let (mut steps, mut furthest) = (0, 0);
        loop {
            let next = Instant::now() + fate.around(EVERY);
            if next >= until || !timeline.goes_on(until) {
                sleep_until(if timeline.goes_on(until) { until } else { Instant::now() }).await;
                self.0.set(furthest);
                return steps;
            }
            sleep_until(next).await;
            let off = fate.random.i64(-OFF_MAX_MS..=OFF_MAX_MS);
            furthest = furthest.max(off);
            self.0.set(off);
            timeline.tell(format!("the workers' clock is off by {} s", off / 1000));
            steps += 1;
        }
    }
}
