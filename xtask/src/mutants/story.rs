//! The counterexample of a mutant, kept below `model/stories/` for people.

use std::fmt::Write as _;

use super::{Killed, patch::Patch};

/// How the line that names the broken claim begins.
const CLAIM: &str = "Broken: `";
/// How the line ends that counts the steps to where it is broken.
const STEPS: &str = " steps, the fewest that lead there";
/// What stands in its place where no steps lead there.
const AGAIN: &str = "Found when a worker's history was run a second time";

/// The page of a killed mutant. It is the same after each run, unless the mutant itself draws at random.
pub(crate) fn page(patch: &Patch, killed: &Killed) -> String {
    let mut page = format!("# {}\n\n{}\n\n", patch.name, sentence(&patch.what));
    let Killed { explored, broken } = killed;
    let _ = writeln!(page, "- Changed: {} (`model/mutants/{}.patch`)", patch.places.join(" and "), patch.name);
    let _ = writeln!(page, "- From: {}", patch.source);
    let _ = writeln!(page, "- {CLAIM}{}`: {}", broken.claim, broken.seen);
    let _ = writeln!(page, "- Configuration: `{}`: {} ({})", explored.name, explored.about, explored.bounds);
    let _ = match broken.story.len() {
        0 => writeln!(page, "- {AGAIN}"),
        steps => writeln!(page, "- Found after {} worlds; {steps}{STEPS}", explored.worlds),
    };
    if let Some(note) = &patch.note {
        let _ = write!(page, "\n{}\n", sentence(note));
    }
    if !broken.story.is_empty() {
        page.push_str("\n## What happens\n\n");
        for (number, step) in (1..).zip(&broken.story) {
            let _ = writeln!(page, "{number}. {step}");
        }
    }
    page.push_str("\nWritten by `cargo xtask mutants --keep-stories`.\n");
    page
}

/// The claim that a kept page names.
pub(crate) fn claim_of(page: &str) -> Option<&str> {
    page.lines().find_map(|line| line.strip_prefix("- ")?.strip_prefix(CLAIM)?.split('`').next())
}

/// How many steps a kept page says that it takes.
pub(crate) fn steps_of(page: &str) -> Option<usize> {
    let mut said = page.lines().filter_map(|line| line.strip_prefix("- "));
    said.find_map(|line| match line {
        AGAIN => Some(0),
        line => line.strip_suffix(STEPS)?.rsplit(' ').next()?.parse().ok(),
    })
}

/// With a capital at the beginning and a full stop at the end.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}{}", letters.as_str(), if text.ends_with('.') { "" } else { "." })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::explored::{Broken, Explored};

    #[test]
    fn a_page_tells_the_steps_and_its_claim_is_found_again() {
        let patch = Patch {
            name: "ack-first".into(),
            what: "acks before anything is done".into(),
            source: "protocol.md S06".into(),
            claim: "ack_implies_done".into(),
            scenarios: vec!["quiet".into()],
            note: None,
            places: vec!["shipped code"],
            diff: String::new(),
        };
        let story = vec!["a worker is given m0".into(), "settle".into()];
        let broken = Broken { claim: "ack_implies_done".into(), seen: "acked too early".into(), story };
        let explored = Explored { name: "quiet".into(), worlds: 71, ..Explored::default() };
        let again = Killed { explored: explored.clone(), broken: Broken { story: Vec::new(), ..broken.clone() } };
        let again = page(&patch, &again);
        let page = page(&patch, &Killed { explored, broken });
        assert_eq!(claim_of(&page), Some("ack_implies_done"));
        assert_eq!((steps_of(&page), steps_of(&again)), (Some(2), Some(0)));
        assert!(page.contains("\n1. a worker is given m0\n2. settle\n"), "{page}");
        assert!(page.starts_with("# ack-first\n\nAcks before anything is done.\n"), "{page}");
        assert_eq!((claim_of("# a page of something else"), steps_of("- of 2 steps")), (None, None));
    }
}
