//! Where the log is read: the slot and the publication, and whether the server lets it be read at all.

use std::sync::Arc;

use hapax_core::ports::StoreError;
use sqlx::{ConnectOptions as _, Row as _, postgres::PgArguments, postgres::PgConnectOptions, postgres::PgSslMode};

use super::{
    super::super::{arguments::Bind, wire::Server},
    LogOptions, misconfigured,
    storing::GAP,
};
use crate::sql::{outbox::lanes, tls};
use pgwire_replication::ReplicationConfig;

pub(super) const OPENING: &str = "opening the log of a PostgreSQL outbox";
/// Of a slot or a publication.
const NAME_MAX: usize = 60;
/// With which values are sent as they are, not as text.
const VERSION_MIN: i32 = 140_000;

/// What is asked of the server: `$1` slot, `$2` publication.
const SERVER: &str = "\
    SELECT current_setting('wal_level'), current_setting('server_version_num')::int, \
      coalesce((SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user), false), current_user::text, \
      current_database()::text, pg_size_bytes(current_setting('max_slot_wal_keep_size'))";
const PUBLISHED: &str = "SELECT 1 FROM pg_publication WHERE pubname = $1::name";
/// A slot, and whether the server has thrown away what it was to keep.
const SLOT: &str = "\
    SELECT coalesce(wal_status = 'lost', false), active FROM pg_replication_slots WHERE slot_name = $1::name";
const DROP_SLOT: &str =
    "SELECT pg_drop_replication_slot($1::name) FROM pg_replication_slots WHERE slot_name = $1::name";
const CREATE_SLOT: &str = "\
    SELECT pg_create_logical_replication_slot($1::name, 'pgoutput') \
    WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1::name)";

#[derive(Debug)]
pub(super) struct Place {
    pub(super) slot: String,
    publication: String,
    /// What messages without a table begin with: those of this outbox.
    pub(super) prefix: String,
    keeps_rows: bool,
    config: ReplicationConfig,
}

/// How a slot was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Free,
    /// Somebody else reads.
    Taken,
    /// It was made just now.
    New,
}

impl Place {
    pub(super) async fn find(options: &LogOptions, server: &Server) -> Result<Self, StoreError> {
        let pooled = || misconfigured(server, "the log cannot be read through a connection pooler".to_owned());
        let session = server.session().ok_or_else(pooled)?;
        let mut wire = server.wire();
        let rows = wire.read(&server.text(SERVER), PgArguments::default()).await;
        wire.close().await;
        let rows = rows.map_err(|fault| fault.store_error(OPENING, server.place()))?;
        let broken = |e: sqlx::Error| misconfigured(server, e.to_string());
        let row = rows.first().ok_or_else(|| misconfigured(server, "it tells nothing of itself".to_owned()))?;
        let level: String = row.try_get(0).map_err(broken)?;
        let (version, may): (i32, bool) = (row.try_get(1).map_err(broken)?, row.try_get(2).map_err(broken)?);
        let kept: i64 = row.try_get(5).map_err(broken)?;
        let (role, name): (String, String) = (row.try_get(3).map_err(broken)?, row.try_get(4).map_err(broken)?);
        let wrong = if version < VERSION_MIN {
            Some(format!("its version is {version}, and its log is read from {VERSION_MIN} on"))
        } else if level != "logical" {
            Some(format!("its log says too little: set `wal_level = logical` (it is `{level}`) and restart it"))
        } else if !may {
            Some(format!("the role may not read its log: `ALTER ROLE \"{role}\" REPLICATION`"))
        } else if !options.keeps_rows && kept >= 0 && u64::try_from(kept).is_ok_and(|kept| kept < options.lag_bytes_max)
        {
            Some(format!(
                "it throws messages away when {kept} bytes of log have gathered, before they are put into the table at {}: set \
                 `max_slot_wal_keep_size` higher, or `LogOptions::lag_bytes_max` lower",
                options.lag_bytes_max
            ))
        } else {
            None
        };
        if let Some(why) = wrong {
            return Err(misconfigured(server, why));
        }
        let channel = server.channel() + "outbox";
        let usual = || format!("hapax_outbox_{:016x}", lanes::number(&format!("{name}/{channel}")));
        let slot = options.slot.clone().unwrap_or_else(usual);
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if slot.is_empty() || slot.len() > NAME_MAX || !slot.chars().all(is_plain) {
            let why = format!(
                "the slot's name `{}` is not of 1 to {NAME_MAX} lower-case ASCII letters, digits and `_`",
                slot.escape_debug()
            );
            return Err(misconfigured(server, why));
        }
        let publication = slot.clone() + if options.keeps_rows { "_r" } else { "_m" };
        let config = config(&session, &name, &slot, &publication).map_err(|why| misconfigured(server, why))?;
        Ok(Self { slot, publication, prefix: channel, keeps_rows: options.keeps_rows, config })
    }

    /// What makes the publication, as plain SQL with the names in it. Harmless when run again.
    fn publication_sql(&self, server: &Server) -> Arc<str> {
        // Of a table with time partitions the log tells as of one table.
        let rows = "FOR TABLE hapax.outbox WITH (publish = 'insert', publish_via_partition_root = true)";
        let what = if self.keeps_rows { rows } else { "" };
        let create = server.text(&format!("CREATE PUBLICATION \"{}\" {what}", self.publication));
        format!("DO $$ BEGIN {create}; EXCEPTION WHEN duplicate_object THEN NULL; END $$").into()
    }

