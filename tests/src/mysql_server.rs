use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use sqlx::{Connection, Executor, MySqlConnection};

use crate::{
    Scratch,
    postgres_server::{ASK_EVERY, Leashed, START_LIMIT, Servant, find, free_port},
};

/// Who runs servers when root starts them, by preference.
const SERVANTS: [&str; 2] = ["mysql", "nobody"];

/// A server of one test's own, which may be killed and started again. It and its data go with this.
#[derive(Debug)]
pub struct MySqlServer {
    // Before the folder.
    running: Option<Leashed>,
    scratch: Scratch,
    settings: Vec<String>,
    port: u16,
}

impl MySqlServer {
    /// A new server with `settings` (`name=value`), once it answers and has a database.
    ///
    /// # Panics
    /// When MariaDB's programs are not there, or do not start.
    pub async fn start(settings: &[&str]) -> Self {
        let scratch = Scratch::new("mysql-server");
        let servant = Servant::of(scratch.folder(), &SERVANTS);
        let mut install = Command::new(program("mariadb-install-db"));
        install.arg("--no-defaults").arg(format!("--datadir={}", scratch.file("data").display()));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=16M"]);
        install.current_dir(scratch.folder()).stdin(Stdio::null());
        let made = servant.runs(&mut install).output().expect("mariadb-install-db runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self { running: None, scratch, settings, port: free_port() };
        server.restart().await;
        let mut connection = MySqlConnection::connect(&server.place("mysql")).await.expect("a connection");
        connection.execute("CREATE DATABASE test CHARACTER SET utf8mb4").await.expect("a database");
        server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.place("test")
    }

    fn place(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Starts it again, on the same port, and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub async fn restart(&mut self) {
        let began = Instant::now();
        loop {
            if self.running.as_mut().is_none_or(Leashed::has_ended) {
                self.running = Some(self.serve());
            }
            match MySqlConnection::connect(&self.place("mysql")).await {
                Ok(connection) => return connection.close().await.expect("it is closed"),
                Err(why) => assert!(began.elapsed() < START_LIMIT, "no server: {why}; {}", self.log()),
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn serve(&self) -> Leashed {
        let mut mariadbd = Command::new(program("mariadbd"));
        mariadbd.arg("--no-defaults").arg(format!("--datadir={}", self.scratch.file("data").display()));
        // The socket is below its data: a full path could be too long.
        mariadbd.arg(format!("--port={}", self.port)).args(["--bind-address=127.0.0.1", "--socket=socket"]);
        mariadbd.args(["--pid-file=pid", "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M"]);
        for setting in &self.settings {
            mariadbd.arg(format!("--{setting}"));
        }
        Leashed::run(&mut mariadbd, self.scratch.folder(), &SERVANTS)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.file("log")).unwrap_or_default()
    }
}

fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("no `{name}`: install MariaDB (`apt-get install mariadb-server`)"))
}
