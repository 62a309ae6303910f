//! Sending: what several calls ask for at the same time goes in one go and in order, each message with its own result.

use std::{sync::Arc, time::Duration};

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
use crate::together::{Bounds, Caller, Together, tell};

/// Messages that go in one go, and their bytes: beyond it the first would wait for the last, and the server would copy for
/// nobody else.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Calls under way at a time: while the server writes one to its disk, the next is on its way.
const CALLS_MAX: usize = 4;

/// A message on its way to the server. Its fields are written down by whoever sends it: what is wrong with one message is not to meet others
/// in the call.
pub(super) struct Parcel {
    destination: Destination,
    fields: Fields,
}

/// Messages of several calls on their way to the server.
pub(super) type Dispatches = Arc<Together<Parcel, Result<(), TransportError>>>;

/// None so far.
pub(super) fn dispatches(patience: Duration) -> Dispatches {
    Together::new(Bounds::of(CALLS_MAX, BATCH_MAX, patience))
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
        let (mut parcels, mut bytes) = (Vec::with_capacity(outgoing.len()), 0);
        for (outgoing, _) in outgoing.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            let fields = Fields::of(&outgoing.envelope, &self.0.options.written_as);
            bytes += fields.size();
            parcels.push(Parcel { destination: outgoing.destination.clone(), fields });
        }
        if parcels.is_empty() {
            return results;
        }
        let broker = self.0.clone();
        let sent = self.0.dispatches.ask(parcels, bytes, move |caller| broker.send_together(caller)).await;
        tell(&mut results, sent, DISPATCHING);
        results
    }
}

/// What became of each of some messages, or of all of them.
type Answers = Result<Vec<Result<(), TransportError>>, TransportError>;

impl Broker {
    /// What several calls have asked for, as long as there is any.
    async fn send_together(self: Arc<Self>, mut caller: Caller<Parcel, Result<(), TransportError>>) {
        while let Some((parcels, askers)) = caller.next() {
            let mut sent = self.send_all(&parcels).await.into_iter();
            for asker in askers {
                asker.answer_from(&mut sent);
            }
        }
    }

    /// Sends `parcels` in order, in as many goes as it takes; one result for each.
    async fn send_all(&self, parcels: &[Parcel]) -> Vec<Result<(), TransportError>> {
        let mut results = Vec::with_capacity(parcels.len());
        while let Some(rest) = parcels.get(results.len()..).filter(|rest| !rest.is_empty()) {
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

    /// Sends as many of `parcels` as go in one go, in order. What became of them, or of all.
    async fn send(&self, open: &Open, parcels: &[Parcel]) -> Answers {
        let mut commands = pipe();
        let mut bytes = 0;
        for Parcel { destination, fields } in parcels {
            if commands.len() == BATCH_MAX || (bytes > 0 && bytes + fields.size() > BATCH_BYTES_MAX) {
                break;
            }
            bytes += fields.size();
            self.add(&mut commands, &open.scripts, destination, fields);
        }
        let answers = self.link.ask_all(open, DISPATCHING, &commands).await?;
        if answers.len() != commands.len() {
            return Err(malformed(DISPATCHING, self.link.place()));
        }
        let read = |(parcel, answer): (&Parcel, Result<Value, TransportError>)| match answer? {
            Value::Nil => Err(self.nowhere(&parcel.destination)),
            _ => Ok(()),
        };
        Ok(parcels.iter().zip(answers).map(read).collect())
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
