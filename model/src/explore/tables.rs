//! Everything that has been named in an exploration: a world holds names alone, and what the claims need to know of a
//! thing is worked out once, when it gets its name.

use std::{collections::HashMap, sync::Arc};

use hapax_core::{
    entity::{DedupEntry, Entity},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, MessageId},
    manager::Passes,
    ports::Receipt,
};

use super::{calls::Names, scenario::ReadLines};

/// Messages of an exploration at most, those that come by themselves included: as many as fit into a mask of attempts.
pub(super) const MESSAGES_MAX: usize = 16;
/// Attempts at one message at most that are remembered at the same time.
const ATTEMPTS_MAX: u32 = 8;

/// A message, whatever copies of it there are. What is a message is said by its entity, its key and what it says, and so
/// not by the key alone: else two messages that the code under test takes for one would be one for its judge, too.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) key: DedupKey,
    pub(super) fingerprint: Fingerprint,
    /// The number of the key, by which stores know it.
    pub(super) known_by: u8,
    /// The entity that it is for.
    pub(super) row: Option<u8>,
    /// For people: `m0`, and `m0.1` for the second message that `m0` sends.
    pub(super) name: String,
    /// A timeout is over when its saga does not wait for it any more.
    pub(super) timeout: Option<MessageId>,
    /// What sends it: the message, and which of those that it sends.
    pub(super) cause: Option<(u8, u8)>,
}

/// A message as it is queued.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) envelope: Arc<Envelope>,
    pub(super) identity: u8,
    /// Whose it is: the manager's number.
    pub(super) manager: u8,
    pub(super) row: u8,
}

/// An outbox entry, in short.
#[derive(Debug)]
pub(super) struct EntryFacts {
    pub(super) attempt: AttemptId,
    pub(super) message: u8,
    pub(super) outgoing: Vec<u32>,
    /// That of them which answers the message, if it has been sent and stays for copies alone.
    pub(super) answer_sent: Option<u32>,
}

/// What the claims need to know of an entity.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) lines: Option<Vec<u8>>,
    pub(super) outbox: Vec<EntryFacts>,
    /// The messages of its entries, as bits.
    pub(super) messages: u64,
    /// The numbers of their keys, as bits.
    pub(super) keys: u64,
    pub(super) commits: u64,
    pub(super) timeouts: Vec<MessageId>,
    /// The attempts of its entries, as bits.
    pub(super) attempts: u128,
}

/// What is to be known of a dedup entry.
#[derive(Debug)]
pub(super) struct MarkFacts {
    pub(super) message: u8,
    /// The number of its key.
    pub(super) key: u8,
    pub(super) attempts: u128,
}

/// What is to be known of an outgoing message.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct OutgoingFacts {
    /// The message that causes it.
    pub(super) cause: Option<u8>,
    /// The copy that it becomes, if it is for an endpoint of the scenario.
    pub(super) copy: Option<u8>,
}

/// All names of one exploration.
pub(super) struct Tables {
    managers: Vec<Arc<dyn Passes>>,
    lines: Option<ReadLines>,
    pub(super) rows: Vec<(EntityKey, u8)>,
    pub(super) identities: Vec<Identity>,
    keys: HashMap<DedupKey, u8>,
    pub(super) copies: Vec<Copy>,
    /// How many of the copies are there from the beginning.
    pub(super) first_copies: usize,
    pub(super) entities: Names<Entity>,
    facts: Vec<Facts>,
    pub(super) marks: Names<DedupEntry>,
    mark_facts: Vec<MarkFacts>,
    pub(super) outgoing: Names<Outgoing>,
    outgoing_facts: Vec<OutgoingFacts>,
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("an exploration has few messages and entities")
}

impl Tables {
    /// Tables that know the messages of the beginning; those in `lower` are for the second manager.
    ///
    /// # Errors
    /// When a message has no handler, or there are too many.
    pub(super) fn new(
        managers: Vec<Arc<dyn Passes>>,
        lines: Option<ReadLines>,
        messages: &[Arc<Envelope>],
        lower: &[u8],
    ) -> Result<Self, String> {
        let mut tables = Self {
            managers,
            lines,
            rows: Vec::new(),
            identities: Vec::new(),
            keys: HashMap::new(),
            copies: Vec::new(),
            first_copies: messages.len(),
            entities: Names::default(),
            facts: Vec::new(),
            marks: Names::default(),
            mark_facts: Vec::new(),
            outgoing: Names::default(),
            outgoing_facts: Vec::new(),
        };
        if messages.len() > MESSAGES_MAX {
            return Err(format!("an exploration takes {MESSAGES_MAX} messages at most"));
        }
        for (place, message) in (0..).zip(messages) {
            tables.copy(lower.contains(&place).into(), message.clone(), None)?;
        }
        Ok(tables)
    }

