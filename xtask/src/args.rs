//! The command line: which command, with what.

use crate::mutants;

/// What `cargo xtask` prints when it is asked nothing.
pub(crate) const HELP: &str = "\
cargo xtask test [--all] [FILTER...]   every test and doctest of every backend; --all adds what is too slow for each push
cargo xtask ci [--no-test|--all]       what a change must pass: format, lints, docs, features, dependencies, texts, examples, tests;
                                       --all adds lints with default features and of the emulators, and tests that are too slow for each push
cargo xtask bench BACKEND [ARG...]     the benchmark of one backend, say sqlite; ARGs go to hapax-bench (--check, --json FILE, --help);
                                       `bench transport NAME` is that of a broker: kafka, nats, rabbitmq, redis or sqs;
                                       postgres and outbox --peers build and run other libraries beside it; postgres and mysql --plots write docs/bench
cargo xtask emulator NAME              an emulator that runs until Ctrl-C, and the variable by which tests find it: dynamodb, cosmos, azure-blob, s3, sqs or kafka
cargo xtask server NAME                a server that runs until Ctrl-C, and its URL; what is in it goes with it: postgres, mysql, rabbitmq, nats or redis
cargo xtask soak [ARG...]              two endpoints in many processes under faults of every kind; ARGs go to hapax-soak (--minutes N, --store S, --transport T, --help)
cargo xtask campaign [--points|--page] [--minutes N] [--at-once N]   the pairs of soak, or of crash points, that VERIFICATION.md speaks of, N minutes each (20), N at a time (1)
cargo xtask book [--draw]              the book of the pages below docs, to read offline in target/book/docs/index.html; needs mdBook to build, not to look
                                       for links that lead nowhere; --draw makes the pictures of the stories anew
cargo xtask api                        what core, model, otel and page show to others, written to api/ anew: ci compares it; needs nightly and cargo-public-api
cargo xtask fuzz [TARGET...] [--seconds N]   each decoder of bytes from outside, for N seconds (600, and then kept for VERIFICATION.md); needs nightly and cargo-fuzz
cargo xtask tla                        the specification in TLA+ by TLC, its mutants, and its worlds against the explorer's
cargo xtask shuttle [FILTER...]        what the shell's tasks share, in thousands of orders of their steps
cargo xtask mutants [NAME...] [--keep-stories]   each mistake of model/mutants in a copy of the tree: the model must find it out
cargo xtask relay-mutants [NAME...]    each mistake of tests/mutants/relay in a copy of the tree: the tests that it names must find it out
cargo xtask store-mutants [NAME...]    the same with those of tests/mutants/stores, in the stores without transactions
cargo xtask endpoint-mutants [NAME...] the same with those of tests/mutants/endpoint, in the shell around the heart
cargo xtask otel-mutants [NAME...]     the same with those of tests/mutants/otel, in what is seen of messages from outside
cargo xtask operator-mutants [NAME...] the same with those of tests/mutants/operator, in the operator's tool and its page
cargo xtask soak-mutants [NAME...]     those of model/mutants that name a run of the soak: its ledger must find them out, too; kept for VERIFICATION.md
cargo xtask survivors [PART...]        cargo-mutants on manager and deliver (or on those named): what lives must stand in SURVIVORS.md
cargo xtask verify [--quick|--thorough]   the explorer's configurations and all mutants, written to VERIFICATION.md; --quick writes nothing
";

/// One parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Test(Wanted),
    Ci {
        /// False where the caller runs the tests itself, in a step of its own.
        tests: bool,
        /// With what is too slow for each push.
        all: bool,
    },
    /// Everything behind `bench`, for hapax-bench to judge.
    Bench(Vec<String>),
    Book {
        /// The pictures of the stories are made anew.
        draw: bool,
    },
    /// What others see, written anew.
    Api,
    Fuzz(Fuzz),
    /// Everything behind `soak`, for hapax-soak to judge.
    Soak(Vec<String>),
    Campaign(Campaign),
    /// The emulator of the backend of this name.
    Emulator(String),
    /// A server of one's own of the backend of this name.
    Server(String),
    /// Parts of test names; none: all of those that are interleaved.
    Shuttle(Vec<String>),
    /// The specification.
    Tla,
    Mutants(mutants::Wanted),
    /// Names of mistakes in the relay; none: all.
    RelayMutants(Vec<String>),
    /// The same in the stores without transactions.
    StoreMutants(Vec<String>),
    /// The same in the endpoint.
    EndpointMutants(Vec<String>),
    /// The same in spans and metrics.
    OtelMutants(Vec<String>),
    /// The same in the operator's tool and its page.
    OperatorMutants(Vec<String>),
    /// Names of mistakes of the model's that the soak must find out; none: all.
    SoakMutants(Vec<String>),
    /// Parts of the names of those that are tried; none: all.
    Survivors(Vec<String>),
    Verify(Extent),
}

