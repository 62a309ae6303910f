//! The calls of all workers, by what one looks for, and as passes.

use std::collections::HashMap;

use hapax::{
    MessageId,
    ids::{DedupKey, EntityKey},
    ports::Receipt,
};

use super::{Call, Port, short, story::name_of};

/// An index over the calls.
pub(super) struct Diary<'c> {
    /// Checks, loads, saves and finishes.
    at: HashMap<&'c EntityKey, Vec<&'c Call>>,
    received: HashMap<&'c MessageId, Vec<&'c Call>>,
    /// By the message that caused it.
    dispatched: HashMap<&'c MessageId, Vec<&'c Call>>,
    /// By what was sent, if it was.
    sent: HashMap<&'c MessageId, &'c Call>,
    settled: HashMap<(usize, &'c Receipt), Vec<&'c Call>>,
    ids: HashMap<DedupKey, &'c MessageId>,
}

/// What one worker did for one message, from its receipt to its settlement, or until it died.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) worker: usize,
    pub(super) message: DedupKey,
    pub(super) calls: Vec<Call>,
}

impl<'c> Diary<'c> {
    pub(super) fn of(calls: &'c [Call]) -> Self {
        let mut diary = Self {
            at: HashMap::new(),
            received: HashMap::new(),
            dispatched: HashMap::new(),
            sent: HashMap::new(),
            settled: HashMap::new(),
            ids: HashMap::new(),
        };
        for call in calls {
            match (call.port, &call.message, &call.entity, &call.receipt) {
                (Port::Receive, Some(id), ..) => {
                    diary.received.entry(id).or_default().push(call);
                    diary.ids.extend(call.keys.iter().map(|key| (*key, id)));
                }
                (Port::Dispatch, Some(cause), ..) => {
                    diary.dispatched.entry(cause).or_default().push(call);
                    if !call.cut_off {
                        diary.sent.extend(call.outgoing.iter().map(|id| (id, call)));
                    }
                }
                (Port::Settle, .., Some(receipt)) => {
                    diary.settled.entry((call.worker, receipt)).or_default().push(call);
                }
                (_, _, Some(entity), _) => diary.at.entry(entity).or_default().push(call),
                _ => {}
            }
        }
        diary
    }

    /// Checks, loads, saves and finishes of an entity, in the order of their answers.
    pub(super) fn at(&self, entity: &EntityKey) -> &[&'c Call] {
        self.at.get(entity).map_or(&[], Vec::as_slice)
    }

    /// The dispatch that sent a message, and the receipt of the message that caused it.
    pub(super) fn sender(&self, id: &MessageId) -> Option<(&'c Call, &'c Call)> {
        let sent = self.sent.get(id)?;
        Some((*sent, self.received.get(sent.message.as_ref()?)?.first()?))
    }

    /// Whether anything that the message was to send has been dispatched, by anybody.
    pub(super) fn is_dispatched(&self, key: &DedupKey) -> bool {
        let calls = self.ids.get(key).and_then(|id| self.dispatched.get(id));
        calls.is_some_and(|calls| calls.iter().any(|call| !call.cut_off))
    }

    /// A message that `save` has handled: its pass was asked to, and it was not over.
    pub(super) fn handled(&self, entity: &EntityKey, save: &Call) -> Option<DedupKey> {
        let (calls, _) = self.calls_of_pass(entity, save)?;
        let load = calls.iter().rfind(|call| call.port == Port::Load && call.number < save.number)?;
        load.keys.iter().find(|key| save.keys.contains(key) && !load.over.contains(key)).copied()
    }

    /// What the worker of `call` did in that pass for the message with `key`.
    pub(super) fn pass(&self, entity: &EntityKey, call: &Call, key: &DedupKey) -> Option<Pass> {
        let (mut calls, end) = self.calls_of_pass(entity, call)?;
        let (begin, worker, id) = (calls.first()?.number, call.worker, self.ids.get(key)?);
        let dispatched = self.dispatched.get(id).map_or(&[][..], Vec::as_slice);
        let within = |other: &&&Call| other.worker == worker && (begin..end).contains(&other.number);
        calls.extend(dispatched.iter().filter(within));
        let received = self.received.get(id).map_or(&[][..], Vec::as_slice);
        let received = received.iter().rfind(|other| other.worker == worker && other.number < begin);
        if let Some(received) = received {
            calls.push(received);
            let lease = received.receipt.as_ref().and_then(|receipt| self.settled.get(&(worker, receipt)));
            calls.extend(lease.into_iter().flatten());
        }
        calls.sort_by_key(|call| call.number);
        Some(Pass { worker, message: *key, calls: calls.into_iter().cloned().collect() })
    }

    /// What the worker of `call` asked of the store in that pass, and the number of the call that begins its next.
    fn calls_of_pass(&self, entity: &EntityKey, call: &Call) -> Option<(Vec<&'c Call>, u64)> {
        let own: Vec<&Call> = self.at(entity).iter().filter(|other| other.worker == call.worker).copied().collect();
        let begins = |index: &usize| match own[*index].port {
            _ if own[*index].keys.is_empty() => false, // A sweeper, or a second look while cleaning up.
            Port::Check => true,
            Port::Load => *index == 0 || own[*index - 1].port != Port::Check,
            _ => false,
        };
        let first = (0..own.len()).filter(begins).rfind(|index| own[*index].number <= call.number)?;
        let end = (first + 1..own.len()).find(begins).unwrap_or(own.len());
        Some((own[first..end].to_vec(), own.get(end).map_or(u64::MAX, |next| next.number)))
    }

    /// The message as a person would call it.
    pub(super) fn describe(&self, key: &DedupKey) -> String {
        let received = self.ids.get(key).and_then(|id| self.received.get(id)?.first());
        let Some(call) = received else { return "a message".into() };
        let what = call.message_type.as_ref().map_or("a message", short);
        let to = call.entity.as_ref().map(name_of).unwrap_or_default();
        format!("{what} to {to}")
    }

    /// Its id.
    pub(super) fn id(&self, key: &DedupKey) -> String {
        self.ids.get(key).map(ToString::to_string).unwrap_or_default()
    }

    /// The message as a person would call it, and the end of its id: so that one sees which is a copy of which.
    pub(super) fn title(&self, key: &DedupKey) -> String {
        const END: usize = 4;
        let id = self.id(key);
        let end = id.char_indices().rev().nth(END - 1).map_or(0, |(index, _)| index);
        format!("{} (..{})", self.describe(key), &id[end..])
    }
}
