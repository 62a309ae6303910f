//! `cargo xtask relay-mutants`, `store-mutants`, `endpoint-mutants`, `otel-mutants`, `operator-mutants` and `soak-mutants`: mistakes in a part of the shipped source, which the tests must find out.
//!
//! Each patch below the part's folder makes one mistake and names the tests that turn red by it. It is applied to a copy of the
//! tree, and those tests are run there: all of them must fail, and must pass where nothing is changed. The model has no part
//! in it.

pub(crate) mod found;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use super::Tree;
use crate::backends::Backends;
use crate::kept;
use crate::process;
use crate::report::Report;
use crate::shuttle::{self, INTERLEAVED};
use crate::workspace::Workspace;

/// A part of the source, and how its tests are run.
#[derive(Debug)]
pub(crate) struct Part {
    /// Where its patches are.
    folder: &'static str,
    /// The line of a patch's header that names the tests which must see it.
    key: &'static str,
    /// Where a mutant may be made.
    places: &'static [&'static str],
    /// Where its test programs are, but for those that stand [`ELSEWHERE`].
    package: &'static str,
    /// What that package is built with.
    tests: &'static [&'static str],
    /// What `hapax-stores` is built with, for the tests within its source.
    stores: &'static str,
    /// Test programs, and the one backend that each needs. Where none is listed, there are all.
    backends: &'static [(&'static str, &'static str)],
}

/// The relay, its tables and the inbox.
pub(crate) const RELAY: Part = Part {
    folder: "tests/mutants/relay",
    key: "test",
    places: &["core/src/relay/", "core/src/inbox.rs", "stores/src/sql/"],
    package: "hapax-tests",
    tests: &[],
    stores: "--features=sqlite,postgres,mysql",
    backends: &[],
};

/// The stores without transactions.
pub(crate) const STORES: Part = Part {
    folder: "tests/mutants/stores",
    key: "test",
    places: &["stores/src/dynamodb/", "stores/src/cosmos/", "stores/src/object/"],
    package: "hapax-tests",
    tests: &["--no-default-features", "--features=dynamodb,cosmos,object"],
    stores: "--features=dynamodb,cosmos,object",
    backends: &[("dynamodb_store", "dynamodb"), ("cosmos_store", "cosmos")],
};

/// The shell around the heart, who asks it, and queues: those that need no server, and those on Kafka, NATS, RabbitMQ, Redis, Service Bus and SQS.
pub(crate) const ENDPOINT: Part = Part {
    folder: "tests/mutants/endpoint",
    key: "test",
    places: &[
        "core/src/endpoint/",
        "core/src/requests/",
        "core/src/deliver/",
        "core/src/deliver.rs",
        "core/src/manager/", // What no claim of the model speaks of, such as how often something is sent.
        "core/src/around.rs",
        "core/src/claim.rs",
        "core/src/registry/",
        "core/src/registry.rs", // What is refused before there is an endpoint.
        "core/src/seal.rs",
        "transports/src/",
    ],
    package: "hapax-tests",
    tests: &[],
    stores: "--features=sqlite",
    backends: &[
        ("endpoint", "memory"),
        ("requests", "memory"),
        ("conformance", "sqlite-queue"),
        ("processes", "sqlite-queue"),
        ("kafka", "kafka"),
        ("nats", "nats"),
        ("rabbitmq", "rabbitmq"),
        ("redis", "redis"),
        ("sqs", "sqs"),
        ("servicebus", "servicebus"),
    ],
};

/// What is seen of messages from outside.
pub(crate) const OTEL: Part = Part {
    folder: "tests/mutants/otel",
    key: "test",
    places: &["core/src/", "otel/src/"],
    package: "hapax-otel",
    tests: &[],
    stores: "--features=memory",
    backends: &[("spans", "memory")],
};

/// What an operator sees and does: the tool, its page, what both are made of, and the office of dead letters.
pub(crate) const OPERATOR: Part = Part {
    folder: "tests/mutants/operator",
    key: "test",
    places: &["cli/src/", "page/src/", "core/src/operator/", "core/src/endpoint/office/"],
    package: "hapax-tests",
    tests: &[],
    stores: "--features=sqlite",
    backends: &[
        ("operator", "sqlite"),
        ("operator", "sqlite-queue"),
        ("operator", "redis"),
        ("page", "sqlite"),
        ("endpoint", "memory"),
    ],
};

/// Those mistakes of the model's that its ledger of real stores and real queues must find out too, under real faults: whose headers have the line
/// `# soak: quick TEST`, and `# soak-found: WORDS` for what the ledger must say: a run that is void shows nothing.
pub(crate) const SOAK: Part = Part {
    folder: "model/mutants",
    key: "soak",
    places: &["core/src/", "model/src/"],
    package: "hapax-soak",
    tests: &[],
    stores: "--features=sqlite",
    backends: &[("quick", "postgres"), ("quick", "nats")],
};

