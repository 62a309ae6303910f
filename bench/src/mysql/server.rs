//! The server: a database for each run, and what it costs there.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection, Row, mysql::MySqlConnectOptions};

use crate::{
    AnyError,
    sql::{
        Address, Cost, Kind, Place,
        near::{Process, is_near, may_live, new_name},
    },
};

/// What servers' programs are called.
const PROGRAMS: [&str; 2] = ["mariadbd", "mysqld"];
/// How long the server may take to clean up behind the last run, and how much it may leave.
const CLEAN_WITHIN: Duration = Duration::from_secs(60);
const LEFT_MAX: u64 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A database for one run.
pub(crate) struct Database {
    pub(crate) at: Address,
    server: String,
    /// A lock that goes with this process: while it is held, what has its name is in use.
    _life: MySqlConnection,
}

impl Database {
    pub(super) async fn connect(&self) -> Result<MySqlConnection, AnyError> {
        connect(&self.at.url).await
    }
}

impl Place for Database {
    const KIND: &'static Kind = &super::KIND;
    type Beside = ();

    async fn sweep(server: &str) -> Result<(), AnyError> {
        let mut connection = connect(server).await?;
        let named = "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata WHERE schema_name REGEXP '^bench_[0-9]+_'";
        let is_near = process(&mut connection, &options(server)?).await?.is_some();
        for row in sqlx::query(named).fetch_all(&mut connection).await? {
            let name: String = row.try_get(0)?;
            if !may_live(&name, is_near) && lock(&mut connection, &name).await? {
                eprintln!("a killed run has left {name}: it is dropped");
                drop_database(&mut connection, &name).await?;
            }
        }
        // Its locks go with it.
        Ok(connection.close().await?)
    }

    /// With the settings that its figures depend on most.
    async fn version(server: &str) -> Result<String, AnyError> {
        let mut connection = connect(server).await?;
        let ask = "SELECT VERSION(), @@innodb_buffer_pool_size DIV 1048576, @@innodb_log_file_size DIV 1048576, \
                   @@innodb_flush_log_at_trx_commit, @@log_bin";
        let row = sqlx::query(ask).fetch_one(&mut connection).await?;
        let (version, number): (String, _) = (row.try_get(0)?, |column: usize| row.try_get_unchecked::<i64, _>(column));
        let [pool, log, flush, binary] = [number(1)?, number(2)?, number(3)?, number(4)?];
        connection.close().await?;
        Ok(format!(
            "{version} (innodb_buffer_pool_size {pool} MiB, innodb_log_file_size {log} MiB, \
             innodb_flush_log_at_trx_commit {flush}, log_bin {binary})"
        ))
    }

    async fn create(server: &str, name: &str) -> Result<Self, AnyError> {
        let mut life = connect(server).await?;
        let name = loop {
            let name = new_name(name);
            if lock(&mut life, &name).await? {
                break name;
            }
        };
        clean(&mut life).await?;
        let create = format!("CREATE DATABASE `{name}` CHARACTER SET utf8mb4");
        life.execute(sqlx::raw_sql(AssertSqlSafe(create))).await?;
        let url = options(server)?.database(&name).to_url_lossy().to_string();
        Ok(Self { at: Address { url, name }, server: server.to_owned(), _life: life })
    }

    async fn remove(self) -> Result<(), AnyError> {
        let mut connection = connect(&self.server).await?;
        drop_database(&mut connection, &self.at.name).await?;
        Ok(connection.close().await?)
    }

    async fn cost(&self) -> Result<Cost, AnyError> {
        let mut connection = connect(&self.server).await?;
        // MariaDB from 10.8 on does not tell flushes of its log; where commits are waited for each write is followed by one.
        let flushes = match status(&mut connection, "Innodb_os_log_fsyncs").await? {
            Some(flushes) => flushes,
            None => {
                status(&mut connection, "Innodb_log_writes").await?.ok_or("the server does not count log writes")?
            }
        };
        let server = process(&mut connection, &options(&self.server)?).await?;
        connection.close().await?;
        Ok(Cost { cpu_seconds: server.map_or(f64::NAN, |process| process.cpu_seconds), flushes: flushes.try_into()? })
    }

