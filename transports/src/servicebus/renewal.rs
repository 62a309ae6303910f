//! Locks that are renewed: a request to the queue's management node, and its answer.

use fe2o3_amqp::{
    Receiver, Sender,
    types::{
        messaging::{AmqpValue, ApplicationProperties, Body, Message, MessageId, Properties},
        primitives::{Array, SimpleValue, Uuid, Value},
    },
};
use hapax_core::ports::{ErrorKind, TransportError};
use tokio::{sync::Mutex, time::timeout};

use super::{
    errors::{gone, late, of_outcome, of_recv, of_send},
    link::{Link, Linked},
    message::{Carried, map, text},
};

const EXTENDING: &str = "extending leases";
const RENEW: &str = "com.microsoft:renew-lock";
const RENEW_SESSION: &str = "com.microsoft:renew-session-lock";
/// Answers that may wait here: one is asked for at a time, and some may have come too late for who asked.
const ANSWERS_MAX: u32 = 16;

/// What the service calls a lock.
pub(super) type Token = [u8; 16];

/// The token in a delivery's tag: sixteen bytes in the order in which .NET writes a GUID, whose first three parts are turned around.
pub(super) fn token_of(tag: &[u8]) -> Option<Token> {
    let mut token: Token = tag.try_into().ok()?;
    token[..4].reverse();
    token[4..6].reverse();
    token[6..8].reverse();
    Some(token)
}

/// Asks the management node of one queue.
#[derive(Default)]
pub(super) struct Renewal(Mutex<Option<Asked>>);

struct Asked {
    // Before their connection.
    sender: Sender,
    receiver: Receiver,
    linked: Linked,
    answers_at: String,
    next: u64,
}

