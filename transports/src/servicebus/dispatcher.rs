//! Sending: a link for each queue and topic, each message confirmed. Who leaves one in the middle of a message spoils its link, and another is made.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fe2o3_amqp::{
    Sendable, Sender,
    link::{SendError, delivery::DeliveryFut},
    session::{BeginError, SessionHandle},
    types::{
        messaging::{Body, Outcome},
        primitives::Value,
    },
};
use futures_util::future::join_all;
use hapax_core::{
    envelope::{Destination, Envelope, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    time::Timestamp,
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout, timeout_at},
};

use super::{
    Broker, ServiceBus,
    address::Server,
    errors::{again, for_now, gone, late, of_begin, of_outcome, of_send},
    link::{CONNECTING, Linked},
    message::{Carried, Extras, PROPERTIES_BYTES_MAX, body_bytes, carried, properties_bytes, wait_of},
};

pub(super) const DISPATCHING: &str = "dispatching messages";
/// After a connection could not be made, none is tried for as long: else each message that waits would wait for a try.
const REST: Duration = Duration::from_millis(500);
/// Links that are kept for the next call. With more than the service has entities that one process sends to, they are let go of and made anew.
const OUTLETS_MAX: usize = 256;
/// Sessions for what has no partition key, where each message has to be in one: as many are handled at a time. Nobody reads their names.
const OF_NO_KEY: &str = "hapax-any-";
const SESSIONS_OF_NO_KEY: u32 = 16;

/// The connection that messages are sent on, with a link for each queue and topic.
#[derive(Default)]
pub(super) struct Publisher(Mutex<Current>);

#[derive(Default)]
struct Current {
    linked: Option<Linked>,
    outlets: HashMap<String, Arc<Outlet>>,
    /// When a connection could not be made, and why.
    failed: Option<(Instant, TransportError)>,
}

/// A link to one queue or topic. Those who send on it do so one after the other, and wait for their confirmations together.
pub(super) struct Outlet {
    sender: Mutex<Sender>,
    /// With an end of its own: what a server refuses ends the session. Held since the link ends with it.
    _session: SessionHandle<()>,
    /// Nothing can be sent on it any more, or what was is not known.
    is_spoiled: AtomicBool,
}

/// What became of each of some messages.
type Results = Vec<Result<(), TransportError>>;

#[async_trait]
impl Dispatcher for ServiceBus {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.0.checked(&outgoing.envelope)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let (broker, now) = (&self.0, Timestamp::now());
        let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
        let mut known: HashMap<&Destination, usize> = HashMap::new();
        let mut queues: Vec<(String, Vec<usize>, Vec<Carried>)> = Vec::new();
        for (place, Outgoing { destination, envelope }) in outgoing.iter().enumerate() {
            let checked = broker.checked(envelope);
            if checked.is_ok() {
                let at = *known.entry(destination).or_insert_with(|| {
                    queues.push((broker.names.address(destination), Vec::new(), Vec::new()));
                    queues.len() - 1
                });
                queues[at].1.push(place);
                queues[at].2.push(broker.carried(envelope, &Extras::default(), now));
            }
            results.push(checked.map_err(|refused| {
                DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, refused.0))
            }));
        }
        let (mut places, mut sending) = (Vec::with_capacity(queues.len()), Vec::with_capacity(queues.len()));
        for (address, its, messages) in queues {
            places.push(its);
            sending.push(async move { broker.publish(DISPATCHING, &address, messages).await });
        }
        for (places, sent) in places.into_iter().zip(join_all(sending).await) {
            for (place, sent) in places.into_iter().zip(sent) {
                if let Err(error) = sent {
                    results[place] = Err(judged(error));
                }
            }
        }
        results
    }
}

/// For good, if the queue takes none of its size.
fn judged(error: TransportError) -> DispatchError {
    match error.kind() {
        ErrorKind::TooLarge | ErrorKind::Malformed => DispatchError::Permanent(error),
        _ => DispatchError::Transient(for_now(error, DISPATCHING)),
    }
}

