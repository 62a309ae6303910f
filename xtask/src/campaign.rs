//! `cargo xtask campaign`: the runs of `cargo xtask soak` that `VERIFICATION.md` speaks of, some of them at a time, and what they have shown.
//!
//! Figures are kept in `docs/campaign`, so that the page can be written without the runs, which take hours; a test holds the two together.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, ExitCode},
    time::Duration,
};

use serde_json::Value;

use crate::{args::Campaign, fuzz, kept, mutants::tested::found, process, report::Report, soak::Soak};

/// Stores and transports of the soak: a server's store with transactions, the same with a standby, one in a file, and a service's. MariaDB with Kafka, and
/// Cosmos DB with SQS, have a minute in `tests/soak/tests/quick.rs`; objects are among the crash points alone.
const SOAKS: [(&str, &str); 5] = [
    ("postgres", "rabbitmq"),
    ("postgres", "nats"),
    ("postgres-replicated", "rabbitmq"),
    ("sqlite", "file"),
    ("dynamodb", "redis"),
];
/// The same of the crash points: every store.
const POINTS: [(&str, &str); 6] = [
    ("postgres", "rabbitmq"),
    ("mysql", "redis"),
    ("sqlite", "file"),
    ("dynamodb", "nats"),
    ("cosmos", "rabbitmq"),
    ("object", "file"),
];
const PAGE: &str = "VERIFICATION.md";
/// Around its section there.
const BEGIN: &str = "<!-- campaign -->\n";
const END: &str = "<!-- end of the campaign -->\n";
/// Of figures the only one that is no count.
const SEED: &str = "seed";
/// What hapax-soak says of a run that is nothing but well.
const WELL: &str = "Nothing lost, nothing twice.";
/// What a run of the soak has drawn: the file, what is behind the run's name where it is kept, and what it shows.
const PLOTS: [(&str, &str, &str); 2] =
    [("throughput.svg", "", "messages a second"), ("backlog.svg", "-backlog", "steps on their way")];
const LOOK: Duration = Duration::from_millis(500);

/// Runs all pairs, and writes the page if all were well.
pub(crate) fn run(wanted: &Campaign) -> ExitCode {
    let (kind, pairs) = if wanted.points { ("points", &POINTS[..]) } else { ("soak", &SOAKS[..]) };
    let mut report = Report::default();
    if wanted.page {
        report.step(PAGE, write_page);
        return if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    report.step(&format!("{kind}, {} at a time", wanted.at_once), || all(wanted, kind, pairs));
    if !report.has_failed() {
        report.step(PAGE, || keep(kind, pairs));
    }
    println!("\n{report}");
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A run's process. It is stopped where nobody waits for its end any more: the others are, when one of them cannot be started.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill(); // One that has ended and was waited for is left alone.
        let _ = self.0.wait();
    }
}

/// A pair that runs, or has run.
struct Running {
    name: String,
    child: Stopped,
    log: PathBuf,
    // Its emulator.
    _soak: Soak,
}

fn all(wanted: &Campaign, kind: &str, pairs: &[(&str, &str)]) -> Result<String, String> {
    let mut waiting: VecDeque<_> = pairs.iter().collect();
    let (mut running, mut failed) = (Vec::<Running>::new(), Vec::new());
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < wanted.at_once
            && let Some((store, transport)) = waiting.pop_front()
        {
            running.push(start(wanted, kind, store, transport)?);
        }
        let mut going = Vec::new();
        for mut one in running {
            match one.child.0.try_wait().map_err(|error| format!("{}: {error}", one.name))? {
                None => going.push(one),
                Some(status) => {
                    println!("{}: {status}; what it said: {}", one.name, one.log.display());
                    if !status.success() {
                        failed.push(one.name);
                    }
                }
            }
        }
        running = going;
        std::thread::sleep(LOOK);
    }
    if failed.is_empty() {
        Ok(format!("{} pairs", pairs.len()))
    } else {
        Err(format!("not well: {}", failed.join(", ")))
    }
}

