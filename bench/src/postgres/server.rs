//! The server: a schema or a database for each run, and what it costs there.

use std::{fs, time::Duration};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row, postgres::PgConnectOptions};

use super::peers::Peers;
use crate::{
    AnyError,
    sql::{
        Address, Cost, Kind, Place,
        near::{self, Process, may_live, new_name},
    },
};

/// Sessions hand their counts over when they are idle, at most a second later.
const HANDED_OVER: Duration = Duration::from_millis(1100);

/// A schema for one run.
pub(crate) struct Schema {
    pub(super) at: Address,
    _life: Life,
}

/// A database for one run, for who cannot be told of a schema.
pub(crate) struct Database {
    /// Of the database.
    pub(crate) url: String,
    server: String,
    name: String,
    _life: Life,
}

/// A lock that goes with this process: while it is held, what has its name is in use.
struct Life(#[allow(dead_code, reason = "it is held, and never asked")] PgConnection);

impl Schema {
    pub(super) async fn connect(&self) -> Result<PgConnection, AnyError> {
        connect(&self.at.url).await
    }

    /// `text` with the schema's name in place of `{s}`.
    pub(super) fn text(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("{s}", &self.at.name))
    }
}

impl Place for Schema {
    const KIND: &'static Kind = &super::KIND;
    type Beside = Peers;

    async fn sweep(server: &str) -> Result<(), AnyError> {
        sweep(server).await
    }

    async fn version(server: &str) -> Result<String, AnyError> {
        let mut connection = connect(server).await?;
        let version = connection.fetch_one("SHOW server_version").await?.try_get(0)?;
        connection.close().await?;
        Ok(version)
    }

    /// Nothing is in it yet, not even itself.
    async fn create(url: &str, name: &str) -> Result<Self, AnyError> {
        let (name, life) = Life::begin(url, name).await?;
        let mut connection = connect(url).await?;
        // The next run is not to pay for what this one's predecessor has left.
        connection.execute("CHECKPOINT").await?;
        connection.close().await?;
        Ok(Self { at: Address { url: url.to_owned(), name }, _life: life })
    }

    async fn remove(self) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        drop_schema(&mut connection, &self.at.name).await?;
        Ok(connection.close().await?)
    }

    async fn cost(&self) -> Result<Cost, AnyError> {
        cost(&self.at.url).await
    }

    /// Of the database, ever.
    async fn deadlocks(&self) -> Result<u64, AnyError> {
        let mut connection = self.connect().await?;
        let count = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        let count: i64 = connection.fetch_one(count).await?.try_get(0)?;
        connection.close().await?;
        Ok(count.try_into()?)
    }
}

impl Database {
    /// An empty one.
    pub(crate) async fn create(server: &str, name: &str) -> Result<Self, AnyError> {
        let (name, life) = Life::begin(server, name).await?;
        let mut connection = connect(server).await?;
        connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE \"{name}\"")))).await?;
        connection.execute("CHECKPOINT").await?;
        connection.close().await?;
        let url = options(server)?.database(&name).to_url_lossy().to_string();
        Ok(Self { url, server: server.to_owned(), name, _life: life })
    }

    pub(crate) async fn remove(self) -> Result<(), AnyError> {
        let mut connection = connect(&self.server).await?;
        drop_database(&mut connection, &self.name).await?;
        Ok(connection.close().await?)
    }

    pub(super) async fn cost(&self) -> Result<Cost, AnyError> {
        cost(&self.server).await
    }
}

impl Life {
    /// With a name that nobody else has while it lasts.
    async fn begin(url: &str, name: &str) -> Result<(String, Self), AnyError> {
        let mut connection = connect(url).await?;
        loop {
            let name = new_name(name);
            if lock(&mut connection, &name).await? {
                return Ok((name, Self(connection)));
            }
        }
    }
}

/// Whether nobody had the lock of `name`, and this session has it now.
async fn lock(connection: &mut PgConnection, name: &str) -> Result<bool, AnyError> {
    let lock = sqlx::query("SELECT pg_try_advisory_lock(hashtextextended($1, 0))").bind(name);
    Ok(lock.fetch_one(connection).await?.try_get(0)?)
}

fn options(url: &str) -> Result<PgConnectOptions, AnyError> {
    // The driver's error may show the URL, and with it a password.
    let options = url.parse::<PgConnectOptions>();
    options.map_err(|_| "--server: the URL is not understood: write postgres://USER@HOST:PORT/DATABASE".into())
}

