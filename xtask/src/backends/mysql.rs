//! MariaDB or MySQL for tests.

use std::path::Path;
use std::process::Command;

use super::machine::Machine;
use super::server::{Origin, Programs, Server};

/// Where one that runs already listens, as Debian's does after `CREATE DATABASE test` and without a password.
const USUAL: &str = "mysql://root@127.0.0.1:3306/test";

/// MariaDB, by its own programs; a MySQL that is named or that runs will do.
#[derive(Debug)]
pub(super) struct MySql;

impl Server for MySql {
    fn name(&self) -> &'static str {
        "MariaDB"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_MYSQL"
    }

    fn origin(&self) -> Origin {
        Origin::Debian("mariadb-server")
    }

    fn servants(&self) -> &'static [&'static str] {
        &["mysql", "nobody"]
    }

    fn signal(&self) -> &'static str {
        "KILL" // One process, and its data is not needed.
    }

    fn usual(&self, _: &Machine) -> Vec<String> {
        vec![USUAL.to_owned()]
    }

    fn ask(&self, machine: &Machine, url: &str) -> Result<String, String> {
        let version = query(machine, url, "SELECT VERSION()")?;
        Ok(version.split('-').next().unwrap_or_default().to_owned())
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        let missing = |name: &str| format!("no MariaDB answers, and {name} is not installed");
        let prepare = machine.program(&["mariadb-install-db"]).ok_or_else(|| missing("mariadb-install-db"))?;
        let serve = machine.program(&["mariadbd"]).ok_or_else(|| missing("mariadbd"))?;
        Ok(Programs { prepare, serve })
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        let mut install = Command::new(&programs.prepare);
        install.arg("--no-defaults").arg(format!("--datadir={}", data.display())).arg(temporary(data));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        install
    }

    fn serve(&self, programs: &Programs, data: &Path, port: u16) -> Command {
        let mut mariadbd = Command::new(&programs.serve);
        mariadbd.arg("--no-defaults").arg(format!("--datadir={}", data.display())).arg(temporary(data));
        mariadbd.arg(format!("--port={port}"));
        // The socket is below its data: a full path could be too long. Connections for many tests.
        mariadbd.args(["--bind-address=127.0.0.1", "--socket=socket", "--pid-file=pid", "--max-connections=500"]);
        mariadbd
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let place = format!("mysql://root@127.0.0.1:{port}");
        query(machine, &format!("{place}/mysql"), "CREATE DATABASE IF NOT EXISTS test")?;
        Ok(format!("{place}/test"))
    }
}

/// Temporary tables lie beside the data. A server that starts removes those of all others that it finds, and one that makes its
/// data is such a server too.
fn temporary(data: &Path) -> String {
    format!("--tmpdir={}", data.parent().unwrap_or(data).display())
}

/// What the server at `url` answers.
fn query(machine: &Machine, url: &str, sql: &str) -> Result<String, String> {
    let client = machine.program(&["mariadb", "mysql"]).ok_or("there is no mariadb or mysql to ask it with")?;
    let place = Place::parse(url).ok_or("it is not mysql://USER@HOST:PORT/DATABASE")?;
    let mut client = Command::new(client);
    client.args(["--no-defaults", "--protocol=tcp", "--connect-timeout=5", "--batch", "--skip-column-names"]);
    client.args(["--user", &place.user, "--host", place.host, "--port", place.port, "--execute", sql, place.database]);
    // Not on the command line, which everybody on the machine may read.
    client.env("MYSQL_PWD", &place.password);
    let output = client.output().map_err(|error| format!("mariadb: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ")),
    }
}

/// The parts of a URL that the client wants one by one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    user: String,
    password: String,
    host: &'a str,
    port: &'a str,
    database: &'a str,
}

impl<'a> Place<'a> {
    /// None unless it is a URL of a database.
    pub(super) fn parse(url: &'a str) -> Option<Self> {
        let rest = url.strip_prefix("mysql://").or_else(|| url.strip_prefix("mariadb://"))?;
        let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
        let (authority, database) = rest.split_once('/')?;
        let (login, host) = authority.rsplit_once('@')?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = host.rsplit_once(':').unwrap_or((host, "3306"));
        let is_whole = ![user, host, port, database].contains(&"");
        is_whole.then(|| Self { user: decoded(user), password: decoded(password), host, port, database })
    }
}

/// The text with its `%41` as `A`.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
