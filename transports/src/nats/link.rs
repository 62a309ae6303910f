//! The connection, which the client mends by itself: how often it was lost is counted, since what was asked before may never be answered.

use std::{sync::Arc, time::Duration};

use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr, jetstream, rustls::ClientConfig as Config,
};
use hapax_core::ports::{ErrorKind, TransportError};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};

use super::{
    NatsOptions,
    errors::{late, refusal, unanswered},
    message::unescaped,
    options::Tls,
};

/// After as long without a word the driver asks whether the server is still there; twice unanswered, the connection is taken for
/// lost. What a process has that is cut off goes to nobody meanwhile.
const PING: Duration = Duration::from_secs(10);
/// Between two tries to connect again, at most.
const REST_MAX: Duration = Duration::from_secs(2);
/// The oldest server that has what is asked of it.
const OLDEST: (i64, i64) = (2, 9);

const CONNECTING: &str = "connecting to NATS";

/// How the connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) is_up: bool,
    /// How often it was lost: what was asked before may never be answered.
    pub(super) losses: u64,
}

/// The connection to a server, or to one after the other of a cluster. It is mended by the driver; what was under way is for whoever
/// had it.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) jetstream: jetstream::Context,
    line: watch::Receiver<Line>,
    place: String,
    pub(super) patience: Duration,
}

/// The servers of a URL, which may hold a password: so it is not repeated.
pub(super) fn addresses(url: &str) -> Result<Vec<ServerAddr>, &'static str> {
    let addresses: Result<Vec<ServerAddr>, std::io::Error> = url.split(',').map(|url| url.trim().parse()).collect();
    let addresses = addresses.map_err(|_| "the URL is not nats://USER:PASSWORD@HOST:PORT")?;
    if addresses.iter().any(|address| !["nats", "tls"].contains(&address.scheme())) {
        return Err("the URL is not nats://USER:PASSWORD@HOST:PORT, or tls:// instead");
    }
    Ok(addresses)
}

impl Link {
    pub(super) async fn open(url: &str, options: &NatsOptions) -> Result<Self, TransportError> {
        let misconfigured = |why: String| TransportError::new(ErrorKind::Misconfigured, CONNECTING, why);
        let addresses = addresses(url).map_err(|why| misconfigured(why.to_owned()))?;
        let uses_tls = addresses.iter().any(|address| address.scheme() == "tls");
        if uses_tls && !cfg!(feature = "tls-ring") {
            return Err(misconfigured("the URL asks for TLS (tls://); build hapax with the feature `tls-ring`".into()));
        }
        let places: Vec<String> =
            addresses.iter().map(|address| format!("{}:{}", address.host(), address.port())).collect();
        let place = format!("NATS at {}", places.join(", "));

        let (told, line) = watch::channel(Line { is_up: true, losses: 0 });
        let told = Arc::new(told);
        let name = options.connection_name.clone().unwrap_or_else(|| "hapax".into());
        let log_place = place.clone();
        let mut connect = ConnectOptions::new()
            .name(name)
            .connection_timeout(options.patience)
            .request_timeout(Some(options.patience))
            .ping_interval(PING)
            .max_reconnects(None)
            .reconnect_delay_callback(|tries| {
                if tries < 2 {
                    Duration::ZERO
                } else {
                    (Duration::from_millis(50) * 2_u32.pow(tries.min(8) as u32)).min(REST_MAX)
                }
            })
            .event_callback(move |event| {
                heard(&event, &told, &log_place);
                std::future::ready(())
            });
        // The driver does not look for them there.
        if let Some((user, password)) =
            addresses.iter().find_map(|address| Some((address.username()?, address.password())))
        {
            connect = match password {
                Some(password) => connect.user_and_password(unescaped(user), unescaped(password)),
                None => connect.token(unescaped(user)),
            };
        }
        if let Some(credentials) = &options.credentials.0 {
            connect = connect.credentials(credentials).map_err(|_| {
                misconfigured("the credentials are not the text of a file of credentials (.creds)".into())
            })?;
        }
        if let Some(tls) = tls(&options.tls, uses_tls).map_err(misconfigured)? {
            connect = connect.require_tls(true).tls_client_config(tls);
        }
        let addresses = addresses.into_iter().map(nameless).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.map_err(|e| misconfigured(format!("{place}: {e}")))?;
        let connected = timeout(options.patience, connect.connect(addresses)).await;
        let client = match connected {
            Ok(Ok(client)) => client,
            Ok(Err(e)) => return Err(not_connected(&place, &e).caused_by(e)),
            Err(_) => return Err(late(CONNECTING, &place, options.patience, false)),
        };
        let (major, minor) = OLDEST;
        if !client.is_server_compatible(major, minor, 0) {
            let version = client.server_info().version;
            return Err(misconfigured(format!("{place} is version {version}; queues need {major}.{minor} or later")));
        }
        // A call sends all it has before it waits for any answer. With a bound on what is unanswered, calls that have come to it together
        // would wait for each other for ever; what each caller may have under way is bounded by the caller.
        let jetstream = jetstream::ContextBuilder::new()
            .timeout(options.patience)
            .max_ack_inflight(Semaphore::MAX_PERMITS)
            .build(client.clone());
        Ok(Self { client, jetstream, line, place, patience: options.patience })
    }

    /// The server, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// What the server takes in one message, headers included, in bytes.
    pub(super) fn payload_max(&self) -> usize {
        self.client.max_payload()
    }

    /// How the connection is from now on.
    pub(super) fn line(&self) -> watch::Receiver<Line> {
        let mut line = self.line.clone();
        line.mark_unchanged();
        line
    }

