//! A server's process, who runs it, and where its program is.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher, Hasher},
    io,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Its input ends when the process that started it does, however that comes. SIGQUIT has a database end its children too; who started all of
/// this may have had it ignored, as a shell does for what it runs in the background.
const LEASH: &str = "read -r _; kill -QUIT \"$1\"; sleep 2; kill -KILL \"$1\"";

/// A server stands still at once, unless it waits for its disk.
const STOP_LIMIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

/// By what the host of a test's workers has a clock that is stepped (`tests/process/shim.c`), and what is handed on to all that is started there.
/// A server is another host, whose clock nobody sets: were it stepped with its clients', no two clocks of a run would ever differ by a step.
const CLOCK_OF_WORKERS: [&str; 2] = ["LD_PRELOAD", "HAPAX_TEST_CLOCK"];

/// Far above what is registered for services that run on many hosts.
const SERVERS_FROM: u16 = 10_000;
/// Where nothing else is known, as on Linux.
const CLIENTS_FROM: u16 = 32_768;
/// So many ports in a row are taken on no host that can run tests.
const PORTS_TRIED: usize = 100;

/// A server's process, and one that ends it should this one be gone without a word.
#[derive(Debug)]
pub(crate) struct Leashed {
    server: Child,
    leash: Child,
}

impl Leashed {
    /// Runs `command` as `servant`, with its output in the file `log` of `folder`.
    ///
    /// # Errors
    /// It, or the shell that holds its leash, cannot be run.
    pub(crate) fn run(command: &mut Command, servant: &Servant, folder: &Path) -> io::Result<Self> {
        let log = fs::File::options().create(true).append(true).open(folder.join("log"))?;
        // A group of its own: Ctrl-C is for who started it.
        command.current_dir(folder).stdin(Stdio::null()).stderr(log).stdout(Stdio::null()).process_group(0);
        let mut server = servant.runs(command).spawn()?;
        let mut leash = Command::new("sh");
        leash.args(["-c", LEASH, "sh", &server.id().to_string()]);
        leash.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        match leash.spawn() {
            Ok(leash) => Ok(Self { server, leash }),
            Err(error) => {
                let _ = server.kill();
                let _ = server.wait();
                Err(error)
            }
        }
    }

    /// Whether the server has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.server.try_wait(), Ok(None))
    }

    /// Stops the server, and waits until it stands still or is gone.
    fn stop(&self) {
        let Some(server) = i32::try_from(self.server.id()).ok().and_then(Pid::from_raw) else { return };
        let begun = Instant::now();
        let stat = format!("/proc/{}/stat", self.server.id());
        while kill_process(server, Signal::STOP).is_ok() && begun.elapsed() < STOP_LIMIT {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            match stat.rsplit_once(") ").and_then(|(_, state)| state.chars().next()) {
                Some('T' | 'Z' | 'X') | None => return,
                Some(_) => std::thread::sleep(LOOK), // Another process: it can only be looked at.
            }
        }
    }

    /// What the server has started for its clients.
    fn children(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let child = |process: fs::DirEntry| {
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            let (pid, rest) = stat.split_once(" (")?;
            // The name may hold anything; behind it are the state and the parent.
            let parent: u32 = rest.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
            if parent == self.server.id() { Pid::from_raw(pid.parse().ok()?) } else { None }
        };
        processes.filter_map(child).collect()
    }
}

impl Drop for Leashed {
    /// SIGKILL, also to those that serve its clients: else a commit under way would come to its end and be confirmed.
    fn drop(&mut self) {
        // The leash first: the number of a process that has been waited for may be another's.
        let _ = self.leash.kill();
        let _ = self.leash.wait();
        if self.has_ended() {
            return; // And was waited for by that: its number may be another's, too.
        }
        // One that it starts while they are listed would outlive it, hold what it has of the shared memory, and keep the
        // next server from starting. A stopped server starts none.
        self.stop();
        let children = self.children();
        let _ = self.server.kill();
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = self.server.wait();
    }
}

/// A user without rights of its own, who runs servers; this process's own user where that is not root.
#[derive(Debug)]
pub(crate) struct Servant(Option<(u32, u32)>);

impl Servant {
    /// The one who owns `folder` from now on: of the users with these `names` the first that there is, where root asks.
    ///
    /// # Errors
    /// There is no such user, or the folder cannot be given away: one line.
    pub(crate) fn of(folder: &Path, names: &[&str]) -> Result<Self, String> {
        if !rustix::process::getuid().is_root() {
            return Ok(Self(None));
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = names.iter().find_map(|name| {
            let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut numbers = line.split(':').skip(2).map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        });
        let (user, group) = user
            .ok_or_else(|| format!("a server refuses to run as root, and there is no user {}", names.join(" or ")))?;
        chown(folder, Some(user), Some(group))
            .map_err(|e| format!("{} cannot be given to the server's user: {e}", folder.display()))?;
        Ok(Self(Some((user, group))))
    }

    /// Lets this user run `command`, by the machine's own clock.
    pub(crate) fn runs<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        for variable in CLOCK_OF_WORKERS {
            command.env_remove(variable);
        }
        match self.0 {
            Some((user, group)) => command.uid(user).gid(group),
            None => command,
        }
    }
}

/// The program `name`: in `PATH`, or where Debian has servers, one folder for each version of PostgreSQL.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    folders.extend(["/usr/local/sbin".into(), "/usr/sbin".into()]);
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The same, or what to install, and which of Debian's packages has it.
///
/// # Errors
/// It is not there: one line with the remedy.
pub(crate) fn installed(name: &str, what: &str, package: &str) -> Result<PathBuf, String> {
    find(name).ok_or_else(|| format!("there is no program `{name}`: install {what} (`apt-get install {package}`)"))
}

