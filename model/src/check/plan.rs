use crate::explore::Budgets;

/// Worlds of one exploration after which a check ends with a warning: a minute or so in a build without optimisation.
pub(super) const WORLDS_MAX: usize = 1_000_000;

/// What may go wrong.
#[derive(Debug, Clone, Copy)]
pub(super) enum Plan {
    /// One thing at a time: a crash, an unknown outcome, a copy.
    Quick,
    /// Two of each kind, and several kinds together.
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

/// A trial as it is typed.
pub(super) fn typed((workers, budgets): &Trial) -> String {
    let Budgets {
        crashes,
        process_crashes,
        unknown,
        refused,
        duplicates,
        delayed,
        expiries,
        evictions,
        own_conflicts,
        sweeps,
        late,
        stale_loads,
        unroutable,
    } = *budgets;
    let mut typed = format!(".workers({workers})");
    let usual = [
        ("crashes", crashes),
        ("unknown", unknown),
        ("refused", refused),
        ("duplicates", duplicates),
        ("sweeps", sweeps),
    ];
    for (name, count) in usual {
        if count > 0 {
            typed.push_str(&format!(".{name}({count})"));
        }
    }
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
    if rarer.iter().any(|(_, count)| *count > 0) {
        let all = usual.iter().chain(&rarer).filter(|(_, count)| *count > 0);
        let all: Vec<String> = all.map(|(name, count)| format!("{name}: {count}")).collect();
        typed = format!(".workers({workers}).faults(Budgets {{ {}, ..Budgets::NONE }})", all.join(", "));
    }
    typed
}
