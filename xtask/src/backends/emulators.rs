//! Emulators for tests, built from `servers/emulators`: a workspace of its own in a target folder of its own, so that
//! neither its dependencies nor its lock are in anybody's way.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::http;
use super::machine::Machine;
use super::server::{Origin, Programs, Server};
use crate::process;

/// A workspace of its own.
pub(crate) const MANIFEST: &str = "servers/emulators/Cargo.toml";
/// Below `target`.
const BUILT: &str = "emulators";
const ORIGIN: Origin =
    Origin::Made { make: build, remedy: "`cargo build --manifest-path servers/emulators/Cargo.toml`" };

/// DynamoDB, as dynoxide does it.
#[derive(Debug)]
pub(super) struct DynamoDb;

impl Server for DynamoDb {
    fn name(&self) -> &'static str {
        "DynamoDB"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_DYNAMODB"
    }

    fn origin(&self) -> Origin {
        ORIGIN
    }

    fn servants(&self) -> &'static [&'static str] {
        &[]
    }

    fn signal(&self) -> &'static str {
        "KILL" // One process, and its data is in memory.
    }

    fn usual(&self, _: &Machine) -> Vec<String> {
        Vec::new()
    }

    fn ask(&self, _: &Machine, url: &str) -> Result<String, String> {
        let answer = http::get(url)?;
        Ok(format!("by {}", answer.header("server").unwrap_or("an unnamed server")))
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        programs(machine, "hapax-emulator-dynamodb")
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        prepare(programs, data)
    }

    fn serve(&self, programs: &Programs, _: &Path, port: u16) -> Command {
        serve(programs, port)
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("http://127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

/// Cosmos DB, as the emulator inside Microsoft's own driver does it.
#[derive(Debug)]
pub(super) struct Cosmos;

impl Server for Cosmos {
    fn name(&self) -> &'static str {
        "Cosmos DB"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_COSMOS"
    }

    fn origin(&self) -> Origin {
        ORIGIN
    }

    fn servants(&self) -> &'static [&'static str] {
        &[]
    }

    fn signal(&self) -> &'static str {
        "KILL" // One process, and its data is in memory.
    }

    fn usual(&self, _: &Machine) -> Vec<String> {
        Vec::new()
    }

    fn ask(&self, _: &Machine, url: &str) -> Result<String, String> {
        account(&http::get(url)?.body)
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        programs(machine, "hapax-emulator-cosmos")
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        prepare(programs, data)
    }

    fn serve(&self, programs: &Programs, _: &Path, port: u16) -> Command {
        serve(programs, port)
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("http://127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

/// What the account says of itself.
fn account(said: &str) -> Result<String, String> {
    let account: serde_json::Value =
        serde_json::from_str(said).map_err(|_| "what answers is no account of Cosmos DB".to_owned())?;
    let level = account["userConsistencyPolicy"]["defaultConsistencyLevel"].as_str();
    level.map(|level| format!("of {level} consistency")).ok_or_else(|| "its account names no consistency".into())
}

/// Builds both. What is up to date takes no time.
fn build(machine: &Machine) -> Result<(), String> {
    process::run(&mut building(machine))
}

pub(super) fn building(machine: &Machine) -> Command {
    // With their tests, whose dependencies have more features: else the tests would build all of them again.
    let mut cargo = process::cargo(["build", "--all-targets", "--locked", "--manifest-path", MANIFEST]);
    cargo.env("CARGO_TARGET_DIR", target(machine));
    cargo
}

/// Where they are built.
pub(super) fn target(machine: &Machine) -> PathBuf {
    machine.target.join(BUILT)
}

fn programs(machine: &Machine, name: &str) -> Result<Programs, String> {
    let prepare = machine.program(&["mkdir"]).ok_or("there is no mkdir")?;
    let serve = target(machine).join("debug").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if serve.is_file() { Ok(Programs { prepare, serve }) } else { Err(format!("{} is not there", serve.display())) }
}

fn prepare(programs: &Programs, data: &Path) -> Command {
    let mut mkdir = Command::new(&programs.prepare);
    mkdir.arg(data);
    mkdir
}

fn serve(programs: &Programs, port: u16) -> Command {
    let mut emulator = Command::new(&programs.serve);
    emulator.args(["--ignore-stdin", "--port", &port.to_string()]);
    emulator
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_consistency_is_found_in_what_the_account_says() {
        let said = r#"{"userConsistencyPolicy":{"defaultConsistencyLevel":"Strong"}}"#;
        assert_eq!(account(said).as_deref(), Ok("of Strong consistency"));
        assert!(account("{}").is_err() && account("<html>").is_err());
    }
}