/// As a test program: the tests within the source of the stores.
const WITHIN_STORES: &str = "hapax-stores";
/// As a test program: the tests within the source of the transports to brokers, which need no broker.
const WITHIN_TRANSPORTS: &str = "hapax-transports";
/// As a test program: those of the emulators, a workspace of its own, in whose process an account has several regions.
const OF_EMULATORS: &str = "cosmos_regions";
/// As test programs, and features: those whose client libraries take long to build, so that they are not among the usual features.
const APART: [&str; 3] = ["sqs", "kafka", "servicebus"];
/// As a test program: the tests within the source of the operator's tool.
const WITHIN_CLI: &str = "hapax-cli";
/// Test programs of packages of their own, and what cargo is told to build them.
const ELSEWHERE: [(&str, &[&str]); 3] = [
    ("operator", &["--package", "hapax-cli", "--test", "operator"]),
    (WITHIN_CLI, &["--package", WITHIN_CLI, "--bin", "hapax"]),
    ("page", &["--package", "hapax-page", "--test", "page", "--features=serve"]),
];
/// Lines of a run that are shown when it did not do what it should.
const LINES_MAX: usize = 20;

/// One mistake.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    what: String,
    /// Test programs, and words in the names of tests there.
    tests: Vec<(String, String)>,
    /// What the red tests must say, each of them.
    found: Vec<String>,
}

impl Mutant {
    /// The tests, without their programs.
    fn runs(&self) -> Vec<&str> {
        self.tests.iter().map(|(_, words)| words.as_str()).collect()
    }
}

/// Tries those with these names, all for none, and prints the table.
pub(crate) fn run(part: &Part, names: &[String]) -> ExitCode {
    let mut report = Report::default();
    let mut prepared = None;
    report.step("unchanged", || {
        let mutants = chosen(part, names)?;
        // Before anything is kept, which changes the tree.
        let commit = kept::commit()?;
        let backends = Backends::provide_some(&Workspace::load()?, |name| part.needs(name, &mutants))?;
        let bench = Bench { part, backends, tree: Tree::copy()? };
        let tests: BTreeSet<&(String, String)> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
        let programs: BTreeSet<&str> = tests.iter().map(|(program, _)| program.as_str()).collect();
        for program in programs {
            let words = tests.iter().filter(|(its, _)| its == program).map(|(_, words)| words.as_str());
            bench.passes(program, &words.collect::<Vec<&str>>())?;
        }
        let seen = format!("{} tests pass", tests.len());
        prepared = Some((mutants, bench, commit));
        Ok(seen)
    });
    if let Some((mutants, bench, commit)) = &prepared {
        for mutant in mutants {
            println!("{}", mutant.what);
            let mut is_killed = false;
            report.step(&mutant.name, || {
                let tried = bench.kill(mutant);
                is_killed = tried.is_ok();
                tried
            });
            if part.key == SOAK.key {
                report.step(&format!("{}, kept", mutant.name), || found::keep(mutant, is_killed, commit));
            }
        }
        report.step("restored", || bench.tree.restore().map(|()| String::new()));
    }
    println!("\n{report}");
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn chosen(part: &Part, names: &[String]) -> Result<Vec<Mutant>, String> {
    let mut mutants = all(part)?;
    if let Some(name) = names.iter().find(|name| !mutants.iter().any(|mutant| mutant.name == **name)) {
        return Err(format!("`{name}` is no mutant: the files {}/*.patch are", part.folder));
    }
    mutants.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    Ok(mutants)
}

fn all(part: &Part) -> Result<Vec<Mutant>, String> {
    let folder = part.path();
    let failed = |error| format!("{}: cannot be read: {error}", folder.display());
    let mut mutants = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: cannot be read: {error}"))?;
            // In a folder of somebody else's patches, few name a test.
            if part.key == SOAK.key && !text.contains(&format!("\n# {}: ", part.key)) {
                continue;
            }
            mutants.push(parse(part, &name, &text)?);
        }
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

fn parse(part: &Part, name: &str, text: &str) -> Result<Mutant, String> {
    let all_of = |key: &str| {
        let lines = text.lines().take_while(|line| !line.starts_with("diff --git "));
        lines.filter_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": ")).collect::<Vec<&str>>()
    };
    let what = all_of("what").join(" ");
    let test = |line: &&str| line.split_once(' ').map(|(program, words)| (program.to_owned(), words.to_owned()));
    let tests: Vec<(String, String)> = all_of(part.key).iter().filter_map(test).collect();
    if what.is_empty() || tests.is_empty() {
        return Err(format!("{name}: the header needs `# what: ...` and `# {}: PROGRAM NAME`", part.key));
    }
    let found: Vec<String> = all_of(&format!("{}-found", part.key)).into_iter().map(str::to_owned).collect();
    if part.key == SOAK.key && found.is_empty() {
        return Err(format!("{name}: the header needs `# {}-found: WORDS`: a run that is void is red too", part.key));
    }
    let paths = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    match paths.into_iter().find(|path| !part.places.iter().any(|place| path.starts_with(place))) {
        Some(path) => Err(format!("{name}: changes {path}: a mutant is one of {}", part.places.join(" and "))),
        None => Ok(Mutant { name: name.to_owned(), what, tests, found }),
    }
}

