//! `hapax-model`: goes through configurations from the command line and says what came out.
//!
//! What must hold must hold in every world, and what must break must break, by the claim that is expected and no other.
//! Anything else ends with exit code 1.

mod found;
mod grow;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use found::{Found, bounds, heading, size_of};
use hapax_model::{
    explore::{CLAIMS, Claim, Replay, STATES_MAX, explore_at_most, labels, replay},
    scenarios::{ALL, Expects, Named, Size, named},
};
use serde_json::{Value, json};

const HELP: &str = "\
hapax-model list                                      the configurations, one a line
hapax-model claims                                    what must hold in every world, and which sentence of the README it shows
hapax-model grow                                      how their number grows with messages, workers and faults
hapax-model run [NAME...|--quick|--thorough] [--json FILE] [--states-max N]
                                                      goes through them; --thorough takes all, nothing said the quick ones
hapax-model replay NAME LINE                          takes the steps of a replay line, as a story prints it, in quotes
";

/// What a wrong command line exits with; a configuration that does not come out as expected exits with 1.
const EXIT_USAGE: u8 = 2;

/// One parsed command line.
#[derive(Debug)]
enum Command {
    Help,
    List,
    Claims,
    Grow,
    Run(Wanted),
    Replay(&'static Named, String),
}

/// What is to be gone through.
#[derive(Debug)]
struct Wanted {
    named: Vec<&'static Named>,
    json: Option<PathBuf>,
    states_max: usize,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let command = match parse(&args) {
        Ok(command) => command,
        Err(remedy) => {
            eprintln!("{remedy}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match done(command, &mut io::stdout().lock()) {
        Ok(code) => code,
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the output cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does it and says what came of it.
fn done(command: Command, out: &mut impl Write) -> io::Result<ExitCode> {
    match command {
        Command::Help => write!(out, "{HELP}")?,
        Command::List => ALL.iter().try_for_each(|named| writeln!(out, "{}", listed(named)))?,
        Command::Claims => CLAIMS.iter().try_for_each(|claim| writeln!(out, "{}\n", told(claim)))?,
        Command::Grow => match grow::plot() {
            Ok(plot) => write!(out, "{plot}")?,
            Err(why) => {
                eprintln!("{why}");
                return Ok(ExitCode::FAILURE);
            }
        },
        Command::Run(wanted) => return run(&wanted, out),
        Command::Replay(named, line) => return again(named, &line, out),
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses what stands behind the program's name.
///
/// # Errors
/// One line that names the wrong argument and the remedy.
fn parse(args: &[String]) -> Result<Command, String> {
    match args.split_first().map(|(command, rest)| (command.as_str(), rest)) {
        None | Some(("help" | "--help" | "-h", _)) => Ok(Command::Help),
        Some(("list", [])) => Ok(Command::List),
        Some(("claims", [])) => Ok(Command::Claims),
        Some(("grow", [])) => Ok(Command::Grow),
        Some((command @ ("list" | "claims" | "grow"), [first, ..])) => {
            Err(format!("`{first}` is not for {command}: it takes nothing"))
        }
        Some(("run", rest)) => wanted(rest).map(Command::Run),
        Some(("replay", [name, line])) => Ok(Command::Replay(configuration(name)?, line.clone())),
        Some(("replay", _)) => Err("`replay` takes a configuration and a replay line in quotes".into()),
        Some((other, _)) => Err(format!("`{other}` is not a command: run `hapax-model help` for the list")),
    }
}

fn wanted(args: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted { named: Vec::new(), json: None, states_max: STATES_MAX };
    let mut size = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value behind it"));
        match arg.as_str() {
            "--quick" | "--thorough" => {
                let asked = if arg == "--quick" { Size::Quick } else { Size::Thorough };
                if size.replace(asked).is_some_and(|before| before != asked) {
                    return Err("`--quick` and `--thorough` exclude each other: leave one of them out".into());
                }
            }
            "--json" => wanted.json = Some(value()?.into()),
            "--states-max" => {
                let text = value()?;
                wanted.states_max = text.parse().map_err(|_| format!("`{text}` is no number of worlds"))?;
            }
            flag if flag.starts_with('-') => {
                return Err(format!("`{flag}` is not for run: see `hapax-model help`"));
            }
            name => wanted.named.push(configuration(name)?),
        }
    }
    match (wanted.named.is_empty(), size) {
        (false, Some(_)) => return Err("names and a size exclude each other: leave one of them out".into()),
        (false, None) => {}
        (true, Some(Size::Thorough)) => wanted.named.extend(ALL),
        (true, _) => wanted.named.extend(ALL.iter().filter(|named| named.size == Size::Quick)),
    }
    Ok(wanted)
}

fn configuration(name: &str) -> Result<&'static Named, String> {
    named(name).ok_or_else(|| format!("`{name}` is no configuration: see `hapax-model list`"))
}

fn listed(named: &Named) -> String {
    let size = size_of(named);
    let expects = match named.expects {
        Expects::Holds => String::new(),
        Expects::Breaks(claim) => format!(" (control: breaks {claim})"),
    };
    format!("{:32} {size:8} {}{expects}", named.name, named.about)
}

fn told(claim: &Claim) -> String {
    format!("{}: {} ({})\n    README: {}", claim.name, claim.says, claim.source, claim.readme)
}

/// Goes through all that is wanted, prints the table and tells what is broken.
fn run(wanted: &Wanted, out: &mut impl Write) -> io::Result<ExitCode> {
    writeln!(out, "{}", heading())?;
    let claim = |claim: &Claim| json!({ "name": claim.name, "says": claim.says, "readme": claim.readme });
    let claims: Vec<Value> = CLAIMS.iter().map(claim).collect();
    let mut all = Vec::new();
    let mut well = true;
    for named in wanted.named.iter().copied() {
        let scenario = (named.make)();
        let bounds = bounds(&scenario);
        let found = Found { named, bounds, result: explore_at_most(scenario, wanted.states_max) };
        writeln!(out, "{}", found.row())?;
        if !found.is_as_expected() {
            well = false;
            writeln!(out, "{}", found.told())?;
        }
        all.push(found.json());
        // After each one, so that what was found is there even if a later one takes all the memory there is.
        if let Some(file) = &wanted.json
            && let Err(error) = std::fs::write(file, format!("{:#}\n", json!({ "claims": claims, "results": all })))
        {
            eprintln!("{} cannot be written: {error}", file.display());
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Goes the way of a replay line: a success if it ends as its configuration says.
fn again(named: &Named, line: &str, out: &mut impl Write) -> io::Result<ExitCode> {
    let broken = match replay((named.make)(), &labels(line)) {
        Err(why) => {
            writeln!(out, "{why}")?;
            return Ok(ExitCode::FAILURE);
        }
        Ok(Replay::Lost { at, label, possible }) => {
            writeln!(out, "step {} is not possible here: {label}\npossible:", at + 1)?;
            possible.iter().try_for_each(|label| writeln!(out, "  {label}"))?;
            return Ok(ExitCode::FAILURE);
        }
        Ok(Replay::Broken(story)) => {
            writeln!(out, "{story}")?;
            Some(story.broken.claim)
        }
        Ok(Replay::Holds(steps)) => {
            (1..).zip(&steps).try_for_each(|(number, step)| writeln!(out, "{number:3}. {step}"))?;
            writeln!(out, "  => holds")?;
            None
        }
    };
    let expected = match named.expects {
        Expects::Holds => None,
        Expects::Breaks(claim) => Some(claim),
    };
    Ok(if broken == expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn names(line: &str) -> Vec<&'static str> {
        match parsed(line).unwrap() {
            Command::Run(wanted) => wanted.named.iter().map(|named| named.name).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_said_means_the_quick_ones_and_thorough_means_all() {
        assert_eq!(names("run --thorough").len(), ALL.len());
        assert_eq!(names("run"), names("run --quick"));
        assert_eq!(names("run quiet copy"), ["quiet", "copy"]);
    }

    #[test]
    fn a_wrong_argument_is_named_with_its_remedy() {
        for (line, named, remedy) in [
            ("rnu", "`rnu`", "help"),
            ("list all", "`all`", "nothing"),
            ("run nowhere", "`nowhere`", "list"),
            ("run --fast", "`--fast`", "help"),
            ("run --json", "`--json`", "value"),
            ("run --states-max many", "`many`", "number"),
            ("run quiet --quick", "names", "leave one"),
            ("run --quick --thorough", "`--quick`", "leave one"),
            ("replay quiet", "`replay`", "in quotes"),
            ("replay nowhere line", "`nowhere`", "list"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(named) && error.contains(remedy), "{line}: {error}");
        }
    }

    #[test]
    fn what_a_story_prints_can_be_gone_again() {
        let broken = |named: &&&Named| named.size == Size::Quick && named.expects != Expects::Holds;
        let control = ALL.iter().find(|named| broken(&named)).unwrap();
        let report = explore_at_most((control.make)(), STATES_MAX).unwrap();
        let line = report.story.unwrap().line();
        let mut out = Vec::new();
        assert_eq!(again(control, &line, &mut out).unwrap(), ExitCode::SUCCESS);
        assert!(String::from_utf8(out).unwrap().contains(&line));
        let mut out = Vec::new();
        assert_eq!(again(control, &format!("nonsense | {line}"), &mut out).unwrap(), ExitCode::FAILURE);
        assert!(String::from_utf8(out).unwrap().starts_with("step 1 is not possible here: nonsense"));
    }
}