pub(super) async fn connect(url: &str) -> Result<PgConnection, AnyError> {
    let options = options(url)?.disable_statement_logging();
    options.connect().await.map_err(|e| format!("--server {}: {e}", shown(&options)).into())
}

/// Without what is secret.
fn shown(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    let host = options.get_socket().map_or_else(|| options.get_host().into(), |socket| socket.to_string_lossy());
    format!("{}@{host}:{}/{database}", options.get_username(), options.get_port())
}

async fn drop_schema(connection: &mut PgConnection, name: &str) -> Result<(), AnyError> {
    connection.execute("SET client_min_messages = warning").await?;
    let drop = AssertSqlSafe(format!("DROP SCHEMA IF EXISTS \"{name}\" CASCADE"));
    connection.execute(sqlx::raw_sql(drop)).await?;
    Ok(())
}

async fn drop_database(connection: &mut PgConnection, name: &str) -> Result<(), AnyError> {
    connection.execute("SET client_min_messages = warning").await?;
    let drop = AssertSqlSafe(format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)"));
    connection.execute(sqlx::raw_sql(drop)).await?;
    Ok(())
}

/// Drops what killed runs of this program and of the tests have left on the server, and says so. What a living process uses
/// stays: names have the number of their process, and this program holds a lock for each of its own.
async fn sweep(url: &str) -> Result<(), AnyError> {
    let mut connection = connect(url).await?;
    let named = "SELECT nspname::text, true FROM pg_namespace WHERE nspname ~ '^(bench|t)_[0-9]+_'
                 UNION ALL SELECT datname::text, false FROM pg_database WHERE datname ~ '^bench_[0-9]+_'";
    let is_near = process(&mut connection, &options(url)?).await?.is_some();
    for row in sqlx::query(named).fetch_all(&mut connection).await? {
        let (name, is_schema): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
        if may_live(&name, is_near) || !lock(&mut connection, &name).await? {
            continue;
        }
        eprintln!("a killed run has left {name}: it is dropped");
        if is_schema {
            drop_schema(&mut connection, &name).await?
        } else {
            drop_database(&mut connection, &name).await?
        }
    }
    // Its locks go with it.
    Ok(connection.close().await?)
}

async fn cost(url: &str) -> Result<Cost, AnyError> {
    tokio::time::sleep(HANDED_OVER).await;
    let mut connection = connect(url).await?;
    let flushes = connection.fetch_one("SELECT wal_sync FROM pg_stat_wal").await?.try_get(0)?;
    let server = process(&mut connection, &options(url)?).await?;
    connection.close().await?;
    Ok(Cost { cpu_seconds: server.map_or(f64::NAN, cpu_seconds), flushes })
}

/// The number of the server's first process, where it runs on this machine: the parent of the one that serves us.
async fn process(connection: &mut PgConnection, options: &PgConnectOptions) -> Result<Option<u32>, AnyError> {
    let near = options.get_socket().is_some() || near::is_near(options.get_host());
    let session: i32 = connection.fetch_one("SELECT pg_backend_pid()").await?.try_get(0)?;
    // A tunnel or a container may give numbers of another machine: those are not PostgreSQL's here, or only by chance.
    let parent = Process::read(&session.to_string()).filter(|process| near && is_postgres(process));
    let parent = parent.map(|process| process.parent);
    Ok(parent.filter(|parent| Process::read(&parent.to_string()).as_ref().is_some_and(is_postgres)))
}

fn is_postgres(process: &Process) -> bool {
    process.name == "postgres"
}

/// CPU time of the server whose first process is `server`, and of all its processes, those that have ended included.
fn cpu_seconds(server: u32) -> f64 {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.into_string().ok()?.parse::<u32>().ok());
    let own = numbers.filter_map(|number| {
        let process = Process::read(&number.to_string())?;
        (number == server || process.parent == server).then_some(process.cpu_seconds)
    });
    own.sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_error_names_the_server_and_no_password() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let refused = runtime.block_on(connect("postgres://me:secret@127.0.0.1:1/db")).err().unwrap().to_string();
        assert!(refused.starts_with("--server me@127.0.0.1:1/db: "), "{refused}");
        let wrong = options("postgres://me:secret@127.0.0.1:x/db").err().unwrap().to_string();
        assert!(wrong.starts_with("--server") && !wrong.contains("secret"), "{wrong}");
    }
}
