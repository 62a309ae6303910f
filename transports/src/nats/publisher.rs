//! What is published and waits for the server's word. Where it knows the id, it is looked whether that was the same message.

use async_nats::{
    HeaderMap,
    jetstream::{
        context::{PublishError, PublishErrorKind},
        message::PublishMessage,
        publish::PublishAck,
        stream::LastRawMessageErrorKind,
    },
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use hapax_core::ports::{ErrorKind, TransportError};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Broker,
    errors::{failed, gone, late},
    link::lost,
    message::{MESSAGE_ID, map_of, text_of},
};

/// Repeats that are looked for at a time: each is a journey to the server, and after a restart a whole batch may be repeats; more would only wait
/// there.
const LOOKS_MAX: usize = 32;

/// A message on its way to the server.
#[derive(Clone)]
pub(super) struct Parcel {
    pub(super) subject: String,
    /// In their order; one name may be there more than once.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Parcel {
    /// As one whose id the server does not know.
    fn without_id(&self) -> Self {
        let headers = self.headers.iter().filter(|(name, _)| name != MESSAGE_ID).cloned().collect();
        Self { headers, ..self.clone() }
    }
}

/// What the server has answered to a message, or `None` where it was to be the first on its subject and is not.
pub(super) type Sent = (Result<Option<PublishAck>, TransportError>, Parcel);

/// Whether the server has had a message of that id before, so that it has to be looked whether it was this.
pub(super) fn is_repeat(ack: &Result<Option<PublishAck>, TransportError>) -> bool {
    matches!(ack, Ok(Some(ack)) if ack.duplicate)
}

/// How it ended with what is no repeat.
pub(super) fn put(ack: Result<Option<PublishAck>, TransportError>) -> Result<Put, TransportError> {
    ack.map(|ack| if ack.is_some() { Put::Stored } else { Put::NotFirst })
}

/// What is known of a message by now.
enum Looked {
    Known(Result<Put, TransportError>),
    /// The one that had its id.
    Gone(Parcel),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    Stored,
    /// What it was to be the first of is there already.
    NotFirst,
}

impl Broker {
    /// Publishes `parcels` in order, all of them under way at once; one result for each.
    pub(super) async fn publish(
        &self,
        operation: &'static str,
        parcels: Vec<Parcel>,
    ) -> Vec<Result<Put, TransportError>> {
        let acks = self.publish_once(operation, &parcels).await;
        self.made_sure(operation, acks.into_iter().zip(parcels).collect()).await
    }

    /// How it ended with each. Of some the server has had a message of that id a while ago, and has stored none. If that one is still there, it is
    /// this; if it is gone, it was settled, perhaps as a dead letter that is given again now; and another one may have had its id: then this is
    /// stored without, and the endpoint tells whether it is a copy.
    pub(super) async fn made_sure(&self, operation: &'static str, sent: Vec<Sent>) -> Vec<Result<Put, TransportError>> {
        let until = Instant::now() + self.link.patience;
        let looks = stream::iter(sent).map(|(ack, parcel)| async move {
            let ack = match ack {
                Ok(Some(ack)) if ack.duplicate => ack,
                ack => return Looked::Known(put(ack)),
            };
            match timeout_at(until, self.is_there(operation, &ack, &parcel)).await {
                Ok(Ok(true)) => Looked::Known(Ok(Put::Stored)),
                Ok(Ok(false)) => Looked::Gone(parcel),
                Ok(Err(e)) => Looked::Known(Err(e)),
                Err(_) => Looked::Known(Err(late(operation, self.link.place(), self.link.patience, true))),
            }
        });
        let looked: Vec<Looked> = looks.buffered(LOOKS_MAX).collect().await;
        let without_id = looked.iter().filter_map(|looked| match looked {
            Looked::Gone(parcel) => Some(parcel.without_id()),
            Looked::Known(_) => None,
        });
        // In one go, and in their order.
        let without_id: Vec<Parcel> = without_id.collect();
        let mut again = self.publish_once(operation, &without_id).await.into_iter();
        let result = |looked| match looked {
            Looked::Known(known) => known,
            Looked::Gone(_) => again.next().unwrap_or(Ok(None)).map(|_| Put::Stored),
        };
        looked.into_iter().map(result).collect()
    }

