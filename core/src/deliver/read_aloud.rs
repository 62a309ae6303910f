//! What is done about failures, as a person would say it.

use std::{fmt, time::Duration};

use super::{Last, Recoverability, Rule, Tries};

/// One sentence a line: failing handlers, the rules, and then what never counts as a failure.
impl fmt::Display for Recoverability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A handler that fails: {}.", Said(&self.usual(), &self.in_place))?;
        for on in &self.rules {
            writeln!(f, "{}: {}.", on.error(), Said(on.rule(), &self.in_place))?;
        }
        writeln!(f, "What a handler calls permanent: a dead letter at once, whatever the rule.")?;
        writeln!(f, "Given more than {}: poison, a dead letter without being handled.", Times(self.poison_above))?;
        writeln!(f, "A lost race or an unknown outcome: {}; then given back, uncounted.", InPlace(&self.conflict))?;
        writeln!(f, "A store that is away: {}; then given back, uncounted.", InPlace(&self.unavailable))?;
        write!(f, "What cannot be sent: {}; then left to the sweeper.", InPlace(&self.unsent))
    }
}

/// A rule, and how often what it is about is tried in place.
struct Said<'a>(&'a Rule, &'a Tries);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(rule, in_place) = *self;
        let end = match rule.last {
            Last::DeadLetter => "a dead letter",
            Last::Drop => "dropped",
        };
        let tried = rule.in_place && in_place.max > 0;
        if tried {
            write!(f, "{}; then ", InPlace(in_place))?;
        }
        match rule.attempts_max {
            0 | 1 if tried => f.write_str(end),
            0 | 1 => write!(f, "{end} at the first failure"),
            given => {
                let rests = Waits(rule.retry_delay, rule.retry_delay_max);
                write!(f, "given again after {rests}, {} in all; then {end}", Times(given))
            }
        }
    }
}

struct InPlace<'a>(&'a Tries);

impl fmt::Display for InPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            Tries { max: 0, .. } => f.write_str("not tried again in place"),
            Tries { max, delay, delay_max } => {
                write!(f, "tried again in place {}, after at most {}", Times(max), Waits(delay, delay_max))
            }
        }
    }
}

struct Times(u32);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("once"),
            times => write!(f, "{times} times"),
        }
    }
}

/// The first and the longest.
struct Waits(Duration, Duration);

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(first, longest) if first >= longest => write!(f, "{longest:?}"),
            Self(first, longest) => write!(f, "{first:?}, doubled up to {longest:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("")]
    struct Declined;

    #[test]
    fn recoverability_can_be_read_aloud() {
        let is_any = |_: &(dyn std::error::Error + 'static)| true;
        let busy = Rule { in_place: false, attempts_max: 9, retry_delay: Duration::from_secs(30), ..Rule::default() };
        let recoverability = Recoverability::default()
            .on::<Declined>(Rule::AT_ONCE)
            .on_if("busy", is_any, busy)
            .on_if("shipped", is_any, Rule { last: Last::Drop, ..Rule::AT_ONCE })
            .on_if("twice", is_any, Rule { attempts_max: 1, ..Rule::default() });
        let said = recoverability.to_string();
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(
            said,
            [
                "A handler that fails: tried again in place 2 times, after at most 10ms, doubled up to 100ms; then given \
                 again after 1s, doubled up to 300s, 5 times in all; then a dead letter.",
                "hapax_core::deliver::read_aloud::tests::Declined: a dead letter at the first failure.",
                "busy: given again after 30s, doubled up to 300s, 9 times in all; then a dead letter.",
                "shipped: dropped at the first failure.",
                "twice: tried again in place 2 times, after at most 10ms, doubled up to 100ms; then a dead letter.",
                "What a handler calls permanent: a dead letter at once, whatever the rule.",
                "Given more than 10 times: poison, a dead letter without being handled.",
                "A lost race or an unknown outcome: tried again in place 50 times, after at most 1ms, doubled up to 100ms; \
                 then given back, uncounted.",
                "A store that is away: tried again in place 20 times, after at most 50ms, doubled up to 5s; then given \
                 back, uncounted.",
                "What cannot be sent: tried again in place 8 times, after at most 10ms, doubled up to 1s; then left to the \
                 sweeper.",
            ]
        );
        let hasty = Recoverability { in_place: Tries::NONE, poison_above: 1, ..Recoverability::default() }.to_string();
        assert!(hasty.starts_with("A handler that fails: given again after 1s, "), "{hasty}");
        assert!(hasty.contains("Given more than once: poison"), "{hasty}");
    }
}