/// Which runs of the campaign.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Campaign {
    /// Every crash point, instead of the soak.
    pub(crate) points: bool,
    /// Each run of the soak, for so long.
    pub(crate) minutes: String,
    /// Runs at a time.
    pub(crate) at_once: usize,
    /// No runs: the page is written anew, from what is kept.
    pub(crate) page: bool,
}

/// What is fuzzed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fuzz {
    /// Names of targets; none: all.
    pub(crate) targets: Vec<String>,
    /// Each, for so long.
    pub(crate) seconds: u32,
}

impl Fuzz {
    /// Long enough for nothing new to be found at the end.
    pub(crate) const SECONDS: u32 = 600;
}

/// How much is gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The configurations that take seconds, and no mutants: for each push.
    Quick,
    /// Those, and all mutants.
    Usual,
    /// Every configuration, and all mutants.
    Thorough,
}

/// Which tests are wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Also the cases that are too slow for each push.
    pub(crate) all: bool,
    /// Parts of test names; a test runs if it contains any of them. None: all run.
    pub(crate) filters: Vec<String>,
}

/// Parses what stands behind `cargo xtask`.
///
/// # Errors
/// One line that names the wrong argument and the remedy.
pub(crate) fn parse(args: &[String]) -> Result<Command, String> {
    let Some((command, rest)) = args.split_first() else {
        return Ok(Command::Help);
    };
    match command.as_str() {
        "help" | "--help" | "-h" => Ok(Command::Help),
        _ if rest.iter().any(|arg| arg == "--help" || arg == "-h")
            && !["bench", "soak"].contains(&command.as_str()) =>
        {
            Ok(Command::Help)
        }
        "test" => wanted(rest).map(Command::Test),
        "ci" => match rest {
            [] => Ok(Command::Ci { tests: true, all: false }),
            [flag] if flag == "--no-test" => Ok(Command::Ci { tests: false, all: false }),
            [flag] if flag == "--all" => Ok(Command::Ci { tests: true, all: true }),
            [first, ..] => Err(format!("`{first}` is not for ci: it takes nothing, or --no-test or --all alone")),
        },
        "bench" if rest.is_empty() => Err("bench needs a backend: try `cargo xtask bench sqlite`".to_owned()),
        "bench" => Ok(Command::Bench(rest.to_vec())),
        "book" => match rest {
            [] => Ok(Command::Book { draw: false }),
            [flag] if flag == "--draw" => Ok(Command::Book { draw: true }),
            [first, ..] => Err(format!("`{first}` is not for book: it takes nothing, or --draw")),
        },
        "api" => match rest {
            [] => Ok(Command::Api),
            [first, ..] => Err(format!("`{first}` is not for api: it takes nothing")),
        },
        "fuzz" => fuzz(rest).map(Command::Fuzz),
        "soak" => Ok(Command::Soak(rest.to_vec())),
        "campaign" => campaign(rest).map(Command::Campaign),
        "emulator" => match rest {
            [name] if !name.starts_with('-') => Ok(Command::Emulator(name.clone())),
            _ => Err("emulator needs one backend: try `cargo xtask emulator dynamodb`".to_owned()),
        },
        "server" => match rest {
            [name] if !name.starts_with('-') => Ok(Command::Server(name.clone())),
            _ => Err("server needs one backend: try `cargo xtask server postgres`".to_owned()),
        },
        "tla" => match rest {
            [] => Ok(Command::Tla),
            [first, ..] => Err(format!("`{first}` is not for tla: it takes nothing")),
        },
        "shuttle" => match rest.iter().find(|arg| arg.starts_with('-')) {
            None => Ok(Command::Shuttle(rest.to_vec())),
            Some(flag) => Err(format!("`{flag}` is not for shuttle: it takes parts of test names")),
        },
        "mutants" => mutants_wanted(rest).map(Command::Mutants),
        "relay-mutants" => names(command, rest).map(Command::RelayMutants),
        "store-mutants" => names(command, rest).map(Command::StoreMutants),
        "endpoint-mutants" => names(command, rest).map(Command::EndpointMutants),
        "otel-mutants" => names(command, rest).map(Command::OtelMutants),
        "operator-mutants" => names(command, rest).map(Command::OperatorMutants),
        "soak-mutants" => names(command, rest).map(Command::SoakMutants),
        "survivors" => match rest.iter().find(|arg| arg.starts_with('-')) {
            None => Ok(Command::Survivors(rest.to_vec())),
            Some(flag) => Err(format!("`{flag}` is not for survivors: it takes parts of the names of mutants")),
        },
        "verify" => match rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(Command::Verify(Extent::Usual)),
            ["--quick"] => Ok(Command::Verify(Extent::Quick)),
            ["--thorough"] => Ok(Command::Verify(Extent::Thorough)),
            [first, ..] => {
                Err(format!("`{first}` is not for verify: it takes nothing, or one of --quick and --thorough"))
            }
        },
        other => Err(format!("`{other}` is not a command: run `cargo xtask` for the list")),
    }
}