    /// Of the whole server.
    async fn deadlocks(&self) -> Result<u64, AnyError> {
        let mut connection = connect(&self.server).await?;
        let deadlocks = status(&mut connection, "Innodb_deadlocks").await?;
        connection.close().await?;
        Ok(deadlocks.ok_or("the server does not count deadlocks")?)
    }
}

fn options(url: &str) -> Result<MySqlConnectOptions, AnyError> {
    // The driver's error may show the URL, and with it a password.
    let options = url.parse::<MySqlConnectOptions>();
    options.map_err(|_| "--server: the URL is not understood: write mysql://USER@HOST:PORT/DATABASE".into())
}

pub(super) async fn connect(url: &str) -> Result<MySqlConnection, AnyError> {
    // Texts of lists are as many as there are lengths.
    let options = options(url)?.disable_statement_logging().statement_cache_capacity(1024);
    options.connect().await.map_err(|e| format!("--server {}: {e}", shown(&options)).into())
}

/// Without what is secret.
fn shown(options: &MySqlConnectOptions) -> String {
    let host = options.get_socket().map_or_else(|| options.get_host().into(), |socket| socket.to_string_lossy());
    let database = options.get_database().unwrap_or_default();
    format!("{}@{host}:{}/{database}", options.get_username(), options.get_port())
}

/// Whether nobody had the lock of `name`, and this session has it now.
async fn lock(connection: &mut MySqlConnection, name: &str) -> Result<bool, AnyError> {
    let lock = sqlx::query("SELECT GET_LOCK(?, 0) = 1").bind(name);
    Ok(lock.fetch_one(connection).await?.try_get_unchecked::<i64, _>(0)? == 1)
}

async fn drop_database(connection: &mut MySqlConnection, name: &str) -> Result<(), AnyError> {
    let drop = AssertSqlSafe(format!("DROP DATABASE IF EXISTS `{name}`"));
    connection.execute(sqlx::raw_sql(drop)).await?;
    Ok(())
}

/// What was deleted is removed, and what is dirty is written: the next run is not to pay for what its predecessor has left.
pub(super) async fn clean(connection: &mut MySqlConnection) -> Result<(), AnyError> {
    let begun = Instant::now();
    while status(connection, "Innodb_history_list_length").await?.is_some_and(|left| left > LEFT_MAX) {
        if begun.elapsed() > CLEAN_WITHIN {
            return Err("the server does not come to an end with what was deleted; is a transaction open?".into());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if let Err(error) = connection.execute("SET GLOBAL innodb_log_checkpoint_now = ON").await {
        eprintln!("  no checkpoint before this run: {error}");
    }
    Ok(())
}

async fn status(connection: &mut MySqlConnection, name: &str) -> Result<Option<u64>, AnyError> {
    let show = AssertSqlSafe(format!("SHOW GLOBAL STATUS LIKE '{name}'"));
    let Some(row) = connection.fetch_optional(sqlx::raw_sql(show)).await? else { return Ok(None) };
    Ok(Some(row.try_get::<String, _>(1)?.parse()?))
}

/// The server's process, where it runs on this machine.
async fn process(connection: &mut MySqlConnection, options: &MySqlConnectOptions) -> Result<Option<Process>, AnyError> {
    let near = options.get_socket().is_some() || is_near(options.get_host());
    let row = sqlx::query("SELECT CAST(@@pid_file AS CHAR)").fetch_one(connection).await?;
    let number = std::fs::read_to_string(row.try_get::<String, _>(0)?).ok().filter(|_| near);
    // A tunnel or a container may give numbers of another machine: those are no server's here, or only by chance.
    let process = number.and_then(|number| Process::read(number.trim()));
    Ok(process.filter(|process| PROGRAMS.contains(&process.name.as_str())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_error_names_the_server_and_no_password() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let refused = runtime.block_on(connect("mysql://me:secret@127.0.0.1:1/db")).err().unwrap().to_string();
        assert!(refused.starts_with("--server me@127.0.0.1:1/db: "), "{refused}");
        let wrong = options("mysql://me:secret@127.0.0.1:x/db").err().unwrap().to_string();
        assert!(wrong.starts_with("--server") && !wrong.contains("secret"), "{wrong}");
    }
}
