//! Object storage for tests, and queues: Azurite for Azure's blobs, moto for S3 and SQS. Both are installed below `target/`, in the versions
//! that were tried: of 20 clients that created the same object at once with `If-None-Match: *`, one won in each of 200 rounds at
//! Azurite, and in each of 600 at moto behind the lock below. Without it moto let two win in one of 200.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::http;
use super::machine::Machine;
use super::server::{Origin, Programs, Server};
use crate::process;

/// The package of npm.
const AZURITE: &str = "azurite@3.35.0";
/// The folder of that version, below `target`.
const AZURITE_FOLDER: &str = "xtask/azurite-3.35.0";
/// The package of Python.
const MOTO: &str = "moto[server,s3]==5.2.5";
/// The folder of that version, below `target`.
const MOTO_FOLDER: &str = "xtask/moto-5.2.5";

/// Serves moto on the port in `argv[1]`, one request at a time: it looks whether an object is there, and then writes.
const ONE_AT_A_TIME: &str = "\
import sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
app, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()
def alone(environ, start_response):
    with turn:
        return list(app(environ, start_response))
run_simple('127.0.0.1', int(sys.argv[1]), alone, threaded=True)
";

/// Azure's blob storage, as Azurite does it; its account is `devstoreaccount1`.
#[derive(Debug)]
pub(super) struct AzureBlob;

impl Server for AzureBlob {
    fn name(&self) -> &'static str {
        "Azurite"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_AZURE_BLOB"
    }

    fn origin(&self) -> Origin {
        Origin::Made { make: install_azurite, remedy: "`apt-get install npm`" }
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
        let version = answer.header("server").and_then(|name| name.strip_prefix("Azurite-Blob/"));
        version.map(str::to_owned).ok_or_else(|| "what answers is not Azurite for blobs".into())
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        programs(machine, machine.target.join(AZURITE_FOLDER).join("node_modules/.bin/azurite-blob"))
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        prepare(programs, data)
    }

    fn serve(&self, programs: &Programs, _: &Path, port: u16) -> Command {
        let mut azurite = Command::new(&programs.serve);
        azurite.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--inMemoryPersistence", "--silent"]);
        // Clients newer than it say versions that it does not know.
        azurite.args(["--skipApiVersionCheck", "--disableTelemetry"]);
        azurite
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("http://127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

/// S3, as moto does it when it is asked one thing at a time. Any key opens it.
#[derive(Debug)]
pub(super) struct S3;

impl Server for S3 {
    fn name(&self) -> &'static str {
        "S3"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_S3"
    }

    fn origin(&self) -> Origin {
        Origin::Made { make: install_moto, remedy: "`apt-get install python3-venv`" }
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
        programs(machine, machine.target.join(MOTO_FOLDER).join("bin/python3"))
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        prepare(programs, data)
    }

    fn serve(&self, programs: &Programs, _: &Path, port: u16) -> Command {
        let mut python = Command::new(&programs.serve);
        python.args(["-c", ONE_AT_A_TIME, &port.to_string()]);
        python
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("http://127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

/// The program that serves moto's SQS, which tests start too where they kill it.
const QUEUES: &str = include_str!("../../../servers/src/sqs_emulator.py");

/// SQS, as moto does it, with what that lacks. Any key opens it.
#[derive(Debug)]
pub(super) struct Sqs;

impl Server for Sqs {
    fn name(&self) -> &'static str {
        "SQS"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_SQS"
    }

    fn origin(&self) -> Origin {
        Origin::Made { make: install_moto, remedy: "`apt-get install python3-venv`" }
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
        programs(machine, machine.target.join(MOTO_FOLDER).join("bin/python3"))
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        prepare(programs, data)
    }

    fn serve(&self, programs: &Programs, _: &Path, port: u16) -> Command {
        let mut python = Command::new(&programs.serve);
        python.args(["-c", QUEUES, &port.to_string()]);
        python
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("http://127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

fn install_azurite(machine: &Machine) -> Result<(), String> {
    once(&machine.target.join(AZURITE_FOLDER), |folder| {
        let mut npm = Command::new(machine.program(&["npm"]).ok_or("there is no npm")?);
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(folder).arg(AZURITE);
        process::run(&mut npm)
    })
}

fn install_moto(machine: &Machine) -> Result<(), String> {
    once(&machine.target.join(MOTO_FOLDER), |folder| {
        let mut python = Command::new(machine.program(&["python3"]).ok_or("there is no python3")?);
        process::run(python.args(["-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(folder.join("bin/python3"));
        process::run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", MOTO]))
    })
}

/// Fills the folder unless that was done to the end before; a half-filled one is begun anew.
pub(super) fn once(folder: &Path, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let done = folder.join("done");
    if done.is_file() {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)?;
    fill(folder)?;
    std::fs::write(done, "").map_err(failed)
}

pub(super) fn programs(machine: &Machine, serve: PathBuf) -> Result<Programs, String> {
    let prepare = machine.program(&["mkdir"]).ok_or("there is no mkdir")?;
    if serve.is_file() { Ok(Programs { prepare, serve }) } else { Err(format!("{} is not there", serve.display())) }
}

pub(super) fn prepare(programs: &Programs, data: &Path) -> Command {
    let mut mkdir = Command::new(&programs.prepare);
    mkdir.arg(data);
    mkdir
}
