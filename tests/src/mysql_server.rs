//! A server that a test may kill or set otherwise, which it must not do to the server of all tests.

use std::{path::Path, time::Instant};

use sqlx::{Connection, Executor, MySqlConnection};

use crate::{
    Scratch,
    postgres_server::{ASK_EVERY, START_LIMIT},
};

/// A server of one test's own, which may be killed and started again. It and its data go with this.
#[derive(Debug)]
pub struct MySqlServer {
    // Before the folder.
    server: hapax_servers::MySqlServer,
    scratch: Scratch,
}

impl MySqlServer {
    /// A new server with `settings` (`name=value`), once it answers and has a database.
    ///
    /// # Panics
    /// When MariaDB's programs are not there, or do not start.
    pub async fn start(settings: &[&str]) -> Self {
        let scratch = Scratch::new("mysql-server");
        let server = hapax_servers::MySqlServer::create(scratch.folder(), settings);
        let mut server = Self { server: server.unwrap_or_else(|why| panic!("{why}")), scratch };
        server.restart().await;
        let mut connection = MySqlConnection::connect(&server.server.url("mysql")).await.expect("a connection");
        connection.execute("CREATE DATABASE test CHARACTER SET utf8mb4").await.expect("a database");
        server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url("test")
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

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again, on the same port, and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub async fn restart(&mut self) {
        let began = Instant::now();
        loop {
            self.server.run().unwrap_or_else(|why| panic!("{why}"));
            match MySqlConnection::connect(&self.server.url("mysql")).await {
                Ok(connection) => return connection.close().await.expect("it is closed"),
                Err(why) => assert!(began.elapsed() < START_LIMIT, "no server: {why}; {}", self.server.log()),
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}
