//! Which mistakes of the model's the soak's books have found out, kept for the page.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Mutant, SOAK, all};
use crate::{campaign, kept};

/// Where it is kept, and what says of which mutant.
const KEPT: &str = "soak-mutants";
const MUTANT: &str = "mutant";

/// Keeps that it was found out, or that it was not any more.
///
/// # Errors
/// It cannot be written.
pub(super) fn keep(mutant: &Mutant, is_killed: bool, commit: &str) -> Result<String, String> {
    let date = kept::today()?;
    let shown = is_killed.then(|| {
        serde_json::json!({
            MUTANT: mutant.name, "runs": mutant.runs(), "found": mutant.found, "date": date, "commit": commit
        })
    });
    kept::replace(KEPT, MUTANT, &mutant.name, shown)?;
    campaign::write_page()
}

/// What the page says of it.
///
/// # Errors
/// A patch, or what is kept, cannot be read.
pub(crate) fn section() -> Result<String, String> {
    Ok(shown(&all(&SOAK)?, &kept::read(KEPT)?))
}

fn shown(mutants: &[Mutant], kept: &[Value]) -> String {
    let mut text = String::from(
        "### Mistakes that the books find out\n\n\
         Mistakes in the manager (`model/mutants`), each under a minute of the same faults. The books must say that something is wrong,\n\
         and in these words: that a run is void is not enough. Command: `cargo xtask soak-mutants`.\n\n",
    );
    let mut missing = Vec::new();
    let mut rows = String::new();
    for mutant in mutants {
        // Of another run, or other words, it is not known.
        let is_of = |one: &&Value| {
            one[MUTANT] == mutant.name.as_str()
                && one["runs"] == serde_json::json!(mutant.runs())
                && one["found"] == serde_json::json!(mutant.found)
        };
        let Some(one) = kept.iter().find(is_of) else {
            missing.push(mutant.name.as_str());
            continue;
        };
        let runs: Vec<String> = mutant.runs().iter().map(|run| format!("`{run}`")).collect();
        let found: Vec<String> = mutant.found.iter().map(|words| format!("`{words}`")).collect();
        let (name, runs, found) = (&mutant.name, runs.join(", "), found.join(", "));
        let word = |key: &str| one[key].as_str().unwrap_or("?");
        let (date, commit) = (word("date"), word("commit"));
        let _ = writeln!(rows, "| [{name}](model/stories/{name}.md) | {runs} | {found} | {date} | {commit} |");
    }
    if !rows.is_empty() {
        text.push_str("| mutant | in | the books say | on | at commit |\n| --- | --- | --- | --- | --- |\n");
        text.push_str(&rows);
        text.push('\n');
    }
    if !missing.is_empty() {
        let _ = writeln!(text, "Not run yet: {}.\n", missing.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str) -> Mutant {
        Mutant {
            name: name.into(),
            what: "errs".into(),
            tests: vec![("quick".into(), "on_sqlite".into())],
            found: vec!["lost: ".into()],
        }
    }

    #[test]
    fn what_was_found_out_has_a_row_and_what_was_not_run_as_it_is_now_has_none() {
        let kept = |name: &str, run: &str| serde_json::json!({ "mutant": name, "runs": [run], "found": ["lost: "], "date": "2026-01-02", "commit": "abc" });
        let mutants = ["a", "b", "c"].map(mutant);
        let text = shown(&mutants, &[kept("a", "on_sqlite"), kept("b", "on_nats")]);
        let row = "| --- |\n| [a](model/stories/a.md) | `on_sqlite` | `lost: ` | 2026-01-02 | abc |\n\n";
        assert!(text.ends_with(&format!("{row}Not run yet: b, c.\n\n")), "{text}");
        assert!(!shown(&mutants, &[]).contains('|'));
    }
}
