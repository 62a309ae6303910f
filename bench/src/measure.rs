//! Clocks and counters of the system: time, CPU, disk flushes, memory.

use std::{
    fs,
    time::{Duration, Instant},
};

/// What one side did in one round.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sample {
    /// Length of the measured window.
    pub(crate) seconds: f64,
    /// Deliveries in the window, repeats included.
    pub(crate) deliveries: u64,
    /// CPU time of the whole process over the window.
    pub(crate) cpu_seconds: f64,
    /// Flush requests of all disks over the window, other processes' included; `None`: the system does not say.
    pub(crate) flushes: Option<u64>,
    /// Commits over the window; `None`: not counted.
    pub(crate) commits: Option<u64>,
    /// Median time of one message, where messages are timed.
    pub(crate) median_seconds: Option<f64>,
    /// The time that one message in a hundred exceeds, where messages are timed.
    pub(crate) p99_seconds: Option<f64>,
}

impl Sample {
    /// Deliveries a second.
    pub(crate) fn rate(&self) -> f64 {
        self.deliveries as f64 / self.seconds
    }

    /// CPU microseconds a delivery.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.deliveries as f64
    }

    /// Flush requests a delivery.
    pub(crate) fn flushes_each(&self) -> Option<f64> {
        self.flushes.map(|flushes| flushes as f64 / self.deliveries as f64)
    }

    /// Commits a delivery.
    pub(crate) fn commits_each(&self) -> Option<f64> {
        self.commits.map(|commits| commits as f64 / self.deliveries as f64)
    }
}

/// A window that has begun.
#[derive(Debug)]
pub(crate) struct Window {
    start: Instant,
    cpu_seconds: f64,
    flushes: Option<u64>,
}

impl Window {
    pub(crate) fn open() -> Self {
        Self { flushes: disk_flushes(), cpu_seconds: cpu_seconds(), start: Instant::now() }
    }

    pub(crate) fn close(&self, deliveries: u64) -> Sample {
        let seconds = self.start.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - self.cpu_seconds;
        let flushes = disk_flushes().zip(self.flushes).map(|(now, then)| now.saturating_sub(then));
        Sample { seconds, deliveries, cpu_seconds, flushes, commits: None, median_seconds: None, p99_seconds: None }
    }
}

/// CPU time of all threads that live, in seconds. The scheduler's own sums have nanoseconds where the process times have
/// ticks of 10 ms; those are the fallback.
fn cpu_seconds() -> f64 {
    scheduled_seconds().or_else(tick_seconds).unwrap_or(f64::NAN)
}

fn scheduled_seconds() -> Option<f64> {
    let mut nanoseconds = 0_u64;
    for task in fs::read_dir("/proc/self/task").ok()? {
        // A thread that ended since the listing has no file any more; none ends within a window.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        nanoseconds += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    (nanoseconds > 0).then_some(nanoseconds as f64 * 1e-9)
}

fn tick_seconds() -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// Waits until the threads of what ran before have ended, which the driver does not wait for: one that ends within a window
/// takes its CPU time out of the sums.
pub(crate) fn wait_for_threads() {
    const LONGEST: Duration = Duration::from_secs(10);
    const LOOK_AGAIN: Duration = Duration::from_millis(5);
    let start = Instant::now();
    let threads = || fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    while threads() > 1 && start.elapsed() < LONGEST {
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Completed flush requests of all block devices (field 16 of their `stat`).
fn disk_flushes() -> Option<u64> {
    let mut sum = None;
    for device in fs::read_dir("/sys/block").ok()?.flatten() {
        let Ok(text) = fs::read_to_string(device.path().join("stat")) else { continue };
        let Some(flushes) = text.split_whitespace().nth(15).and_then(|field| field.parse::<u64>().ok()) else {
            continue;
        };
        *sum.get_or_insert(0) += flushes;
    }
    sum
}

/// Current and highest resident memory, in MiB.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub(crate) struct Resident {
    pub(crate) now_mib: f64,
    pub(crate) peak_mib: f64,
}

pub(crate) fn resident() -> Resident {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse::<f64>().ok());
        kib.map_or(f64::NAN, |kib| kib / 1024.0)
    };
    Resident { now_mib: field("VmRSS"), peak_mib: field("VmHWM") }
}

/// Lets the highest resident memory begin anew; where the system refuses, it goes on from what it was.
pub(crate) fn reset_peak() {
    drop(fs::write("/proc/self/clear_refs", "5"));
}

/// Median, smallest and largest of some figures.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }
}

/// What the figures were taken on.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    rustc: Option<String>,
    unix_time: u64,
    load: String,
}

impl Machine {
    pub(crate) fn of_this_run() -> Self {
        let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let rustc = std::process::Command::new("rustc").arg("--version").output().ok();
        Self {
            cpu: model.map_or_else(|| "unknown".into(), |(_, name)| name.to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease"),
            rustc: rustc.and_then(|output| Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())),
            unix_time: std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            load: read("/proc/loadavg"),
        }
    }

    /// When it was, by the calendar: year, month, day.
    pub(crate) fn date(&self) -> String {
        const SECONDS_OF_DAY: u64 = 86_400;
        let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let (mut days, mut year) = (self.unix_time / SECONDS_OF_DAY, 1970);
        let days_of = |year| if is_leap(year) { 366 } else { 365 };
        while days >= days_of(year) {
            days -= days_of(year);
            year += 1;
        }
        let months = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while days >= months[month] {
            days -= months[month];
            month += 1;
        }
        format!("{year}-{:02}-{:02}", month + 1, days + 1)
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let rustc = self.rustc.as_deref().unwrap_or("rustc unknown");
        format!("{} x {}, kernel {}, {rustc}, load {}", self.cores, self.cpu, self.kernel, self.load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_the_calendar_s() {
        let date = |unix_time| Machine { unix_time, ..Machine::of_this_run() }.date();
        assert_eq!(
            [0, 951_782_399, 951_782_400, 1_795_219_200].map(date),
            ["1970-01-01", "2000-02-28", "2000-02-29", "2026-11-21"]
        );
    }
}
