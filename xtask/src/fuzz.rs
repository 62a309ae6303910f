//! `cargo xtask fuzz`: each decoder of bytes from outside is given bytes that find their way through it, for some time. What was clean for as long
//! as is asked of it is kept for the page.

use std::{
    fmt::Write as _,
    process::{Command, ExitCode},
};

use serde_json::Value;

use crate::{args::Fuzz, campaign, kept, process};

/// A workspace of its own, for a nightly compiler.
const FOLDER: &str = "tests/fuzz";
/// A decoder that takes more is one that allocates without bound. The library around it takes some.
const MEMORY_MIB: u32 = 512;
/// One input: far above what any takes.
const TIMEOUT_S: u32 = 10;
/// What libFuzzer says of an input that ended the process, took too long or too much.
const FOUND: &str = "Test unit written to";
/// Where it is kept, and what says of which target.
const KEPT: &str = "fuzz";
const TARGET: &str = "target";

/// Every target, or those of these names. Ends with the first input that is one too many.
pub(crate) fn run(wanted: &Fuzz) -> ExitCode {
    match all(wanted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn all(wanted: &Fuzz) -> Result<(), String> {
    if !process::has_cargo("fuzz") {
        let remedy = "`cargo install cargo-fuzz --locked`; and a nightly compiler: `rustup toolchain install nightly`";
        return Err(format!("there is no cargo-fuzz: {remedy}"));
    }
    let known = targets()?;
    if let Some(unknown) = wanted.targets.iter().find(|name| !known.contains(name)) {
        return Err(format!("`{unknown}` is no target: there are {}", known.join(", ")));
    }
    let commit = kept::commit()?;
    for target in known.iter().filter(|name| wanted.targets.is_empty() || wanted.targets.contains(name)) {
        println!("{target}, for {} s", wanted.seconds);
        let (ended_well, said) = fuzzed(target, wanted.seconds)?;
        let judged = judged(ended_well, &said, wanted.seconds);
        match &judged {
            Ok(Ran { seconds, executions, inputs }) if wanted.seconds >= Fuzz::SECONDS => {
                let (date, commit) = (kept::today()?, &commit);
                let ran = serde_json::json!({
                    TARGET: target, "seconds": seconds, "executions": executions, "inputs": inputs, "date": date, "commit": commit
                });
                kept::replace(KEPT, TARGET, target, Some(ran))?;
            }
            Ok(_) => println!("not kept for the page: that was less than {} s", Fuzz::SECONDS),
            Err(_) if said.contains(FOUND) => kept::replace(KEPT, TARGET, target, None)?,
            Err(_) => {}
        }
        campaign::write_page()?;
        judged.map_err(|why| format!("{target}: {why}; an input that was found is in {FOLDER}/artifacts/{target}"))?;
    }
    Ok(())
}

/// Whether it ended well, and all that it said.
fn fuzzed(target: &str, seconds: u32) -> Result<(bool, String), String> {
    // By rustup: the cargo that runs this is of another toolchain.
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "fuzz", "run", "--fuzz-dir", FOLDER, target])
        .current_dir(process::root())
        // SQLite's amalgamation defines a name twice in one file, which the address sanitizer takes for an error.
        .env("ASAN_OPTIONS", "detect_odr_violation=0");
    command.args(["--", &format!("-max_total_time={seconds}"), &format!("-timeout={TIMEOUT_S}")]);
    command.args([&format!("-rss_limit_mb={MEMORY_MIB}"), "-print_final_stats=1"]);
    let mut said = String::new();
    let ended_well = process::watch(&mut command, |line| {
        said.push_str(line);
        said.push('\n');
    })?;
    Ok((ended_well, said))
}

/// What a run has come to.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    seconds: u64,
    executions: u64,
    /// In its corpus: each goes a way through the decoder that no other goes.
    inputs: u64,
}

/// A run that has found something, or was shorter than `asked`, is an error.
fn judged(ended_well: bool, said: &str, asked: u32) -> Result<Ran, String> {
    if let Some(line) = said.lines().find(|line| line.contains(FOUND)) {
        return Err(format!("it has found something: {line}"));
    }
    if !ended_well {
        return Err("it has not ended well".to_owned());
    }
    let ran = ran(said).ok_or("libFuzzer has not told what it has done")?;
    if ran.seconds < u64::from(asked) {
        return Err(format!("it ran for {} s, and {asked} s were asked for", ran.seconds));
    }
    Ok(ran)
}

