//! What a run has to have met: one in which it was not met has shown nothing about it.

use crate::{messages::DOUBLED, run::Outcome};

/// What has to be met in every run that is to show anything.
pub(crate) fn always(outcome: &Outcome) -> Vec<String> {
    let Outcome { done, counts, books, met, server_kills, clock_steps, .. } = outcome;
    // Without any fault there are so many.
    let sent_twice = (books.steps + books.letters) / u64::from(DOUBLED);
    let mut due = vec![
        ("kills of workers".to_owned(), done.kills),
        ("workers that stood still".to_owned(), done.stalls),
        ("workers replaced by the other version".to_owned(), done.replaced),
        ("steps of the clock".to_owned(), *clock_steps),
        ("copies that came out".to_owned(), books.copies),
        ("dead letters".to_owned(), books.letters),
        (
            "messages that came again and were dropped, beyond those that were sent twice".to_owned(),
            counts.duplicates.saturating_sub(sent_twice),
        ),
        ("races lost, or outcomes unknown".to_owned(), counts.conflicts + counts.unknown),
        ("entries finished by the sweeper".to_owned(), counts.swept),
    ];
    if met.contains_key("store") {
        due.push(("passes whose store was away".to_owned(), counts.unavailable));
    }
    if met.contains_key("transport") {
        due.push(("passes that could not send or mark".to_owned(), counts.unsent));
    }
    due.extend(server_kills.iter().map(|(name, kills)| (format!("kills of the {name}"), *kills)));
    for (side, troubles) in met {
        due.extend(troubles.iter().map(|(trouble, count)| (format!("{trouble}, to the {side}"), *count)));
    }
    due.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
}

/// What has to be met beside that in a long one. That a message was given again is seen where its transport counts.
pub(crate) fn for_long(outcome: &Outcome, counts_deliveries: bool) -> Vec<String> {
    let Outcome { counts, met, .. } = outcome;
    let due = [
        ("races lost", true, counts.conflicts),
        ("outcomes unknown", met.contains_key("store"), counts.unknown),
        ("entries resumed by redelivery", counts_deliveries, counts.resumed),
        ("messages given back", true, counts.given_back),
        ("leases lost", true, counts.leases_lost),
    ];
    due.into_iter().filter(|(_, is_due, count)| *is_due && *count == 0).map(|(name, ..)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use hapax_tests::Trouble;

    use super::*;
    use crate::{counts::Counts, crew::Done, ledger::Books};

    /// One of each kind, or none of any.
    fn outcome(times: u64) -> Outcome {
        let troubles: BTreeMap<Trouble, u64> = Trouble::ALL.map(|trouble| (trouble, times)).into();
        let met = BTreeMap::from(["store", "transport"].map(|side| (side, troubles.clone())));
        let (kills, stalls, replaced) = (times, times, times);
        Outcome {
            seed: 1,
            lasted: Duration::ZERO,
            books: Books { copies: times, letters: times, ..Books::default() },
            counts: Counts {
                duplicates: times,
                resumed: times,
                conflicts: times,
                unknown: times,
                unsent: times,
                unavailable: times,
                swept: times,
                given_back: times,
                leases_lost: times,
                ..Counts::default()
            },
            done: Done { kills, stalls, replaced },
            clock_steps: times,
            met,
            server_kills: BTreeMap::from([("store", times)]),
            samples: Vec::new(),
            events: Vec::new(),
            unmet: Vec::new(),
        }
    }

    #[test]
    fn each_kind_of_fault_and_each_rare_path_is_missed_where_it_was_not_met() {
        assert_eq!((always(&outcome(1)), for_long(&outcome(1), true)), (Vec::<String>::new(), Vec::new()));
        let missed = [always(&outcome(0)), for_long(&outcome(0), true)].concat();
        assert_eq!(missed.len(), 12 + 2 * Trouble::ALL.len() + 5, "{missed:?}");
        for due in ["kills of workers", "kills of the store", "delivered late, to the transport", "leases lost"] {
            assert!(missed.iter().any(|name| name == due), "{due}: {missed:?}");
        }
    }

    /// Some are sent twice without any fault.
    #[test]
    fn copies_that_were_sent_anyway_are_no_fault_that_was_met() {
        let mut outcome = outcome(1);
        outcome.books.steps = u64::from(DOUBLED) * 5;
        outcome.counts.duplicates = 5;
        assert!(matches!(&always(&outcome)[..], [one] if one.starts_with("messages that came again ")));
        outcome.counts.duplicates = 6;
        assert!(always(&outcome).is_empty());
    }
}