fn start(wanted: &Campaign, kind: &str, store: &str, transport: &str) -> Result<Running, String> {
    let name = format!("{store}-{transport}");
    let folder = folder(kind, &name);
    let log = folder.join("log");
    let mut args = vec!["--store".to_owned(), store.to_owned(), "--transport".to_owned(), transport.to_owned()];
    args.extend(["--report".to_owned(), folder.display().to_string()]);
    match kind {
        "points" => args.push("--points".to_owned()),
        _ => args.extend(["--minutes".to_owned(), wanted.minutes.clone()]),
    }
    let mut soak = Soak::prepare(&args, true)?;
    let of_the_log = |error: std::io::Error| format!("{}: {error}", log.display());
    std::fs::create_dir_all(&folder).map_err(of_the_log)?;
    // What an earlier run has left is not this one's.
    let _ = std::fs::remove_file(folder.join("figures.json"));
    let file = File::create(&log).map_err(of_the_log)?;
    soak.command.stdout(file.try_clone().map_err(of_the_log)?).stderr(file);
    let child = Stopped(soak.command.spawn().map_err(|error| format!("{name}: cannot be started: {error}"))?);
    println!("{name} has begun");
    Ok(Running { name, child, log, _soak: soak })
}

fn folder(kind: &str, name: &str) -> PathBuf {
    process::root().join("target").join(kind).join(name)
}

