//! How a server is reached. A connection that is lost is not mended: what was unsettled or unconfirmed on it whoever had it accounts for.

use std::time::Duration;

use fe2o3_amqp::{
    Connection, Receiver, Sender, Session,
    connection::ConnectionHandle,
    link::{ReceiverAttachError, receiver::CreditMode},
    sasl_profile::SaslProfile,
    session::SessionHandle,
    types::{
        definitions::{Error as Said, ErrorCondition, Fields, ReceiverSettleMode, SenderSettleMode},
        messaging::{FilterSet, Source, Target},
        primitives::{Symbol, Value},
    },
};
use hapax_core::ports::{ErrorKind, TransportError};
use tokio::{net::TcpStream, time::timeout};

use super::{
    ServiceBusOptions,
    address::Address,
    errors::{late, of_begin, of_open, of_receiver, of_sender, of_tls},
    tls::Tls,
};

/// After so long without a word from the server a connection is taken for lost, in milliseconds. The service itself ends one that is silent for
/// four minutes; messages of a process that is cut off go to nobody meanwhile.
const IDLE_MILLIS: u32 = 60_000;

/// How long the end of a session is waited for before its connection is closed, which is an answer as good.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Highest number of a session on one connection: more than there are queues and topics to send to at a time, and those that are being left.
/// A server may take fewer.
const CHANNEL_MAX: u16 = 1023;

/// Which session a link is to have, or has.
const SESSION_FILTER: &str = "com.microsoft:session-filter";
/// How long the service may look for one, in milliseconds; also what it says when it has found none.
const TIMEOUT: &str = "com.microsoft:timeout";

pub(super) const CONNECTING: &str = "connecting to Service Bus";

/// How a namespace is reached.
pub(super) struct Link {
    address: Address,
    tls: Tls,
    place: String,
    name: String,
    pub(super) patience: Duration,
}

/// A connection with one session. Dropped, both are ended.
pub(super) struct Linked {
    // Before its connection.
    pub(super) session: SessionHandle<()>,
    connection: ConnectionHandle<()>,
}

impl Linked {
    /// As far as is known here.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_closed() || self.session.is_ended()
    }

    /// Another session on the same connection: what a server refuses ends the session it was asked on, with all that is on it.
    pub(super) async fn another_session(&mut self) -> Result<SessionHandle<()>, fe2o3_amqp::session::BeginError> {
        Session::begin(&mut self.connection).await
    }

    /// Takes leave, once all is written. Nothing where the server has said neither that the session has ended nor that the connection has: it
    /// says so after all that came before. RabbitMQ's plugin now and then leaves the end of a session without an answer, and answers that of its
    /// connection. Links are left by this, and not by themselves: RabbitMQ's plugin answers a link that is closed as one that is only detached,
    /// which the driver takes for a failure.
    pub(super) async fn close(mut self) -> Option<()> {
        // Of a session that was ended by the server, with an error, nothing is known.
        let ended = timeout(END_LIMIT, self.session.end()).await;
        let closed = self.connection.close().await;
        match ended {
            Ok(ended) => ended.ok(),
            Err(_) => closed.ok(),
        }
    }
}

impl Link {
    pub(super) fn new(address: Address, options: &ServiceBusOptions) -> Result<Self, TransportError> {
        let misconfigured = |why: String| TransportError::new(ErrorKind::Misconfigured, CONNECTING, why);
        let tls = Tls::of(options, address.is_tls).map_err(misconfigured)?;
        let name = options.connection_name.clone().unwrap_or_else(|| "hapax".into());
        Ok(Self { place: address.place(), address, tls, name, patience: options.patience })
    }

