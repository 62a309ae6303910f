//! `cargo xtask mutants`: a checker that finds nothing proves nothing until it has been shown mistakes to find.
//!
//! Each patch below `model/mutants/` makes one mistake in the shipped source (or in the world it runs in). It is applied to
//! a copy of the tree, the model is built and run there, and it must break the very claim that the patch names. One that
//! survives, breaks something else, does not build or no longer applies is a failure.

mod explored;
mod patch;
mod story;
pub(crate) mod tested;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

pub(crate) use explored::{Broken, Explored, claims};
pub(crate) use patch::Patch;
pub(crate) use tree::{PROFILES, Tree};

use crate::process;
use crate::report::Report;

/// Worlds after which a mutant is taken for survived: far more than any of them needs to be found.
const WORLDS_MAX: &str = "3000000";

/// What is wanted of `cargo xtask mutants`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Which; none: all.
    pub(crate) names: Vec<String>,
    /// Writes every story anew.
    pub(crate) keep_stories: bool,
}

/// A mutant that was found out.
#[derive(Debug)]
pub(crate) struct Killed {
    pub(crate) explored: Explored,
    pub(crate) broken: Broken,
}

/// Tries them all and prints the table.
pub(crate) fn run(wanted: &Wanted) -> ExitCode {
    let mut report = Report::default();
    let killed = all(wanted, &mut report);
    println!("\n{report}");
    println!("{} mutants killed", killed.len());
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Tries what is wanted; one row for each in `report`. Answers those that were killed as they should be.
pub(crate) fn all(wanted: &Wanted, report: &mut Report) -> Vec<(Patch, Killed)> {
    let patches = match chosen(&wanted.names) {
        Ok(patches) => patches,
        Err(error) => {
            report.step("patches", || Err(error));
            return Vec::new();
        }
    };
    let mut tree = None;
    report.step("unchanged", || {
        let copy = Tree::copy()?;
        let seen = unchanged(&copy, &patches)?;
        tree = Some(copy);
        Ok(seen)
    });
    // Where the source itself breaks a claim, that a mutant breaks it says nothing.
    let Some(tree) = tree else { return Vec::new() };
    let mut all = Vec::new();
    for patch in patches {
        let mut killed = None;
        report.step(&patch.name, || {
            let found = kill(&tree, &patch)?;
            let said = format!("{} in {} steps, {}", found.broken.claim, found.broken.story.len(), found.explored.name);
            keep(&patch, &found, wanted.keep_stories)?;
            println!("{}", patch.what);
            killed = Some(found);
            Ok(said)
        });
        all.extend(killed.map(|killed| (patch, killed)));
    }
    report.step("restored", || tree.restore().map(|()| String::new()));
    all
}

fn folder() -> PathBuf {
    process::root().join("model/mutants")
}

/// How many there are.
///
/// # Errors
/// One of them cannot be read.
pub(crate) fn count() -> Result<usize, String> {
    Patch::all(&folder()).map(|patches| patches.len())
}

/// The patches with these names; all for none.
fn chosen(names: &[String]) -> Result<Vec<Patch>, String> {
    let mut patches = Patch::all(&folder())?;
    if let Some(name) = names.iter().find(|name| !patches.iter().any(|patch| patch.name == **name)) {
        return Err(format!("`{name}` is no mutant: the files model/mutants/*.patch are"));
    }
    if !names.is_empty() {
        patches.retain(|patch| names.contains(&patch.name));
    }
    Ok(patches)
}

/// Everything holds as long as nothing is changed.
fn unchanged(tree: &Tree, patches: &[Patch]) -> Result<String, String> {
    let model = tree.build()?;
    let mut names: Vec<&str> = patches.iter().flat_map(|patch| &patch.scenarios).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    for explored in explore(&model, &names)? {
        if !explored.as_expected || explored.expects.is_some() {
            return Err(format!("`{}` does not hold without a mutant: nothing is shown by breaking it", explored.name));
        }
    }
    Ok(format!("{} configurations hold", names.len()))
}

/// Applies a patch and runs its configurations until one of them breaks.
fn kill(tree: &Tree, patch: &Patch) -> Result<Killed, String> {
    tree.restore()?;
    tree.apply(&folder().join(format!("{}.patch", patch.name)))?;
    let model = tree.build()?;
    let mut came = None;
    for scenario in &patch.scenarios {
        let explored = explore(&model, &[scenario])?.into_iter().next();
        let explored = explored.ok_or_else(|| format!("the model said nothing of `{scenario}`"))?;
        if let Some(broken) = explored.broken.clone() {
            came = Some(Killed { explored, broken });
            break;
        }
    }
    judge(patch, came)
}

/// Whether what came is what should have come.
fn judge(patch: &Patch, came: Option<Killed>) -> Result<Killed, String> {
    match came {
        Some(killed) if killed.broken.claim == patch.claim => Ok(killed),
        Some(Killed { explored, broken }) => Err(format!(
            "should break {}, breaks {} in {}: is it another mistake than the header says?\n{}: {}\n{}",
            patch.claim,
            broken.claim,
            explored.name,
            broken.claim,
            broken.seen,
            broken.story.join("\n")
        )),
        None => Err(format!(
            "SURVIVED in {}: the model does not see this mistake; give it a configuration or a claim that does",
            patch.scenarios.join(", ")
        )),
    }
}

/// Runs configurations with a built model.
fn explore(model: &Path, names: &[&str]) -> Result<Vec<Explored>, String> {
    let file = std::path::absolute(model.with_file_name("explored.json")).map_err(|error| error.to_string())?;
    let _ = std::fs::remove_file(&file); // It may not be there. If it stays, the model overwrites it.
    let mut command = Command::new(model);
    command.arg("run").args(names).args(["--states-max", WORLDS_MAX, "--json"]).arg(&file);
    // How it ended says less than what it wrote: a mutant is meant to end badly.
    let ended = command.stdin(Stdio::null()).output().map_err(|error| format!("the model cannot be run: {error}"))?;
    let explored = Explored::read(&file);
    match explored {
        Ok(explored) if explored.len() == names.len() => Ok(explored),
        _ => {
            let said = String::from_utf8_lossy(&ended.stderr);
            Err(format!("the model ended with {} and without a result: {}", ended.status, said.trim()))
        }
    }
}

/// Writes the story, if it is wanted or there is none; else looks whether it still is the one that was found.
fn keep(patch: &Patch, killed: &Killed, anew: bool) -> Result<(), String> {
    let folder = process::root().join("model/stories");
    let file = folder.join(format!("{}.md", patch.name));
    match std::fs::read_to_string(&file) {
        Ok(kept) if !anew => is_told(&patch.name, &killed.broken, &kept),
        _ => {
            let written = std::fs::create_dir_all(&folder).and_then(|()| {
                let page = story::page(patch, killed);
                std::fs::write(&file, page)
            });
            written.map_err(|error| format!("{}: cannot be written: {error}", file.display()))
        }
    }
}

/// Whether the story that is kept of a mutant is about the same claim, and takes as many steps to where it is broken.
fn is_told(name: &str, broken: &Broken, kept: &str) -> Result<(), String> {
    let (claim, steps) = (story::claim_of(kept), story::steps_of(kept));
    if claim == Some(broken.claim.as_str()) && steps == Some(broken.story.len()) {
        return Ok(());
    }
    let told = steps.map_or_else(|| "no number of steps".to_owned(), |steps| format!("{steps} steps"));
    Err(format!(
        "breaks {} in {} steps, but model/stories/{name}.md tells of {} in {told}: run `cargo xtask mutants {name} --keep-stories`",
        broken.claim,
        broken.story.len(),
        claim.unwrap_or("nothing")
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn patch() -> Patch {
        let text =
            "# what: w\n# source: s\n# claim: no_gap\n# scenario: quiet\ndiff --git a b\n+++ b/core/src/lib.rs\n";
        Patch::parse("m", text).unwrap()
    }

    fn breaks(claim: &str) -> Option<Killed> {
        let broken = Broken { claim: claim.into(), ..Broken::default() };
        Some(Killed { explored: Explored::default(), broken })
    }

    #[test]
    fn a_mutant_is_killed_by_its_claim_and_by_no_other() {
        assert_eq!(judge(&patch(), breaks("no_gap")).unwrap().broken.claim, "no_gap");
        let other = judge(&patch(), breaks("no_lost_update")).unwrap_err();
        assert!(other.contains("should break no_gap, breaks no_lost_update"), "{other}");
        assert!(judge(&patch(), None).unwrap_err().contains("SURVIVED in quiet"));
    }

    #[test]
    fn a_kept_story_is_of_the_same_claim_and_of_as_many_steps() {
        let broken = |claim: &str, steps: usize| Broken {
            claim: claim.into(),
            story: vec!["settle".to_owned(); steps],
            ..Broken::default()
        };
        let killed = |claim, steps| Killed { explored: Explored::default(), broken: broken(claim, steps) };
        for steps in [0, 2] {
            let kept = story::page(&patch(), &killed("no_gap", steps));
            assert_eq!(is_told("m", &broken("no_gap", steps), &kept), Ok(()));
            for other in [broken("no_gap", steps + 1), broken("no_lost_update", steps)] {
                let why = is_told("m", &other, &kept).unwrap_err();
                assert!(why.contains(&format!("tells of no_gap in {steps} steps")), "{why}");
                assert!(why.contains("`cargo xtask mutants m --keep-stories`"), "{why}");
            }
        }
    }

    #[test]
    fn every_patch_of_the_tree_has_a_whole_header_and_a_story_and_applies() {
        let patches = Patch::all(&folder()).unwrap();
        for Patch { name, claim, .. } in patches {
            let file = process::root().join("model/stories").join(format!("{name}.md"));
            let page = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert_eq!(story::claim_of(&page), Some(claim.as_str()), "{name}");
            assert!(story::steps_of(&page).is_some(), "{name}");
            process::output(process::git(["apply", "--check"]).arg(folder().join(format!("{name}.patch")))).unwrap();
        }
    }
}