    /// Whether what the server has under the id of `parcel` is this.
    async fn is_there(
        &self,
        operation: &'static str,
        ack: &PublishAck,
        parcel: &Parcel,
    ) -> Result<bool, TransportError> {
        let place = self.link.place();
        let stream = self.link.jetstream.get_stream_no_info(&ack.stream).await;
        let stream = stream.map_err(|e| failed(ErrorKind::UnknownOutcome, operation, place, e))?;
        match stream.get_raw_message(ack.sequence).await {
            Ok(there) => Ok(is_same(&there.subject, &there.headers, &there.payload, parcel)),
            Err(e) if matches!(e.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(false),
            Err(e) => Err(failed(ErrorKind::UnknownOutcome, operation, place, e)),
        }
    }

    /// `None` for what was to be the first on its subject and is not.
    pub(super) async fn publish_once(
        &self,
        operation: &'static str,
        parcels: &[Parcel],
    ) -> Vec<Result<Option<PublishAck>, TransportError>> {
        let (place, patience) = (self.link.place(), self.link.patience);
        let mut line = self.link.line();
        let losses = line.borrow().losses;
        let mut results = Vec::with_capacity(parcels.len());
        // The driver keeps what is published while the connection is away, and tells nobody when it has given up on it.
        if !line.borrow().is_up {
            results.extend(parcels.iter().map(|_| Err(gone(operation, place, false))));
            return results;
        }
        let mut under_way = Vec::with_capacity(parcels.len());
        for Parcel { subject, headers, body } in parcels {
            let headers = map_of(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            let message = PublishMessage::build().payload(body.clone()).headers(headers);
            // What comes when the connection is lost would wait for the driver's room.
            let is_there = line.borrow().losses == losses;
            let sent =
                if is_there { Some(self.link.jetstream.send_publish(subject.clone(), message).await) } else { None };
            under_way.push((subject.as_str(), sent.map(|sent| sent.map(IntoFuture::into_future))));
        }
        let (mut cut_off, mut too_late) = (false, false);
        let mut ended = std::pin::pin!(async { timeout(patience, lost(&mut line, losses)).await.is_err() }.fuse());
        for (subject, sent) in under_way {
            let mut confirmation = match sent {
                Some(Ok(confirmation)) => confirmation,
                Some(Err(e)) => {
                    results.push(self.refused(operation, subject, e));
                    continue;
                }
                None => {
                    results.push(Err(gone(operation, place, false)));
                    continue;
                }
            };
            let confirmed = if cut_off || too_late {
                (&mut confirmation).now_or_never()
            } else {
                tokio::select! {
                    biased;
                    confirmed = &mut confirmation => Some(confirmed),
                    is_late = &mut ended => {
                        (cut_off, too_late) = (!is_late, is_late);
                        (&mut confirmation).now_or_never()
                    }
                }
            };
            results.push(match confirmed {
                Some(Ok(ack)) => Ok(Some(ack)),
                Some(Err(e)) => self.refused(operation, subject, e),
                None if cut_off => Err(gone(operation, place, true)),
                None => Err(late(operation, place, patience, true)),
            });
        }
        results
    }

    fn refused(
        &self,
        operation: &'static str,
        subject: &str,
        error: PublishError,
    ) -> Result<Option<PublishAck>, TransportError> {
        let place = self.link.place();
        let (kind, why) = match error.kind() {
            PublishErrorKind::WrongLastSequence => return Ok(None),
            PublishErrorKind::StreamNotFound => (
                ErrorKind::Unavailable,
                format!("has no stream for `{subject}`: start its endpoint once, or correct the address"),
            ),
            PublishErrorKind::TimedOut => return Err(late(operation, place, self.link.patience, true)),
            PublishErrorKind::BrokenPipe => return Err(gone(operation, place, true)),
            PublishErrorKind::MaxPayloadExceeded => (
                ErrorKind::TooLarge,
                format!("takes {} bytes in one message, headers included (max_payload)", self.link.payload_max()),
            ),
            _ => (ErrorKind::Unavailable, "refused the message: its stream is full, or could not write it".to_owned()),
        };
        Err(TransportError::new(kind, operation, format!("{place} {why}")).caused_by(error))
    }
}

/// Whether what is stored is what was to be.
fn is_same(subject: &str, headers: &HeaderMap, body: &[u8], parcel: &Parcel) -> bool {
    let sent = |name| parcel.headers.iter().find(|(sent, _)| sent == name).map(|(_, value)| value.clone());
    let same = |name| text_of(headers, name) == sent(name);
    subject == parcel.subject
        && body == &parcel.body[..]
        && ["hapax-type", "hapax-message-id", "hapax-due", "ce-type", "ce-id", "ce-hapaxdue"].into_iter().all(same)
}
