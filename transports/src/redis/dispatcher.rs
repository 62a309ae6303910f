use ::redis::{Pipeline, Value, cmd, pipe};
use async_trait::async_trait;
use hapax_core::{
    envelope::{Destination, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
};

use super::{
    Broker, RedisStreams,
    errors::again,
    link::Open,
    message::Fields,
    scripts::{Loaded, Script},
};

/// Messages that go in one go, and their bytes: beyond it the first would wait for the last, and the server would copy for
/// nobody else.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 8 << 20;

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
        // Places of those that go.
        let going: Vec<usize> = (0..outgoing.len()).filter(|place| results[*place].is_ok()).collect();
        let mut rest = &going[..];
        while !rest.is_empty() {
            let (sent, answers) = match self.0.link.open(&self.0.lane).await {
                Ok(open) => self.0.send(&open, outgoing, rest).await,
                Err(e) => (rest.len(), Err(e)),
            };
            let (these, others) = rest.split_at(sent);
            match answers {
                Ok(answers) => {
                    for (place, answer) in these.iter().zip(answers) {
                        results[*place] = answer.map_err(DispatchError::Transient);
                    }
                    rest = others;
                }
                // What would come after them is not sent: it would come before them.
                Err(e) => {
                    for place in rest {
                        results[*place] = Err(DispatchError::Transient(again(&e, DISPATCHING)));
                    }
                    break;
                }
            }
        }
        results
    }
}

/// What became of each of some messages, or of all of them.
type Answers = Result<Vec<Result<(), TransportError>>, TransportError>;

impl Broker {
    /// Sends as many of `outgoing` at `places` as go in one go, in order. How many, and what became of them.
    async fn send(&self, open: &Open, outgoing: &[Outgoing], places: &[usize]) -> (usize, Answers) {
        let mut commands = pipe();
        let mut bytes = 0;
        for place in places {
            let outgoing = &outgoing[*place];
            let fields = Fields::of(&outgoing.envelope, &self.options.written_as);
            if commands.len() == BATCH_MAX || (bytes > 0 && bytes + fields.size() > BATCH_BYTES_MAX) {
                break;
            }
            bytes += fields.size();
            self.add(&mut commands, &open.scripts, &outgoing.destination, &fields);
        }
        let sent = commands.len();
        let answers = self.link.ask_all(open, DISPATCHING, &commands).await;
        let read = |(place, answer): (&usize, Result<Value, TransportError>)| match answer? {
            Value::Nil => Err(self.nowhere(&outgoing[*place].destination)),
            _ => Ok(()),
        };
        (sent, answers.map(|answers| places.iter().zip(answers).map(read).collect()))
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
