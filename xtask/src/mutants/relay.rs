//! `cargo xtask relay-mutants`: mistakes in the relay and in its tables, which the tests must find out.
//!
//! Each patch below `tests/mutants/` makes one mistake in the shipped source and names the tests that turn red by it. It is
//! applied to a copy of the tree, and those tests are run there: all of them must fail, and must pass where nothing is changed.
//! The model has no part in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::Tree;
use crate::backends::Backends;
use crate::process;
use crate::report::Report;
use crate::workspace::Workspace;

/// Where a mutant may be made.
const PLACES: [&str; 2] = ["core/src/relay/", "stores/src/sql/"];
/// As a test program: the tests within the tables' source.
const STORES: &str = "hapax-stores";
/// Lines of a run that are shown when it did not do what it should.
const LINES_MAX: usize = 20;

/// One mistake.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    what: String,
    /// Test programs, and words in the names of tests there.
    tests: Vec<(String, String)>,
}

/// Tries those with these names, all for none, and prints the table.
pub(crate) fn run(names: &[String]) -> ExitCode {
    let mut report = Report::default();
    let mut prepared = None;
    report.step("unchanged", || {
        let mutants = chosen(names)?;
        let backends = Backends::provide(&Workspace::load()?)?;
        let tree = Tree::copy()?;
        let tests: BTreeSet<&(String, String)> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
        for test in &tests {
            passes(&tree, &backends, test)?;
        }
        let seen = format!("{} tests pass", tests.len());
        prepared = Some((mutants, backends, tree));
        Ok(seen)
    });
    if let Some((mutants, backends, tree)) = &prepared {
        for mutant in mutants {
            println!("{}", mutant.what);
            report.step(&mutant.name, || kill(tree, backends, mutant));
        }
        report.step("restored", || tree.restore().map(|()| String::new()));
    }
    println!("\n{report}");
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn folder() -> PathBuf {
    process::root().join("tests/mutants")
}

fn chosen(names: &[String]) -> Result<Vec<Mutant>, String> {
    let mut mutants = all(&folder())?;
    if let Some(name) = names.iter().find(|name| !mutants.iter().any(|mutant| mutant.name == **name)) {
        return Err(format!("`{name}` is no mutant: the files tests/mutants/*.patch are"));
    }
    mutants.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    Ok(mutants)
}

fn all(folder: &Path) -> Result<Vec<Mutant>, String> {
    let failed = |error| format!("{}: cannot be read: {error}", folder.display());
    let mut mutants = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: cannot be read: {error}"))?;
            mutants.push(parse(&name, &text)?);
        }
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

fn parse(name: &str, text: &str) -> Result<Mutant, String> {
    let all_of = |key: &str| {
        let lines = text.lines().take_while(|line| !line.starts_with("diff --git "));
        lines.filter_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": ")).collect::<Vec<&str>>()
    };
    let what = all_of("what").join(" ");
    let test = |line: &&str| line.split_once(' ').map(|(program, words)| (program.to_owned(), words.to_owned()));
    let tests: Vec<(String, String)> = all_of("test").iter().filter_map(test).collect();
    if what.is_empty() || tests.is_empty() {
        return Err(format!("{name}: the header needs `# what: ...` and `# test: PROGRAM NAME`"));
    }
    let paths = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    match paths.into_iter().find(|path| !PLACES.iter().any(|place| path.starts_with(place))) {
        Some(path) => Err(format!("{name}: changes {path}: a mutant is one of {}", PLACES.join(" and "))),
        None => Ok(Mutant { name: name.to_owned(), what, tests }),
    }
}

fn kill(tree: &Tree, backends: &Backends, mutant: &Mutant) -> Result<String, String> {
    tree.restore()?;
    tree.apply(&folder().join(format!("{}.patch", mutant.name)))?;
    for test in &mutant.tests {
        let (ended_well, said) = ended(tree, backends, test)?;
        if ended_well {
            return Err(format!("SURVIVED {} in {}: write a test that sees it", test.1, test.0));
        }
        if !said.contains("test result: FAILED") {
            return Err(format!("was not tested\n{}", last(&said)));
        }
    }
    let tests: Vec<&str> = mutant.tests.iter().map(|(_, words)| words.as_str()).collect();
    Ok(format!("killed by {}", tests.join(", ")))
}

fn passes(tree: &Tree, backends: &Backends, test: &(String, String)) -> Result<(), String> {
    let (ended_well, said) = ended(tree, backends, test)?;
    if !ended_well {
        return Err(format!("{} fails without a mutant: nothing is shown by it\n{}", test.1, last(&said)));
    }
    if said.contains("running 0 tests") {
        return Err(format!("there is no test {} in {}", test.1, test.0));
    }
    Ok(())
}

fn ended(tree: &Tree, backends: &Backends, (program, words): &(String, String)) -> Result<(bool, String), String> {
    let of_program = ["--package", "hapax-tests", "--test", program];
    // With which all that the databases share is compiled.
    let of_stores = ["--package", STORES, "--lib", "--features=sqlite"];
    let which = if program == STORES { &of_stores[..] } else { &of_program[..] };
    let args = [&["test", "--quiet", "--locked"], which, &["--", words]].concat();
    let mut command: Command = tree.usual_cargo(args);
    command.envs(backends.variables()).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).join("\n");
    Ok((output.status.success(), said))
}

fn last(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HEADER: &str = "# what: sends early\n# test: postgres_outbox claims::lost\n# test: outbox_faults stalls\n";

    #[test]
    fn a_header_names_the_mistake_and_the_tests_that_see_it() {
        let diff = "diff --git a/x b/x\n+++ b/core/src/relay/table.rs\n";
        let mutant = parse("m", &format!("{HEADER}{diff}")).unwrap();
        assert_eq!(mutant.what, "sends early");
        let tests = [("postgres_outbox", "claims::lost"), ("outbox_faults", "stalls")];
        assert_eq!(mutant.tests, tests.map(|(program, words)| (program.to_owned(), words.to_owned())));
        assert!(parse("m", diff).unwrap_err().contains("# what"));
        let elsewhere = parse("m", &format!("{HEADER}{}", diff.replace("relay", "manager"))).unwrap_err();
        assert!(elsewhere.contains("core/src/manager/table.rs"), "{elsewhere}");
    }
}
