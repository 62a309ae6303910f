//! Which faults go together into one exploration: each one more makes many more worlds, and nearly all mistakes of handlers need one.

use crate::explore::Budgets;

/// Worlds of one exploration at most, unless the check says otherwise: about 200 MB, and some ten seconds where the explorer
/// is optimised and two minutes where it is not. Nobody waits longer for a test without having asked for it.
pub(super) const WORLDS_MAX: usize = 1_000_000;

/// What may go wrong.
#[derive(Debug, Clone, Copy)]
pub(super) enum Plan {
    /// One thing at a time: a crash, an unknown outcome, a copy.
    Quick,
    /// One fault of each of several kinds, together.
    Thorough,
    /// What was asked for, all together.
    Own(Budgets),
}

const NONE: Budgets = Budgets::NONE;

/// One exploration: workers at most, and what may go wrong.
pub(super) type Trial = (usize, Budgets);

/// One fault of one kind in each: that is what nearly all mistakes of handlers need. The sweeper needs something that was
/// left behind, and one worker is enough for that.
const QUICK: [Trial; 4] = [
    (usize::MAX, Budgets { crashes: 1, ..NONE }),
    (usize::MAX, Budgets { unknown: 1, ..NONE }),
    (usize::MAX, Budgets { duplicates: 1, ..NONE }),
    (1, Budgets { crashes: 1, sweeps: 1, ..NONE }),
];

const THOROUGH: [Trial; 3] = [
    (usize::MAX, Budgets { crashes: 1, unknown: 1, duplicates: 1, ..NONE }),
    (usize::MAX, Budgets { crashes: 1, refused: 1, sweeps: 1, ..NONE }),
    (usize::MAX, Budgets { expiries: 1, delayed: 1, ..NONE }),
];

impl Plan {
    /// The explorations, with `workers` at most.
    pub(super) fn trials(self, workers: usize) -> Vec<Trial> {
        let trials = match self {
            Self::Quick => QUICK.to_vec(),
            Self::Thorough => THOROUGH.to_vec(),
            Self::Own(budgets) => vec![(workers, budgets)],
        };
        trials.into_iter().map(|(most, budgets)| (workers.min(most), budgets)).collect()
    }

    /// The user's own, to be changed.
    pub(super) fn own(&mut self) -> &mut Budgets {
        if !matches!(self, Self::Own(_)) {
            *self = Self::Own(NONE);
        }
        match self {
            Self::Own(budgets) => budgets,
            Self::Quick | Self::Thorough => unreachable!("it was made the user's own"),
        }
    }
}

/// Faults of one kind at most: what the explorer counts to.
const FAULTS_MAX: u8 = 7;
/// Workers at most. The explorer keeps eight attempts at one message apart, and each worker may have one in its hands while
/// others stand in the store; four at a time already make more worlds than anybody waits for.
const WORKERS_MAX: usize = 4;

/// A kind of fault and how often it may happen.
type Kind = (&'static str, u8);

/// The kinds of faults: first those that a check has a method for.
const fn kinds(budgets: &Budgets) -> ([Kind; 5], [Kind; 8]) {
    let Budgets { crashes, unknown, refused, duplicates, sweeps, .. } = *budgets;
    let Budgets { process_crashes, delayed, expiries, evictions, own_conflicts, late, stale_loads, unroutable, .. } =
        *budgets;
    let usual = [
        ("crashes", crashes),
        ("unknown", unknown),
        ("refused", refused),
        ("duplicates", duplicates),
        ("sweeps", sweeps),
    ];
    let rarer = [
        ("process_crashes", process_crashes),
        ("delayed", delayed),
        ("expiries", expiries),
        ("evictions", evictions),
        ("own_conflicts", own_conflicts),
        ("late", late),
        ("stale_loads", stale_loads),
        ("unroutable", unroutable),
    ];
    (usual, rarer)
}

/// Why a trial cannot be gone through.
pub(super) fn refusal((workers, budgets): &Trial) -> Option<String> {
    if *workers == 0 {
        return Some("there is no worker: say .workers(2)".into());
    }
    if *workers > WORKERS_MAX {
        return Some(format!("{workers} workers are too many: {WORKERS_MAX} at most; two show what a race shows"));
    }
    let (usual, rarer) = kinds(budgets);
    let mut all = usual.iter().chain(&rarer);
    let (name, count) = all.find(|(_, count)| *count > FAULTS_MAX)?;
    Some(format!("{name}: {count} are too many: {FAULTS_MAX} of a kind at most; one or two show nearly all mistakes"))
}

/// A trial as it is typed.
pub(super) fn typed((workers, budgets): &Trial) -> String {
    let (usual, rarer) = kinds(budgets);
    let mut typed = format!(".workers({workers})");
    for (name, count) in usual {
        if count > 0 {
            typed.push_str(&format!(".{name}({count})"));
        }
    }
    if rarer.iter().any(|(_, count)| *count > 0) {
        let all = usual.iter().chain(&rarer).filter(|(_, count)| *count > 0);
        let all: Vec<String> = all.map(|(name, count)| format!("{name}: {count}")).collect();
        typed = format!(".workers({workers}).faults(Budgets {{ {}, ..Budgets::NONE }})", all.join(", "));
    }
    typed
}
