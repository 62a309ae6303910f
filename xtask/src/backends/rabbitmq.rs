//! RabbitMQ for tests.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::machine::Machine;
use super::server::{Origin, Programs, Server};

/// Where one that runs already listens, with the account that it lets in from its own host.
const USUAL: &str = "amqp://guest:guest@127.0.0.1:5672";
/// One that needs longer to say its version does not do.
const PATIENCE: Duration = Duration::from_secs(5);
/// Debian's program in the path is a script for root, around this one.
const DIRECT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
/// How a client of AMQP 0-9-1 begins; the server then says who it is.
const HELLO: &[u8] = b"AMQP\x00\x00\x09\x01";
/// What comes before the version in that: a name with its length, the type of text, and 32 bits of length.
const VERSION: &[u8] = b"\x07versionS";

/// RabbitMQ, by its own program.
#[derive(Debug)]
pub(super) struct RabbitMq;

impl Server for RabbitMq {
    fn name(&self) -> &'static str {
        "RabbitMQ"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_RABBITMQ"
    }

    fn origin(&self) -> Origin {
        Origin::Debian("rabbitmq-server")
    }

    fn servants(&self) -> &'static [&'static str] {
        &["rabbitmq", "nobody"]
    }

    fn signal(&self) -> &'static str {
        "KILL" // One process, and its data is not needed.
    }

    fn usual(&self, _: &Machine) -> Vec<String> {
        vec![USUAL.to_owned()]
    }

    fn ask(&self, _: &Machine, url: &str) -> Result<String, String> {
        let place = place(url).ok_or("it is not amqp://USER:PASSWORD@HOST:PORT")?;
        hello(&place).map_err(|error| format!("{place}: {error}"))
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        let missing = |name: &str| format!("no RabbitMQ answers, and {name} is not installed");
        let prepare = machine.program(&["mkdir"]).ok_or_else(|| missing("mkdir"))?;
        let direct = Path::new(DIRECT);
        let direct = direct.is_file().then(|| direct.to_owned());
        let serve = direct.or_else(|| machine.program(&["rabbitmq-server"]));
        let serve = serve.ok_or_else(|| missing("rabbitmq-server"))?;
        Ok(Programs { prepare, serve })
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        let mut mkdir = Command::new(&programs.prepare);
        mkdir.arg(data);
        mkdir
    }

    fn serve(&self, programs: &Programs, data: &Path, port: u16) -> Command {
        let mut env = Command::new("env");
        let file = |name: &str| data.join(name).display().to_string();
        // What other nodes of a cluster would connect to: there are none, so it registers nowhere.
        let nodes = if port == u16::MAX { port - 1 } else { port + 1 };
        let settings = [
            ("HOME", file("")), // Its secret for other nodes goes there.
            ("RABBITMQ_NODENAME", format!("hapax-{port}@localhost")),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_NODE_PORT", port.to_string()),
            ("RABBITMQ_DIST_PORT", nodes.to_string()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", format!("-start_epmd false -erl_epmd_port {nodes}")),
            ("RABBITMQ_MNESIA_BASE", file("mnesia")),
            ("RABBITMQ_LOG_BASE", file("log")),
            ("RABBITMQ_PID_FILE", file("pid")),
            ("RABBITMQ_CONFIG_FILE", file("rabbitmq")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", file("enabled_plugins")),
            ("RUNNING_UNDER_SYSTEMD", "1".into()), // Its script becomes the server, instead of being its parent.
        ];
        env.args(settings.map(|(name, value)| format!("{name}={value}"))).arg(&programs.serve);
        env
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("amqp://guest:guest@127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

/// Host and port.
pub(super) fn place(url: &str) -> Option<String> {
    let rest = url.strip_prefix("amqp://")?;
    let authority = rest.split(['/', '?']).next()?;
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let has_port = place.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match place {
        "" => None,
        place if has_port => Some(place.to_owned()),
        place => Some(format!("{place}:5672")),
    }
}

/// The version that the server at `place` gives for itself.
fn hello(place: &str) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let address = place.to_socket_addrs().map_err(text)?.next().ok_or("there is no such host")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    stream.write_all(HELLO).map_err(text)?;
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part).map_err(text)? {
            0 => return Err("what listens there is no AMQP 0-9-1 server".into()),
            read => said.extend_from_slice(&part[..read]),
        }
        if let Some(version) = version_in(&said) {
            return Ok(version);
        }
        if said.len() > 64 << 10 {
            return Err("it does not say its version".into());
        }
    }
}

fn version_in(said: &[u8]) -> Option<String> {
    let at = said.windows(VERSION.len()).position(|window| window == VERSION)? + VERSION.len();
    let length = u32::from_be_bytes(said.get(at..at + 4)?.try_into().ok()?) as usize;
    let version = said.get(at + 4..at + 4 + length)?;
    Some(String::from_utf8_lossy(version).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_from_its_url() {
        for (url, expected) in [
            ("amqp://guest:guest@127.0.0.1:5672", Some("127.0.0.1:5672")),
            ("amqp://u:p@rabbit/%2f?heartbeat=5", Some("rabbit:5672")),
            ("amqp://rabbit:1234", Some("rabbit:1234")),
            ("http://rabbit", None),
            ("amqp://", None),
        ] {
            assert_eq!(place(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn the_version_is_found_in_what_the_server_says() {
        let said = b"..\x07productS\0\0\0\x08RabbitMQ\x07versionS\0\0\0\x063.10.8..";
        assert_eq!(version_in(said).as_deref(), Some("3.10.8"));
        assert_eq!(version_in(&said[..said.len() - 6]), None);
    }
}