    /// Notes a message that can be queued.
    fn copy(&mut self, manager: u8, envelope: Arc<Envelope>, cause: Option<(u8, u8)>) -> Result<u8, String> {
        let of = self.managers.get(usize::from(manager)).ok_or("a message is for an endpoint that is not there")?;
        let routed = of.route(&envelope, Receipt::number(0), 1);
        let (key, incoming) = routed.map_err(|e| e.to_string())?;
        let row = self.row(&key, manager);
        let identity = self.exactly(row, &incoming.key, incoming.fingerprint);
        let known = &mut self.identities[usize::from(identity)];
        if known.row.is_none() {
            known.row = Some(row);
            known.timeout = envelope.timeout.then(|| envelope.message_id.clone());
            known.cause = cause;
            if let Some((cause, index)) = cause {
                let name = format!("{}.{index}", self.identities[usize::from(cause)].name);
                self.identities[usize::from(identity)].name = name;
            }
        }
        self.copies.push(Copy { envelope, identity, manager, row });
        Ok(small(self.copies.len() - 1))
    }

    /// The number of an entity.
    pub(super) fn row(&mut self, key: &EntityKey, manager: u8) -> u8 {
        if let Some(at) = self.rows.iter().position(|(row, _)| row == key) {
            return small(at);
        }
        self.rows.push((key.clone(), manager));
        small(self.rows.len() - 1)
    }

    /// The number of a key.
    pub(super) fn key(&mut self, key: &DedupKey) -> u8 {
        if let Some(known) = self.keys.get(key) {
            return *known;
        }
        let number = small(self.keys.len());
        assert!(usize::from(number) < MESSAGES_MAX, "an exploration takes {MESSAGES_MAX} messages at most");
        self.keys.insert(*key, number);
        number
    }

