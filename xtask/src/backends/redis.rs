//! Redis for tests.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::machine::Machine;
use super::server::{Origin, Programs, Server};

/// Where one that runs already listens.
const USUAL: &str = "redis://127.0.0.1:6379";
/// One that needs longer to say its version does not do.
const PATIENCE: Duration = Duration::from_secs(5);
/// Earlier ones are refused by what is tested.
const VERSION_MIN: u32 = 7;
/// What it says of itself is shorter.
const SAID_MAX: usize = 64 << 10;

/// Redis, by its own program.
#[derive(Debug)]
pub(super) struct Redis;

impl Server for Redis {
    fn name(&self) -> &'static str {
        "Redis"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_REDIS"
    }

    fn origin(&self) -> Origin {
        Origin::Debian("redis-server")
    }

    fn servants(&self) -> &'static [&'static str] {
        &["redis", "nobody"]
    }

    fn signal(&self) -> &'static str {
        "KILL" // One process, and its data is not needed.
    }

    fn usual(&self, _: &Machine) -> Vec<String> {
        vec![USUAL.to_owned()]
    }

    fn ask(&self, _: &Machine, url: &str) -> Result<String, String> {
        let Place { address, login } = Place::parse(url).ok_or("it is not redis://USER:PASSWORD@HOST:PORT")?;
        let version = version(&address, &login).map_err(|error| format!("{address}: {error}"))?;
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        match major {
            Some(major) if major >= VERSION_MIN => Ok(version),
            _ => Err(format!("{address} is version {version}, and {VERSION_MIN}.0 or later is needed")),
        }
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        let missing = |name: &str| format!("no Redis answers, and {name} is not installed");
        let program = |name: &'static str| machine.program(&[name]).ok_or_else(|| missing(name));
        Ok(Programs { prepare: program("mkdir")?, serve: program("redis-server")? })
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        let mut mkdir = Command::new(&programs.prepare);
        mkdir.arg(data);
        mkdir
    }

    fn serve(&self, programs: &Programs, data: &Path, port: u16) -> Command {
        let mut redis = Command::new(&programs.serve);
        redis.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--save", ""]);
        redis.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(data);
        redis
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("redis://127.0.0.1:{port}");
        self.ask(machine, &url).map(|_| url)
    }
}

/// Where it is, and who asks.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    address: String,
    login: Vec<String>,
}

impl Place {
    fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("redis://")?;
        let authority = rest.split(['/', '?']).next()?;
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let login = match login.split_once(':') {
            Some(("", password)) => vec![password.to_owned()],
            Some((user, password)) => vec![user.to_owned(), password.to_owned()],
            None => Vec::new(),
        };
        let has_port =
            place.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        match place {
            "" => None,
            place if has_port => Some(Self { address: place.to_owned(), login }),
            place => Some(Self { address: format!("{place}:6379"), login }),
        }
    }
}

/// The version that the server at `address` gives for itself.
fn version(address: &str, login: &[String]) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let address = address.to_socket_addrs().map_err(text)?.next().ok_or("there is no such host")?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    let mut asked = Vec::new();
    if !login.is_empty() {
        let words: Vec<&str> = ["AUTH"].into_iter().chain(login.iter().map(String::as_str)).collect();
        command(&mut asked, &words);
    }
    command(&mut asked, &["INFO", "server"]);
    stream.write_all(&asked).map_err(text)?;
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part).map_err(text)? {
            0 => return Err("what listens there is no Redis".into()),
            read => said.extend_from_slice(&part[..read]),
        }
        let so_far = String::from_utf8_lossy(&said);
        if let Some(version) = version_in(&so_far) {
            return Ok(version);
        }
        if let Some(refused) = so_far.lines().find_map(|line| line.strip_prefix('-')) {
            return Err(refused.to_owned());
        }
        if said.len() > SAID_MAX {
            return Err("it does not say its version".into());
        }
    }
}

/// As the server reads it: how many words, and each with its length.
fn command(asked: &mut Vec<u8>, words: &[&str]) {
    asked.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        asked.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
}

fn version_in(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("redis_version:")?;
    let (version, _) = rest.split_once('\r')?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_from_its_url() {
        for (url, address, login) in [
            ("redis://127.0.0.1:6379", "127.0.0.1:6379", &[][..]),
            ("redis://u:p@redis/3", "redis:6379", &["u", "p"]),
            ("redis://:p@redis:1234?x", "redis:1234", &["p"]),
        ] {
            let login = login.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(Place::parse(url), Some(Place { address: address.to_owned(), login }), "{url}");
        }
        for url in ["http://redis", "redis://", "rediss://redis"] {
            assert_eq!(Place::parse(url), None, "{url}");
        }
    }

    #[test]
    fn the_version_is_found_in_what_the_server_says() {
        let said = "$5000\r\n# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:0";
        assert_eq!(version_in(said).as_deref(), Some("7.0.15"));
        assert_eq!(version_in("# Server\r\nredis_version:7.0"), None, "there may be more of it");
    }
}
