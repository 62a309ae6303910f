//! PostgreSQL for tests.

use std::path::Path;
use std::process::Command;

use super::machine::Machine;
use super::server::{Origin, Programs, Server};

/// What the store needs at least; the first number of the version.
const VERSION_MIN: u32 = 14;

/// Where one that runs already listens: the usual port, and Debian's socket.
const USUAL_HOSTS: [&str; 2] = ["127.0.0.1:5432", "%2Fvar%2Frun%2Fpostgresql:5432"];

/// Its version, and why tests cannot use it: what the store refuses, it should not be given.
const QUESTION: &str = "SELECT current_setting('server_version'), CASE \
    WHEN NOT has_database_privilege(current_database(), 'CREATE') THEN 'this user may not make schemas in it' \
    WHEN 'off' IN (current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')) \
    THEN 'it may lose what it has confirmed' \
    WHEN pg_is_in_recovery() THEN 'it is a standby' \
    WHEN current_setting('server_encoding') <> 'UTF8' THEN 'its encoding is not UTF8' \
    ELSE '' END";

/// PostgreSQL, by its own programs.
#[derive(Debug)]
pub(super) struct Postgres;

impl Server for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn variable(&self) -> &'static str {
        "HAPAX_TEST_POSTGRES"
    }

    fn origin(&self) -> Origin {
        Origin::Debian("postgresql")
    }

    fn servants(&self) -> &'static [&'static str] {
        &["postgres", "nobody"] // It refuses to run as root.
    }

    fn signal(&self) -> &'static str {
        "QUIT" // "Immediate": no checkpoint. Its processes end with it, which they would not by KILL.
    }

    fn usual(&self, machine: &Machine) -> Vec<String> {
        let mut users = vec!["postgres", "root"];
        users.extend(machine.variable("USER").filter(|user| !users.contains(user)));
        let mut urls = Vec::new();
        for host in USUAL_HOSTS {
            for database in ["test", "postgres"] {
                urls.extend(users.iter().map(|user| format!("postgres://{user}@{host}/{database}")));
            }
        }
        urls
    }

    fn ask(&self, machine: &Machine, url: &str) -> Result<String, String> {
        let psql = machine.program(&["psql"]).ok_or("there is no psql to ask it with")?;
        let mut psql = Command::new(psql);
        psql.env("PGCONNECT_TIMEOUT", "5").args(["--no-psqlrc", "--no-password", "--tuples-only", "--no-align"]);
        // The URL may hold a password, so that what is said about the command line is not shown.
        let output = psql.args(["--command", QUESTION, url]).output().map_err(|error| format!("psql: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "));
        }
        usable(String::from_utf8_lossy(&output.stdout).trim())
    }

    fn programs(&self, machine: &Machine) -> Result<Programs, String> {
        let missing = |name: &str| format!("no PostgreSQL answers, and {name} is not installed");
        // Both of one version: the data of one is nothing to another.
        let prepare = machine.program(&["initdb"]).ok_or_else(|| missing("initdb"))?;
        let beside = prepare.canonicalize().ok().and_then(|real| Some(real.parent()?.join("postgres")));
        let serve = beside.filter(|file| file.is_file()).or_else(|| machine.program(&["postgres"]));
        Ok(Programs { serve: serve.ok_or_else(|| missing("postgres"))?, prepare })
    }

    fn prepare(&self, programs: &Programs, data: &Path) -> Command {
        let mut initdb = Command::new(&programs.prepare);
        initdb.arg("--pgdata").arg(data);
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        initdb
    }

    fn serve(&self, programs: &Programs, data: &Path, port: u16) -> Command {
        let mut postgres = Command::new(&programs.serve);
        postgres.arg("-D").arg(data).args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        // No socket: its path could be too long. Connections for many tests at once.
        postgres.args(["-c", "unix_socket_directories=", "-c", "max_connections=500"]);
        postgres
    }

    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String> {
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        self.ask(machine, &url).map(|_| url)
    }
}

/// The version out of the answer `15.20 (Debian 15.20-0)|why not`.
fn usable(answer: &str) -> Result<String, String> {
    let (version, why_not) = answer.rsplit_once('|').unwrap_or((answer, "it does not know the question"));
    let version = version.split(' ').next().unwrap_or_default();
    let major: Option<u32> = version.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse().ok());
    if major.is_none_or(|major| major < VERSION_MIN) {
        return Err(format!("its version is `{version}`, and must be {VERSION_MIN} or later"));
    }
    if why_not.is_empty() { Ok(version.to_owned()) } else { Err(why_not.to_owned()) }
}
