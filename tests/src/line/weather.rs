//! What may befall bytes on a line, how often and for how long: apart from how it is done to them.

use std::{fmt, time::Duration};

use fastrand::Rng;

/// What may befall what is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// The connection ends for both sides.
    Cut,
    /// What has come is passed on late, and so is all behind it.
    Delay,
    /// What has come is passed on a few bytes at a time.
    Slice,
    /// Nothing passes any more and nobody is told; after a while the connection ends.
    BlackHole,
    /// The request is served, and its answer never comes: the connection ends instead.
    Swallow,
    /// The client's connection ends, and its request is delivered after that.
    Late,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Cut, Self::Delay, Self::Slice, Self::BlackHole, Self::Swallow, Self::Late];
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "cut",
            Self::Delay => "delayed",
            Self::Slice => "sliced",
            Self::BlackHole => "black hole",
            Self::Swallow => "answer swallowed",
            Self::Late => "delivered late",
        })
    }
}

/// What troubles there are, and how often.
#[derive(Debug, Clone)]
pub struct Weather {
    /// Which; none of them is in vain.
    pub troubles: Vec<Trouble>,
    /// On each connection and in each direction about one in this time, while something is on its way.
    pub every: Duration,
    /// How long a delay, a black hole, or a late delivery lasts, at most.
    pub lasts: Duration,
}

impl Weather {
    /// Everything at once.
    #[must_use]
    pub fn foul(every: Duration, lasts: Duration) -> Self {
        Self { troubles: Trouble::ALL.into(), every, lasts }
    }

    /// Until the next trouble.
    pub(super) fn pause(&self, random: &mut Rng) -> Duration {
        self.every.mul_f64(2.0 * random.f64())
    }

    /// How long one lasts.
    pub(super) fn length(&self, random: &mut Rng) -> Duration {
        self.lasts.mul_f64(random.f64())
    }

    /// One of those that may befall answers, or of all.
    pub(super) fn trouble(&self, random: &mut Rng, is_answer: bool) -> Option<Trouble> {
        let fits = |trouble: &&Trouble| !(is_answer && matches!(trouble, Trouble::Swallow | Trouble::Late));
        let fitting: Vec<&Trouble> = self.troubles.iter().filter(fits).collect();
        random.choice(fitting).copied()
    }
}
