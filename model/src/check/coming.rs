//! Messages that come back to the sagas that send them: how many there may be, and whether they can be read.

use std::collections::HashSet;

use hapax_core::{
    envelope::Envelope,
    ids::{DedupKey, MessageId},
};

/// Messages at most, those that come back included: what the explorer keeps apart.
pub(super) const MESSAGES_MAX: usize = 16;
/// Contents at most that those messages may have, since one may be sent with another content in another world. The
/// explorer keeps 255 apart, and so many make more worlds than anybody waits for.
const CONTENTS_MAX: usize = 200;
/// What is told of a body at most, in characters.
const BODY_CHARS_MAX: usize = 120;

/// Why an exploration cannot go on.
#[derive(Debug, Clone)]
pub(super) enum Stop {
    /// There are more than can be kept apart; how each of them came.
    Endless { seen: String, steps: Vec<String> },
    /// A message that is sent to a saga of the check cannot be read there.
    Unreadable { seen: String, steps: Vec<String> },
    /// A handler sends more than can be numbered.
    Crowd { seen: String },
}

/// What has come in one exploration.
#[derive(Debug, Default)]
pub(super) struct Coming {
    messages: HashSet<DedupKey>,
    /// By address: the explorer keeps each that it has named.
    contents: HashSet<usize>,
    /// The id of each message and how it came, in order.
    came: Vec<(MessageId, String)>,
    pub(super) stop: Option<Stop>,
}

impl Coming {
    /// Notes a message that `key` was found for; `false`: it is one too many.
    pub(super) fn admit(&mut self, key: DedupKey, envelope: &Envelope) -> bool {
        let is_new = !self.messages.contains(&key);
        if is_new {
            let how = self.how(envelope);
            self.came.push((envelope.message_id.clone(), how));
        }
        if is_new && self.messages.len() == MESSAGES_MAX {
            let seen = format!("there are more than {MESSAGES_MAX} messages, those that come back included");
            return self.endless(seen);
        }
        self.messages.insert(key);
        self.contents.insert(std::ptr::from_ref(envelope).addr());
        if self.contents.len() > CONTENTS_MAX {
            let seen = format!("the messages that come back have more than {CONTENTS_MAX} different contents");
            return self.endless(seen);
        }
        true
    }

    fn endless(&mut self, seen: String) -> bool {
        let steps = self.came.iter().map(|(_, how)| how.clone()).collect();
        self.stop.get_or_insert(Stop::Endless { seen, steps });
        false
    }

    /// Notes a message that cannot be read.
    pub(super) fn refuse(&mut self, envelope: &Envelope, why: &str) {
        let steps = vec![self.how(envelope), format!("it cannot be read there: {why}")];
        let seen = format!("{} can never be handled: {why}", envelope.message_type);
        self.stop.get_or_insert(Stop::Unreadable { seen, steps });
    }

    /// How a message came.
    fn how(&self, envelope: &Envelope) -> String {
        let text = text(envelope);
        let Some(causation) = &envelope.causation_id else { return format!("{text} is given") };
        let cause = self.came.iter().position(|(id, _)| *id == causation.0);
        match cause {
            Some(at) => format!("{text} is sent when that of step {} is handled, and comes back", at + 1),
            None => format!("{text} is sent, and comes back"),
        }
    }
}

/// A message, for people.
pub(super) fn text(envelope: &Envelope) -> String {
    let body = String::from_utf8_lossy(&envelope.body);
    match body.char_indices().nth(BODY_CHARS_MAX) {
        Some((end, _)) => format!("{} {}..", envelope.message_type, &body[..end]),
        None => format!("{} {body}", envelope.message_type),
    }
}
