use std::{ops::Deref, str::FromStr, time::Duration};

use futures_util::FutureExt;
use hapax_core::ports::{ErrorKind, TransportError};
use lapin::{
    Connection, ConnectionProperties,
    types::ShortString,
    uri::{AMQPScheme, AMQPUri},
};
use tokio::time::timeout;

use super::{
    RabbitMqOptions,
    errors::{error_of, late},
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
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        let place = format!("RabbitMQ at {}:{}, virtual host `{}`,", uri.authority.host, uri.authority.port, uri.vhost);
        let name = options.connection_name.clone().unwrap_or_else(|| "hapax".into());
        Ok(Self { uri, place, name, patience: options.patience })
    }

    /// The server, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// A new connection, which ends with what is given. Lost ones are not mended by the driver: what was unsettled or unconfirmed on one has to be
    /// accounted for by whoever had it.
    pub(super) async fn connect(&self) -> Result<Linked, TransportError> {
        let properties = ConnectionProperties::default().with_connection_name(self.name.as_str().into());
        match timeout(self.patience, Connection::connect_uri(self.uri.clone(), properties)).await {
            Ok(connected) => connected.map(Linked).map_err(|e| error_of(CONNECTING, &self.place, e, false)),
            Err(_) => Err(late(CONNECTING, &self.place, self.patience, false)),
        }
    }
}
