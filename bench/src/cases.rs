//! What is measured, and what it must reach (`performance.md`, section 6).

use std::path::Path;

use crate::{
    AnyError, anchor, candidate,
    measure::{Resident, Sample, reset_peak, resident, wait_for_threads},
    options::Options,
    run::{Run, Shape},
    template::{template, with_file},
    workload::{Ids, REPEATS},
};

/// One comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Case {
    /// One message at a time, each sends one.
    S1a,
    /// One message at a time, nothing is sent.
    S1b,
    /// Saturated.
    S2,
    /// Saturated, from a durable queue in the store's file.
    Queue,
    /// Saturated, many entities.
    Wide,
    /// Saturated, many dedup entries, ids ordered by time.
    C3Ordered,
    /// Saturated, many dedup entries, random ids.
    C3Random,
    /// Saturated, every other delivery a repeat.
    C4,
    /// CPU of the framework itself.
    C5,
    /// Saturated, a single entity.
    Hot,
}

/// What a case must reach.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    /// Rate of hapax over rate of the hand-written loop, at least.
    Ratio { must: f64, stretch: f64 },
    /// Rate of hapax over its own in the usual run of the same round, at least.
    ToUsual { must: f64, stretch: f64 },
    /// CPU microseconds a delivery above the hand-written loop, at most.
    Overhead { must: f64, stretch: f64 },
}

impl Bar {
    /// Whether `figure` reaches the must.
    pub(crate) fn is_met(self, figure: f64) -> bool {
        match self {
            Self::Ratio { must, .. } | Self::ToUsual { must, .. } => figure >= must,
            Self::Overhead { must, .. } => figure <= must,
        }
    }

    /// Whether `figure` reaches the stretch goal.
    pub(crate) fn is_stretch(self, figure: f64) -> bool {
        match self {
            Self::Ratio { stretch, .. } | Self::ToUsual { stretch, .. } => figure >= stretch,
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
/// Repeats where they are many.
const REPEATS_MANY: f64 = 0.5;
/// Deliveries that wait in a durable queue for each second of a run: more than either side can handle here, so that it
/// does not run dry.
const QUEUED_PER_SECOND: u64 = 60_000;

impl Case {
    pub(crate) const ALL: [Self; 10] = [
        Self::S1a,
        Self::S1b,
        Self::S2,
        Self::Queue,
        Self::Wide,
        Self::C3Ordered,
        Self::C3Random,
        Self::C4,
        Self::C5,
        Self::Hot,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::S1a => "s1a",
            Self::S1b => "s1b",
            Self::S2 => "s2",
            Self::Queue => "queue",
            Self::Wide => "wide",
            Self::C3Ordered => "c3-ordered",
            Self::C3Random => "c3-random",
            Self::C4 => "c4",
            Self::C5 => "c5",
            Self::Hot => "hot",
        }
    }

    /// What is compared, in words.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::S1a => "SQLite, one message at a time, each sends one / two-commit loop",
            Self::S1b => "SQLite, one message at a time, nothing sent / one-commit loop",
            Self::S2 => "SQLite, saturated, K=1000 / loop over arrays of 100",
            Self::Queue => {
                "SQLite, store and queue in one file, saturated, K=1000 / loop over arrays of 100 from a table"
            }
            Self::Wide => "SQLite, saturated, K=200000 / own K=1000",
            Self::C3Ordered => "SQLite, saturated, many dedup entries, ids ordered by time / own without entries",
            Self::C3Random => "SQLite, saturated, many dedup entries, random ids / own without entries",
            Self::C4 => "SQLite, saturated, 50 % repeats / own 5 %",
            Self::C5 => "in memory, saturated: CPU above a loop that decodes and encodes the same",
            Self::Hot => "SQLite, saturated, K=1 / own K=1000",
        }
    }

    pub(crate) const fn bar(self) -> Bar {
        match self {
            Self::S1a => Bar::Ratio { must: 0.85, stretch: 0.95 },
            Self::S1b => Bar::Ratio { must: 0.8, stretch: 0.95 },
            Self::S2 => Bar::Ratio { must: 0.6, stretch: 0.8 },
            Self::Queue => Bar::Ratio { must: 0.4, stretch: 0.6 },
            Self::Wide => Bar::ToUsual { must: 0.5, stretch: 0.6 },
            Self::C3Ordered | Self::C3Random => Bar::ToUsual { must: 0.8, stretch: 0.95 },
            Self::C4 => Bar::ToUsual { must: 1.0, stretch: 1.3 },
            Self::C5 => Bar::Overhead { must: 3.0, stretch: 2.0 },
            Self::Hot => Bar::ToUsual { must: 0.5, stretch: 0.8 },
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
            _ => None,
        }
    }

