//! Connections, made anew by whoever needs one; and which server, and which run of it, each of them reaches.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, ProtocolVersion,
    RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cmd, pipe,
};
use hapax_core::ports::{ErrorKind, TransportError};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    answer::{number, text},
    errors::{NO_SCRIPT, error_of, late},
    options::{MayLose, RedisStreamsOptions, Tls},
    scripts::{Loaded, Script},
    survey::Survey,
};

/// After a connection could not be made, none is tried for as long: else each message that waits would wait for a try.
const REST: Duration = Duration::from_millis(500);

pub(super) const CONNECTING: &str = "connecting to Redis";

/// How a server is reached.
pub(super) struct Link {
    client: Client,
    place: String,
    name: String,
    accepted: MayLose,
    /// Whether some of the keys have a time to live.
    expires: bool,
    pub(super) patience: Duration,
}

/// A place for one connection, which is made anew when it was lost.
#[derive(Default)]
pub(super) struct Lane(Mutex<Current>);

#[derive(Default)]
struct Current {
    open: Option<Arc<Open>>,
    /// When a connection could not be made, and why.
    failed: Option<(Instant, ErrorKind, String)>,
}

/// A connection. It is shared: what is asked at the same time goes together, and is answered in the order in which it was asked.
pub(super) struct Open {
    connection: MultiplexedConnection,
    pub(super) scripts: Loaded,
    /// How the server calls it; `None` if it does not say.
    pub(super) id: Option<i64>,
    /// Which run of which server it is; `None` if it does not say.
    run: Option<String>,
    /// What the server may lose of what it confirms.
    pub(super) may_lose: MayLose,
    is_lost: AtomicBool,
}

impl Link {
    pub(super) fn new(url: &str, options: &RedisStreamsOptions) -> Result<Self, TransportError> {
        let misconfigured = |why: String| TransportError::new(ErrorKind::Misconfigured, CONNECTING, why);
        let is_tls = url.starts_with("rediss://") || url.starts_with("valkeys://");
        if is_tls && !cfg!(feature = "tls-ring") {
            let why = "the URL asks for TLS (rediss://); build hapax with the feature `tls-ring`";
            return Err(misconfigured(why.into()));
        }
        check(&options.tls, is_tls).map_err(|why| misconfigured(why.to_owned()))?;
        // The URL itself may hold a password, so it is not repeated, nor what the driver says of it.
        let info = url.into_connection_info();
        let info = info.map_err(|_| misconfigured("the URL is not redis://USER:PASSWORD@HOST:PORT/DATABASE".into()))?;
        if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            let why = "the URL ends with #insecure, so that any certificate would be believed: leave it out, and name an authority of your own with \
                       `certificate_authority`";
            return Err(misconfigured(why.into()));
        }
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
        let database = settings.db();
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        let place = match info.addr() {
            ConnectionAddr::Unix(path) => format!("Redis at {}, database {database},", path.display()),
            addr => format!("Redis at {addr}, database {database},"),
        };
        let name = options.connection_name.clone().unwrap_or_else(|| "hapax".into());
        let client = client(info, &options.tls)
            .map_err(|e| misconfigured("a certificate or key cannot be read: give them as PEM".into()).caused_by(e))?;
        let expires = options.unused_max.is_some() || options.ordered_keys;
        Ok(Self { client, place, name, accepted: options.may_lose, expires, patience: options.patience })
    }

    /// The server, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// What its connections are called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The connection of `lane`, if it is there.
    pub(super) fn opened(&self, lane: &Lane) -> Option<Arc<Open>> {
        let current = lane.0.try_lock().ok()?;
        current.open.clone().filter(|open| !open.is_lost.load(Ordering::Relaxed))
    }

    /// The connection of `lane`, made anew if it was lost.
    pub(super) async fn open(&self, lane: &Lane) -> Result<Arc<Open>, TransportError> {
        let mut current = lane.0.lock().await;
        if let Some(open) = &current.open
            && !open.is_lost.load(Ordering::Relaxed)
        {
            return Ok(open.clone());
        }
        current.open = None;
        if let Some((when, kind, why)) = &current.failed
            && when.elapsed() < REST
        {
            return Err(TransportError::new(*kind, CONNECTING, why.clone()));
        }
        let connected = match timeout(self.patience, self.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(late(CONNECTING, &self.place, self.patience, false)),
        };
        match connected {
            Ok(open) => {
                let open = Arc::new(open);
                *current = Current { open: Some(open.clone()), failed: None };
                Ok(open)
            }
            Err(e) => {
                current.failed = Some((Instant::now(), e.kind(), format!("a moment ago: {e}")));
                Err(e)
            }
        }
    }

    /// A new connection to a server that does. Lost ones are not mended by the driver: what was unsettled or unconfirmed on one
    /// has to be accounted for by whoever had it.
    async fn connect(&self) -> Result<Open, TransportError> {
        let failed = |e: RedisError| error_of(CONNECTING, &self.place, e, false);
        // How long it may take is said by whoever asks.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        let survey = Survey::of(&mut connection, &self.place).await?;
        let may_lose = survey.judge(&self.place, self.accepted, self.expires)?;
        let run = survey.run().map(str::to_owned);
        // Blanks are not allowed in it, and it is of no further use.
        let name: String = self.name.chars().filter(char::is_ascii_graphic).collect();
        let _ = cmd("CLIENT").arg("SETNAME").arg(name).query_async::<Value>(&mut connection).await;
        let id = cmd("CLIENT").arg("ID").query_async::<Value>(&mut connection).await;
        let id = id.ok().and_then(|id| number(&id));
        let scripts = load(&mut connection).await.map_err(failed)?;
        Ok(Open { connection, scripts, id, run, may_lose, is_lost: AtomicBool::new(false) })
    }

    /// Asks the server. `written`: what is asked changes something.
    pub(super) async fn ask(
        &self,
        lane: &Lane,
        operation: &'static str,
        written: bool,
        command: impl FnOnce(&Loaded) -> Cmd,
    ) -> Result<Value, TransportError> {
        let open = self.open(lane).await?;
        let command = command(&open.scripts);
        self.ask_within(&open, operation, written, &command, self.patience).await
    }

    pub(super) async fn ask_within(
        &self,
        open: &Open,
        operation: &'static str,
        written: bool,
        command: &Cmd,
        patience: Duration,
    ) -> Result<Value, TransportError> {
        let mut connection = open.connection.clone();
        let asked = async {
            match command.query_async(&mut connection).await {
                // The server was told to forget its scripts, or is another one; nothing was done.
                Err(e) if RedisError::code(&e) == Some(NO_SCRIPT) => {
                    load(&mut connection).await?;
                    command.query_async(&mut connection).await
                }
                answered => answered,
            }
        };
        match timeout(patience, asked).await {
            Ok(answered) => answered.map_err(|e| {
                open.judge(&e);
                error_of(operation, &self.place, e, written)
            }),
            Err(_) => {
                open.is_lost.store(true, Ordering::Relaxed);
                Err(late(operation, &self.place, patience, written))
            }
        }
    }

    /// Asks the server for several things in one go, which change something. An answer for each, in their order.
    pub(super) async fn ask_all(
        &self,
        open: &Open,
        operation: &'static str,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, TransportError>>, TransportError> {
        self.ask_all_within(open, operation, true, commands, self.patience).await
    }

    pub(super) async fn ask_all_within(
        &self,
        open: &Open,
        operation: &'static str,
        written: bool,
        commands: &Pipeline,
        patience: Duration,
    ) -> Result<Vec<Result<Value, TransportError>>, TransportError> {
        let mut connection = open.connection.clone();
        let asked = connection.req_packed_commands(commands, 0, commands.len());
        match timeout(patience, asked).await {
            Ok(Ok(answers)) => {
                let read = |answer| match answer {
                    Value::ServerError(e) => {
                        let e = RedisError::from(e);
                        open.judge(&e);
                        Err(error_of(operation, &self.place, e, written))
                    }
                    answer => Ok(answer),
                };
                Ok(answers.into_iter().map(read).collect())
            }
            Ok(Err(e)) => {
                open.judge(&e);
                Err(error_of(operation, &self.place, e, written))
            }
            Err(_) => {
                open.is_lost.store(true, Ordering::Relaxed);
                Err(late(operation, &self.place, patience, written))
            }
        }
    }
}

