//! One figure, and what it may be at most.

use crate::measure::Spread;

/// One figure over some rounds.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    bar: Option<Bar>,
    spread: Option<Spread>,
    values: Vec<f64>,
    /// Without which the figure would mislead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// What must hold.
#[derive(Debug, Clone, Copy, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Bar {
    MedianAtMost(f64),
    MedianAtLeast(f64),
    AllAtMost(f64),
}

impl Figure {
    /// One without a bar.
    pub(crate) fn of(name: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Self {
            name: name.into(),
            unit,
            bar: None,
            spread: Spread::of(values.iter().copied()),
            values,
            notes: Vec::new(),
        }
    }

    /// With what a reader must know beside it, a line each.
    pub(crate) fn notes(self, notes: impl IntoIterator<Item = String>) -> Self {
        Self { notes: notes.into_iter().collect(), ..self }
    }

    /// Its median must be `most` or less.
    pub(crate) fn median_at_most(self, most: f64) -> Self {
        Self { bar: Some(Bar::MedianAtMost(most)), ..self }
    }

    /// Its median must be `least` or more.
    pub(crate) fn median_at_least(self, least: f64) -> Self {
        Self { bar: Some(Bar::MedianAtLeast(least)), ..self }
    }

    /// Every value must be `most` or less.
    pub(crate) fn all_at_most(self, most: f64) -> Self {
        Self { bar: Some(Bar::AllAtMost(most)), ..self }
    }

    /// One without any value, or with one that is no number, meets no bar.
    pub(crate) fn is_met(&self) -> bool {
        let Some(bar) = self.bar else { return true };
        let numbers = self.values.iter().all(|value| value.is_finite());
        self.spread.is_some_and(|spread| match bar {
            Bar::MedianAtMost(most) => numbers && spread.median <= most,
            Bar::MedianAtLeast(least) => numbers && spread.median >= least,
            Bar::AllAtMost(most) => numbers && spread.max <= most,
        })
    }

    /// For people.
    pub(crate) fn line(&self, judged: bool) -> String {
        let Self { name, unit, values, .. } = self;
        let spread = match self.spread {
            Some(Spread { median, min, max }) if values.len() > 1 => {
                format!("{} [{}-{}] {unit}", short(median), short(min), short(max))
            }
            Some(Spread { median, .. }) => format!("{} {unit}", short(median)),
            None => "no figure".into(),
        };
        let bar = match self.bar {
            Some(Bar::MedianAtMost(most)) => format!("; must be <= {most}: {}", self.verdict(judged)),
            Some(Bar::MedianAtLeast(least)) => format!("; must be >= {least}: {}", self.verdict(judged)),
            Some(Bar::AllAtMost(most)) => format!("; all must be <= {most}: {}", self.verdict(judged)),
            None => String::new(),
        };
        let notes: String = self.notes.iter().map(|note| format!("\n      {note}")).collect();
        format!("  {name}: {}{bar}{notes}", spread.trim_end())
    }

    fn verdict(&self, judged: bool) -> &'static str {
        match (judged, self.is_met()) {
            (true, true) => "met",
            (true, false) => "MISSED",
            (false, true) => "not judged (would be met)",
            (false, false) => "not judged (would be missed)",
        }
    }
}

/// Without digits that say nothing.
fn short(value: f64) -> String {
    const LARGE: f64 = 1000.0;
    if value.abs() < LARGE { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// The `percent`th of a hundred equal parts of `times`, which are put into order. `None` of nothing.
pub(crate) fn percentile(times: &mut [f64], percent: usize) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Figure {
        Figure::of("figure", "ms", values.to_vec())
    }

    #[test]
    fn a_bar_on_the_median_is_missed_by_the_median_alone() {
        assert!(of(&[1.0, 2.0, 9.0]).median_at_most(2.0).is_met());
        let missed = of(&[1.0, 2.1, 2.2]).median_at_most(2.0);
        assert!(!missed.is_met());
        assert!(missed.line(true).ends_with("must be <= 2: MISSED"), "{}", missed.line(true));
        assert!(missed.line(false).ends_with("not judged (would be missed)"), "{}", missed.line(false));
    }

    #[test]
    fn a_bar_on_the_least_median_is_missed_by_less() {
        assert!(of(&[0.1, 0.6, 0.7]).median_at_least(0.6).is_met());
        assert!(!of(&[0.1, 0.5, 0.7]).median_at_least(0.6).is_met());
    }

    #[test]
    fn a_bar_on_all_is_missed_by_one() {
        assert!(of(&[1.0, 2.0, 2.0]).all_at_most(2.0).is_met());
        assert!(!of(&[1.0, 1.0, 2.1]).all_at_most(2.0).is_met());
    }

    #[test]
    fn what_is_no_figure_meets_no_bar() {
        assert!(!of(&[]).median_at_most(2.0).is_met());
        assert!(!of(&[f64::NAN]).all_at_most(2.0).is_met());
        assert!(!of(&[1.0, 1.0, f64::NAN]).median_at_most(2.0).is_met());
        assert!(of(&[]).is_met(), "without a bar there is nothing to miss");
    }

    #[test]
    fn a_percentile_is_one_of_the_times() {
        let mut times: Vec<f64> = (0..100_u32).rev().map(f64::from).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&mut times, percent)), [Some(50.0), Some(99.0), Some(99.0)]);
        assert_eq!(percentile(&mut [], 50), None);
    }
}
