//! The server: a schema for each run, and what it costs there.

use std::{fs, time::Duration};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row, postgres::PgConnectOptions};

use crate::AnyError;

/// A schema for one run.
pub(super) struct Schema {
    pub(super) url: String,
    pub(super) name: String,
}

/// What the server has done so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// CPU seconds of its processes, where it runs on this machine.
    pub(super) cpu_seconds: f64,
    /// Flushes of its log.
    pub(super) flushes: i64,
}

impl Schema {
    /// Nothing is in it yet, not even itself.
    pub(super) async fn new(url: &str, name: &str) -> Result<Self, AnyError> {
        let schema = Self { url: url.to_owned(), name: format!("bench_{}_{name}", std::process::id()) };
        let mut connection = schema.connect().await?;
        schema.drop_in(&mut connection).await?;
        // The next run is not to pay for what this one's predecessor has left.
        connection.execute("CHECKPOINT").await?;
        connection.close().await?;
        Ok(schema)
    }

    pub(super) async fn connect(&self) -> Result<PgConnection, AnyError> {
        Ok(self.url.parse::<PgConnectOptions>()?.disable_statement_logging().connect().await?)
    }

    /// `text` with the schema's name in place of `{s}`.
    pub(super) fn text(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("{s}", &self.name))
    }

    async fn drop_in(&self, connection: &mut PgConnection) -> Result<(), AnyError> {
        connection.execute("SET client_min_messages = warning").await?;
        connection.execute(sqlx::raw_sql(self.text("DROP SCHEMA IF EXISTS {s} CASCADE"))).await?;
        Ok(())
    }

    pub(super) async fn remove(self) -> Result<(), AnyError> {
        let mut connection = self.connect().await?;
        self.drop_in(&mut connection).await?;
        Ok(connection.close().await?)
    }

    pub(super) async fn cost(&self) -> Result<Cost, AnyError> {
        // Sessions hand their counts over when they are idle, at most a second later.
        tokio::time::sleep(HANDED_OVER).await;
        let mut connection = self.connect().await?;
        let row = connection.fetch_one("SELECT wal_sync, pg_backend_pid() FROM pg_stat_wal").await?;
        let (flushes, backend) = (row.try_get(0)?, row.try_get(1)?);
        let cpu_seconds = cpu_seconds(backend);
        connection.close().await?;
        Ok(Cost { cpu_seconds, flushes })
    }
}

const HANDED_OVER: Duration = Duration::from_millis(1100);

/// CPU time of all processes of the server to which `backend` belongs, if it is on this machine, those that have ended
/// included: of this server alone, since others may be at work beside it.
fn cpu_seconds(backend: i32) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    /// Of what follows the name in a process's `stat`: its parent, user and system time, and those of its children that
    /// have ended, which only the postmaster has.
    const PARENT: usize = 1;
    const TIMES: [usize; 4] = [11, 12, 13, 14];
    let fields = |process: &str| -> Option<Vec<i64>> {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (name, rest) = text.rsplit_once(')')?;
        let fields = rest.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
        name.ends_with("(postgres").then_some(fields)
    };
    let Some(postmaster) = fields(&backend.to_string()).and_then(|fields| fields.get(PARENT).copied()) else {
        return f64::NAN;
    };
    let mut ticks = 0;
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(fields) = name.to_str().and_then(&fields) else { continue };
        if fields.get(PARENT) == Some(&postmaster) || name.to_str() == Some(&postmaster.to_string()) {
            ticks += TIMES.iter().filter_map(|at| fields.get(*at)).sum::<i64>();
        }
    }
    ticks as f64 / TICKS_PER_SECOND
}
