//! `cargo xtask verify`: runs the explorer's matrix and the mutants, and writes what came out to `VERIFICATION.md`.
//!
//! That page is generated, so that no number in it is remembered or hoped for. It bears no date but of what is kept from runs that
//! take hours: what changes from run to run is figures alone.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::args::Extent;
use crate::campaign;
use crate::mutants::{self, Explored, Killed, Patch};
use crate::process;
use crate::report::Report;

/// What none of this shows. Kept here, beside what it does show, so that neither grows without the other.
const NOT_COVERED: &[&str] = &[
    "*Beyond the bounds.* A few messages, workers and faults, as the table says; that nothing new comes with more of them \
     is likely, and not shown.",
    "*Stores and transports.* The world of the model keeps what the ports promise. That an adapter keeps it is for the \
     conformance suites, the crash points and the processes killed in `tests/`. A promise that is itself wrong is not found \
     here either.",
    "*The endpoint's shell.* Lanes, prefetching, extending leases, stopping and the sweeper's timer run on tokio and are \
     tested, not explored. Two of its parts decide about an ack: a message for several sagas is acknowledged when all of \
     them are done (`joint.rs`), one that no saga takes when its letter is confirmed (`Lanes::refuse`). `tests/endpoint` \
     tests both.",
    "*Answers that no fault gives.* A load that is older than one save; a store that denies access or is set up wrongly, \
     which is tried again as an outage is; of several unknown results in one dispatch only the first. What is too large or \
     cannot be read is explored only where a configuration says so.",
    "*Set aside and handled.* A message that is given up while a copy of it is being handled may be set aside and take \
     effect: between the last look at its entity and its letter another worker may save. The claim is about what a worker \
     could know.",
    "*Time.* There is none: a lease may run out at any moment, a deadline may have passed at any look. How long something \
     takes, how long retention must be, and whether clocks agree, is not asked.",
    "*Order.* Only that of outputs that a saga promises; none is promised between messages, and no claim is about it.",
    "*Long rows of endpoints.* Some configurations have a second saga behind the first; a third, or circles, are not \
     explored.",
    "*The handler.* It is a small one that does nothing but write down, send, answer, set timeouts, complete, fail and panic. Effects of a handler \
     outside its saga are nobody's promise.",
    "*Memory and CPU.* No weak memory, no compiler, no hardware: the explored tasks take turns at port calls.",
    "*Equal fingerprints.* Two worlds with the same 128 bits of XXH3 are taken for one.",
];

/// What the explorer itself rests on.
const EXPLORABLE: (&str, &str) = (
    "asks_nothing_but_ports",
    "The code under test does the same whenever it is given the same messages and the same answers of its ports.",
);

/// Names and sentences of what must hold in every world.
type Claims = Vec<(String, String)>;

/// Runs what is wanted; writes the page unless it is the quick run.
pub(crate) fn run(extent: Extent) -> ExitCode {
    let mut report = Report::default();
    let (mut claims, mut matrix) = (Vec::new(), Vec::new());
    report.step("matrix", || {
        (claims, matrix) = explored(extent)?;
        Ok(sums(&matrix))
    });
    if extent != Extent::Quick {
        let killed = mutants::all(&mutants::Wanted::default(), &mut report);
        // A page about a run that failed would say less than its table does.
        if !report.has_failed() {
            report.step("VERIFICATION.md", || {
                let (campaign, growth) = (campaign::section()?, growth()?);
                let killed = (killed.as_slice(), mutants::count()?);
                let page = page(&machine()?, &claims, &matrix, killed, &growth, &campaign, extent);
                let file = process::root().join("VERIFICATION.md");
                std::fs::write(&file, page).map_err(|error| format!("{}: {error}", file.display()))?;
                Ok(String::new())
            });
        }
    }
    println!("\n{report}");
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn sums(matrix: &[Explored]) -> String {
    let worlds: u64 = matrix.iter().map(|explored| explored.worlds).sum();
    format!("{} configurations, {worlds} worlds", matrix.len())
}

/// Goes through the configurations, optimised.
fn explored(extent: Extent) -> Result<(Claims, Vec<Explored>), String> {
    let file = PathBuf::from("target/xtask/explored.json");
    let folder = process::root().join("target/xtask");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    let args = ["run", "--quiet", "--release", "--locked", "--package", "hapax-model", "--bin", "hapax-model", "--"];
    let size = if extent == Extent::Thorough { "--thorough" } else { "--quick" };
    let mut command = process::cargo(args);
    process::run(command.args(["run", size, "--json"]).arg(&file))
        .map_err(|error| format!("{error}: the table above says which configuration, and its story why"))?;
    let file = process::root().join(file);
    Ok((mutants::claims(&file)?, Explored::read(&file)?))
}

/// How the number of worlds grows, as the model's program plots it.
fn growth() -> Result<String, String> {
    let args = ["run", "--quiet", "--release", "--locked", "--package", "hapax-model", "--bin", "hapax-model", "--"];
    process::output(process::cargo(args).arg("grow"))
}

/// What the figures were taken on.
fn machine() -> Result<String, String> {
    let mut rustc = std::process::Command::new("rustc");
    let rustc = process::output(rustc.arg("--version").current_dir(process::root()))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = std::fs::read_to_string("/proc/cpuinfo").ok();
    let model = model.as_deref().and_then(|text| text.lines().find(|line| line.starts_with("model name")));
    let model = model.and_then(|line| line.split_once(": ")).map_or("a processor unnamed", |(_, name)| name.trim());
    let system = format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH);
    Ok(format!("{model}, {cores} cores of which one is used, {system}; {}", rustc.trim()))
}

