//! What is measured, and what it must reach (`performance.md`, section 6).

use std::{path::Path, time::Duration};

use crate::{
    AnyError, anchor, candidate,
    measure::{Resident, Sample, reset_peak, resident},
    run::{Run, Shape},
};

/// One comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Case {
    /// One message at a time, each sends one.
    S1a,
    /// One message at a time, nothing is sent.
    S1b,
    /// Saturated.
    S2,
    /// CPU of the framework itself.
    C5,
    /// Saturated, a single entity.
    Hot,
    /// Saturated, many entities.
    Wide,
}

/// What a case must reach.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    /// Rate of hapax over rate of the hand-written loop, at least.
    Ratio { must: f64, stretch: f64 },
    /// CPU microseconds a delivery above the hand-written loop, at most.
    Overhead { must: f64, stretch: f64 },
}

impl Bar {
    /// Whether `figure` reaches the must.
    pub(crate) fn is_met(self, figure: f64) -> bool {
        match self {
            Self::Ratio { must, .. } => figure >= must,
            Self::Overhead { must, .. } => figure <= must,
        }
    }

    /// Whether `figure` reaches the stretch goal.
    pub(crate) fn is_stretch(self, figure: f64) -> bool {
        match self {
            Self::Ratio { stretch, .. } => figure >= stretch,
            Self::Overhead { stretch, .. } => figure <= stretch,
        }
    }
}

/// Deliveries in flight when saturated: the endpoint's default.
const SATURATED: usize = 1024;
/// Entities unless told otherwise.
const ENTITIES: u32 = 1000;
const ENTITIES_WIDE: u32 = 200_000;
/// Messages of one batch of the hand-written loop.
const BATCH: usize = 100;

impl Case {
    pub(crate) const ALL: [Self; 6] = [Self::S1a, Self::S1b, Self::S2, Self::C5, Self::Hot, Self::Wide];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::S1a => "s1a",
            Self::S1b => "s1b",
            Self::S2 => "s2",
            Self::C5 => "c5",
            Self::Hot => "hot",
            Self::Wide => "wide",
        }
    }

    /// What is compared, in words.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::S1a => "SQLite, one message at a time, each sends one / two-commit loop",
            Self::S1b => "SQLite, one message at a time, nothing sent / one-commit loop",
            Self::S2 => "SQLite, saturated, K=1000 / loop over arrays of 100",
            Self::C5 => "in memory, saturated: CPU above a loop that decodes and encodes the same",
            Self::Hot => "SQLite, saturated, K=1 / loop over arrays of 100",
            Self::Wide => "SQLite, saturated, K=200000 / loop over arrays of 100",
        }
    }

    pub(crate) const fn bar(self) -> Option<Bar> {
        match self {
            Self::S1a => Some(Bar::Ratio { must: 0.85, stretch: 0.95 }),
            Self::S1b => Some(Bar::Ratio { must: 0.8, stretch: 0.95 }),
            Self::S2 => Some(Bar::Ratio { must: 0.6, stretch: 0.8 }),
            Self::C5 => Some(Bar::Overhead { must: 3.0, stretch: 2.0 }),
            Self::Hot | Self::Wide => None,
        }
    }

    /// Least rate of the hand-written loop, as a multiple of the raw loop's: 0.6 of the lower end of what `performance.md`
    /// documents (sections 2 and 6: raw 8 026/s; through sqlx two commits 2 200 to 2 800/s, one commit 3 900 to
    /// 4 700/s; batch 100 with more than one commit 60 890 to 65 558/s, by direct calls).
    pub(crate) fn anchor_floor(self) -> Option<f64> {
        const SHARE: f64 = 0.6;
        const RAW: f64 = 8026.0;
        match self {
            Self::S1a => Some(SHARE * 2200.0 / RAW),
            Self::S1b => Some(SHARE * 3900.0 / RAW),
            Self::S2 => Some(SHARE * 60_890.0 / RAW),
            Self::C5 | Self::Hot | Self::Wide => None,
        }
    }

    /// What both sides run, but for the seed, which is the number of the round.
    pub(crate) const fn shape(self, time: Duration) -> Shape {
        let saturated = Shape { entities: ENTITIES, outgoing: true, in_flight: SATURATED, batch: BATCH, time, seed: 0 };
        match self {
            Self::S1a => Shape { in_flight: 1, batch: 1, ..saturated },
            Self::S1b => Shape { in_flight: 1, batch: 1, outgoing: false, ..saturated },
            Self::S2 | Self::C5 => saturated,
            Self::Hot => Shape { entities: 1, ..saturated },
            Self::Wide => Shape { entities: ENTITIES_WIDE, ..saturated },
        }
    }

    /// One round: the disk, the hand-written loop, hapax; for other numbers of entities also hapax with the usual one.
    pub(crate) fn round(self, dir: &Path, shape: &Shape) -> Result<Round, AnyError> {
        let seed = shape.seed;
        if self == Self::C5 {
            let anchor = Side::of(|| anchor::memory::run(shape))?;
            let hapax = Side::of(|| runtime()?.block_on(candidate::memory(shape)))?;
            return Ok(Round { seed, disk: None, anchor, hapax, usual: None });
        }
        let hapax_of =
            |shape: &Shape| Side::of(|| with_file(dir, |path| runtime()?.block_on(candidate::sqlite(path, shape))));
        let disk = Some(anchor::disk::run(dir, shape.time / DISK_SHARE)?);
        let anchor = Side::of(|| with_file(dir, |path| runtime()?.block_on(anchor::sqlite(path, shape))))?;
        let hapax = hapax_of(shape)?;
        let usual = Shape { entities: ENTITIES, ..*shape };
        let usual = if shape.entities == ENTITIES { None } else { Some(hapax_of(&usual)?) };
        Ok(Round { seed, disk, anchor, hapax, usual })
    }
}