impl Open {
    /// Whether both are to the same server, and it has not begun anew in between: ids of clients mean the same there.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        self.run.is_some() && self.run == other.run
    }

    /// Who asks next gets another one.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Whether a new connection is needed after this: one that ended, a server that has another part now, or has lost the scripts.
    fn judge(&self, error: &RedisError) {
        let changed = error.code().is_some_and(|code| matches!(code, NO_SCRIPT | "READONLY" | "NOAUTH"));
        if changed || error.is_io_error() || error.is_unrecoverable_error() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

async fn load(connection: &mut MultiplexedConnection) -> Result<Loaded, RedisError> {
    let mut loads = pipe();
    for script in Script::ALL {
        loads.cmd("SCRIPT").arg("LOAD").arg(script.text());
    }
    let names: Vec<Value> = loads.query_async(connection).await?;
    let mut names = names.into_iter();
    Ok(Loaded(std::array::from_fn(|_| names.next().and_then(text).unwrap_or_default())))
}

/// What is certainly wrong is found before a server is asked.
fn check(tls: &Tls, is_used: bool) -> Result<(), &'static str> {
    let Tls { authority, client } = tls;
    if (authority.is_some() || client.is_some()) && !is_used {
        return Err("a certificate was given, and the URL does not ask for TLS: begin it with rediss://");
    }
    if authority.as_ref().is_some_and(|pem| !pem.contains("-----BEGIN CERTIFICATE-----")) {
        return Err("the certificate authority is not PEM: it has no line `-----BEGIN CERTIFICATE-----`");
    }
    let has = |pem: &[u8], what: &[u8]| pem.windows(what.len()).any(|part| part == what);
    if client.as_ref().is_some_and(|(pem, _)| !has(pem, b"-----BEGIN CERTIFICATE-----")) {
        return Err("the client's certificate is not PEM: it has no line `-----BEGIN CERTIFICATE-----`");
    }
    if client.as_ref().is_some_and(|(_, key)| !has(key, b"PRIVATE KEY-----")) {
        return Err("the client's key is not PEM: it has no line `-----BEGIN PRIVATE KEY-----`");
    }
    Ok(())
}

#[cfg(feature = "tls-ring")]
fn client(info: ConnectionInfo, tls: &Tls) -> Result<Client, RedisError> {
    use ::redis::{ClientTlsConfig, TlsCertificates};
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Client::open(info);
    }
    // The driver takes the process's provider, and panics where there is none: with two libraries in one program none is taken
    // for granted. Whoever has chosen one keeps it.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let client_tls = tls.client.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let root_cert = tls.authority.clone().map(String::into_bytes);
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
}

#[cfg(not(feature = "tls-ring"))]
fn client(info: ConnectionInfo, _: &Tls) -> Result<Client, RedisError> {
    Client::open(info)
}
