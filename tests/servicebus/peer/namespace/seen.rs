//! What a test sees of a namespace, and what it does to it.

use fe2o3_amqp::types::primitives::SimpleValue;

use super::{Kept, Namespace};

/// What is known of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// In the queue, whether locked or not.
    pub(crate) messages: usize,
    pub(crate) locked: usize,
    /// Not due.
    pub(crate) scheduled: usize,
    /// Locks that began anew.
    pub(crate) renewed: usize,
}

impl Namespace {
    /// Ends the lock of the first message in `name`.
    pub(in super::super) fn lapse(&mut self, name: &str) {
        if let Some(kept) = self.queues.get_mut(name).and_then(|queue| queue.messages.front_mut()) {
            kept.lock = None;
        }
    }

    pub(in super::super) fn hears_no_release(&mut self, name: &str) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.hears_no_release = true;
        }
    }

    pub(in super::super) fn seen(&self, name: &str) -> Seen {
        let queue = self.queues.get(name).unwrap_or_else(|| panic!("there is no queue {name}"));
        Seen {
            messages: queue.messages.len(),
            locked: queue.messages.iter().filter(|kept| kept.lock.is_some()).count(),
            scheduled: queue.scheduled.len(),
            renewed: queue.renewed,
        }
    }

    /// Of what is in `name`, the application property `property`.
    pub(in super::super) fn told(&self, name: &str, property: &str) -> Vec<Option<String>> {
        let queue = self.queues.get(name).unwrap_or_else(|| panic!("there is no queue {name}"));
        let told = |kept: &Kept| {
            let properties = &kept.message.application_properties.as_ref()?.0;
            properties.iter().find_map(|(name, value)| match value {
                SimpleValue::String(text) if name == property => Some(text.clone()),
                _ => None,
            })
        };
        queue.messages.iter().map(told).collect()
    }
}
