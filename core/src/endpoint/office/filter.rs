//! Which of an endpoint's letters are meant, by what they say and by when they were set aside.

use std::time::Duration;

use super::super::history::BEFORE;
use crate::{
    ids::{Fingerprint, MessageId, SagaName, TypeName},
    ports::DeadLetter,
    time::Timestamp,
};

/// Which letters. Each field that is given must hold; the default wants all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this message.
    pub message_id: Option<MessageId>,
    /// Whose message says this: of two letters about a message, an edit that was cut short may have left one.
    pub fingerprint: Option<Fingerprint>,
    /// Of this message type.
    pub message_type: Option<TypeName>,
    /// That this saga could not handle, or has sent.
    pub saga: Option<SagaName>,
    /// Whose last error holds this text; what was before it is not looked at.
    pub reason: Option<String>,
    /// Set aside at this time or later.
    pub since: Option<Timestamp>,
    /// Set aside before this time.
    pub before: Option<Timestamp>,
}

impl Filter {
    /// Whether it wants `letter`.
    #[must_use]
    pub fn wants(&self, letter: &DeadLetter) -> bool {
        let Self { message_id, fingerprint, message_type, saga, reason, since, before } = self;
        message_id.as_ref().is_none_or(|id| *id == letter.envelope.message_id)
            && fingerprint.is_none_or(|fingerprint| fingerprint == Fingerprint::of(&letter.envelope))
            && message_type.as_ref().is_none_or(|message_type| *message_type == letter.envelope.message_type)
            && saga.as_ref().is_none_or(|saga| letter.saga.as_ref() == Some(saga))
            && reason.as_ref().is_none_or(|reason| last_error(letter).contains(reason))
            && since.is_none_or(|since| letter.time >= since)
            && before.is_none_or(|before| letter.time < before)
    }

    /// The same, without what is set aside from now on: what fails again must not be met again.
    pub(super) fn until_now(&self, now: Timestamp) -> Self {
        // A letter of this very millisecond belongs to it: it is there already, or may be.
        let end = now.after(Duration::from_millis(1));
        Self { before: Some(self.before.map_or(end, |before| before.min(end))), ..self.clone() }
    }
}

/// The reason without what the message failed with before.
fn last_error(letter: &DeadLetter) -> &str {
    letter.reason.split_once(BEFORE).map_or(letter.reason.as_str(), |(last, _)| last)
}