impl Part {
    fn path(&self) -> PathBuf {
        process::root().join(self.folder)
    }

    /// Whether the tests of these mutants need that backend.
    fn needs(&self, backend: &str, mutants: &[Mutant]) -> bool {
        let is_run = |program: &str| mutants.iter().flat_map(|mutant| &mutant.tests).any(|(it, _)| it == program);
        self.backends.is_empty() || self.backends.iter().any(|(program, needed)| *needed == backend && is_run(program))
    }

    /// What cargo is told to run a test program.
    fn args<'a>(&self, program: &'a str) -> Vec<&'a str> {
        if program == INTERLEAVED {
            return shuttle::ARGS.to_vec();
        }
        let mut args = vec!["test", "--quiet", "--locked"];
        if let Some((_, its)) = ELSEWHERE.iter().find(|(name, _)| *name == program) {
            args.extend(*its);
            return args;
        }
        match program {
            WITHIN_STORES => args.extend(["--package", WITHIN_STORES, "--lib", self.stores]),
            WITHIN_TRANSPORTS => {
                args.extend(["--package", WITHIN_TRANSPORTS, "--lib", "--features=nats,rabbitmq,redis"])
            }
            OF_EMULATORS => args.extend(["--manifest-path", "servers/emulators/Cargo.toml", "--test", OF_EMULATORS]),
            program if APART.contains(&program) => args.extend([
                "--package",
                self.package,
                "--test",
                program,
                "--no-default-features",
                "--features",
                program,
            ]),
            program => {
                args.extend(["--package", self.package, "--test", program]);
                args.extend(self.tests);
            }
        }
        args
    }
}

/// The copy of the tree in which a part's mutants are tried, and what its tests run against.
#[derive(Debug)]
struct Bench<'a> {
    part: &'a Part,
    backends: Backends,
    tree: Tree,
}

impl Bench<'_> {
    fn kill(&self, mutant: &Mutant) -> Result<String, String> {
        self.tree.restore()?;
        self.tree.apply(&self.part.path().join(format!("{}.patch", mutant.name)))?;
        for test in &mutant.tests {
            let (ended_well, said) = self.ended(&test.0, &[&test.1])?;
            if ended_well {
                return Err(format!("SURVIVED {} in {}: write a test that sees it", test.1, test.0));
            }
            if !said.contains("test result: FAILED") {
                return Err(format!("was not tested\n{}", last(&said)));
            }
            if let Some(words) = mutant.found.iter().find(|words| !said.contains(*words)) {
                return Err(format!("is red, and not by `{words}`\n{}", last(&said)));
            }
        }
        let found = mutant.found.iter().map(|words| format!(" (`{words}`)")).collect::<String>();
        Ok(format!("killed by {}{found}", mutant.runs().join(", ")))
    }

    /// All of a program's at once: a build of cargo's own and a start for each would take longer than the tests.
    fn passes(&self, program: &str, words: &[&str]) -> Result<(), String> {
        let (built, names) = self.ended(program, &["--list"])?;
        if !built {
            return Err(format!("{program} cannot be built\n{}", last(&names)));
        }
        if let Some(word) = words.iter().find(|word| !names.contains(**word)) {
            return Err(format!("there is no test {word} in {program}\n{}", last(&names)));
        }
        let (ended_well, said) = self.ended(program, words)?;
        if !ended_well {
            return Err(format!("{program} fails without a mutant: nothing is shown by it\n{}", last(&said)));
        }
        Ok(())
    }

    fn ended(&self, program: &str, words: &[&str]) -> Result<(bool, String), String> {
        let args = self.part.args(program).into_iter().chain(["--"]).chain(words.iter().copied());
        let mut command: Command = self.tree.usual_cargo(args);
        if program == OF_EMULATORS {
            command.env("CARGO_TARGET_DIR", Backends::emulators_target());
        }
        if program == INTERLEAVED {
            shuttle::build_for(&mut command);
        }
        command.envs(self.backends.variables()).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).join("\n");
        Ok((output.status.success(), said))
    }
}

fn last(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

#[cfg(test)]
mod tests;
