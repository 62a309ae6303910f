//! How a server is reached. A connection that is lost is not mended, and one that is let go of is closed: else its consumers would go on to get
//! messages.

use std::{ops::Deref, str::FromStr, time::Duration};

use futures_util::FutureExt;
use hapax_core::ports::{ErrorKind, TransportError};
use lapin::{
    Connection, ConnectionProperties, DefaultConnectionBuilder,
    tcp::{OwnedIdentity, OwnedTLSConfig},
    types::ShortString,
    uri::{AMQPScheme, AMQPUri},
};
use tokio::time::timeout;

use super::{
    RabbitMqOptions,
    errors::{error_of, late},
    options::Tls,
};

/// Seconds after which a connection that is silent is taken for lost, unless the URL says otherwise: a third of what the
/// server asks for, since messages of a process that is cut off go to nobody meanwhile.
const HEARTBEAT: u16 = 20;

pub(super) const CONNECTING: &str = "connecting to RabbitMQ";

/// A connection that is closed when it is dropped. The driver's own would stay as long as anything holds one of its parts, such
/// as an answer that comes too late for who asked; and to a consumer that nobody asks the server goes on giving messages.
pub(super) struct Linked(Connection);

impl Deref for Linked {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        // Once is enough to have it said; nobody waits for the answer.
        drop(self.0.close(200, ShortString::default()).now_or_never());
    }
}

/// How a server is reached.
pub(super) struct Link {
    uri: AMQPUri,
    tls: OwnedTLSConfig,
    place: String,
    name: String,
    pub(super) patience: Duration,
}

impl Link {
    pub(super) fn new(url: &str, options: &RabbitMqOptions) -> Result<Self, TransportError> {
        let misconfigured = |why: String| TransportError::new(ErrorKind::Misconfigured, CONNECTING, why);
        // The URL itself may hold a password, so it is not repeated.
        let mut uri = AMQPUri::from_str(url).map_err(|problem| {
            misconfigured(format!("the URL is not amqp://USER:PASSWORD@HOST:PORT/VHOST: {problem}"))
        })?;
        if uri.scheme == AMQPScheme::AMQPS && !cfg!(feature = "tls-ring") {
            return Err(misconfigured(
                "the URL asks for TLS (amqps://); build hapax with the feature `tls-ring`".into(),
            ));
        }
        let tls = tls(&options.tls, uri.scheme == AMQPScheme::AMQPS).map_err(|why| misconfigured(why.to_owned()))?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        let place = format!("RabbitMQ at {}:{}, virtual host `{}`,", uri.authority.host, uri.authority.port, uri.vhost);
        let name = options.connection_name.clone().unwrap_or_else(|| "hapax".into());
        Ok(Self { uri, tls, place, name, patience: options.patience })
    }

    /// The server, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// A new connection, which ends with what is given. Lost ones are not mended by the driver: what was unsettled or unconfirmed on one has to be
    /// accounted for by whoever had it.
    pub(super) async fn connect(&self) -> Result<Linked, TransportError> {
        let properties = ConnectionProperties::default().with_connection_name(self.name.as_str().into());
        let connect = async {
            let builder = DefaultConnectionBuilder::new()?.with_uri(self.uri.clone()).with_properties(properties);
            builder.with_tls_config(self.tls.clone()).connect().await
        };
        match timeout(self.patience, connect).await {
            Ok(connected) => connected.map(Linked).map_err(|e| error_of(CONNECTING, &self.place, e, false)),
            Err(_) => Err(late(CONNECTING, &self.place, self.patience, false)),
        }
    }
}

/// What is certainly wrong is found before a server is asked: the driver leaves out what it cannot read.
fn tls(options: &Tls, is_used: bool) -> Result<OwnedTLSConfig, &'static str> {
    let Tls { authority, client } = options;
    if (authority.is_some() || client.is_some()) && !is_used {
        return Err("a certificate was given, and the URL does not ask for TLS: begin it with amqps://");
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
    let identity = client.clone().map(|(pem, key)| OwnedIdentity::PKCS8 { pem, key });
    Ok(OwnedTLSConfig { identity, cert_chain: authority.clone() })
}