/// A program that `cargo xtask test` has made, by its place below the target folder, if it has.
#[must_use]
pub(crate) fn made(program: &str) -> Option<PathBuf> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(usual, PathBuf::from);
    std::path::absolute(target.join(program)).ok().filter(|program| program.is_file())
}

/// A port of this host on which nobody listens, and which the system gives to no client, as long as it leaves some that it does not.
///
/// Of those that it does give, one could be in use when a server comes back after a kill: by any client of any server, or by the
/// killed server's own, which the system may well connect to itself while nobody listens.
///
/// # Errors
/// There is none.
pub fn free_port() -> io::Result<u16> {
    let mut why = io::Error::other("no port was tried");
    for _ in 0..PORTS_TRIED {
        // Seeded anew by the standard library for each; other processes look for ports at the same time.
        let random = RandomState::new().build_hasher().finish();
        let port = port_for_servers(random, clients_from()).unwrap_or(0); // 0: any.
        match std::net::TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => return Ok(listener.local_addr()?.port()),
            Err(taken) => why = taken,
        }
    }
    Err(why)
}

/// A [`free_port`] for a server of its own.
///
/// # Errors
/// There is none: one line.
pub(crate) fn own_port() -> Result<u16, String> {
    free_port().map_err(|e| format!("there is no free port: {e}"))
}

/// The first port that clients are given, where the system tells; on Linux, what it begins with.
fn clients_from() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|from| from.parse().ok()).unwrap_or(CLIENTS_FROM)
}

/// Any of those from the first that needs no rights of a well-known service up to where clients begin.
fn port_for_servers(random: u64, clients_from: u16) -> Option<u16> {
    let ports = u64::from(clients_from.checked_sub(SERVERS_FROM)?);
    u16::try_from(random.checked_rem(ports)?).ok().map(|port| SERVERS_FROM + port)
}

#[cfg(all(test, target_os = "linux"))] // Processes are looked for in /proc.
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What only writes a few lines has ended long before this, on any machine.
    const ENDS_WITHIN: Duration = Duration::from_secs(30);

    #[test]
    fn no_server_is_given_a_port_that_a_client_may_be_given() {
        for _ in 0..100 {
            let (port, clients_from) = (free_port().unwrap(), clients_from());
            assert!((SERVERS_FROM..clients_from).contains(&port) || clients_from <= SERVERS_FROM, "{port}");
        }
        for random in [0, 1, u64::MAX] {
            assert!(port_for_servers(random, 10_002).is_some_and(|port| port < 10_002));
            assert_eq!(port_for_servers(random, SERVERS_FROM), None);
            assert_eq!(port_for_servers(random, 1_024), None);
        }
    }

    #[test]
    fn a_server_that_hears_no_sigquit_ends_with_who_started_it() {
        let mut server = Command::new("sh");
        server.args(["-c", "trap '' QUIT; echo ready; exec sleep 3600"]).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut ready = [0; 5];
        io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let mut leash = Command::new("sh");
        leash.args(["-c", LEASH, "sh", &server.id().to_string()]).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut leash = leash.spawn().unwrap();
        drop(leash.stdin.take());
        leash.wait().unwrap();
        assert!(!server.wait().unwrap().success());
    }

    #[test]
    fn a_server_does_not_go_by_the_clock_of_workers() {
        const MARK: &str = "hapax-leash-inherited";
        let folder = std::env::temp_dir().join(format!("hapax-leash-clock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut server = Command::new("sh");
        server.args(["-c", "env >&2; echo over >&2"]);
        for variable in CLOCK_OF_WORKERS {
            server.env(variable, MARK);
        }
        let mut running = Leashed::run(&mut server, &Servant(None), &folder).unwrap();
        let begun = Instant::now();
        while !running.has_ended() && begun.elapsed() < ENDS_WITHIN {
            std::thread::sleep(LOOK);
        }
        let said = fs::read_to_string(folder.join("log")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(said.contains("PATH=") && said.ends_with("over\n"), "{said}");
        assert!(!said.contains(MARK), "{said}");
    }

    /// Processes whose last argument is `mark`.
    fn marked(mark: &str) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let is_marked = |process: fs::DirEntry| {
            let line = fs::read_to_string(process.path().join("cmdline")).ok()?;
            let is = line.starts_with("sleep") && line.trim_end_matches('\0').ends_with(mark);
            if is { Pid::from_raw(process.file_name().to_str()?.parse().ok()?) } else { None }
        };
        processes.filter_map(is_marked).collect()
    }

    #[test]
    fn no_child_outlives_a_server_that_starts_one_after_the_other() {
        const CHILDREN: usize = 20;
        for round in 0..10 {
            let mark = format!("3600.{}{round}", std::process::id());
            let mut server = Command::new("sh");
            // No more than these, should nobody end it.
            server.args(["-c", "for n in $(seq 2000); do sleep \"$0\" & done; wait", &mark]);
            let folder = std::env::temp_dir().join(format!("hapax-leash-{mark}"));
            fs::create_dir_all(&folder).unwrap();
            let running = Leashed::run(&mut server, &Servant(None), &folder).unwrap();
            while marked(&mark).len() < CHILDREN {
                std::thread::yield_now();
            }
            drop(running);
            let begun = Instant::now();
            let mut left = marked(&mark);
            // Those that were killed may take a moment.
            while !left.is_empty() && begun.elapsed() < STOP_LIMIT {
                std::thread::sleep(LOOK);
                left = marked(&mark);
            }
            for child in &left {
                let _ = kill_process(*child, Signal::KILL);
            }
            fs::remove_dir_all(&folder).unwrap();
            assert!(left.is_empty(), "round {round}: {} are left", left.len());
        }
    }
}