/// Reads what libFuzzer says at its end.
fn ran(said: &str) -> Option<Ran> {
    let last = |read: &dyn Fn(&str) -> Option<u64>| said.lines().rev().find_map(read);
    let number = |text: &str| text.trim().parse::<u64>().ok();
    Some(Ran {
        seconds: last(&|line| {
            number(line.strip_prefix("Done ")?.split_once(" runs in ")?.1.strip_suffix(" second(s)")?)
        })?,
        executions: last(&|line| number(line.strip_prefix("stat::number_of_executed_units:")?))?,
        inputs: last(&|line| number(line.split_once(" corp: ")?.1.split(['/', ' ']).next()?))?,
    })
}

fn targets() -> Result<Vec<String>, String> {
    let folder = process::root().join(FOLDER).join("targets");
    let files = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> =
        files.flatten().filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// What the page says of it.
///
/// # Errors
/// What is kept cannot be read.
pub(crate) fn section() -> Result<String, String> {
    Ok(shown(&targets()?, &kept::read(KEPT)?))
}

fn shown(targets: &[String], runs: &[Value]) -> String {
    let mut text = format!(
        "### Bytes from outside\n\n\
         Each decoder of bytes from outside (`tests/fuzz/targets`) is given what finds its way through it, by libFuzzer, for {} s.\n\
         One that panics, takes more than {TIMEOUT_S} s for an input or more than {MEMORY_MIB} MiB is an error, and no run of it is kept here.\n\
         Kafka's is not among them, since its client library, in C, does not build for libFuzzer: `tests/corpus.rs` alone gives it what\n\
         was kept. Command: `cargo xtask fuzz`.\n\n",
        Fuzz::SECONDS
    );
    let run = |target: &String| runs.iter().find(|run| run[TARGET] == target.as_str());
    let (ran, missing): (Vec<&String>, Vec<&String>) = targets.iter().partition(|target| run(target).is_some());
    if !ran.is_empty() {
        text.push_str("| target | seconds | executions | inputs kept | on | at commit |\n");
        text.push_str("| --- | ---: | ---: | ---: | --- | --- |\n");
    }
    for target in &ran {
        let Some(run) = run(target) else { continue };
        let (count, word) = (|key: &str| run[key].as_u64().unwrap_or(0), |key: &str| run[key].as_str().unwrap_or("?"));
        let (seconds, executions, inputs) = (count("seconds"), count("executions"), count("inputs"));
        let (date, commit) = (word("date"), word("commit"));
        let _ = writeln!(text, "| {target} | {seconds} | {executions} | {inputs} | {date} | {commit} |");
    }
    if !ran.is_empty() {
        text.push('\n');
    }
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.into_iter().map(String::as_str).collect();
        let _ = writeln!(text, "Not run yet: {}.\n", missing.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SAID: &str = "#2\tINITED cov: 11 ft: 12 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                        #1520184\tDONE   cov: 1067 ft: 4326 corp: 725/61Kb lim: 4096 exec/s: 2529 rss: 453Mb\n\
                        Done 1520184 runs in 601 second(s)\n\
                        stat::number_of_executed_units: 1520184\n\
                        stat::average_exec_per_sec:     2529\n\
                        stat::peak_rss_mb:              453\n";

    #[test]
    fn what_the_fuzzer_says_at_its_end_is_read() {
        let ran = Ran { seconds: 601, executions: 1_520_184, inputs: 725 };
        assert_eq!(judged(true, SAID, 600), Ok(ran));
    }

    #[test]
    fn a_run_that_was_short_or_has_found_something_is_an_error() {
        assert!(judged(true, SAID, 602).unwrap_err().contains("601 s"));
        assert!(judged(false, SAID, 600).is_err());
        let slow = format!("{SAID}artifact_prefix='a/'; Test unit written to a/slow-unit-0123\n");
        assert!(judged(true, &slow, 600).unwrap_err().contains("slow-unit-0123"));
        for lacking in [" corp: ", "Done ", "stat::number"] {
            let lines: Vec<&str> = SAID.lines().filter(|line| !line.contains(lacking)).collect();
            assert!(judged(true, &lines.join("\n"), 600).is_err(), "{lacking}");
        }
    }

    #[test]
    fn what_ran_has_a_row_and_what_did_not_is_named() {
        let targets = ["ids", "plain"].map(str::to_owned);
        assert!(shown(&targets, &[]).ends_with("\n\nNot run yet: ids, plain.\n\n"));
        let run = serde_json::json!({
            "target": "ids", "seconds": 601, "executions": 7, "inputs": 3, "date": "2026-01-02", "commit": "abc"
        });
        let text = shown(&targets, &[run]);
        assert!(
            text.contains("| --- |\n| ids | 601 | 7 | 3 | 2026-01-02 | abc |\n\nNot run yet: plain.\n\n"),
            "{text}"
        );
    }
}
