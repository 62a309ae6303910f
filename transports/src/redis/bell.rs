use std::time::Duration;

use ::redis::{Cmd, Value, cmd, pipe};
use hapax_core::ports::TransportError;

use super::{Broker, errors::malformed, link::Lane, receiver::RECEIVING, scripts::Loaded};

/// The server holds a question until something comes into a queue, whoever sends it, and has the next one answered in the moment in which
/// it lets go of the first: so what is taken for who waits is taken with no further journey, and goes to the disk together with what has
/// come.
///
/// Such a question (`XREAD` with `BLOCK`, beside the group) holds up what comes behind it, so it has a connection of its own.
pub(super) struct Bell {
    queue: String,
    lane: Lane,
}

impl Bell {
    pub(super) fn new(queue: String) -> Self {
        Self { queue, lane: Lane::default() }
    }

    /// Waits until there is something behind the entry `last`, or for `longest`, and asks `then`.
    pub(super) async fn ask(
        &self,
        broker: &Broker,
        last: &str,
        longest: Duration,
        then: impl FnOnce(&Loaded) -> Cmd,
    ) -> Result<Value, TransportError> {
        let open = broker.link.open(&self.lane).await?;
        let mut read = cmd("XREAD");
        // Zero would be for ever.
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX).max(1);
        read.arg("COUNT").arg(1).arg("BLOCK").arg(millis).arg("STREAMS").arg(&self.queue).arg(last);
        let mut both = pipe();
        both.add_command(read).add_command(then(&open.scripts));
        let patience = broker.link.patience + longest;
        let mut answers = broker.link.ask_all_within(&open, RECEIVING, false, &both, patience).await?.into_iter();
        match (answers.next(), answers.next()) {
            (Some(Ok(_)), Some(taken)) => taken,
            (Some(Err(e)), _) => Err(e),
            _ => Err(malformed(RECEIVING, broker.link.place())),
        }
    }

    /// Lets the server answer at once. In vain where it has not heard the question yet.
    pub(super) async fn ring(&self, broker: &Broker, lane: &Lane) {
        let Ok(open) = broker.link.open(&self.lane).await else { return };
        let Some(id) = open.id else { return };
        let asked = broker.link.ask(lane, RECEIVING, false, |_| {
            let mut unblock = cmd("CLIENT");
            unblock.arg("UNBLOCK").arg(id);
            unblock
        });
        if let Err(error) = asked.await {
            tracing::debug!(%error, queue = self.queue, "who waits for messages looks again by itself only");
        }
    }
}