    /// The keys with these numbers.
    pub(super) fn keys_of(&self, bits: u64) -> Vec<DedupKey> {
        let mut keys: Vec<_> = self.keys.iter().filter(|(_, number)| bits >> **number & 1 == 1).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(key, _)| *key).collect()
    }

    /// This very message.
    fn exactly(&mut self, row: u8, key: &DedupKey, fingerprint: Fingerprint) -> u8 {
        let is = |known: &Identity| {
            known.row.is_none_or(|of| of == row) && known.key == *key && known.fingerprint == fingerprint
        };
        self.identities.iter().position(is).map_or_else(|| self.another(key, fingerprint), small)
    }

    fn another(&mut self, key: &DedupKey, fingerprint: Fingerprint) -> u8 {
        let (number, known_by) = (small(self.identities.len()), self.key(key));
        assert!(usize::from(number) < MESSAGES_MAX, "an exploration takes {MESSAGES_MAX} messages at most");
        let name = format!("m{number}");
        self.identities.push(Identity {
            key: *key,
            fingerprint,
            known_by,
            row: None,
            name,
            timeout: None,
            cause: None,
        });
        number
    }

    /// The message of the entity `row` that an entry or a mark tells of: by its key, and by what it says where several have
    /// that key.
    fn told_of(&mut self, row: u8, key: &DedupKey, fingerprint: Fingerprint) -> u8 {
        let near = |known: &Identity| (known.row == Some(row), known.fingerprint == fingerprint);
        let mut nearest = None;
        for (at, known) in self.identities.iter().enumerate().filter(|(_, known)| known.key == *key) {
            if nearest.is_none_or(|(_, before)| before < near(known)) {
                nearest = Some((at, near(known)));
            }
        }
        nearest.map_or_else(|| self.another(key, fingerprint), |(at, _)| small(at))
    }

    /// The message that `manager` sets aside.
    pub(super) fn message_of(&self, manager: u8, envelope: &Envelope) -> Option<u8> {
        let same = |copy: &&Copy| copy.manager == manager && *copy.envelope == *envelope;
        let like = |copy: &&Copy| copy.envelope.message_id == envelope.message_id;
        let copy = self.copies.iter().find(same).or_else(|| self.copies.iter().find(like));
        copy.map(|copy| copy.identity)
    }

    /// What the line `line` of the entity `row` tells of: a message of the beginning, by its place, or its namesake there.
    pub(super) fn message_of_line(&self, row: u8, line: u8) -> Option<u8> {
        let first = &self.copies[..self.first_copies];
        let named = first.get(usize::from(line))?;
        let here = |copy: &&Copy| copy.row == row && copy.envelope.message_id == named.envelope.message_id;
        let copy = if named.row == row { Some(named) } else { first.iter().find(here) };
        copy.map(|copy| copy.identity)
    }

    pub(super) fn name_of(&self, message: u8) -> &str {
        self.identities.get(usize::from(message)).map_or("?", |identity| &identity.name)
    }

    pub(super) fn facts(&self, entity: u32) -> &Facts {
        &self.facts[entity as usize]
    }

    pub(super) fn mark_facts(&self, mark: u32) -> &MarkFacts {
        &self.mark_facts[mark as usize]
    }

    pub(super) fn outgoing_facts(&self, outgoing: u32) -> OutgoingFacts {
        self.outgoing_facts[outgoing as usize]
    }

    /// The name of an entity as it is stored in `row`.
    pub(super) fn entity(&mut self, row: u8, entity: &Entity) -> u32 {
        let name = self.entities.of(entity.clone());
        if self.facts.len() == self.entities.len() {
            return name;
        }
        let (mut outbox, mut messages, mut keys, mut attempts) = (Vec::new(), 0, 0, 0);
        for entry in &entity.outbox {
            let message = self.told_of(row, &entry.key, entry.fingerprint);
            messages |= 1 << message;
            keys |= 1 << self.key(&entry.key);
            attempts |= attempt_bit(entry.attempt);
            let outgoing: Vec<u32> =
                entry.outgoing.iter().zip(0..).map(|(one, at)| self.caused(one, message, at)).collect();
            let answer = entry.reply.filter(|_| entry.reply_sent);
            let answer_sent = answer.and_then(|at| outgoing.get(at as usize)).copied();
            outbox.push(EntryFacts { attempt: entry.attempt, message, outgoing, answer_sent });
        }
        self.facts.push(Facts {
            lines: self.lines.and_then(|lines| lines(entity)),
            outbox,
            messages,
            keys,
            commits: entity.commits,
            timeouts: entity.timeouts.iter().map(|timeout| timeout.message_id.clone()).collect(),
            attempts,
        });
        name
    }

    /// The name of an outgoing message that stands in the entry of `cause`.
    fn caused(&mut self, outgoing: &Outgoing, cause: u8, index: u8) -> u32 {
        let name = self.outgoing(outgoing);
        if self.outgoing_facts[name as usize].cause.is_some() {
            return name;
        }
        let envelope = &outgoing.envelope;
        let takes = |manager: &&Arc<dyn Passes>| {
            let here = match &outgoing.destination {
                Destination::Endpoint(endpoint) => manager.scope().endpoint == *endpoint,
                _ => true,
            };
            here && manager.types().contains(&envelope.message_type)
        };
        let manager = self.managers.iter().position(|manager| takes(&manager));
        // One that has no entity there would be set aside there, and is nobody's message here.
        let copy = manager.and_then(|at| self.copy(small(at), envelope.clone(), Some((cause, index))).ok());
        self.outgoing_facts[name as usize] = OutgoingFacts { cause: Some(cause), copy };
        name
    }

    /// The name of an outgoing message.
    pub(super) fn outgoing(&mut self, outgoing: &Outgoing) -> u32 {
        let name = self.outgoing.of(outgoing.clone());
        if self.outgoing_facts.len() < self.outgoing.len() {
            self.outgoing_facts.push(OutgoingFacts::default());
        }
        name
    }

    /// The name of a dedup entry that is written for `row`.
    pub(super) fn mark(&mut self, row: u8, mark: &DedupEntry) -> u32 {
        let name = self.marks.of(mark.clone());
        if self.mark_facts.len() < self.marks.len() {
            let (message, key) = (self.told_of(row, &mark.key, mark.fingerprint), self.key(&mark.key));
            self.mark_facts.push(MarkFacts { message, key, attempts: attempt_bit(mark.attempt) });
        }
        name
    }
}

/// An attempt at `message` that nobody remembers: of those, one is as good as another.
pub(super) fn fresh_attempt(message: u8, used: u128) -> Option<u8> {
    let used = (used >> (u32::from(message) * ATTEMPTS_MAX)) as u8;
    u8::try_from(used.trailing_ones()).ok().filter(|number| u32::from(*number) < ATTEMPTS_MAX)
}

pub(super) fn attempt(message: u8, number: u8) -> AttemptId {
    AttemptId::from_bytes((u128::from(message) << 64 | u128::from(number) | 1 << 32).to_be_bytes())
}

/// The place of an attempt in a mask; nowhere if it is none of ours.
pub(super) fn attempt_bit(id: AttemptId) -> u128 {
    let number = u128::from_be_bytes(*id.as_bytes());
    let (message, number) = ((number >> 64) as u32, number as u32);
    if message as usize >= MESSAGES_MAX || number >= ATTEMPTS_MAX || id != attempt(message as u8, number as u8) {
        return 0;
    }
    1 << (message * ATTEMPTS_MAX + number)
}
