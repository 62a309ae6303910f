//! Storing messages: what is decided before the database is asked.

use std::{collections::HashMap, fmt, sync::Arc};

use hapax_core::{
    Message, SendError, Sender,
    codec::Codec,
    envelope::{Destination, Outgoing},
    ids::{EndpointName, InvalidId, MessageId, TypeName},
    ports::Dispatcher,
    relay::PushLine,
    time::Timestamp,
};

use super::Row;

/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 1 MiB: what large
/// brokers take.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Why a message was not stored.
///
/// It shows no row that the database has refused; the `Debug` of the driver's own error, which is its source, may.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// It can never be sent as it is: not encodable, too large, an address that is none. The transaction was not touched.
    #[error("the message cannot be stored for sending: {0}")]
    Refused(String),
    /// The database did not store it. What becomes of the transaction is for its owner to decide; on PostgreSQL it can only
    /// be rolled back.
    #[error("the database did not store the message")]
    Database(#[from] sqlx::Error),
}

impl fmt::Debug for EnqueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_) => fmt::Display::fmt(self, f),
            Self::Database(error) => write!(f, "{self}: {error}"),
        }
    }
}

/// A message that has failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FailedMessage {
    /// Its id, which is in the table.
    pub message_id: MessageId,
    /// The message, or why it cannot be read.
    pub outgoing: Result<Outgoing, String>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it has failed, by the server's clock.
    pub failed_at: Timestamp,
    /// Why.
    pub reason: String,
}

/// Where messages go that are stored without an address: by their type, or else where the table's go, or else to everybody
/// who subscribes to their type.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    by_type: HashMap<TypeName, Destination>,
    usual: Option<Destination>,
}

impl Routes {
    pub(in crate::sql) fn add(&mut self, message_type: &str, endpoint: &str) -> Result<(), InvalidId> {
        let to = Destination::Endpoint(EndpointName::parse(endpoint)?);
        self.by_type.insert(TypeName::parse(message_type)?, to);
        Ok(())
    }

    pub(in crate::sql) fn set_usual(&mut self, endpoint: &str) -> Result<(), InvalidId> {
        self.usual = Some(Destination::Endpoint(EndpointName::parse(endpoint)?));
        Ok(())
    }

    pub(in crate::sql) fn of(&self, message_type: &TypeName) -> Destination {
        let known = self.by_type.get(message_type).or(self.usual.as_ref());
        known.cloned().unwrap_or_else(|| Destination::Topic(message_type.clone()))
    }
}

/// What is the same for all messages of an outbox.
#[derive(Debug, Clone)]
pub(in crate::sql) struct Writes {
    pub(in crate::sql) routes: Routes,
    pub(in crate::sql) codec: Codec,
    pub(in crate::sql) message_bytes_max: usize,
    /// Asked whether it can send a message, where no relay runs in this process.
    pub(in crate::sql) transport: Option<Arc<dyn Dispatcher>>,
    /// Debezium sends what is stored, and no relay does.
    #[cfg(feature = "postgres")]
    pub(in crate::sql) debezium: bool,
}

impl Default for Writes {
    fn default() -> Self {
        let (routes, codec) = (Routes::default(), Codec::default());
        Self {
            routes,
            codec,
            message_bytes_max: MESSAGE_BYTES_MAX,
            transport: None,
            #[cfg(feature = "postgres")]
            debezium: false,
        }
    }
}

impl Writes {
    /// `message` under a new id, addressed by its type.
    pub(in crate::sql) fn outgoing<M: Message>(&self, message: &M) -> Result<Outgoing, EnqueueError> {
        let envelope = Sender::envelope_with(self.codec, MessageId::random(), message).map_err(refused)?;
        Ok(Outgoing { destination: self.routes.of(&envelope.message_type), envelope: Arc::new(envelope) })
    }

    /// The same to one endpoint.
    pub(in crate::sql) fn outgoing_to<M: Message>(&self, to: &str, message: &M) -> Result<Outgoing, EnqueueError> {
        let to = EndpointName::parse(to).map_err(|e| EnqueueError::Refused(e.to_string()))?;
        Ok(Outgoing { destination: Destination::Endpoint(to), ..self.outgoing(message)? })
    }

    /// The row of `outgoing`, if it can be sent.
    pub(in crate::sql) fn row(&self, outgoing: &Outgoing, line: Option<&PushLine>) -> Result<Row, EnqueueError> {
        let size = outgoing.envelope.size();
        if size > self.message_bytes_max {
            let why = format!("it has {size} bytes, and {} is the limit of this outbox", self.message_bytes_max);
            return Err(EnqueueError::Refused(why));
        }
        #[cfg(feature = "postgres")]
        if let Some(why) = self.debezium.then(|| crate::sql::postgres::outbox::debezium_refusal(outgoing)).flatten() {
            return Err(EnqueueError::Refused(why));
        }
        let checked = match (line, &self.transport) {
            (Some(line), _) => line.check(outgoing),
            (None, Some(transport)) => transport.check(outgoing),
            (None, None) => Ok(()),
        };
        checked.map_err(|why| EnqueueError::Refused(why.to_string()))?;
        let id = &outgoing.envelope.message_id;
        Row::of(outgoing).ok_or_else(|| EnqueueError::Refused(format!("its id `{id}` is not a UUID")))
    }
}

fn refused(error: SendError) -> EnqueueError {
    EnqueueError::Refused(match error {
        SendError::Invalid(why) => why,
        other => other.to_string(),
    })
}
