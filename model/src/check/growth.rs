//! Whether a state grows without end.

use std::sync::Arc;

use hapax_core::envelope::Envelope;

use super::{
    advice,
    builder::id,
    hush::told,
    outcome::{Checked, Failure},
    run::Common,
    tell::plain,
};
use crate::explore::{Budgets, Scenario, one_by_one};

/// How often the messages come again under new ids.
const ROUNDS_MAX: usize = 32;
/// Messages of all rounds at most: enough for a trend, in far less time than an exploration.
const ROUNDS_MESSAGES_MAX: usize = 96;

impl Common {
    /// Lets the messages come again and again, each time under new ids, one after the other.
    pub(super) fn look_at_growth(&self, checked: &mut Checked) {
        let count = self.messages.len();
        let rounds = (ROUNDS_MESSAGES_MAX / count).min(ROUNDS_MAX);
        let again = |round: usize| {
            self.messages.iter().enumerate().map(move |(number, envelope)| {
                let mut envelope = Envelope::clone(envelope);
                envelope.message_id = id(&format!("m{number}-{round}"));
                Arc::new(envelope)
            })
        };
        let messages = (0..rounds).flat_map(again).collect();
        let (always, at_rest, budgets) = (Vec::new(), Vec::new(), Budgets::NONE);
        let scenario =
            Scenario { messages, after: Vec::new(), always, at_rest, budgets, tasks: 1, ..self.scenario.clone() };
        // What cannot be explored has been told already, and a saga may well refuse its messages when they come again.
        let Ok(sizes) = told(|| one_by_one(&scenario)) else { return };
        let (half, all) = (rounds / 2, rounds);
        let after = |rounds: usize| sizes.get(rounds * count - 1).copied().unwrap_or_default();
        let (bytes_half, bytes_all) = (after(half), after(all));
        let seen = format!(
            "the largest state has {bytes_half} bytes after {} messages and {bytes_all} after {}",
            half * count,
            all * count
        );
        if self.state_bytes_max.is_some_and(|bytes_max| bytes_all > bytes_max) {
            let steps =
                vec![format!("the messages are handled {rounds} times, one after the other, each under a new id")];
            let replay = "the same check: the last thing that it does".into();
            let failure = plain(advice::STATE_BYTES, seen);
            checked.failure = Some(Failure { messages: self.legend(), steps, replay, ..failure });
        } else if bytes_all >= bytes_half + (all - half) && self.state_bytes_max.is_none() {
            // A byte for each round: more than the digits of a counter, less than any list.
            checked.warnings.push(format!(
                "the state grows: {seen}. Fine if there is an end to them; else keep sums instead of lists. \
                 .state_bytes_max(bytes) makes it a failure"
            ));
        }
    }
}