/// Puts what the runs have shown in the place of what was kept of that kind, and writes the page's section anew.
fn keep(kind: &str, pairs: &[(&str, &str)]) -> Result<String, String> {
    let kept = process::root().join(kept::FOLDER);
    std::fs::create_dir_all(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    let mut runs = Vec::new();
    for (store, transport) in pairs {
        let name = format!("{store}-{transport}");
        let text = read(&folder(kind, &name).join("figures.json"))?;
        let run: Value = serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
        if run["verdict"] != WELL {
            return Err(format!("{name}: {}", run["verdict"]));
        }
        for (file, behind, _) in PLOTS.iter().filter(|_| kind == "soak") {
            let plot = folder(kind, &name).join(file);
            let to = kept.join(format!("{name}{behind}.svg"));
            std::fs::copy(&plot, &to).map_err(|error| format!("{}: {error}", plot.display()))?;
        }
        runs.push(run);
    }
    kept::write(kind, &runs)?;
    write_page()?;
    Ok(format!("{} runs", runs.len()))
}

/// Writes the page's section anew.
///
/// # Errors
/// The page cannot be read or written, or has no place for it.
pub(crate) fn write_page() -> Result<String, String> {
    let page = process::root().join(PAGE);
    let written = with_section(&read(&page)?, &section()?)?;
    std::fs::write(&page, written).map_err(|error| format!("{}: {error}", page.display()))?;
    Ok(String::new())
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The page's section, from what is kept; with the lines that it stands between.
pub(crate) fn section() -> Result<String, String> {
    let runs = shown(&kept::read("soak")?, &kept::read("points")?);
    Ok([BEGIN, &runs, &found::section()?, &fuzz::section()?, END].concat())
}

fn with_section(page: &str, section: &str) -> Result<String, String> {
    let missing = || format!("{PAGE} has no place between {} and {}", BEGIN.trim(), END.trim());
    let (before, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{section}{after}"))
}

fn shown(soaks: &[Value], points: &[Value]) -> String {
    let mut text = String::from(
        "## The campaign: the shipped adapters on real servers, under real faults\n\n\
         What the explorer takes for granted of ports is looked for here. Two endpoints in four processes handle messages of 200 keys; each\n\
         step adds to an entity at the first, which sends to the second, which sends on. Meanwhile, at times that a seed gives: workers are\n\
         killed by SIGKILL, stand still (SIGSTOP) for longer than a lease, or than RabbitMQ, which has none, waits for heartbeats, and are\n\
         replaced one by one by workers of the other version: the same program, told to write messages and states as a next version would,\n\
         with a field more, and none of another commit; the clock of their host, and of no server, is set to and fro by up to 25 s; the\n\
         servers are killed by SIGKILL and started again; and the lines to them cut connections, delay, slice, are black holes, swallow\n\
         answers of what was served, and deliver requests after their clients have given up. Then the books are made from the database, as\n\
         its adapter reads it, and from what came out of the broker; no worker is asked. In PostgreSQL, MariaDB and SQLite, entities,\n\
         effects, dead letters, marks and what waits are counted beside that, by statements that are not the adapter's, and have to be as\n\
         many. Only what passes met, from the messages handled to the leases lost, is what workers said while they lived. A run in which\n\
         some kind of fault was not met is void. What DynamoDB and Cosmos DB stand for here are emulators, which have everything in their\n\
         memory and so are not killed; where a store or a queue is a file, there is no line to it. The commits of `postgres-replicated`\n\
         wait for a standby, which takes the place of the primary each time that this is killed. None of these runs has one that follows\n\
         asynchronously: what that loses is shown by `tests/postgres_promoted.rs`.\n\n",
    );
    if soaks.is_empty() {
        text.push_str("No run is kept here yet. Command: `cargo xtask campaign`.\n\n");
    } else {
        text.push_str("Command: `cargo xtask campaign`. Nothing was lost and nothing had two effects in any of:\n\n");
        table(&mut text, soaks);
        remarks(&mut text, soaks);
        not_run(&mut text, &SOAKS, soaks);
    }
    for run in soaks {
        for (_, behind, shows) in PLOTS {
            let file = format!("{}/{}{behind}.svg", kept::FOLDER, name(run));
            // A run of before there was such a plot has none.
            if process::root().join(&file).exists() {
                let _ = writeln!(text, "![{}: {shows}]({file})\n", title(run));
            }
        }
    }
    if !points.is_empty() {
        text.push_str(
            "### Every crash point\n\n\
             A worker that sends itself SIGKILL before, and in another run after, its n-th call of a port, for every n that comes and\n\
             each kind of call; then one that does not; then the same books, of all of it together. Command: `cargo xtask campaign\n\
             --points`.\n\n",
        );
        table(&mut text, points);
        remarks(&mut text, points);
        not_run(&mut text, &POINTS, points);
    }
    text
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn name(run: &Value) -> String {
    format!("{}-{}", word(&run["store"]), word(&run["transport"]))
}

fn title(run: &Value) -> String {
    format!("{} and {}", word(&run["store"]), word(&run["transport"]))
}

fn rows(run: &Value) -> impl Iterator<Item = (&str, &str)> {
    run["figures"].as_array().into_iter().flatten().map(|row| (word(&row[0]), word(&row[1])))
}

/// Which of `pairs` no run is kept of: nobody must take them for run.
fn not_run(text: &mut String, pairs: &[(&str, &str)], runs: &[Value]) {
    let is_run = |pair: &(&str, &str)| runs.iter().any(|run| (word(&run["store"]), word(&run["transport"])) == *pair);
    let missing: Vec<String> = pairs
        .iter()
        .filter(|pair| !is_run(pair))
        .map(|(store, transport)| format!("{store} and {transport}"))
        .collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "Not run yet: {}.\n", missing.join(", "));
    }
}

/// In which ways runs that are kept were others than a run of today would be. Written by hand beside their figures, and gone with them.
fn remarks(text: &mut String, runs: &[Value]) {
    let mut remarks: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for run in runs {
        for remark in run["remarks"].as_array().into_iter().flatten() {
            remarks.entry(word(remark)).or_default().push(title(run));
        }
    }
    for (remark, titles) in remarks {
        let _ = writeln!(text, "In the runs of {}: {remark}\n", titles.join(", "));
    }
}

/// A column for each run, and one for all of them; a row for whatever any of them has counted.
fn table(text: &mut String, runs: &[Value]) {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        let mut behind = None;
        for (name, _) in rows(run) {
            behind = match (names.iter().position(|known| *known == name), behind) {
                (Some(at), _) => Some(at),
                (None, None) => {
                    names.insert(0, name);
                    Some(0)
                }
                (None, Some(before)) => {
                    names.insert(before + 1, name);
                    Some(before + 1)
                }
            };
        }
    }
    let heads: Vec<String> = runs.iter().map(title).collect();
    let _ = writeln!(text, "| | {} | all |\n| --- |{} ---: |", heads.join(" | "), " ---: |".repeat(runs.len()));
    for name in names {
        let figure = |run| rows(run).find(|(its, _)| *its == name).map_or("", |(_, figure)| figure);
        let figures: Vec<&str> = runs.iter().map(figure).collect();
        let _ = writeln!(text, "| {name} | {} | {} |", figures.join(" | "), sum(name, &figures));
    }
    text.push('\n');
}

/// Of what was counted; nothing of what was not.
fn sum(name: &str, figures: &[&str]) -> String {
    if name == SEED {
        return String::new();
    }
    let counted = figures.iter().filter(|figure| !figure.is_empty());
    let sum: Option<u64> = counted.map(|figure| figure.parse::<u64>().ok()).sum();
    sum.map_or_else(String::new, |sum| sum.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{io::Read, process::Stdio, time::Instant};

    use super::*;

    fn run(store: &str, figures: &[(&str, &str)]) -> Value {
        serde_json::json!({ "store": store, "transport": "file", "figures": figures, "verdict": WELL })
    }

    /// What it writes to closes when it ends, and it would not do so by itself for long.
    #[test]
    fn a_run_that_nobody_waits_for_is_stopped() {
        const LASTS: Duration = Duration::from_secs(60);
        let mut sleeps = std::process::Command::new("sleep");
        let child = sleeps.arg(LASTS.as_secs().to_string()).stdout(Stdio::piped()).spawn();
        let (mut child, begun) = (Stopped(child.unwrap()), Instant::now());
        let mut output = child.0.stdout.take().unwrap();
        drop(child);
        output.read_to_end(&mut Vec::new()).unwrap();
        assert!(begun.elapsed() < LASTS / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn each_run_has_a_column_and_each_figure_its_row() {
        let mut text = String::new();
        let runs = [run("a", &[("seed", "1"), ("end", "3")]), run("b", &[("seed", "4"), ("only", "5"), ("end", "6")])];
        table(&mut text, &runs);
        assert!(text.starts_with("| | a and file | b and file | all |\n| --- | ---: | ---: | ---: |\n"), "{text}");
        assert!(text.contains("| seed | 1 | 4 |  |\n| only |  | 5 | 5 |\n| end | 3 | 6 | 9 |\n"), "{text}");
    }

    #[test]
    fn what_is_no_count_has_no_sum() {
        assert_eq!(sum("seconds", &["1", "", "2"]), "3");
        assert_eq!(sum("seconds", &["1", "two"]), "");
        assert_eq!(sum(SEED, &["1", "2"]), "");
    }

    #[test]
    fn the_section_takes_the_place_of_the_last_one() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(with_section(&page, &format!("{BEGIN}new\n{END}")).unwrap(), page.replace("old", "new"));
        assert!(with_section("nothing", "new").unwrap_err().contains(PAGE));
    }

    #[test]
    fn the_page_has_what_is_kept() {
        let page = read(&process::root().join(PAGE)).unwrap();
        assert!(page.contains(&section().unwrap()), "run `cargo xtask campaign`, which writes both");
        for run in ["soak", "points"].into_iter().flat_map(|kind| kept::read(kind).unwrap()) {
            assert_eq!(run["verdict"], WELL, "the page says so of {}", name(&run));
        }
    }

    #[test]
    fn a_pair_that_was_not_run_is_named() {
        let (mut text, runs) = (String::new(), [run("a", &[])]);
        not_run(&mut text, &[("a", "file")], &runs);
        assert_eq!(text, "");
        not_run(&mut text, &[("a", "file"), ("b", "file"), ("a", "nats")], &runs);
        assert_eq!(text, "Not run yet: b and file, a and nats.\n\n");
    }

    #[test]
    fn figures_that_are_of_another_program_are_told_so() {
        let (mut text, mut runs) = (String::new(), [run("a", &[]), run("b", &[]), run("c", &[])]);
        remarks(&mut text, &runs);
        assert_eq!(text, "");
        runs[0]["remarks"] = serde_json::json!(["It was another."]);
        runs[2]["remarks"] = serde_json::json!(["It was slow.", "It was another."]);
        remarks(&mut text, &runs);
        let told =
            "In the runs of a and file, c and file: It was another.\n\nIn the runs of c and file: It was slow.\n\n";
        assert_eq!(text, told);
    }
}