fn page(
    machine: &str,
    claims: &[(String, String)],
    matrix: &[Explored],
    (killed, of): (&[(Patch, Killed)], usize),
    growth: &str,
    campaign: &str,
    extent: Extent,
) -> String {
    let mut page = String::from(
        "<!-- Generated by `cargo xtask verify`. Do not edit: run it again. -->\n\n# Verification\n\n\
         All interleavings, crashes and unknown outcomes within the bounds below, of the shipped `SagaManager` and `deliver`,\n\
         for stores and transports that keep what the ports promise. Not a proof: see the last section.\n\n\
         The explorer (`model/src/explore`) answers every port call in each way that the port's documentation allows and that\n\
         makes a difference to its caller: done, done in part, refused for now, refused as too large or unreadable, unknown,\n\
         under way, told lost though it won; and the back-off may stop at any try. What it leaves out stands at the end. It\n\
         goes through all worlds that can come of it, each once. In every world the claims must hold; at rest nothing may be missing or left\n\
         over; and the worlds must not go round in a circle, so that every run ends.\n\n",
    );
    let command = if extent == Extent::Thorough { "cargo xtask verify --thorough" } else { "cargo xtask verify" };
    let _ =
        writeln!(page, "Machine: {machine}. Command: `{command}`. Seconds are of this machine; counts are exact.\n");
    claimed(&mut page, claims, matrix, killed);
    holds(&mut page, matrix);
    if extent != Extent::Thorough {
        page.push_str("The larger configurations were not part of this run: `cargo xtask verify --thorough`.\n\n");
    }
    let _ = writeln!(page, "## How the number of worlds grows\n\n{growth}");
    controls(&mut page, matrix);
    mutants_of(&mut page, killed, of);
    page.push_str(campaign);
    page.push('\n');
    page.push_str("## What is not covered\n\n");
    for text in NOT_COVERED {
        let _ = writeln!(page, "- {text}");
    }
    page
}

/// What must hold, and by what it is shown that it can break.
fn claimed(page: &mut String, claims: &[(String, String)], matrix: &[Explored], killed: &[(Patch, Killed)]) {
    page.push_str("## What is claimed of every world\n\n");
    page.push_str("A claim that nothing breaks would hold of anything. So beside each stands what breaks it; and each has a control of\nits own in `model/tests/explore_controls.rs`.\n\n");
    page.push_str("| claim | says | broken by |\n| --- | --- | --- |\n");
    let mut known: Vec<(&str, &str)> = claims.iter().map(|(name, says)| (name.as_str(), says.as_str())).collect();
    known.push((EXPLORABLE.0, EXPLORABLE.1));
    for (name, says) in known {
        let controls = matrix.iter().filter(|explored| explored.expects.as_deref() == Some(name));
        let (mutants, controls) = (killed.iter().filter(|(patch, _)| patch.claim == name).count(), controls.count());
        let broken_by = match (mutants, controls) {
            (0, 0) => "its control in `model/tests` alone".to_owned(),
            (mutants, 0) => format!("{mutants} mutants"),
            (mutants, controls) => format!("{mutants} mutants, {controls} controls"),
        };
        let _ = writeln!(page, "| `{name}` | {says} | {broken_by} |");
    }
    page.push('\n');
}