    /// The server, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) const fn address(&self) -> &Address {
        &self.address
    }

    /// A new connection. Lost ones are not mended by the driver: what was unsettled or unconfirmed on one has to be accounted for by
    /// whoever had it.
    pub(super) async fn connect(&self) -> Result<Linked, TransportError> {
        match timeout(self.patience, self.connected()).await {
            Ok(linked) => linked,
            Err(_) => Err(late(CONNECTING, &self.place, self.patience, false)),
        }
    }

    async fn connected(&self) -> Result<Linked, TransportError> {
        let Address { host, port, account, .. } = &self.address;
        let away = |error: std::io::Error| {
            let why = format!("{} cannot be reached: look at host and port", self.place);
            TransportError::new(ErrorKind::Unavailable, CONNECTING, why).caused_by(error)
        };
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(away)?;
        stream.set_nodelay(true).map_err(away)?;
        let profile = match account {
            Some((username, password)) => SaslProfile::Plain { username: username.clone(), password: password.clone() },
            None => SaslProfile::Anonymous,
        };
        // Each process and connection its own: the service tells them apart by that.
        let id = format!("{}-{:016x}", self.name, fastrand::u64(..));
        let builder = Connection::builder().container_id(id).hostname(host.as_str()).sasl_hostname(host.as_str());
        let builder = builder.idle_time_out(IDLE_MILLIS).channel_max(CHANNEL_MAX).sasl_profile(profile);
        // TLS is ours: the driver's own would choose its cryptography for the whole program.
        let opened = match self.tls.over(host, stream).await.map_err(|e| of_tls(CONNECTING, &self.place, e))? {
            super::tls::Stream::Plain(stream) => builder.open_with_stream(stream).await,
            #[cfg(feature = "tls-ring")]
            super::tls::Stream::Tls(stream) => builder.open_with_stream(stream).await,
        };
        let mut connection = opened.map_err(|e| of_open(CONNECTING, &self.place, e))?;
        let session = Session::begin(&mut connection).await.map_err(|e| of_begin(CONNECTING, &self.place, &e))?;
        Ok(Linked { session, connection })
    }

    /// A link on which messages go to `address`, each confirmed.
    pub(super) async fn sender(
        &self,
        operation: &'static str,
        session: &mut SessionHandle<()>,
        address: &str,
    ) -> Result<Sender, TransportError> {
        let attach = Sender::builder()
            .name(link_name(address))
            .target(Target::builder().address(address).build())
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .attach(session);
        match timeout(self.patience, attach).await {
            Ok(attached) => attached.map_err(|e| of_sender(operation, &self.place, e)),
            Err(_) => Err(late(operation, &self.place, self.patience, false)),
        }
    }

    /// A link on which messages come from `address`, none before credit is given, to be settled one by one.
    pub(super) async fn receiver(
        &self,
        operation: &'static str,
        session: &mut SessionHandle<()>,
        address: &str,
        answers_at: Option<&str>,
    ) -> Result<Receiver, TransportError> {
        let mut target = Target::builder();
        if let Some(answers_at) = answers_at {
            target = target.address(answers_at);
        }
        let attach = Receiver::builder()
            .name(link_name(address))
            .source(Source::builder().address(address).build())
            .target(target.build())
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .receiver_settle_mode(ReceiverSettleMode::First)
            .credit_mode(CreditMode::Manual)
            .attach(session);
        match timeout(self.patience, attach).await {
            Ok(attached) => attached.map_err(|e| of_receiver(operation, &self.place, e)),
            Err(_) => Err(late(operation, &self.place, self.patience, false)),
        }
    }

    /// A link on which the messages of one session come from `address`, the next that nobody has, with its id; nothing where there is none for
    /// half as long as an answer may take.
    pub(super) async fn session_receiver(
        &self,
        operation: &'static str,
        session: &mut SessionHandle<()>,
        address: &str,
    ) -> Result<Option<(Receiver, String)>, TransportError> {
        let wait = u32::try_from((self.patience / 2).as_millis()).unwrap_or(u32::MAX);
        let properties: Fields = [(Symbol::from(TIMEOUT), Value::Uint(wait))].into_iter().collect();
        let filter: FilterSet = [(Symbol::from(SESSION_FILTER), Value::Null)].into_iter().collect();
        let attach = Receiver::builder()
            .name(link_name(address))
            .source(Source::builder().address(address).filter(filter).build())
            .target(Target::builder().build())
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .receiver_settle_mode(ReceiverSettleMode::First)
            .credit_mode(CreditMode::Manual)
            .properties(properties)
            .attach(session);
        match timeout(self.patience, attach).await {
            Ok(Ok(receiver)) => match session_of(&receiver) {
                Some(id) => Ok(Some((receiver, id))),
                None => {
                    let why = format!("{} does not say which session it gives: has `{address}` sessions?", self.place);
                    Err(TransportError::new(ErrorKind::Misconfigured, operation, why))
                }
            },
            Ok(Err(ReceiverAttachError::RemoteClosedWithError(said))) if is_none_found(&said) => Ok(None),
            Ok(Err(error)) => Err(of_receiver(operation, &self.place, error)),
            Err(_) => Err(late(operation, &self.place, self.patience, false)),
        }
    }
}

/// Which session the service has chosen.
fn session_of(receiver: &Receiver) -> Option<String> {
    let filter = receiver.source().as_ref()?.filter.as_ref()?;
    filter.iter().find_map(|(name, value)| match value {
        Value::String(id) if name.as_str() == SESSION_FILTER => Some(id.clone()),
        _ => None,
    })
}

fn is_none_found(said: &Said) -> bool {
    matches!(&said.condition, ErrorCondition::Custom(name) if name.as_str() == TIMEOUT)
}

/// No two links of a container may have one name.
fn link_name(address: &str) -> String {
    format!("{address}-{:016x}", fastrand::u64(..))
}
