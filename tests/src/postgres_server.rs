//! A server and a pooler that a test may kill, stop or set otherwise, which it must not do to the server of all tests.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use hapax_servers::find;
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use crate::Scratch;

/// Between two questions whether a server answers by now.
pub(crate) const ASK_EVERY: Duration = Duration::from_millis(50);
/// A server that needs longer to answer hangs.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);

/// A server of one test's own, which may be killed and started again. It and its data go with this.
#[derive(Debug)]
pub struct PostgresServer {
    // Before the folder.
    server: hapax_servers::PostgresServer,
    scratch: Scratch,
}

impl PostgresServer {
    /// A new server with `settings` (`name=value`), once it answers.
    ///
    /// # Panics
    /// When PostgreSQL's programs are not there, or do not start.
    pub async fn start(settings: &[&str]) -> Self {
        let scratch = Scratch::new("postgres-server");
        let server = hapax_servers::PostgresServer::create(scratch.folder(), settings);
        let mut server = Self { server: server.unwrap_or_else(|why| panic!("{why}")), scratch };
        server.restart().await;
        server
    }

    /// A standby named `name` of `primary`, once it answers.
    ///
    /// # Panics
    /// As [`start`](Self::start), or when the primary does not let itself be copied.
    pub async fn following(primary: &Self, name: &str) -> Self {
        Self::following_through(primary, primary.server.port(), name).await
    }

    /// The same by a line at `port`.
    ///
    /// # Panics
    /// The same.
    pub async fn following_through(primary: &Self, port: u16, name: &str) -> Self {
        let scratch = Scratch::new("postgres-standby");
        let server = hapax_servers::PostgresServer::follow(scratch.folder(), &primary.server, port, name);
        let mut server = Self { server: server.unwrap_or_else(|why| panic!("{why}")), scratch };
        server.restart().await;
        server
    }

    /// Makes a standby the primary, once it takes writes.
    ///
    /// # Panics
    /// When it does not.
    pub async fn promote(&self) {
        let mut connection = PgConnection::connect(&self.url()).await.expect("a connection");
        let promoted = sqlx::query_scalar("SELECT pg_promote()").fetch_one(&mut connection).await;
        assert!(promoted.unwrap_or(false), "it is not promoted: {}", self.log());
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.server.port()
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
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

    /// Begins with `settings` (`name=value`) from its next start on, instead of those that it was started with.
    pub fn settings(&mut self, settings: &[&str]) {
        self.server.settings(settings);
    }

    /// Begins again with TLS for who asks for it, with the files that `write` puts into its folder: `certificate.pem` and `key.pem`.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn with_tls(&mut self, write: impl FnOnce(&Path)) {
        write(self.scratch.folder());
        self.server.answer_to_tls().unwrap_or_else(|why| panic!("{why}"));
        self.server.kill();
        self.restart().await;
    }

    /// Sets `name` for every session, until all new ones have it.
    ///
    /// # Panics
    /// When it cannot be set.
    pub async fn set_for_all(&self, name: &str, value: &str) {
        let connect = async || PgConnection::connect(&self.url()).await.expect("a connection");
        let mut connection = connect().await;
        for statement in [format!("ALTER SYSTEM SET {name} = '{value}'"), "SELECT pg_reload_conf()".to_owned()] {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.expect("it is set");
        }
        let (shown, began) = (format!("SHOW {name}"), Instant::now());
        while sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(shown.clone()))
            .fetch_one(&mut connect().await)
            .await
            .expect("it is shown")
            != value
        {
            assert!(began.elapsed() < START_LIMIT, "the server does not read its settings");
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Is a standby from its next start on, or the primary again.
    ///
    /// # Panics
    /// When it cannot be told so.
    pub fn standby(&self, is: bool) {
        let file = self.scratch.file("data/standby.signal");
        if is { fs::write(file, "") } else { fs::remove_file(file) }.expect("a file that says so");
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again, on the same port, and waits until it answers. What a killed one has left behind ends by and by, and
    /// a new one does not start before.
    ///
    /// # Panics
    /// When it does not.
    pub async fn restart(&mut self) {
        let began = Instant::now();
        loop {
            self.server.run().unwrap_or_else(|why| panic!("{why}"));
            match PgConnection::connect(&self.url()).await {
                Ok(connection) => return connection.close().await.expect("it is closed"),
                Err(why) => assert!(began.elapsed() < START_LIMIT, "no server: {why}; {}", self.server.log()),
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}

/// pgbouncer in front of the tests' server: each transaction may get another of its two sessions.
#[derive(Debug)]
pub struct Pgbouncer {
    url: String,
    // Before its folder.
    _running: hapax_servers::Pgbouncer,
    _scratch: Scratch,
}

impl Pgbouncer {
    /// Started in front of `server` with `settings` (`name = value`), once it answers. `None`, said aloud, where it is not
    /// installed.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(server: &str, settings: &[&str]) -> Option<Self> {
        if find("pgbouncer").is_none() {
            eprintln!("SKIPPED: there is no pgbouncer to test with: `apt-get install pgbouncer`");
            return None;
        }
        let scratch = Scratch::new("pgbouncer");
        let server: PgConnectOptions = server.parse().expect("the server's URL");
        let (place, user) = ((server.get_host(), server.get_port()), server.get_username());
        let settings = [&["default_pool_size = 2"], settings].concat();
        let running = hapax_servers::Pgbouncer::run(scratch.folder(), place, user, &settings);
        let running = running.unwrap_or_else(|why| panic!("{why}"));
        let database = server.get_database().unwrap_or(user);
        let url = format!("postgres://{user}@127.0.0.1:{}/{database}", running.port());
        let plain: PgConnectOptions = url.parse().expect("its URL");
        let plain = plain.extra_float_digits(None);
        let began = Instant::now();
        while let Err(why) = PgConnection::connect_with(&plain).await {
            assert!(began.elapsed() < START_LIMIT, "no pgbouncer: {why}; {}", running.log());
            tokio::time::sleep(ASK_EVERY).await;
        }
        Some(Self { url, _running: running, _scratch: scratch })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}
