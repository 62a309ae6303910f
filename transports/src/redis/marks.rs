//! Shows which messages of a queue are gone.

use ::redis::cmd;
use async_trait::async_trait;
use hapax_core::ports::{ErrorKind, Mark, Marks, TransportError};

use super::{
    answer::{array, named, place, text},
    errors::malformed,
    receiver::EndpointQueue,
};

const MARKING: &str = "marking the end of a queue";
const ASKING: &str = "asking whether messages are gone";

/// A message keeps its entry for as long as it is in the queue: while it is leased, when it is put off or retried, and while it
/// is not due. Ids of entries grow, whatever becomes of the server's clock.
#[async_trait]
impl Marks for EndpointQueue {
    async fn end(&self) -> Result<Mark, TransportError> {
        let end = &self.0;
        let asked = end.broker.link.ask(&end.lane, MARKING, false, |_| {
            let mut info = cmd("XINFO");
            info.arg("STREAM").arg(&end.queue);
            info
        });
        let last = named(asked.await?, "last-generated-id").and_then(text);
        let last = last.as_deref().and_then(place).ok_or_else(|| malformed(MARKING, end.broker.link.place()))?;
        Ok(Mark::new(last))
    }

    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError> {
        let [millis, number] = mark.places() else {
            let why = format!("{mark:?} is no mark of such a queue: ask the transport that gave it");
            return Err(TransportError::new(ErrorKind::Malformed, ASKING, why));
        };
        let end = &self.0;
        let asked = end.broker.link.ask(&end.lane, ASKING, false, |_| {
            let mut range = cmd("XRANGE");
            range.arg(&end.queue).arg("-").arg(format!("{millis}-{number}")).arg("COUNT").arg(1);
            range
        });
        let left = array(asked.await?).ok_or_else(|| malformed(ASKING, end.broker.link.place()))?;
        Ok(left.is_empty())
    }
}
