//! `cargo xtask bench`: builds and runs hapax-bench, which knows the backends and the bars. For `--peers` it also builds the
//! programs of the peers, in a workspace and a target folder of their own.

use std::process::{Command, ExitCode};

use crate::{backends, process};

/// The workspace of the peers, and where its programs are built: `hapax-bench` looks for them there.
const PEERS: &str = "bench/peers/Cargo.toml";
const PEERS_TARGET: &str = "target/peers";
/// Restate's server, as its makers publish it for node, and where it is put: the peer's program looks for it there.
const RESTATE_SERVER: &str = "@restatedev/restate-server@1.7.12";
const RESTATE_FOLDER: &str = "target/peers/npm";
/// Programs of peers that relay an outbox begin so: only those are built for `outbox`, and only the others elsewhere.
const RELAY: &str = "relay-";
/// The peer of the outbox that node runs; `hapax-bench` looks for what it needs there.
const NPM_RELAY: &str = "bench/peers/pg-transactional-outbox";

/// Benchmarks of stores whose client libraries take long to build: a feature each, and an emulator.
const SERVICES: [&str; 2] = ["dynamodb", "cosmos"];

/// Benchmarks of brokers, behind this word: a feature each. For these, something is started that stands in for the broker.
const TRANSPORT: &str = "transport";
const BROKERS: [&str; 5] = ["kafka", "nats", "rabbitmq", "redis", "sqs"];
const EMULATED: [&str; 2] = ["kafka", "sqs"];
/// Built in together, since what takes minutes is the last step of a build, which each would need for itself.
const TOGETHER: [&str; 3] = ["nats", "rabbitmq", "redis"];
/// Tansu counts wrongly where a batch of several messages ends.
const BATCH: [&str; 2] = ["--batch", "1"];

/// Hands the arguments on and the exit code back.
pub(crate) fn run(args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "--peers" || arg == "--peer") {
        let relays = args.first().is_some_and(|backend| backend == "outbox");
        build_peers(relays);
        install(relays);
    }
    let mut command = process::cargo(["run", "--quiet", "--release", "--locked", "--package", "hapax-bench"]);
    let mut emulator = None;
    if let Some(Feature { name, is_emulated }) = feature(args) {
        command.args(["--features", &built_in(name)]);
        if is_emulated && !args.iter().any(|arg| ["--server", "--help", "-h"].contains(&arg.as_str())) {
            match backends::started(name) {
                Ok(started) => emulator = Some(started),
                Err(error) => {
                    eprintln!("there is no emulator to measure on: {error}; name one with --server");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    command.arg("--").args(args);
    if let Some(emulator) = &emulator {
        command.args(["--server", &emulator.url]);
        if args.iter().any(|arg| arg == "kafka") && !args.iter().any(|arg| arg == BATCH[0]) {
            command.args(BATCH);
        }
    }
    match command.status() {
        // No code, or one too large for a code: it was ended from outside.
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cargo cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What has to be built in for `args`.
#[derive(Debug, PartialEq, Eq)]
struct Feature<'a> {
    name: &'a str,
    /// It is measured on an emulator, which is started unless a server is named.
    is_emulated: bool,
}

/// `None` where nothing has, and where help is asked for.
fn feature(args: &[String]) -> Option<Feature<'_>> {
    let name = match args.first()?.as_str() {
        TRANSPORT => args.get(1).map(String::as_str).filter(|name| BROKERS.contains(name))?,
        name => SERVICES.into_iter().find(|service| *service == name)?,
    };
    Some(Feature { name, is_emulated: EMULATED.contains(&name) || SERVICES.contains(&name) })
}

/// What is built in to measure `name`: the same for all that are measured one after the other.
fn built_in(name: &str) -> String {
    if TOGETHER.contains(&name) { TOGETHER.join(",") } else { name.to_owned() }
}

/// Builds all at once, and where that fails each by itself, so that one keeps no other from being measured. What cannot be
/// built is told aloud, here with the reason, and by `hapax-bench` beside the figures.
fn build_peers(relays: bool) {
    let names: Vec<String> = names().into_iter().filter(|name| name.starts_with(RELAY) == relays).collect();
    let features = names.join(",");
    let all = names.iter().flat_map(|name| ["--bin", name]);
    let all: Vec<&str> = ["build", "--features", &features].into_iter().chain(all).collect();
    if let Err(error) = process::run(&mut peers(&all)) {
        eprintln!("not all peers can be built at once ({error}): each by itself");
        for name in names {
            if let Err(error) = process::run(&mut peers(&["build", "--features", &name, "--bin", &name])) {
                eprintln!("peer {name} is NOT BUILT: {error}; the reason is above");
                // An old one is not to be measured in its place; there may be none.
                let _ = std::fs::remove_file(process::root().join(PEERS_TARGET).join("release").join(&name));
            }
        }
    }
}

/// What node runs.
fn install(relays: bool) {
    let mut npm = Command::new("npm");
    let (name, what) = if relays {
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", NPM_RELAY]);
        ("pg-transactional-outbox", "LIBRARY")
    } else {
        npm.args([
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            RESTATE_FOLDER,
            RESTATE_SERVER,
        ]);
        ("restate", "SERVER")
    };
    if let Err(error) = process::run(npm.current_dir(process::root())) {
        eprintln!("peer {name} has NO {what}: {error}; it needs npm");
    }
}

fn peers(args: &[&str]) -> Command {
    let mut command = process::cargo(args.iter().copied());
    command.args(["--release", "--locked", "--manifest-path", PEERS, "--target-dir", PEERS_TARGET]);
    command
}

/// Of the programs, as the manifest has them.
fn names() -> Vec<String> {
    let manifest = std::fs::read_to_string(process::root().join(PEERS)).unwrap_or_default();
    programs(&manifest).map(str::to_owned).collect()
}

fn programs(manifest: &str) -> impl Iterator<Item = &str> {
    let tables = manifest.split("[[bin]]").skip(1);
    tables.filter_map(|table| table.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_built_in_and_emulated_where_there_is_no_server() {
        let feature = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            feature(&args).map(|Feature { name, is_emulated }| (name.to_owned(), is_emulated))
        };
        let some = |name: &str, is_emulated| Some((name.to_owned(), is_emulated));
        assert_eq!(feature("dynamodb --check"), some("dynamodb", true));
        assert_eq!(feature("transport redis --check"), some("redis", false));
        assert_eq!(feature("transport sqs"), some("sqs", true));
        assert_eq!(feature("transport kafka"), some("kafka", true));
        for line in ["", "sqlite", "redis", "transport", "transport --help", "transport pulsar"] {
            assert_eq!(feature(line), None, "{line}");
        }
        assert_eq!(built_in("redis"), built_in("rabbitmq"), "one build does for both");
        assert_eq!(built_in("kafka"), "kafka", "it is built from its source in C");
    }

    #[test]
    fn every_program_of_a_peer_has_a_feature_of_its_name() {
        let manifest = std::fs::read_to_string(process::root().join(PEERS)).unwrap_or_default();
        let names: Vec<&str> = programs(&manifest).collect();
        assert!(names.len() > 4, "{names:?}");
        for name in names {
            assert!(manifest.contains(&format!("\n{name} = [\"dep:")), "{name}");
            assert!(manifest.contains(&format!("required-features = [\"{name}\"]")), "{name}");
        }
    }
}
