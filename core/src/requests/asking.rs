//! One request: sent, and sent again until its answer comes or its time is over.

use std::{array, slice, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::{RequestError, Shared, waiting::Wait};
use crate::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId},
    ports::{DeadLetter, DeadLetters, DispatchError, ErrorKind, Page, TransportError},
    registry::REUSED,
    sync::sleep_until,
    time::Timestamp,
    trace,
};

/// Longest wait, above any deadline that is meant: clocks end somewhere.
const WITHIN_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Letters of one message id that are looked at: one for each saga that was given it.
const LETTERS_MAX: usize = 20;

struct Asking<'c> {
    client: &'c Shared,
    outgoing: Outgoing,
    wait: Wait,
    deadline: Instant,
    /// By the wall clock, as dead letters are dated.
    began: Timestamp,
    times: u32,
    /// The transport has confirmed that it has the request.
    is_sent: bool,
    unconfirmed: Option<TransportError>,
    letter: Option<DeadLetter>,
}

/// How a request ends.
pub(super) enum Ended {
    Answered(Arc<Envelope>),
    Failed(RequestError),
    /// Its time is over.
    Late,
}

pub(super) async fn ask(client: &Shared, outgoing: Outgoing, within: Duration) -> Result<Arc<Envelope>, RequestError> {
    client.dispatcher.check(&outgoing).map_err(|refused| RequestError::Invalid(refused.to_string()))?;
    // Before it is sent: the answer may come before the sending is confirmed.
    let wait = client.waiting.begin((&outgoing.envelope.message_id).into())?;
    let mut asking = Asking {
        client,
        outgoing,
        wait,
        deadline: Instant::now() + within.min(WITHIN_MAX),
        began: Timestamp::now(),
        times: 0,
        is_sent: false,
        unconfirmed: None,
        letter: None,
    };
    loop {
        match asking.once().await {
            Ok(()) => {}
            Err(Ended::Answered(answer)) => return Ok(answer),
            Err(Ended::Failed(error)) => return Err(error),
            Err(Ended::Late) => return Err(asking.late(within)),
        }
    }
}

impl Asking<'_> {
    /// Sends the request, waits, and looks whether it was set aside.
    async fn once(&mut self) -> Result<(), Ended> {
        let span = self.client.spans.begin_send(array::from_mut(&mut self.outgoing));
        let sending = self.client.dispatcher.dispatch(slice::from_ref(&self.outgoing)).instrument(span.clone());
        let sent = until(&mut self.wait, self.deadline, sending).await?;
        trace::sent(&span, &sent);
        self.learn(sent.into_iter().next())?;
        self.times = self.times.saturating_add(1);
        until(&mut self.wait, self.deadline, sleep(self.client.settings.rest(self.times))).await?;
        let Some(dead_letters) = &self.client.dead_letters else { return Ok(()) };
        let Destination::Endpoint(to) = &self.outgoing.destination else { return Ok(()) };
        let looking = letter_of(dead_letters.as_ref(), to, &self.outgoing.envelope.message_id);
        let Some(letter) = until(&mut self.wait, self.deadline, looking).await? else { return Ok(()) };
        // One that was there before may be of an earlier time that this key was asked; then the request may be at work.
        if letter.time >= self.began {
            return Err(Ended::Failed(set_aside(&letter)));
        }
        self.letter = Some(letter);
        Ok(())
    }

    fn learn(&mut self, sent: Option<Result<(), DispatchError>>) -> Result<(), Ended> {
        let why = match sent {
            Some(Ok(())) => {
                (self.is_sent, self.unconfirmed) = (true, None);
                return Ok(());
            }
            // Only of the first can it be said that it was not sent: of those before nobody knows.
            Some(Err(DispatchError::Permanent(why))) if self.times == 0 => {
                return Err(Ended::Failed(RequestError::NotSent(why)));
            }
            Some(Err(DispatchError::Permanent(why) | DispatchError::Transient(why))) => why,
            None => {
                let why = "the transport gave no result for the request";
                TransportError::new(ErrorKind::UnknownOutcome, "sending a request", why)
            }
        };
        tracing::debug!(error = %why, "a request is not confirmed; it is sent again");
        if !self.is_sent {
            self.unconfirmed = Some(why);
        }
        Ok(())
    }

    fn late(self, within: Duration) -> RequestError {
        match &self.letter {
            Some(letter) => set_aside(letter),
            None => RequestError::TimedOut { within, unconfirmed: self.unconfirmed },
        }
    }
}

/// What `work` gives, unless the answer comes before or time is over.
pub(super) async fn until<T>(wait: &mut Wait, deadline: Instant, work: impl Future<Output = T>) -> Result<T, Ended> {
    tokio::select! {
        biased;
        answer = &mut wait.answer => Err(match answer {
            Ok(answer) => Ended::Answered(answer.take()),
            Err(_) => Ended::Failed(RequestError::Stopped),
        }),
        done = work => Ok(done),
        () = sleep_until(deadline) => Err(Ended::Late),
    }
}

/// The newest letter of a request that could not be handled. Without an answer of the store there is none: it is looked again.
async fn letter_of(dead_letters: &dyn DeadLetters, to: &EndpointName, message_id: &MessageId) -> Option<DeadLetter> {
    let page = Page { message_id: Some(message_id.clone()), ..Page::first(LETTERS_MAX) };
    match dead_letters.list(to, &page).await {
        Ok(letters) => letters.into_iter().filter(|letter| letter.destination.is_none()).max_by_key(|l| l.time),
        Err(error) => {
            tracing::debug!(%error, "looking for a request among the dead letters failed");
            None
        }
    }
}

fn set_aside(letter: &DeadLetter) -> RequestError {
    if letter.reason.ends_with(REUSED) {
        return RequestError::KeyReused;
    }
    RequestError::SetAside { reason: letter.reason.clone(), time: letter.time }
}
