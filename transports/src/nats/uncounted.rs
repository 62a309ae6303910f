//! Deliveries that do not count. The server counts each, and takes none back: what was given while a store was away, or before it
//! was due, would become poison by that count. How many there were is kept beside, in a stream with one message for each.

use hapax_core::ports::{ErrorKind, TransportError};

use super::{Broker, message::Place, publisher::Parcel};

const ASKING: &str = "asking how often a message was given";
const WRITING: &str = "writing that a delivery does not count";

impl Broker {
    /// How many deliveries of the message at `place` do not count.
    pub(super) async fn uncounted(&self, place: &Place) -> Result<u32, TransportError> {
        if place.delivered <= 1 {
            return Ok(0);
        }
        let found = self.only_on(ASKING, &self.names.uncounted(), &self.subject_of(place)).await?;
        let Some(found) = found else { return Ok(0) };
        let number = std::str::from_utf8(&found.payload).ok().and_then(|number| number.parse().ok());
        number.ok_or_else(|| {
            TransportError::new(ErrorKind::Malformed, ASKING, "what is written of it is no number; it is gone in a day")
        })
    }

    /// One more than `before`.
    pub(super) async fn do_not_count(&self, place: &Place, before: u32) -> Result<(), TransportError> {
        let (subject, body) = (self.subject_of(place), before.saturating_add(1).to_string().into());
        let written = self.publish(WRITING, vec![Parcel { subject, headers: Vec::new(), body }]).await;
        written.into_iter().try_for_each(|written| written.map(drop))
    }

    fn subject_of(&self, place: &Place) -> String {
        self.names.uncounted_of(place.stream(), place.consumer(), place.sequence, place.published())
    }
}