impl Broker {
    /// A message that these queues take, with all that may be said beside it later.
    fn checked(&self, envelope: &Envelope) -> Result<(), Refused> {
        let (written_as, bytes_max) = (&self.options.written_as, self.options.message_bytes_max);
        let bytes = envelope.size().max(body_bytes(envelope, written_as));
        if bytes > bytes_max {
            return Err(Refused(format!("the message has {bytes} bytes; these queues take {bytes_max}")));
        }
        let bytes = properties_bytes(envelope, written_as);
        if bytes > PROPERTIES_BYTES_MAX {
            return Err(Refused(format!(
                "the headers have {bytes} bytes; the service takes {PROPERTIES_BYTES_MAX} of properties"
            )));
        }
        Ok(())
    }

    /// As it is sent at `now`. The service holds back what is not due.
    pub(super) fn carried(&self, envelope: &Envelope, extras: &Extras, now: Timestamp) -> Carried {
        let waits = wait_of(envelope, now).is_some();
        let mut extras = extras.clone();
        if self.names.server() == Server::ServiceBus && waits {
            extras.not_before = extras.not_before.max(envelope.due);
        }
        extras.waits |= extras.not_before.is_some();
        let mut message = carried(envelope, &self.options.written_as, &extras, &self.names, now);
        if self.options.ordered_keys
            && let Some(properties) = &mut message.properties
        {
            // The service refuses what is in no session.
            properties.group_id.get_or_insert_with(|| format!("{OF_NO_KEY}{}", fastrand::u32(..SESSIONS_OF_NO_KEY)));
        }
        message
    }

    /// Whether there is a server, and whether it lets this account in.
    pub(super) async fn look_whether_it_is_there(&self) -> Result<(), TransportError> {
        self.publisher.0.lock().await.linked(self).await.map(drop)
    }

    /// Whether messages can be sent to `address`: as far as can be asked over AMQP.
    pub(super) async fn look_at(&self, operation: &'static str, address: &str) -> Result<(), TransportError> {
        self.outlet(operation, address).await.map(drop)
    }

    /// Sends `messages` to `address` in order; one result for each, which is what the server says of it.
    pub(super) async fn publish(&self, operation: &'static str, address: &str, messages: Vec<Carried>) -> Results {
        let (place, patience) = (self.link.place(), self.options.patience);
        let messages: Vec<Sendable<Body<Value>>> = messages.into_iter().map(Sendable::from).collect();
        let mut begun = self.begun(operation, address, &messages).await;
        if begun.as_ref().is_ok_and(|begun| begun.is_stale) {
            // The service ends links on which nothing goes for ten minutes, and that is seen only now.
            begun = self.begun(operation, address, &messages).await;
        }
        let Begun { outlet, settling, failed, deadline, .. } = match begun {
            Ok(begun) => begun,
            Err(e) => return messages.iter().map(|_| Err(again(&e, operation))).collect(),
        };
        let settled = join_all(settling.into_iter().map(|settling| timeout_at(deadline, settling))).await;
        let mut results = Results::with_capacity(messages.len());
        for settled in settled {
            results.push(match settled {
                Ok(Ok(outcome)) => of_outcome(operation, place, &outcome),
                Ok(Err(error)) => {
                    outlet.spoil();
                    Err(of_send(operation, place, &error, true))
                }
                Err(_) => {
                    outlet.spoil();
                    Err(late(operation, place, patience, true))
                }
            });
        }
        results.extend(failed.map(Err));
        // Nothing behind it went: messages of one call arrive in order.
        while results.len() < messages.len() {
            let why = format!("one before it could not be sent to {place}");
            results.push(Err(TransportError::new(ErrorKind::Unavailable, operation, why)));
        }
        results
    }

    /// Sends `messages`, up to the first that cannot be.
    async fn begun(
        &self,
        operation: &'static str,
        address: &str,
        messages: &[Sendable<Body<Value>>],
    ) -> Result<Begun, TransportError> {
        let (place, patience) = (self.link.place(), self.options.patience);
        let outlet = self.outlet(operation, address).await?;
        let deadline = Instant::now() + patience;
        let (mut settling, mut failed, mut is_stale) = (Vec::with_capacity(messages.len()), None, false);
        {
            let sender = timeout_at(deadline, outlet.sender.lock()).await;
            let mut sender = sender.map_err(|_| late(operation, place, patience, false))?;
            // Who had it before may have left it in the middle of a message.
            if outlet.is_spoiled() {
                (failed, is_stale) = (Some(gone(operation, place, None, false)), true);
            }
            for message in messages {
                if failed.is_some() {
                    break;
                }
                let midway = Midway(Some(&outlet));
                // What the driver has not taken whole is not sent, whatever of it is on its way: the server waits for the rest.
                match timeout_at(deadline, sender.send_batchable_ref(message)).await {
                    Ok(Ok(settlement)) => {
                        midway.ended();
                        settling.push(settlement);
                    }
                    Ok(Err(error)) => {
                        if is_unsendable(&error) {
                            midway.ended();
                        } else {
                            is_stale = settling.is_empty();
                        }
                        failed = Some(of_send(operation, place, &error, false));
                    }
                    // The server gives no credit, or reads no more.
                    Err(_) => failed = Some(late(operation, place, patience, false)),
                }
            }
        }
        Ok(Begun { outlet, settling, failed, is_stale, deadline })
    }

