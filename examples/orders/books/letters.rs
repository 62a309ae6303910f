//! The orders that had become dead letters, and what the observer has counted.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use super::{Books, Finding, pages::Pages};
use crate::{
    card_number,
    desk::DESK,
    input::Input,
    messages::{PlaceOrder, WriteOff},
    order::{Order, Status},
    shop::ISSUER_DELIVERIES,
    watch::Counted,
};

/// So many letters fit into the record with all that was done with them. Of more it keeps the last 500 actions, so that nothing
/// follows from what is not in it.
const RECORDED_WHOLE: usize = 200;

/// An action in the record of what was done with dead letters, as far as the books need it.
#[derive(Debug, Deserialize)]
pub(super) struct Action {
    by: String,
    deed: String,
    messages: Vec<String>,
}

/// What has to become of an order.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    /// It is no letter.
    Nothing,
    /// After it has been given so often.
    Mend {
        given: u32,
    },
    WriteOff {
        reason: String,
    },
}

fn due(placed: &PlaceOrder) -> Due {
    let Some(number) = &placed.card_number else { return Due::Nothing };
    match (card_number::check(number), card_number::find_issuer(number)) {
        (Ok(()), Ok(())) => Due::Nothing,
        (Err(_), _) if card_number::mend(number).is_some() => Due::Mend { given: 1 },
        (Err(why), _) => Due::WriteOff { reason: why.to_string() },
        (Ok(()), Err(_)) if card_number::reissued(number).is_some() => Due::Mend { given: ISSUER_DELIVERIES },
        (Ok(()), Err(why)) => Due::WriteOff { reason: why.to_string() },
    }
}

/// Whether it is a letter because a rule has given it up, and not at once.
fn is_given_up(placed: &PlaceOrder) -> bool {
    let number = placed.card_number.as_deref();
    number.is_some_and(|number| card_number::check(number).is_ok() && card_number::find_issuer(number).is_err())
}

impl Books {
    /// A letter that could be mended was edited and retried, and is an order like any other since; any other was discarded, and its
    /// order knows of which letter it was and why. Nothing else was done with letters.
    pub(super) fn letters(&mut self, input: &Input, pages: &Pages) {
        let mut deeds: HashMap<&str, HashSet<&str>> = HashMap::new();
        for Action { by, deed, messages } in &pages.actions {
            if by != DESK {
                self.findings.push(Finding::new("dead letters", format!("{by} has {deed} some")));
            }
            for message in messages {
                deeds.entry(message).or_default().insert(deed);
            }
        }
        let dues: Vec<(&PlaceOrder, Due)> = input.orders.iter().map(|placed| (placed, due(placed))).collect();
        let is_whole = dues.iter().filter(|(_, due)| *due != Due::Nothing).count() <= RECORDED_WHOLE;
        let mut letters = HashSet::new();
        for (placed, due) in dues {
            let Some(order) = pages.orders.get(&placed.order) else { continue };
            let (letter, wrong) = check(order, &due);
            self.mended += usize::from(matches!(due, Due::Mend { .. }) && order.status != Status::WrittenOff);
            self.given_up += usize::from(is_given_up(placed));
            letters.extend(letter);
            let done = letter.and_then(|letter| deeds.get(letter));
            let expected: &[&str] = match due {
                Due::Nothing => &[],
                Due::Mend { .. } => &["edited", "retried"],
                Due::WriteOff { .. } => &["discarded"],
            };
            let missing = expected.iter().filter(|deed| is_whole && !done.is_some_and(|done| done.contains(**deed)));
            let missing = missing.map(|deed| format!("was a dead letter, but that it was {deed} is not recorded"));
            let about = format!("order {}", placed.order);
            let wrong = wrong.map(str::to_owned).into_iter().chain(missing);
            self.findings.extend(wrong.map(|what| Finding::new(about.clone(), what)));
        }
        let strangers = deeds.iter().filter(|(message, _)| !letters.contains(**message));
        self.findings.extend(strangers.map(|(message, deeds)| {
            let mut deeds: Vec<_> = deeds.iter().copied().collect();
            deeds.sort_unstable();
            Finding::new(format!("message {message}"), format!("was {} for no reason", deeds.join(" and ")))
        }));
    }

    /// Holds what the observer has seen against what is stored. Only where nothing crashes: who does has not always told it.
    pub(crate) fn compare(&mut self, counted: &Counted) {
        let (stored, Counted { handled, swept, dead_lettered, .. }) = (self.handled as u64, *counted);
        // What the sweeper has finished it may have finished together with its owner.
        if handled > stored || handled + swept < stored {
            let what = format!("{handled} were seen handled and {swept} swept, but there are {stored} dedup entries");
            self.findings.push(Finding::new("messages", what));
        }
        let letters = (self.mended + self.written_off) as u64;
        // Copies of one message are one letter.
        if dead_lettered < letters || (letters == 0 && dead_lettered > 0) {
            let what = format!("{dead_lettered} were seen set aside, but {letters} were dealt with");
            self.findings.push(Finding::new("dead letters", what));
        }
    }
}

/// The id of the message that had become a letter, and what is wrong with its order.
fn check<'o>(order: &'o Order, due: &Due) -> (Option<&'o str>, Option<&'static str>) {
    // Its first message placed it, also if that had to be mended.
    let placed_by = order.handled.first().map(String::as_str);
    match (due, order.status, &order.written_off) {
        (Due::Nothing, Status::WrittenOff, _) | (Due::Nothing, _, Some(_)) => {
            (None, Some("is written off, but its card number is as it should be"))
        }
        (Due::Mend { .. }, Status::WrittenOff, _) | (Due::Mend { .. }, _, Some(_)) => {
            (placed_by, Some("is written off, but its card number could be mended"))
        }
        (Due::Mend { given }, _, None) if order.given.is_none_or(|found| found < *given) => {
            (placed_by, Some("was given up before its last delivery"))
        }
        (Due::WriteOff { reason }, Status::WrittenOff, Some(WriteOff { letter, reason: told, .. })) => {
            (Some(letter), (told != reason).then_some("is written off for another reason than it has"))
        }
        (Due::WriteOff { .. }, _, _) => {
            (placed_by, Some("has no card number that can be charged, but was not written off"))
        }
        (Due::Nothing, _, None) => (None, None),
        (Due::Mend { .. }, _, None) => (placed_by, None),
    }
}