/// The raw loop runs for one fifth of a run's time.
const DISK_SHARE: u32 = 5;

/// One paired round.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Round {
    /// Of the workload, the same for all of the round.
    seed: u64,
    /// The raw loop.
    pub(crate) disk: Option<Sample>,
    pub(crate) anchor: Side,
    pub(crate) hapax: Side,
    /// hapax with the usual number of entities, where the case has another.
    pub(crate) usual: Option<Side>,
}

impl Round {
    /// hapax's rate over the hand-written loop's.
    pub(crate) fn ratio(&self) -> f64 {
        self.hapax.run.sample.rate() / self.anchor.run.sample.rate()
    }

    /// CPU microseconds a delivery above the hand-written loop.
    pub(crate) fn overhead(&self) -> f64 {
        self.hapax.run.sample.cpu_us() - self.anchor.run.sample.cpu_us()
    }

    /// The hand-written loop's rate over the raw loop's.
    pub(crate) fn anchor_to_disk(&self) -> Option<f64> {
        self.disk.map(|disk| self.anchor.run.sample.rate() / disk.rate())
    }

    /// hapax's rate over its own with the usual number of entities.
    pub(crate) fn to_usual(&self) -> Option<f64> {
        self.usual.as_ref().map(|usual| self.hapax.run.sample.rate() / usual.run.sample.rate())
    }
}

/// One side of a round.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Side {
    pub(crate) run: Run,
    pub(crate) memory: Resident,
}

impl Side {
    fn of(run: impl FnOnce() -> Result<Run, AnyError>) -> Result<Self, AnyError> {
        reset_peak();
        let run = run()?;
        Ok(Self { run, memory: resident() })
    }
}

/// What applications have: a current-thread runtime with everything on. The same for both sides.
fn runtime() -> Result<tokio::runtime::Runtime, std::io::Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs on a file that is not there yet, and removes what is left of it.
fn with_file<T>(dir: &Path, run: impl FnOnce(&Path) -> Result<T, AnyError>) -> Result<T, AnyError> {
    let path = dir.join("bench.db");
    let done = run(&path);
    for suffix in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(dir.join(format!("bench.db{suffix}"))));
    }
    done
}