    /// The link to `address`, made anew if it was lost.
    async fn outlet(&self, operation: &'static str, address: &str) -> Result<Arc<Outlet>, TransportError> {
        let (place, patience) = (self.link.place(), self.options.patience);
        let current = timeout(patience, self.publisher.0.lock()).await;
        let mut current = current.map_err(|_| late(operation, place, patience, false))?;
        if let Some(outlet) = current.outlets.get(address)
            && !outlet.is_spoiled()
        {
            return Ok(outlet.clone());
        }
        current.outlets.remove(address);
        if current.outlets.len() >= OUTLETS_MAX {
            current.outlets.clear();
        }
        let linked = current.linked(self).await?;
        let (begun, mut is_full) = (Instant::now(), false);
        let made = async {
            let session = linked.another_session().await;
            let mut session = session.map_err(|e| {
                is_full = matches!(e, BeginError::LocalChannelMaxReached);
                of_begin(operation, place, &e)
            })?;
            let sender = self.link.sender(operation, &mut session, address).await?;
            Ok(Outlet { sender: Mutex::new(sender), _session: session, is_spoiled: AtomicBool::new(false) })
        };
        let made = timeout(patience, made).await.unwrap_or_else(|_| Err(late(operation, place, patience, false)));
        match made {
            Ok(outlet) => {
                let outlet = Arc::new(outlet);
                current.outlets.insert(address.to_owned(), outlet.clone());
                Ok(outlet)
            }
            Err(e) => {
                if begun.elapsed() >= patience {
                    // A connection on which nothing is answered is of no use to others.
                    *current = Current::default();
                } else if is_full {
                    current.outlets.clear();
                }
                Err(e)
            }
        }
    }
}

/// The message itself cannot be sent, and nothing of it was.
const fn is_unsendable(error: &SendError) -> bool {
    matches!(error, SendError::MessageSizeExceeded(_) | SendError::MessageEncodeError)
}

impl Current {
    /// The connection, made anew if it was lost.
    async fn linked(&mut self, broker: &Broker) -> Result<&mut Linked, TransportError> {
        if self.linked.as_ref().is_some_and(Linked::is_over) {
            *self = Self::default();
        }
        if self.linked.is_none() {
            if let Some((when, error)) = &self.failed
                && when.elapsed() < REST
            {
                return Err(again(error, CONNECTING));
            }
            self.outlets.clear();
            match broker.link.connect().await {
                Ok(linked) => *self = Self { linked: Some(linked), ..Self::default() },
                Err(e) => {
                    self.failed = Some((Instant::now(), again(&e, CONNECTING)));
                    return Err(e);
                }
            }
        }
        let ended = || TransportError::new(ErrorKind::Unavailable, CONNECTING, "the connection has ended at once");
        self.linked.as_mut().ok_or_else(ended)
    }
}

impl Outlet {
    fn spoil(&self) {
        self.is_spoiled.store(true, Ordering::Relaxed);
    }

    fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Ordering::Relaxed)
    }
}

/// Somebody is in the middle of a message. Dropped there, as with a call that is given up, the link is of no use to others: what they send
/// would come behind half a message.
struct Midway<'o>(Option<&'o Outlet>);

impl Midway<'_> {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Midway<'_> {
    fn drop(&mut self) {
        if let Some(outlet) = self.0 {
            outlet.spoil();
        }
    }
}

/// Messages on their way.
struct Begun {
    outlet: Arc<Outlet>,
    settling: Vec<DeliveryFut<Result<Outcome, SendError>>>,
    /// Why the next could not be sent.
    failed: Option<TransportError>,
    /// The link had ended before anything went on it.
    is_stale: bool,
    /// How long confirmations are waited for.
    deadline: Instant,
}