/// What is to begin anew.
pub(super) enum Wanted<'w> {
    /// The locks of messages.
    Locks(&'w [Token]),
    /// The lock of a session, and with it those of its messages.
    Session(&'w str),
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewed {
    /// All of them begin anew.
    All,
    /// One of them is lost, and none begins anew.
    Lost,
}

impl Renewal {
    /// Lets what is `wanted` begin anew.
    pub(super) async fn renew(
        &self,
        link: &Link,
        address: &str,
        wanted: &Wanted<'_>,
    ) -> Result<Renewed, TransportError> {
        let asked = async {
            let mut current = self.0.lock().await;
            // Taken out: what is given up in the middle is not to be used again.
            if let Some(mut kept) = current.take().filter(|kept| !kept.linked.is_over()) {
                match kept.renew(link.place(), wanted).await {
                    Ok(renewed) => {
                        *current = Some(kept);
                        return Ok(renewed);
                    }
                    // The service ends links on which nothing goes for ten minutes, and that is seen only now. A lock that is renewed twice
                    // is renewed.
                    Err(error) if error.is_transient() => {}
                    Err(error) => return Err(error),
                }
            }
            let mut asked = Asked::begin(link, address).await?;
            let renewed = asked.renew(link.place(), wanted).await?;
            *current = Some(asked);
            Ok(renewed)
        };
        match timeout(link.patience, asked).await {
            Ok(renewed) => renewed,
            Err(_) => Err(late(EXTENDING, link.place(), link.patience, true)),
        }
    }
}

impl Asked {
    async fn begin(link: &Link, address: &str) -> Result<Self, TransportError> {
        let mut linked = link.connect().await?;
        let answers_at = format!("hapax-{:016x}", fastrand::u64(..));
        let sender = link.sender(EXTENDING, &mut linked.session, address).await?;
        let mut receiver = link.receiver(EXTENDING, &mut linked.session, address, Some(&answers_at)).await?;
        let given = receiver.set_credit(ANSWERS_MAX).await;
        given.map_err(|_| gone(EXTENDING, link.place(), None, false))?;
        Ok(Self { sender, receiver, linked, answers_at, next: 1 })
    }

    async fn renew(&mut self, place: &str, wanted: &Wanted<'_>) -> Result<Renewed, TransportError> {
        let number = self.next;
        self.next += 1;
        let sent = self.sender.send::<Body<Value>>(request(number, &self.answers_at, wanted)).await;
        let outcome = sent.map_err(|e| of_send(EXTENDING, place, &e, true))?;
        of_outcome(EXTENDING, place, &outcome)?;
        loop {
            let answer = self.receiver.recv::<Body<Value>>().await.map_err(|e| of_recv(EXTENDING, place, &e))?;
            let ended = self.receiver.accept(&answer).await;
            ended.map_err(|_| gone(EXTENDING, place, None, true))?;
            if self.receiver.credit() == 0 {
                let given = self.receiver.set_credit(ANSWERS_MAX).await;
                given.map_err(|_| gone(EXTENDING, place, None, true))?;
            }
            let answer = answer.into_message();
            let id = answer.properties.as_ref().and_then(|properties| properties.correlation_id.clone());
            // Another is the answer to one that was given up.
            if id == Some(MessageId::Ulong(number)) {
                return judged(place, &answer);
            }
        }
    }
}

/// What asks for it.
fn request(number: u64, answers_at: &str, wanted: &Wanted<'_>) -> Carried {
    let (operation, entry) = match wanted {
        Wanted::Locks(tokens) => {
            let tokens: Array<Value> = tokens.iter().map(|token| Value::Uuid(Uuid::from(*token))).collect();
            (RENEW, ("lock-tokens", Value::Array(tokens)))
        }
        Wanted::Session(id) => (RENEW_SESSION, ("session-id", Value::String((*id).to_owned()))),
    };
    let operation = [("operation".to_owned(), SimpleValue::String(operation.to_owned()))];
    Message {
        header: None,
        delivery_annotations: None,
        message_annotations: None,
        properties: Some(Properties {
            message_id: Some(MessageId::Ulong(number)),
            reply_to: Some(answers_at.to_owned()),
            ..Properties::default()
        }),
        application_properties: Some(ApplicationProperties(operation.into_iter().collect())),
        body: Body::Value(AmqpValue(Value::Map(map([entry])))),
        footer: None,
    }
}

/// What an answer says.
fn judged(place: &str, answer: &Carried) -> Result<Renewed, TransportError> {
    let status = text(answer, "statusCode").and_then(|status| status.parse::<u32>().ok());
    match status {
        Some(200..=299) => Ok(Renewed::All),
        Some(404 | 410) => Ok(Renewed::Lost),
        Some(401 | 403) => {
            let why = format!("{place} lets this account not renew locks: its policy must allow Listen");
            Err(TransportError::new(ErrorKind::Denied, EXTENDING, why))
        }
        status => {
            let why = format!("{place} does not renew locks: status {status:?}");
            Err(TransportError::new(ErrorKind::Unavailable, EXTENDING, why))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_tag_with_its_first_parts_turned_around() {
        let tag: Vec<u8> = (0..16).collect();
        assert_eq!(token_of(&tag), Some([3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]));
        assert_eq!(token_of(&tag[1..]), None);
    }

    #[test]
    fn locks_are_asked_for_by_their_tokens_and_a_session_by_its_id() {
        let asked = |wanted: &Wanted<'_>| {
            let request = request(1, "here", wanted);
            (text(&request, "operation").unwrap(), request.body)
        };
        let body = |name, value| Body::Value(AmqpValue(Value::Map(map([(name, value)]))));
        let tokens = Value::Array(Array::from(vec![Value::Uuid(Uuid::from([7; 16]))]));
        assert_eq!(asked(&Wanted::Locks(&[[7; 16]])), (RENEW.to_owned(), body("lock-tokens", tokens)));
        let id = Value::String("order 7".to_owned());
        assert_eq!(asked(&Wanted::Session("order 7")), (RENEW_SESSION.to_owned(), body("session-id", id)));
    }

    #[test]
    fn an_answer_is_judged_by_its_status_and_one_without_is_an_error() {
        let answer = |properties: &[(&str, SimpleValue)]| {
            let mut answer = request(1, "here", &Wanted::Locks(&[]));
            let all = properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            answer.application_properties = Some(ApplicationProperties(all.collect()));
            judged("Service Bus", &answer)
        };
        assert_eq!(answer(&[("statusCode", SimpleValue::Int(200))]).unwrap(), Renewed::All);
        assert_eq!(answer(&[("statusCode", SimpleValue::Int(410))]).unwrap(), Renewed::Lost);
        assert_eq!(answer(&[("statusCode", SimpleValue::Int(401))]).unwrap_err().kind(), ErrorKind::Denied);
        for strange in
            [&[][..], &[("statusCode", SimpleValue::String("no".into()))], &[("statusCode", SimpleValue::Null)]]
        {
            assert_eq!(answer(strange).unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }
}
