use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use sqlx::{Connection, PgConnection};

use crate::Scratch;

/// Between two questions whether a server answers by now.
pub(crate) const ASK_EVERY: Duration = Duration::from_millis(50);
/// A server that needs longer to answer hangs.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);
/// Who runs servers when root starts them, by preference: PostgreSQL and pgbouncer refuse to run as root.
pub(crate) const SERVANTS: [&str; 2] = ["postgres", "nobody"];

/// A server of one test's own, which may be killed and started again. It and its data go with this.
#[derive(Debug)]
pub struct PostgresServer {
    // Before the folder.
    running: Option<Leashed>,
    scratch: Scratch,
    settings: Vec<String>,
    port: u16,
}

impl PostgresServer {
    /// A new server with `settings` (`name=value`), once it answers.
    ///
    /// # Panics
    /// When PostgreSQL's programs are not there, or do not start.
    pub async fn start(settings: &[&str]) -> Self {
        let scratch = Scratch::new("postgres-server");
        let servant = Servant::of(scratch.folder(), &SERVANTS);
        let data = scratch.file("data");
        let mut initdb = Command::new(program("initdb"));
        initdb.arg("--pgdata").arg(&data).args(["--username=postgres", "--auth=trust", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--no-sync"]).current_dir(scratch.folder());
        let made = servant.runs(&mut initdb).output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self { running: None, scratch, settings, port: free_port() };
        server.restart().await;
        server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Lets everybody in by the rules `lines` of its `pg_hba.conf`, instead of without a password.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub async fn admit(&mut self, lines: &str) {
        fs::write(self.scratch.file("data/pg_hba.conf"), lines).expect("its rules are written");
        let mut connection = PgConnection::connect(&self.url()).await.expect("a connection");
        sqlx::query("SELECT pg_reload_conf()").execute(&mut connection).await.expect("it reads them");
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Starts it again, on the same port, and waits until it answers. What a killed one has left behind ends by and by, and
    /// a new one does not start before.
    ///
    /// # Panics
    /// When it does not.
    pub async fn restart(&mut self) {
        let began = Instant::now();
        loop {
            if self.running.as_mut().is_none_or(Leashed::has_ended) {
                self.running = Some(self.serve());
            }
            match PgConnection::connect(&self.url()).await {
                Ok(connection) => return connection.close().await.expect("it is closed"),
                Err(why) => assert!(began.elapsed() < START_LIMIT, "no server: {why}; {}", self.log()),
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn serve(&self) -> Leashed {
        let mut postgres = Command::new(program("postgres"));
        postgres.arg("-D").arg(self.scratch.file("data")).args(["-p", &self.port.to_string()]);
        postgres.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        for setting in &self.settings {
            postgres.args(["-c", setting]);
        }
        Leashed::run(&mut postgres, self.scratch.folder(), &SERVANTS)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.file("log")).unwrap_or_default()
    }
}

/// pgbouncer in front of the tests' server: each transaction may get another of its two sessions.
#[derive(Debug)]
pub struct Pgbouncer {
    url: String,
    _running: Leashed,
    _scratch: Scratch,
}

impl Pgbouncer {
    /// Started in front of `server` with `settings` (`name = value`), once it answers. `None`, said aloud, where it is not
    /// installed.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(server: &str, settings: &[&str]) -> Option<Self> {
        let Some(program) = find("pgbouncer") else {
            eprintln!("SKIPPED: there is no pgbouncer to test with: `apt-get install pgbouncer`");
            return None;
        };
        let scratch = Scratch::new("pgbouncer");
        let server: sqlx::postgres::PgConnectOptions = server.parse().expect("the server's URL");
        let (host, port, user) = (server.get_host(), server.get_port(), server.get_username());
        let listen = free_port();
        let settings = settings.join("\n");
        let config = format!(
            "[databases]\n* = host={host} port={port} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {listen}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 2\nmax_client_conn = 200\n{settings}\n"
        );
        let file = scratch.file("pgbouncer.ini");
        fs::write(&file, config).expect("its settings are written");
        let _running = Leashed::run(Command::new(program).arg(&file), scratch.folder(), &SERVANTS);
        let database = server.get_database().unwrap_or(user);
        let url = format!("postgres://{user}@127.0.0.1:{listen}/{database}");
        let plain: sqlx::postgres::PgConnectOptions = url.parse().expect("its URL");
        let plain = plain.extra_float_digits(None);
        let began = Instant::now();
        while let Err(why) = PgConnection::connect_with(&plain).await {
            let log = fs::read_to_string(scratch.file("log")).unwrap_or_default();
            assert!(began.elapsed() < START_LIMIT, "no pgbouncer: {why}; {log}");
            tokio::time::sleep(ASK_EVERY).await;
        }
        Some(Self { url, _running, _scratch: scratch })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A server's process, and one that ends it should this one be gone without a word.
#[derive(Debug)]
pub(crate) struct Leashed {
    server: Child,
    leash: Child,
}

impl Leashed {
    /// Runs `command` with its output in the file `log` of `folder`.
    pub(crate) fn run(command: &mut Command, folder: &Path, servants: &[&str]) -> Self {
        let servant = Servant::of(folder, servants);
        let log = fs::File::options().create(true).append(true).open(folder.join("log")).expect("a log");
        command.current_dir(folder).stdin(Stdio::null()).stderr(log).stdout(Stdio::null()).process_group(0);
        let server = servant.runs(command).spawn().expect("it runs");
        let mut leash = Command::new("sh");
        // Its input ends when this process does, however that comes.
        leash.args(["-c", "read -r _; kill -QUIT \"$1\"", "sh", &server.id().to_string()]);
        leash.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let leash = leash.spawn().expect("sh runs");
        Self { server, leash }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.server.try_wait(), Ok(None))
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        // The leash first: the number of a process that has been waited for may be another's.
        let _ = self.leash.kill();
        let _ = self.leash.wait();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A user without rights of its own; `None` where this process has no more than that itself.
pub(crate) struct Servant(Option<(u32, u32)>);

impl Servant {
    /// The one who owns `folder` from now on.
    pub(crate) fn of(folder: &Path, servants: &[&str]) -> Self {
        if !rustix::process::getuid().is_root() {
            return Self(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = servants.iter().find_map(|name| {
            let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut numbers = line.split(':').skip(2).map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        });
        let (user, group) = user.expect("the server refuses to run as root, and there is not even the user `nobody`");
        chown(folder, Some(user), Some(group)).expect("the folder is given away");
        Self(Some((user, group)))
    }

    pub(crate) fn runs<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        match self.0 {
            Some((user, group)) => command.uid(user).gid(group),
            None => command,
        }
    }
}

fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("no `{name}`: install PostgreSQL (`apt-get install postgresql`)"))
}

/// In `PATH`, or where Debian has servers: one folder for each version of PostgreSQL.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    folders.extend(["/usr/local/sbin".into(), "/usr/sbin".into()]);
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its number").port()
}
