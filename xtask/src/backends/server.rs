//! A server for tests: the one that is named, else one that runs, else one of our own, else one that is installed first.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::machine::{Machine, User, serve_as};
use crate::process;

/// `off`: a server that runs already is left alone, so that the tests get one of their own.
pub(super) const SEARCH: &str = "HAPAX_TEST_SEARCH";

/// A server that needs longer to answer hangs; the slowest seen, on two busy cores, needed 4 s.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Between two questions whether it answers by now.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Somebody may take the free port before the server does: so often another one is tried.
const STARTS_MAX: u32 = 3;

/// Runs a server on a leash, which is this script's input: when that ends, because it was dropped or because the program
/// that held it died of whatever, so does the server, and its data goes. `$1`: the signal that ends it; `$2`: its folder.
const LEASH: &str = r#"
signal=$1 folder=$2; shift 2
exec 3<&0
"$@" >"$folder/log" 2>&1 3<&- </dev/null & server=$!
(read -r _ <&3; kill -"$signal" "$server"; sleep 10; kill -KILL "$server") >/dev/null 2>&1 & leash=$!
wait "$server"
kill "$leash" 2>/dev/null
rm -rf "$folder/data"
"#;

/// A kind of server: how it is asked, and how one is started.
pub(super) trait Server {
    /// Its name for people.
    fn name(&self) -> &'static str;

    /// The variable that tells the tests where it is.
    fn variable(&self) -> &'static str;

    /// Where its programs come from.
    fn origin(&self) -> Origin;

    /// Whom it runs as when root starts it, by preference; none: root may run it.
    fn servants(&self) -> &'static [&'static str];

    /// The signal that ends it at once; its data is not needed any more.
    fn signal(&self) -> &'static str;

    /// Where one that runs already usually is, as URLs.
    fn usual(&self, machine: &Machine) -> Vec<String>;

    /// Asks the server at `url` for its version.
    ///
    /// # Errors
    /// It does not answer, or tests cannot use it.
    fn ask(&self, machine: &Machine, url: &str) -> Result<String, String>;

    /// Provides what tests start of their own beside it, where that is another program: what it is, or why it is not.
    fn beside(&self, _: &Machine) -> Option<String> {
        None
    }

    /// Another program yet, without which some of its tests cannot run.
    fn apart(&self) -> Option<Apart> {
        None
    }

    /// The programs that make its data and that serve it.
    ///
    /// # Errors
    /// The one that is not installed.
    fn programs(&self, machine: &Machine) -> Result<Programs, String>;

    /// Makes the data of a new server.
    fn prepare(&self, programs: &Programs, data: &Path) -> Command;

    /// Serves the data on a port of this host, in the foreground.
    fn serve(&self, programs: &Programs, data: &Path, port: u16) -> Command;

    /// The URL of the server just started, once it answers and has a database for tests.
    ///
    /// # Errors
    /// Not yet.
    fn furnish(&self, machine: &Machine, port: u16) -> Result<String, String>;
}

/// What some tests of a server need and others do not. Those that do bear its name: they are left out where it is not, so that none of them
/// counts as passed, and it has a row of its own in the table.
pub(super) struct Apart {
    pub(super) name: &'static str,
    /// Says what it is; asked each time, so that it must see by itself what is made already. The error is why it is not there, and what helps.
    pub(super) make: fn(&Machine) -> Result<String, String>,
}

/// Where the programs of a server come from.
pub(super) enum Origin {
    /// A Debian package, which root installs when they are not there.
    Debian(&'static str),
    /// They are made below `target`.
    Made {
        /// Makes them; asked each time, so that it must see by itself what is made already.
        make: fn(&Machine) -> Result<(), String>,
        /// What helps when it fails.
        remedy: &'static str,
    },
}

/// The programs of one server.
#[derive(Debug)]
pub(super) struct Programs {
    /// Makes its data.
    pub(super) prepare: PathBuf,
    /// Serves it.
    pub(super) serve: PathBuf,
}

/// A server that answers.
#[derive(Debug)]
pub(super) struct Provided {
    /// Where it is: the value of the server's variable.
    pub(super) url: String,
    /// How it comes to be there, for the table.
    pub(super) how: String,
    /// Ours: it ends with this.
    own: Option<Running>,
}

impl Provided {
    /// Returns when the server has ended; at once if it is none of ours.
    pub(super) fn wait(mut self) {
        if let Some(Running { child, .. }) = &mut self.own {
            let leash = child.stdin.take(); // Waiting would let go of it.
            let _ = child.wait(); // However it ended.
            drop(leash);
        }
    }
}

/// Why there is no server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The one that was named does not answer: nobody wants another one instead.
    Wrong(String),
    /// There is none, and the command that would provide one.
    Missing(String),
}

/// Provides a server.
///
/// # Errors
/// See [`Lack`].
pub(super) fn provide(server: &dyn Server, machine: &Machine) -> Result<Provided, Lack> {
    let (name, variable) = (server.name(), server.variable());
    if let Some(url) = machine.variable(variable) {
        let asked = server.ask(machine, url);
        let version = asked.map_err(|why| Lack::Wrong(format!("{variable}={} does not do: {why}", shown(url))))?;
        return Ok(Provided { url: url.to_owned(), how: format!("{name} {version}, named by {variable}"), own: None });
    }
    if let Some(found) = find(server, machine) {
        return Ok(found);
    }
    own(server, machine)
}

