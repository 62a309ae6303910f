use std::sync::Arc;

use ::redis::{Pipeline, Value, cmd, pipe};
use async_trait::async_trait;
use hapax_core::{
    envelope::{Destination, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
};

use super::{
    Broker, RedisStreams,
    errors::{again, malformed},
    link::Open,
    message::Fields,
    scripts::{Loaded, Script},
};
use crate::together::{Caller, Together, ended};

/// Messages that go in one go, and their bytes: beyond it the first would wait for the last, and the server would copy for
/// nobody else.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Calls under way at a time: while the server writes one to its disk, the next is on its way.
const CALLS_MAX: usize = 4;

/// Messages of several calls on their way to the server.
pub(super) type Dispatches = Arc<Together<Outgoing, Result<(), TransportError>>>;

/// None so far.
pub(super) fn dispatches() -> Dispatches {
    Together::new(CALLS_MAX, BATCH_MAX)
}

pub(super) const DISPATCHING: &str = "dispatching messages";

#[async_trait]
impl Dispatcher for RedisStreams {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        let (bytes, bytes_max) = (outgoing.envelope.size(), self.0.options.message_bytes_max);
        if bytes > bytes_max {
            return Err(Refused(format!("the message has {bytes} bytes; these queues take {bytes_max}")));
        }
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results: Vec<Result<(), DispatchError>> = Vec::with_capacity(outgoing.len());
        for outgoing in outgoing {
            results.push(self.check(outgoing).map_err(|refused| {
                DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, DISPATCHING, refused.0))
            }));
        }
        let going: Vec<Outgoing> = outgoing
            .iter()
            .zip(&results)
            .filter(|(_, result)| result.is_ok())
            .map(|(going, _)| going.clone())
            .collect();
        if going.is_empty() {
            return results;
        }
        let broker = self.0.clone();
        let sent = self.0.dispatches.ask(going, move |caller| broker.send_together(caller)).await;
        let mut sent = sent.unwrap_or_default().into_iter();
        for result in results.iter_mut().filter(|result| result.is_ok()) {
            if let Err(e) = sent.next().unwrap_or_else(|| Err(ended(DISPATCHING))) {
                *result = Err(DispatchError::Transient(e));
            }
        }
        results
    }
}

/// What became of each of some messages, or of all of them.
type Answers = Result<Vec<Result<(), TransportError>>, TransportError>;

impl Broker {
    /// What several calls have asked for, as long as there is any.
    async fn send_together(self: Arc<Self>, mut caller: Caller<Outgoing, Result<(), TransportError>>) {
        while let Some(batch) = caller.next() {
            let sent = self.send_all(&batch.these).await;
            batch.answer(sent);
        }
    }

    /// Sends `outgoing` in order, in as many goes as it takes; one result for each.
    async fn send_all(&self, outgoing: &[Outgoing]) -> Vec<Result<(), TransportError>> {
        let mut results = Vec::with_capacity(outgoing.len());
        while let Some(rest) = outgoing.get(results.len()..).filter(|rest| !rest.is_empty()) {
            let answers = match self.link.open(&self.lane).await {
                Ok(open) => self.send(&open, rest).await,
                Err(e) => Err(e),
            };
            match answers {
                Ok(answers) => results.extend(answers),
                // What would come after them is not sent: it would come before them.
                Err(e) => results.extend(rest.iter().map(|_| Err(again(&e, DISPATCHING)))),
            }
        }
        results
    }

    /// Sends as many of `outgoing` as go in one go, in order. What became of them, or of all.
    async fn send(&self, open: &Open, outgoing: &[Outgoing]) -> Answers {
        let mut commands = pipe();
        let mut bytes = 0;
        for outgoing in outgoing {
            let fields = Fields::of(&outgoing.envelope, &self.options.written_as);
            if commands.len() == BATCH_MAX || (bytes > 0 && bytes + fields.size() > BATCH_BYTES_MAX) {
                break;
            }
            bytes += fields.size();
            self.add(&mut commands, &open.scripts, &outgoing.destination, &fields);
        }
        let answers = self.link.ask_all(open, DISPATCHING, &commands).await?;
        if answers.len() != commands.len() {
            return Err(malformed(DISPATCHING, self.link.place()));
        }
        let read = |(outgoing, answer): (&Outgoing, Result<Value, TransportError>)| match answer? {
            Value::Nil => Err(self.nowhere(&outgoing.destination)),
            _ => Ok(()),
        };
        Ok(outgoing.iter().zip(answers).map(read).collect())
    }

    fn add(&self, commands: &mut Pipeline, scripts: &Loaded, destination: &Destination, fields: &Fields) {
        let address = self.names.address(destination);
        let mut command = match destination {
            // A queue that nobody has declared is not made by an address with an error in it.
            Destination::Endpoint(_) => {
                let mut command = cmd("XADD");
                command.arg(address).arg("NOMKSTREAM").arg("*");
                command
            }
            Destination::Topic(_) => {
                let mut command = scripts.call(Script::Publish, &[&address]);
                command.arg(self.names.queues());
                command
            }
        };
        fields.write(&mut command);
        commands.add_command(command);
    }

    fn nowhere(&self, destination: &Destination) -> TransportError {
        let why = format!(
            "{} has no queue `{}`: start its endpoint once, or correct the address",
            self.link.place(),
            self.names.address(destination)
        );
        TransportError::new(ErrorKind::Unavailable, DISPATCHING, why)
    }
}
