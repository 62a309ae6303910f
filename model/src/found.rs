//! What came out of one configuration: as a row of the table, and as JSON.

use std::collections::BTreeMap;

use hapax_model::{
    explore::{Budgets, Reads, Report, Scenario, Story},
    scenarios::{Expects, Named, Size},
};
use serde_json::{Value, json};

/// What is broken when the code under test cannot be explored at all: it asks something that is no port.
const EXPLORABLE: &str = "asks_nothing_but_ports";

/// What came out of one configuration.
pub(crate) struct Found {
    pub(crate) named: &'static Named,
    pub(crate) bounds: Value,
    pub(crate) result: Result<Report, String>,
}

impl Found {
    /// The claim that is broken, what was seen, and how it came to it.
    fn broken(&self) -> Option<(&str, &str, &[String])> {
        match &self.result {
            Err(why) => Some((EXPLORABLE, why, &[])),
            Ok(Report { story: Some(Story { broken, steps, .. }), .. }) => Some((broken.claim, &broken.seen, steps)),
            Ok(_) => None,
        }
    }

    fn is_cut_short(&self) -> bool {
        matches!(self.result, Ok(Report { cut_short: true, .. }))
    }

    pub(crate) fn is_as_expected(&self) -> bool {
        let claim = self.broken().map(|(claim, ..)| claim);
        match self.named.expects {
            Expects::Holds => claim.is_none() && !self.is_cut_short(),
            Expects::Breaks(expected) => claim == Some(expected),
        }
    }

    pub(crate) fn row(&self) -> String {
        let Ok(report) = &self.result else {
            return format!("{:32} {}", self.named.name, self.verdict());
        };
        let seconds = report.time.as_secs_f64();
        // Only shown: a rate needs no more digits than a float has.
        let rate = report.states as f64 / seconds.max(f64::EPSILON);
        let (name, worlds, steps) = (self.named.name, report.states, report.transitions);
        let histories = report.histories;
        format!("{name:32} {worlds:>10} {steps:>11} {histories:>9} {seconds:>8.2} {rate:>9.0}  {}", self.verdict())
    }

    fn verdict(&self) -> String {
        let came = match self.broken() {
            Some((claim, _, steps)) => format!("breaks {claim} in {} steps", steps.len()),
            None if self.is_cut_short() => "holds as far as it was looked at, which is not all".to_owned(),
            None => "holds".to_owned(),
        };
        match (self.is_as_expected(), self.named.expects) {
            (true, Expects::Holds) => came,
            (true, Expects::Breaks(_)) => format!("{came}, as it must"),
            (false, Expects::Holds) => format!("FAILED: {came}"),
            (false, Expects::Breaks(claim)) => format!("FAILED: {came}, and should break {claim}"),
        }
    }

    pub(crate) fn told(&self) -> String {
        match &self.result {
            Err(why) => why.clone(),
            Ok(report) => report.story.as_ref().map_or_else(String::new, Story::to_string),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let (named, report) = (self.named, self.result.as_ref().ok());
        let broken = self.broken().map(|(claim, seen, story)| json!({ "claim": claim, "seen": seen, "story": story }));
        let events: BTreeMap<&str, usize> = report.iter().flat_map(|report| report.events.iter().copied()).collect();
        json!({
            "name": named.name,
            "about": named.about,
            "size": size_of(named),
            "expects": match named.expects { Expects::Holds => None, Expects::Breaks(claim) => Some(claim) },
            "as_expected": self.is_as_expected(),
            "bounds": self.bounds,
            "worlds": report.map(|report| report.states),
            "steps": report.map(|report| report.transitions),
            "histories": report.map(|report| report.histories),
            "seconds": report.map(|report| report.time.as_secs_f64()),
            "cut_short": self.is_cut_short(),
            "events": events,
            "broken": broken,
        })
    }
}

pub(crate) fn heading() -> String {
    let (worlds, steps, histories, seconds, rate) = ("worlds", "steps", "histories", "seconds", "worlds/s");
    format!("{:32} {worlds:>10} {steps:>11} {histories:>9} {seconds:>8} {rate:>9}", "configuration")
}

/// How much of what there is in `scenario`.
pub(crate) fn bounds(scenario: &Scenario) -> Value {
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
    } = scenario.budgets;
    let faults = [
        ("crash", crashes),
        ("process crash", process_crashes),
        ("unknown", unknown),
        ("refused", refused),
        ("copy", duplicates),
        ("delayed", delayed),
        ("expiry", expiries),
        ("eviction", evictions),
        ("own conflict", own_conflicts),
        ("sweep", sweeps),
        ("late", late),
        ("stale load", stale_loads),
        ("message that can never be sent", unroutable),
    ];
    let faults: Vec<String> =
        faults.iter().filter(|(_, count)| *count > 0).map(|(fault, count)| format!("{count} {fault}")).collect();
    json!({
        "messages": scenario.messages.len(),
        "workers": scenario.tasks,
        "pass": scenario.pass_max,
        "stores": if scenario.together { 1 } else { 2 },
        "endpoints": scenario.endpoints(),
        "fresh": scenario.reads == Reads::Linearizable,
        "faults": faults,
    })
}

pub(crate) const fn size_of(named: &Named) -> &'static str {
    match named.size {
        Size::Quick => "quick",
        Size::Thorough => "thorough",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hapax_model::{
        explore::{STATES_MAX, explore_at_most},
        scenarios::named,
    };

    use super::*;

    #[test]
    fn what_does_not_come_out_as_expected_is_no_success() {
        let named = named("quiet").unwrap();
        let found = |expects, states_max| {
            let named = Box::leak(Box::new(Named { expects, ..*named }));
            Found { named, bounds: Value::Null, result: explore_at_most((named.make)(), states_max) }
        };
        assert!(found(Expects::Holds, STATES_MAX).is_as_expected());
        let breaks = found(Expects::Breaks("no_gap"), STATES_MAX);
        assert!(!breaks.is_as_expected() && breaks.verdict().contains("should break no_gap"), "{}", breaks.verdict());
        let cut_short = found(Expects::Holds, 10);
        assert!(!cut_short.is_as_expected() && cut_short.verdict().contains("not all"), "{}", cut_short.verdict());
        let unexplorable = Found { result: Err("asked a clock".into()), ..breaks };
        assert_eq!(unexplorable.json()["broken"]["claim"], EXPLORABLE);
    }
}