/// One of our own, its programs fetched or made first if need be.
///
/// # Errors
/// It is missing, with the command that would provide it.
pub(super) fn own(server: &dyn Server, machine: &Machine) -> Result<Provided, Lack> {
    let variable = server.variable();
    let package = match server.origin() {
        Origin::Debian(package) => package,
        Origin::Made { make, remedy } => {
            let made = make(machine).map_err(|why| Lack::Missing(format!("{why}: {remedy}, or set {variable}")));
            return made.and_then(|()| start(server, machine).map_err(|why| unstartable(why, variable)));
        }
    };
    let why = match start(server, machine) {
        Ok(started) => return Ok(started),
        Err(why) => why,
    };
    // What is installed and does not start is not mended by installing it.
    if server.programs(machine).is_ok() {
        return Err(unstartable(why, variable));
    }
    let missing = |why| Lack::Missing(format!("{why}: `apt-get install {package}`, or set {variable}"));
    if !machine.is_root() {
        return Err(missing(why));
    }
    install(server.name(), package, machine).map_err(|also| missing(format!("{why}; {also}")))?;
    start(server, machine).map_err(missing)
}

fn unstartable(why: String, variable: &str) -> Lack {
    Lack::Missing(format!("{why}; mend that, or set {variable} to the URL of another one"))
}

/// One that runs already, at one of the usual places.
fn find(server: &dyn Server, machine: &Machine) -> Option<Provided> {
    if machine.variable(SEARCH) == Some("off") {
        return None;
    }
    server.usual(machine).into_iter().find_map(|url| {
        let version = server.ask(machine, &url).ok()?;
        Some(Provided { how: format!("{} {version}, found at {url}", server.name()), url, own: None })
    })
}

/// One of our own, on a free port and in a folder for the time of the tests.
fn start(server: &dyn Server, machine: &Machine) -> Result<Provided, String> {
    let programs = server.programs(machine)?;
    let servant = machine.servant(server.servants())?;
    let mut started = Err(String::new());
    for _ in 0..STARTS_MAX {
        started = start_once(server, machine, &programs, servant);
        if started.is_ok() {
            break;
        }
    }
    started
}

fn start_once(
    server: &dyn Server,
    machine: &Machine,
    programs: &Programs,
    servant: Option<User>,
) -> Result<Provided, String> {
    let name = server.name();
    let begun = Instant::now();
    let folder = Folder(machine.folder(&name.to_lowercase().replace(' ', "-"), servant)?);
    let data = folder.0.join("data");
    process::output(serve_as(server.prepare(programs, &data).current_dir(&folder.0), servant))?;
    let port = free_port().map_err(|error| format!("no free port: {error}"))?;
    let mut command = leashed(&server.serve(programs, &data, port), server.signal(), &folder.0);
    let child = serve_as(&mut command, servant).spawn().map_err(|error| format!("{name} cannot be run: {error}"))?;
    let mut running = Running { child, folder };
    let url = loop {
        match server.furnish(machine, port) {
            Ok(url) => break url,
            Err(_) if running.has_ended() => return Err(format!("{name} ended: {}", running.last_words())),
            Err(why) if begun.elapsed() > START_LIMIT => {
                return Err(format!("{name} does not answer: {why}; {}", running.last_words()));
            }
            Err(_) => std::thread::sleep(ASK_EVERY),
        }
    };
    let version = server.ask(machine, &url)?;
    let how = format!("{name} {version}, started on port {port} in {} ms", begun.elapsed().as_millis());
    Ok(Provided { url, how, own: Some(running) })
}

/// Installs the Debian package. Says so: it changes the machine.
fn install(name: &str, package: &str, machine: &Machine) -> Result<(), String> {
    let apt = machine.program(&["apt-get"]).ok_or("there is no apt-get")?;
    println!("there is no {name}: installing the Debian package {package}");
    let run = |args: &[&str]| process::run(Command::new(&apt).env("DEBIAN_FRONTEND", "noninteractive").args(args));
    let wanted = ["install", "--yes", "--no-install-recommends", package];
    // Lists that are old or not there are the usual reason why it cannot be had.
    run(&wanted).or_else(|_| run(&["update"]).and_then(|()| run(&wanted)))
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn leashed(server: &Command, signal: &str, folder: &Path) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", LEASH, "sh", signal]).arg(folder).arg(server.get_program()).args(server.get_args());
    sh.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C is for this program; the server would be gone before the tests that use it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut sh, 0);
    sh
}

/// The URL without its password.
pub(super) fn shown(url: &str) -> String {
    let Some((scheme, (login, rest))) = url.split_once("://").and_then(|(s, rest)| Some((s, rest.rsplit_once('@')?)))
    else {
        return url.to_owned();
    };
    let user = login.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}@{rest}")
}

/// A folder that goes with this.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // What stays is below `target` or where temporary files are.
    }
}

/// A server of our own; it and its files go with this.
#[derive(Debug)]
struct Running {
    child: Child,
    folder: Folder,
}

impl Running {
    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of its log.
    fn last_words(&self) -> String {
        const LINES: usize = 5;
        let log = std::fs::read(self.folder.0.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join(" | ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take()); // The leash: see there. It ends a server that does not want to end, too.
        let _ = self.child.wait();
    }
}