    /// What both sides run, but for the seed, which is the number of the round.
    pub(crate) fn shape(self, settings: &Options) -> Shape {
        let saturated = Shape {
            entities: ENTITIES,
            repeats: REPEATS,
            ids: Ids::Random,
            outgoing: true,
            in_flight: SATURATED,
            batch: BATCH,
            entries: 0,
            queued: 0,
            pending: 0,
            time: settings.time,
            seed: 0,
            timed: false,
            deliveries_max: u64::MAX,
        };
        match self {
            Self::S1a => Shape { in_flight: 1, batch: 1, ..saturated },
            Self::S1b => Shape { in_flight: 1, batch: 1, outgoing: false, ..saturated },
            Self::S2 | Self::C5 => saturated,
            Self::Queue => {
                let seconds = (saturated.time + saturated.warm_up()).as_secs_f64();
                Shape { queued: (QUEUED_PER_SECOND as f64 * seconds) as u64, ..saturated }
            }
            Self::Wide => Shape { entities: ENTITIES_WIDE, ..saturated },
            Self::C3Ordered => Shape { ids: Ids::Ordered, entries: settings.entries, ..saturated },
            Self::C3Random => Shape { entries: settings.entries, ..saturated },
            Self::C4 => Shape { repeats: REPEATS_MANY, ..saturated },
            Self::Hot => Shape { entities: 1, ..saturated },
        }
    }

    /// The usual run of hapax that this case's is compared with, and its name.
    pub(crate) fn usual(self, shape: &Shape) -> Option<(&'static str, Shape)> {
        match self {
            Self::Wide | Self::Hot => Some(("K=1000", Shape { entities: ENTITIES, ..*shape })),
            Self::C3Ordered | Self::C3Random => Some(("empty", Shape { entries: 0, ..*shape })),
            Self::C4 => Some(("5 %", Shape { repeats: REPEATS, ..*shape })),
            Self::S1a | Self::S1b | Self::S2 | Self::Queue | Self::C5 => None,
        }
    }

    /// One round: the disk, the hand-written loop, hapax, and hapax's usual run where there is one. `dir` is this case's
    /// alone.
    pub(crate) fn round(self, dir: &Path, shape: &Shape) -> Result<Round, AnyError> {
        let seed = shape.seed;
        if self == Self::C5 {
            let anchor = Side::of(|| anchor::memory::run(shape))?;
            let hapax = Side::of(|| runtime()?.block_on(candidate::memory(shape)))?;
            return Ok(Round { seed, disk: None, anchor, hapax, usual: None });
        }
        let mut loop_file = None;
        if shape.queued > 0 {
            loop_file = Some(template(dir, "loop", |path| runtime()?.block_on(anchor::prepare(path, shape)))?);
        }
        let mut hapax_file = None;
        if shape.queued > 0 || shape.entries > 0 {
            hapax_file = Some(template(dir, "hapax", |path| runtime()?.block_on(candidate::prepare(path, shape)))?);
        }
        let hapax_on = |file: Option<&Path>, shape: &Shape| {
            with_file(dir, file, |path| Side::of(|| runtime()?.block_on(candidate::sqlite(path, shape))))
        };
        wait_for_threads();
        let disk = Some(anchor::disk::run(dir, shape.time / DISK_SHARE)?);
        let anchor =
            with_file(dir, loop_file.as_deref(), |path| Side::of(|| runtime()?.block_on(anchor::sqlite(path, shape))))?;
        let hapax = hapax_on(hapax_file.as_deref(), shape)?;
        let usual = self.usual(shape).map(|(_, usual)| hapax_on(None, &usual)).transpose()?;
        Ok(Round { seed, disk, anchor, hapax, usual })
    }
}

/// The raw loop runs for one fifth of a run's time.
const DISK_SHARE: u32 = 5;

/// One paired round.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Round {
    /// Of the workload, the same for all of the round.
    pub(crate) seed: u64,
    /// The raw loop.
    pub(crate) disk: Option<Sample>,
    pub(crate) anchor: Side,
    pub(crate) hapax: Side,
    /// hapax's usual run, where the case has another.
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

    /// hapax's rate over its own in the usual run.
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
        wait_for_threads();
        reset_peak();
        let run = run()?;
        Ok(Self { run, memory: resident() })
    }
}

/// What applications have: a current-thread runtime with everything on. The same for both sides.
fn runtime() -> Result<tokio::runtime::Runtime, std::io::Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_on_the_usual_run_has_one_to_compare_with() {
        let settings = Options::default();
        for case in Case::ALL {
            let has_bar = matches!(case.bar(), Bar::ToUsual { .. });
            assert_eq!(case.usual(&case.shape(&settings)).is_some(), has_bar, "{}", case.name());
        }
    }

    #[test]
    fn a_case_has_the_ids_and_repeats_that_it_is_about() {
        let stream = |case: Case| {
            let mut workload = case.shape(&Options::default()).workload();
            let versions = (0..10_000).map(|_| uuid::Uuid::from_bytes(workload.next().id).get_version_num());
            (versions.max(), workload.distinct)
        };
        assert_eq!(stream(Case::C3Ordered).0, Some(7));
        assert_eq!(stream(Case::C3Random).0, Some(4));
        assert!((4_500..5_500).contains(&stream(Case::C4).1));
        assert!((9_400..9_600).contains(&stream(Case::S2).1));
    }

    #[test]
    fn a_ratio_is_at_least_and_an_overhead_at_most() {
        for bar in [Bar::Ratio { must: 0.5, stretch: 0.8 }, Bar::ToUsual { must: 0.5, stretch: 0.8 }] {
            assert!(bar.is_met(0.5) && !bar.is_met(0.49));
            assert!(bar.is_stretch(0.8) && !bar.is_stretch(0.79));
        }
        let overhead = Bar::Overhead { must: 3.0, stretch: 2.0 };
        assert!(overhead.is_met(3.0) && !overhead.is_met(3.1));
        assert!(overhead.is_stretch(2.0) && !overhead.is_stretch(2.1));
    }
}