fn names(command: &str, args: &[String]) -> Result<Vec<String>, String> {
    match args.iter().find(|arg| arg.starts_with('-')) {
        None => Ok(args.to_vec()),
        Some(flag) => Err(format!("`{flag}` is not for {command}: it takes names of mutants")),
    }
}

fn fuzz(args: &[String]) -> Result<Fuzz, String> {
    let mut fuzz = Fuzz { targets: Vec::new(), seconds: Fuzz::SECONDS };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let seconds = args.next().and_then(|seconds| seconds.parse().ok()).filter(|seconds| *seconds > 0);
                fuzz.seconds = seconds.ok_or("`--seconds` needs a number of seconds, at least 1")?;
            }
            flag if flag.starts_with('-') => {
                return Err(format!("`{flag}` is not for fuzz: it takes names of targets and --seconds N"));
            }
            name => fuzz.targets.push(name.to_owned()),
        }
    }
    Ok(fuzz)
}

fn campaign(args: &[String]) -> Result<Campaign, String> {
    let mut campaign = Campaign { points: false, minutes: "20".to_owned(), at_once: 1, page: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || args.next().filter(|value| value.parse::<f64>().is_ok_and(|value| value > 0.0));
        match arg.as_str() {
            "--points" => campaign.points = true,
            "--page" => campaign.page = true,
            "--minutes" => campaign.minutes = number().ok_or("`--minutes` needs a number of minutes")?.clone(),
            "--at-once" => {
                let at_once = number().and_then(|value| value.parse().ok());
                campaign.at_once = at_once.ok_or("`--at-once` needs a number of runs, at least 1")?;
            }
            other => {
                return Err(format!(
                    "`{other}` is not for campaign: it takes --points, --minutes N, --at-once N and --page"
                ));
            }
        }
    }
    Ok(campaign)
}

fn wanted(args: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    for arg in args {
        match arg.as_str() {
            "--all" => wanted.all = true,
            flag if flag.starts_with('-') => {
                return Err(format!("`{flag}` is not for test: it takes --all and parts of test names"));
            }
            filter => wanted.filters.push(filter.to_owned()),
        }
    }
    Ok(wanted)
}