    /// What the log is to tell of.
    pub(super) async fn publish(&self, server: &Server, may_create: bool) -> Result<(), StoreError> {
        let mut wire = server.wire();
        let mut arguments = PgArguments::default();
        arguments.bind(self.publication.clone());
        let found = wire.read(&PUBLISHED.into(), arguments).await;
        let mut done = found.map(|rows| !rows.is_empty());
        let sql = self.publication_sql(server);
        if matches!(done, Ok(false)) && may_create {
            done = wire.write(&sql, PgArguments::default()).await.map(|_| true);
        }
        wire.close().await;
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(misconfigured(
                server,
                format!("there is no publication for its log: set `migrate(true)`, or run {sql}"),
            )),
            Err(fault) => Err(fault.store_error(OPENING, server.place())),
        }
    }

    /// Makes the slot if it is not there. One that was there before and is gone, or has lost what it was to keep, is a gap: that is
    /// counted, and said.
    pub(super) async fn keep_slot(&self, server: &Server) -> Result<Found, StoreError> {
        let mut wire = server.wire();
        let name = || {
            let mut arguments = PgArguments::default();
            arguments.bind(self.slot.clone());
            arguments
        };
        let failed = |fault: super::Fault| fault.store_error(OPENING, server.place());
        let rows = wire.read(&SLOT.into(), name()).await.map_err(failed)?;
        let told = |at: usize| rows.first().and_then(|row| row.try_get::<bool, _>(at).ok());
        let is_lost = told(0) == Some(true);
        if !rows.is_empty() && !is_lost {
            let found = if told(1) == Some(true) { Found::Taken } else { Found::Free };
            wire.close().await;
            return Ok(found);
        }
        if is_lost {
            wire.write(&DROP_SLOT.into(), name()).await.map_err(failed)?;
        }
        let made = wire.write(&CREATE_SLOT.into(), name()).await;
        if let Err(fault) = made {
            // Somebody else may have been faster.
            let there = wire.read(&SLOT.into(), name()).await.map_err(failed)?;
            wire.close().await;
            return if there.is_empty() { Err(failed(fault)) } else { Ok(Found::Free) };
        }
        let gaps = wire.write(&server.text(GAP), PgArguments::default()).await.map_err(failed)?;
        wire.close().await;
        if !gaps.is_empty() {
            tracing::error!(
                place = %server.place(), slot = self.slot,
                "messages may be lost: the slot that kept the log for them is gone, or was given up by the server; it was made anew. \
                 Look which messages were stored since the relay was last seen"
            );
        }
        Ok(Found::New)
    }

    pub(super) fn config(&self) -> ReplicationConfig {
        self.config.clone()
    }
}

/// How the driver of the log reaches the server: as the other one does, but for TLS, for which it would bring a second
/// implementation of all cryptography into the program.
fn config(
    session: &PgConnectOptions,
    database: &str,
    slot: &str,
    publication: &str,
) -> Result<ReplicationConfig, String> {
    // The only way to what the other driver keeps to itself. A name may hold what a URL does not.
    let url = session.clone().username("user").host("localhost").database("database").to_url_lossy();
    let password = url.password().unwrap_or_default();
    let password = percent_encoding::percent_decode_str(password).decode_utf8_lossy().into_owned();
    let (user, port, host) = (session.get_username(), session.get_port(), session.get_host());
    if let Some(socket) = session.get_socket() {
        let folder = socket.to_string_lossy();
        return Ok(ReplicationConfig::unix(folder, port, user, password, database, slot, publication));
    }
    match session.get_ssl_mode() {
        PgSslMode::Disable | PgSslMode::Allow => {}
        PgSslMode::Prefer if tls::is_near(host) => {}
        PgSslMode::Prefer => {
            return Err("the log is read without TLS, so that whoever listens on the way sees the messages: say \
                        `sslmode=disable` in the URL if that is meant, or reach the server by a tunnel or a socket"
                .to_owned());
        }
        PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => {
            return Err(
                "the log cannot be read over TLS, which the URL asks for, or a server on another machine needs: \
                        reach it by a tunnel or a socket, or relay without the log; where the way there is trusted, \
                        `sslmode=disable` in the URL with `danger_unverified_tls(true)` does without"
                    .to_owned(),
            );
        }
    }
    Ok(ReplicationConfig::new(host, user, password, database, slot, publication).with_port(port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sqlx::postgres::{PgConnectOptions, PgSslMode};

    use super::config;

    #[test]
    fn the_server_is_reached_as_by_the_other_driver() {
        let options = PgConnectOptions::new_without_pgpass().host("db.example").port(6543).username("sh@p/1");
        let options = options.password("p:w@/ d%").ssl_mode(PgSslMode::Disable);
        let config = config(&options, "sh op", "slot", "publication").unwrap();
        assert_eq!((config.host.as_str(), config.port, config.database.as_str()), ("db.example", 6543, "sh op"));
        assert_eq!((config.user.as_str(), config.password.as_str()), ("sh@p/1", "p:w@/ d%"));
    }

    #[test]
    fn nothing_is_read_in_the_clear_that_was_not_meant_to_be() {
        let options = PgConnectOptions::new_without_pgpass();
        let opened = |host: &str, mode| config(&options.clone().host(host).ssl_mode(mode), "d", "s", "p").map(drop);
        assert!(opened("db.example", PgSslMode::Prefer).unwrap_err().contains("sslmode=disable"));
        assert!(opened("localhost", PgSslMode::Require).unwrap_err().contains("TLS"));
        for near in ["localhost", "127.0.0.1", "::1"] {
            opened(near, PgSslMode::Prefer).unwrap();
        }
        opened("db.example", PgSslMode::Disable).unwrap();
    }

    #[test]
    fn a_socket_is_a_folder() {
        let options = PgConnectOptions::new_without_pgpass().socket("/run/postgresql").port(5433);
        let config = config(&options, "d", "s", "p").unwrap();
        assert!(config.is_unix_socket() && config.host == "/run/postgresql" && config.port == 5433);
    }
}