    pub(super) fn is_up(&self) -> bool {
        self.line.borrow().is_up
    }

    /// Waits until it is up, for so long at most. Whether it is.
    pub(super) async fn up_within(&self, longest: Duration) -> bool {
        let mut line = self.line.clone();
        matches!(timeout(longest, line.wait_for(|line| line.is_up)).await, Ok(Ok(_)))
    }

    /// What JetStream answers to a request.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        subject: String,
        request: &Value,
    ) -> Result<Value, TransportError> {
        match self.request(subject, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(refusal(operation, &self.place, &error)),
            Err(e) => Err(unanswered(operation, &self.place, self.patience, e)),
        }
    }

    /// The same, with what JetStream refuses as a value.
    pub(super) async fn request(
        &self,
        subject: String,
        request: &Value,
    ) -> Result<Result<Value, jetstream::Error>, jetstream::context::RequestError> {
        use jetstream::response::Response;
        Ok(match self.jetstream.request::<_, _, Response<Value>>(subject, request).await? {
            Response::Err { error } => Err(error),
            Response::Ok(answer) => Ok(answer),
        })
    }
}

/// Ends when the connection is lost that was there when `line` was taken.
pub(super) async fn lost(line: &mut watch::Receiver<Line>, losses: u64) {
    // It ends also when nobody tells any more.
    drop(line.wait_for(|line| line.losses != losses).await);
}

/// What the driver tells of the connection.
fn heard(event: &Event, told: &watch::Sender<Line>, place: &str) {
    match event {
        Event::Connected => told.send_modify(|line| line.is_up = true),
        Event::Disconnected => {
            tracing::warn!("{place} has ended the connection, or cannot be reached");
            told.send_modify(|line| *line = Line { is_up: false, losses: line.losses + 1 });
        }
        Event::Closed => told.send_modify(|line| *line = Line { is_up: false, losses: line.losses + 1 }),
        Event::SlowConsumer(_) => tracing::warn!("{place} gives more than was taken; what was not, comes again"),
        Event::ServerError(error) => tracing::warn!("{place} says: {error}"),
        Event::ClientError(error) => tracing::debug!("{place}: {error}"),
        Event::LameDuckMode | Event::Draining => tracing::info!("{place} is about to end the connection"),
    }
}

/// An address without who connects: the driver shows addresses in its logs, at `debug`, and does not look for a user there.
fn nameless(address: ServerAddr) -> std::io::Result<ServerAddr> {
    let mut url = address.into_inner();
    // They are refused where there is no host, and then there is no user either.
    let _ = (url.set_username(""), url.set_password(None));
    ServerAddr::from_url(url)
}

fn not_connected(place: &str, error: &async_nats::ConnectError) -> TransportError {
    let (kind, why) = match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            (ErrorKind::Denied, "does not let this account in: check user, password, token or credentials")
        }
        _ if said_by(error, "certificate") => (
            ErrorKind::Misconfigured,
            "shows a certificate that is not trusted, or is another host's, or wants one of the client: name its authority (NatsOptions::certificate_authority), the host as its certificate does, and the client's certificate",
        ),
        ConnectErrorKind::Tls => (ErrorKind::Misconfigured, "does not speak TLS as this does"),
        _ => (ErrorKind::Unavailable, "cannot be reached: check host and port, and that NATS runs there"),
    };
    TransportError::new(kind, CONNECTING, format!("{place} {why}"))
}

fn said_by(error: &dyn std::error::Error, word: &str) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.to_string().to_ascii_lowercase().contains(word) {
            return true;
        }
        next = error.source();
    }
    false
}

/// What is certainly wrong is found before a server is asked.
fn tls(options: &Tls, is_used: bool) -> Result<Option<Config>, String> {
    let Tls { authority, client } = options;
    if (authority.is_some() || client.is_some()) && !is_used {
        return Err("a certificate was given, and the URL does not ask for TLS: begin it with tls://".into());
    }
    if authority.as_ref().is_some_and(|pem| !pem.contains("-----BEGIN CERTIFICATE-----")) {
        return Err("the certificate authority is not PEM: it has no line `-----BEGIN CERTIFICATE-----`".into());
    }
    let has = |pem: &[u8], what: &[u8]| pem.windows(what.len()).any(|part| part == what);
    if client.as_ref().is_some_and(|(pem, _)| !has(pem, b"-----BEGIN CERTIFICATE-----")) {
        return Err("the client's certificate is not PEM: it has no line `-----BEGIN CERTIFICATE-----`".into());
    }
    if client.as_ref().is_some_and(|(_, key)| !has(key, b"PRIVATE KEY-----")) {
        return Err("the client's key is not PEM: it has no line `-----BEGIN PRIVATE KEY-----`".into());
    }
    if is_used { configured(options).map(Some) } else { Ok(None) }
}

#[cfg(feature = "tls-ring")]
fn configured(options: &Tls) -> Result<Config, String> {
    use async_nats::rustls::{
        RootCertStore, crypto,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    };
    let malformed = |what: &str| format!("{what} is not PEM that can be read");
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for certificate in options.authority.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem.as_bytes())) {
        let certificate = certificate.map_err(|_| malformed("the certificate authority"))?;
        roots.add(certificate).map_err(|e| format!("the certificate authority is of no use: {e}"))?;
    }
    let builder = Config::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &options.client else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|_| malformed("the client's certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| malformed("the client's key"))?;
    builder.with_client_auth_cert(chain, key).map_err(|e| format!("the client's certificate is of no use: {e}"))
}

#[cfg(not(feature = "tls-ring"))]
fn configured(_: &Tls) -> Result<Config, String> {
    Err("build hapax with the feature `tls-ring`".into()) // It was asked for before.
}