fn holds(page: &mut String, matrix: &[Explored]) {
    let held: Vec<&Explored> = matrix.iter().filter(|explored| explored.expects.is_none()).collect();
    page.push_str("## Everything holds\n\n");
    page.push_str("| configuration | within these bounds | worlds | steps | histories of a task | seconds |\n");
    page.push_str("| --- | --- | ---: | ---: | ---: | ---: |\n");
    for Explored { name, bounds, worlds, steps, histories, seconds, .. } in &held {
        let (worlds, steps, histories) = (thousands(*worlds), thousands(*steps), thousands(*histories));
        let _ = writeln!(page, "| {name} | {bounds} | {worlds} | {steps} | {histories} | {seconds:.1} |");
    }
    let sum = |of: fn(&Explored) -> u64| thousands(held.iter().map(|explored| of(explored)).sum());
    let seconds: f64 = held.iter().map(|explored| explored.seconds).sum();
    let (worlds, steps, histories) = (sum(|e| e.worlds), sum(|e| e.steps), sum(|e| e.histories));
    let _ =
        writeln!(page, "| **{} configurations** | | {worlds} | {steps} | {histories} | {seconds:.1} |\n", held.len());
}

/// Worlds that break what the ports promise, in which the claims must break.
fn controls(page: &mut String, matrix: &[Explored]) {
    page.push_str("## Controls: worlds in which it must break\n\n");
    page.push_str("| configuration | what is wrong with its world | broken | steps |\n| --- | --- | --- | ---: |\n");
    for explored in matrix.iter().filter(|explored| explored.expects.is_some()) {
        let Some(broken) = &explored.broken else { continue };
        let (name, about, steps) = (&explored.name, &explored.about, broken.story.len());
        let _ = writeln!(page, "| {name} | {about} | {} | {steps} |", broken.claim);
    }
    page.push('\n');
}

/// `of`: how many there are, by their files and not by who was killed.
fn mutants_of(page: &mut String, killed: &[(Patch, Killed)], of: usize) {
    let _ = writeln!(page, "## Mutants: {} of {of} killed\n", killed.len());
    page.push_str(
        "Each is the source with one mistake in it, or the world with one broken promise (`model/mutants/`), and each is\n\
         killed by the claim that it was written for. The steps are a shortest way there, told below `model/stories/`. What\n\
         cannot be expressed as a mutant is listed with its reason in `model/mutants/NOT.md`.\n\n",
    );
    page.push_str("| mutant | mistake | from | made in | killed by | in | steps | worlds |\n");
    page.push_str("| --- | --- | --- | --- | --- | --- | ---: | ---: |\n");
    for (Patch { name, what, source, places, .. }, Killed { explored, broken }) in killed {
        let (steps, worlds) = (broken.story.len(), thousands(explored.worlds));
        let (place, what) = (places.join(", "), what.replace('|', "\\|"));
        let _ = writeln!(
            page,
            "| [{name}](model/stories/{name}.md) | {what} | {source} | {place} | {} | {} | {steps} | {worlds} |",
            broken.claim, explored.name
        );
    }
    page.push('\n');
}

/// 1234567 as 1,234,567.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::Broken;

    #[test]
    fn numbers_can_be_read() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn the_page_has_what_held_what_broke_and_what_is_not_covered() {
        let broken = Broken { claim: "effect_at_most_once".into(), story: vec![String::new(); 9], ..Broken::default() };
        let claims = ["effect_at_most_once", "no_gap"].map(|name| (name.to_owned(), "It holds.".to_owned()));
        let quiet = Explored { name: "quiet".into(), worlds: 1200, seconds: 0.5, ..Explored::default() };
        let control = Explored {
            name: "lagging-reads".into(),
            expects: Some("effect_at_most_once".into()),
            broken: Some(broken),
            ..Explored::default()
        };
        let page = page("a machine", &claims, &[quiet, control], (&[], 2), "More.", "## The campaign\n", Extent::Usual);
        assert!(page.contains("| quiet |  | 1,200 | 0 | 0 | 0.5 |"), "{page}");
        assert!(page.contains("| lagging-reads |  | effect_at_most_once | 9 |"), "{page}");
        assert!(page.contains("| `effect_at_most_once` | It holds. | 0 mutants, 1 controls |"), "{page}");
        assert!(page.contains("| `no_gap` | It holds. | its control in `model/tests` alone |"), "{page}");
        assert!(page.contains("\n## Mutants: 0 of 2 killed\n"), "{page}");
        assert!(page.contains("not part of this run") && page.contains("*Beyond the bounds.*"), "{page}");
        assert!(page.contains("\n## The campaign\n\n## What is not covered\n"), "{page}");
        assert!(!page.contains("| lagging-reads |  | 0"), "a control is no proof: {page}");
    }
}