fn mutants_wanted(args: &[String]) -> Result<mutants::Wanted, String> {
    let mut wanted = mutants::Wanted::default();
    for arg in args {
        match arg.as_str() {
            "--keep-stories" => wanted.keep_stories = true,
            flag if flag.starts_with('-') => {
                return Err(format!("`{flag}` is not for mutants: it takes --keep-stories and names of mutants"));
            }
            name => wanted.names.push(name.to_owned()),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_asked_is_answered_with_one_line_for_each_command() {
        assert_eq!(parsed(""), Ok(Command::Help));
        for command in [
            "test",
            "book",
            "server",
            "ci",
            "bench",
            "emulator",
            "tla",
            "shuttle",
            "mutants",
            "relay-mutants",
            "store-mutants",
            "endpoint-mutants",
            "otel-mutants",
            "operator-mutants",
            "soak-mutants",
            "campaign",
            "survivors",
            "verify",
        ] {
            let lines = HELP.lines().filter(|line| line.starts_with(&format!("cargo xtask {command} ")));
            assert_eq!(lines.count(), 1, "{command}");
        }
    }

    #[test]
    fn test_takes_parts_of_names_and_the_slow_ones_on_request() {
        let all = Wanted { all: true, filters: vec!["twin".into(), "sqlite".into()] };
        assert_eq!(parsed("test twin --all sqlite"), Ok(Command::Test(all)));
        assert_eq!(parsed("test"), Ok(Command::Test(Wanted::default())));
    }

    #[test]
    fn ci_runs_the_tests_unless_told_otherwise() {
        assert_eq!(parsed("ci"), Ok(Command::Ci { tests: true, all: false }));
        assert_eq!(parsed("ci --all"), Ok(Command::Ci { tests: true, all: true }));
        assert_eq!(parsed("ci --no-test"), Ok(Command::Ci { tests: false, all: false }));
    }

    #[test]
    fn bench_hands_every_argument_on_even_a_call_for_help() {
        let args = ["sqlite", "--check", "--help"].map(str::to_owned).to_vec();
        assert_eq!(parsed("bench sqlite --check --help"), Ok(Command::Bench(args)));
    }

    #[test]
    fn emulator_takes_the_name_of_its_backend() {
        assert_eq!(parsed("emulator cosmos"), Ok(Command::Emulator("cosmos".into())));
    }

    #[test]
    fn shuttle_takes_parts_of_names() {
        assert_eq!(parsed("shuttle"), Ok(Command::Shuttle(Vec::new())));
        assert_eq!(parsed("shuttle circuit joint"), Ok(Command::Shuttle(vec!["circuit".into(), "joint".into()])));
    }

    #[test]
    fn mutants_takes_names_and_verify_how_much() {
        let wanted = mutants::Wanted { names: vec!["dedup-first".into()], keep_stories: true };
        assert_eq!(parsed("mutants dedup-first --keep-stories"), Ok(Command::Mutants(wanted)));
        assert_eq!(parsed("survivors tail.rs"), Ok(Command::Survivors(vec!["tail.rs".into()])));
        assert_eq!(parsed("verify"), Ok(Command::Verify(Extent::Usual)));
        assert_eq!(parsed("verify --thorough"), Ok(Command::Verify(Extent::Thorough)));
        assert_eq!(parsed("verify --quick"), Ok(Command::Verify(Extent::Quick)));
    }

    #[test]
    fn a_wrong_argument_is_named_in_one_line_with_its_remedy() {
        for (line, named, remedy) in [
            ("tset", "`tset`", "cargo xtask"),
            ("test --al", "`--al`", "--all"),
            ("ci --fast", "`--fast`", "--no-test"),
            ("ci --no-test twin", "`--no-test`", "alone"),
            ("bench", "bench", "cargo xtask bench sqlite"),
            ("emulator", "emulator", "cargo xtask emulator dynamodb"),
            ("server", "server", "cargo xtask server postgres"),
            ("emulator dynamodb cosmos", "one backend", "cargo xtask emulator dynamodb"),
            ("campaign --soak", "`--soak`", "--points"),
            ("campaign --minutes none", "`--minutes`", "number"),
            ("campaign --at-once 0", "`--at-once`", "at least 1"),
            ("tla fast", "`fast`", "nothing"),
            ("api --bless", "`--bless`", "nothing"),
            ("book --open", "`--open`", "--draw"),
            ("survivors --all", "`--all`", "names"),
            ("shuttle --all", "`--all`", "names"),
            ("relay-mutants --keep", "`--keep`", "names"),
            ("store-mutants --all", "`--all` is not for store-mutants", "names"),
            ("endpoint-mutants --all", "`--all` is not for endpoint-mutants", "names"),
            ("otel-mutants --all", "`--all` is not for otel-mutants", "names"),
            ("operator-mutants --all", "`--all` is not for operator-mutants", "names"),
            ("mutants --keep", "`--keep`", "--keep-stories"),
            ("verify --all", "`--all`", "--thorough"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(named) && error.contains(remedy), "{line}: {error}");
            assert_eq!(error.lines().count(), 1, "{line}");
        }
    }
}
