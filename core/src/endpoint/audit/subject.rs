//! One entity under audit, with some of its messages, and what one look at it says. Nothing here waits for anything: it is a function
//! of what was seen, so that each rule can be tried with what a lying store would answer.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use super::{moment::Moment, sample::Told};
use crate::{
    entity::{Entity, OutboxEntry, Version},
    ids::{AttemptId, DedupKey, EntityKey, MessageId},
    metrics::Invariant,
    ports::{Known, Stored},
};

/// Messages of one entity that are watched; more would make one look at a hot entity large.
const MESSAGES_MAX: usize = 16;
/// Versions of an entity that are remembered: none of them may come back.
const VERSIONS_MAX: usize = 8;
/// Sweeps that pass an entry by before it is an orphan. One would be enough for a sweeper that finds it; an entity may be too busy for
/// its clean-up some times in a row.
const SWEEPS_MIN: u64 = 6;
/// An orphan has been watched for at least so many times the sweeper's age.
const AGES_MIN: u32 = 2;
/// Saves with a handled message that an entry which is over survives: the first may have been under way when it was over. Each later one
/// was made by a pass that had loaded the entity after the first, had asked what is over after that, and had to leave the entry out.
const SAVES_MAX: u32 = 1;

/// What is to be true of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// It has a dedup entry.
    Marked,
    /// It is in the outbox or has a dedup entry.
    Saved,
    /// Its outbox entry is to go: it is over, since nobody knows when.
    Over,
}

/// What one look has found.
#[derive(Debug)]
pub(super) struct Sighting {
    pub(super) stored: Option<Stored>,
    /// Asked after the entity was loaded.
    pub(super) known: Known,
    /// The entity was still the loaded one after that: so both are of one time.
    pub(super) is_fresh: bool,
}

/// What else counts at the time of a look. Of before it, so that what happens during it is not held against anybody.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) moment: Moment,
    pub(super) sweeps: u64,
    pub(super) sweep_failed: u64,
    pub(super) writes: u64,
    pub(super) sweep_age: Duration,
    /// Messages are watched for so long: well within retention.
    pub(super) watch_for: Duration,
    /// Passes save it; what was enqueued is saved once and then only cleaned up.
    pub(super) is_handled: bool,
}

/// One invariant that was looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) invariant: Invariant,
    pub(super) message: Option<(DedupKey, Option<MessageId>)>,
    /// What was found, if it does not hold.
    pub(super) broken: Option<String>,
}

/// An entity under audit.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) entity: EntityKey,
    watched: Vec<Watched>,
    /// Messages that came when there was no more room.
    more: usize,
    last: Option<Last>,
}

#[derive(Debug)]
struct Watched {
    key: DedupKey,
    message_id: Option<MessageId>,
    since: Moment,
    duty: Duty,
    attempt: Option<AttemptId>,
    waits: Option<Waits>,
}

/// An entry that was seen in the outbox.
#[derive(Debug)]
struct Waits {
    /// Its attempt is over.
    is_over: bool,
    since: Moment,
    sweeps: u64,
    writes: u64,
    /// Of the last fresh look. Clean-ups do not raise it, which may carry along what their pass has not asked for.
    commits: Option<u64>,
    saves: u32,
}

/// An entity as it was seen last, freshly.
#[derive(Debug)]
struct Last {
    version: Version,
    before: VecDeque<Version>,
    commits: u64,
    completed: bool,
    content: u64,
    at: Moment,
}

impl Subject {
    pub(super) const fn new(entity: EntityKey) -> Self {
        Self { entity, watched: Vec::new(), more: 0, last: None }
    }

    /// For one look at least.
    pub(super) fn watch(&mut self, told: Told, since: Moment) {
        if self.watched.iter().all(|watched| watched.key != told.key) {
            let Told { key, message_id, duty, .. } = told;
            let message_id = Some(message_id);
            self.watched.push(Watched { key, message_id, since, duty, attempt: None, waits: None });
        }
    }

    /// Nothing is left to look for.
    pub(super) const fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// What the dedup store is to be asked, beside the entries that are found.
    pub(super) fn keys(&self) -> Vec<DedupKey> {
        self.watched.iter().map(|watched| watched.key).collect()
    }

    /// Messages that may soon be forgotten are let go of. Before the look, and early: by the time it is answered they are to be known.
    pub(super) fn forget(&mut self, now: &Now) {
        self.watched.retain(|watched| now.moment.longest_since(watched.since) < now.watch_for);
    }

    /// Compares what was seen with what was seen before.
    pub(super) fn judge(&mut self, seen: &Sighting, now: &Now) -> Vec<Check> {
        let mut checks = Vec::new();
        let entity = seen.stored.as_ref().map(|stored| &stored.entity);
        self.find(seen, now);
        self.watched.retain_mut(|watched| {
            let before = checks.len();
            let entry = entity.and_then(|entity| entity.entry(&watched.key)).map(|entry| &**entry);
            watched.judge_memory(entry, seen, &mut checks);
            watched.judge_waiting(entry, seen, now, &mut checks);
            let is_broken = checks[before..].iter().any(|check| check.broken.is_some());
            // What is over and gone has nothing more to say.
            !is_broken && (watched.duty != Duty::Over || entry.is_some())
        });
        if now.is_handled && seen.is_fresh {
            // What was seen longer ago may have been completed, purged and begun anew since.
            self.last.take_if(|last| now.moment.longest_since(last.at) >= now.watch_for);
            checks.extend(self.judge_versions(seen.stored.as_ref(), now.moment));
        }
        self.make_room();
        checks
    }

    /// Each of the messages has had the same chance to stay.
    fn make_room(&mut self) {
        while self.watched.len() > MESSAGES_MAX {
            let newest = self.watched.pop();
            self.more += 1;
            let place = fastrand::usize(..MESSAGES_MAX + self.more);
            if let (Some(newest), Some(before)) = (newest, self.watched.get_mut(place).filter(|_| place < MESSAGES_MAX))
            {
                *before = newest;
            }
        }
    }

    /// Watches what is found in the outbox, too.
    fn find(&mut self, seen: &Sighting, now: &Now) {
        let Some(stored) = &seen.stored else { return };
        for entry in &stored.entity.outbox {
            let key = entry.key;
            if self.watched.len() < MESSAGES_MAX && self.watched.iter().all(|watched| watched.key != key) {
                // When it was marked, if it was, nobody knows: it may be forgotten at any time.
                let duty = if seen.known.entry(&key).is_some() { Duty::Over } else { Duty::Saved };
                let attempt = Some(entry.attempt);
                self.watched.push(Watched { key, message_id: None, since: now.moment, duty, attempt, waits: None });
            }
        }
    }

    fn judge_versions(&mut self, stored: Option<&Stored>, at: Moment) -> Option<Check> {
        let check = |broken| Some(Check { invariant: Invariant::VersionsGrow, message: None, broken });
        let Some(Stored { version, entity }) = stored else {
            let last = self.last.take()?;
            let gone = || format!("it is gone, and was no tombstone at version {:?}", last.version);
            return check((!last.completed).then(gone));
        };
        let content = content_of(entity);
        let Some(last) = &mut self.last else {
            self.last = Some(Last::new(version.clone(), entity, content, at));
            return None;
        };
        last.at = at;
        let broken = if last.before.contains(version) {
            Some(format!("version {version:?} was followed by {:?} and is back", last.version))
        } else if entity.commits < last.commits {
            let (now, then) = (entity.commits, last.commits);
            Some(format!(
                "it has handled {now} messages at version {version:?}, and had handled {then} at {:?}",
                last.version
            ))
        } else if *version == last.version && content != last.content {
            Some(format!("version {version:?} has had two states"))
        } else {
            None
        };
        if broken.is_some() {
            self.last = Some(Last::new(version.clone(), entity, content, at));
        } else if *version != last.version {
            let before = std::mem::replace(&mut last.version, version.clone());
            last.before.push_back(before);
            if last.before.len() > VERSIONS_MAX {
                last.before.pop_front();
            }
            (last.commits, last.completed, last.content) = (entity.commits, entity.completed, content);
        }
        check(broken)
    }
}

impl Watched {
    fn check(&self, invariant: Invariant, broken: Option<String>) -> Check {
        Check { invariant, message: Some((self.key, self.message_id.clone())), broken }
    }

    /// What is remembered of it.
    fn judge_memory(&mut self, entry: Option<&OutboxEntry>, seen: &Sighting, checks: &mut Vec<Check>) {
        let Some(mark) = seen.known.entry(&self.key) else {
            match (self.duty, entry) {
                (Duty::Marked, entry) => {
                    let then = if entry.is_some() {
                        "its outbox entry is there and will be sent again"
                    } else {
                        "nor an outbox entry"
                    };
                    let what = format!("the message was handled and has no dedup entry, {then}");
                    checks.push(self.check(Invariant::Remembered, Some(what)));
                }
                (Duty::Saved, None) if seen.is_fresh => {
                    let what = "the message was saved, and has neither an outbox entry nor a dedup entry".to_owned();
                    checks.push(self.check(Invariant::Kept, Some(what)));
                }
                (Duty::Saved, Some(entry)) => {
                    self.attempt = Some(entry.attempt);
                    checks.push(self.check(Invariant::Kept, None));
                }
                (Duty::Saved, None) | (Duty::Over, _) => {}
            }
            return;
        };
        match self.duty {
            Duty::Marked => checks.push(self.check(Invariant::Remembered, None)),
            // Marked after it was first watched: from now on it has to stay so for all of the watch.
            Duty::Saved => {
                checks.push(self.check(Invariant::Kept, None));
                self.duty = Duty::Marked;
            }
            Duty::Over => {}
        }
        let other = entry.filter(|entry| entry.attempt != mark.attempt);
        let what = |entry: &OutboxEntry| {
            format!("its outbox entry is of attempt {}, its dedup entry of {}", entry.attempt, mark.attempt)
        };
        checks.push(self.check(Invariant::HandledOnce, other.map(what)));
        if other.is_none() {
            let before = *self.attempt.get_or_insert(mark.attempt);
            let what = || format!("its dedup entry was of attempt {before}, and is of {}", mark.attempt);
            checks.push(self.check(Invariant::OneAttempt, (before != mark.attempt).then(what)));
        }
    }

    /// Whether its entry stays for too long.
    fn judge_waiting(&mut self, entry: Option<&OutboxEntry>, seen: &Sighting, now: &Now, checks: &mut Vec<Check>) {
        let (Some(entry), Some(stored)) = (entry, &seen.stored) else {
            if self.waits.take().is_some() {
                checks.push(self.check(Invariant::NoOrphan, None));
            }
            return;
        };
        let is_over = seen.known.attempt(&entry.key, &entry.attempt);
        let Some(waits) = self.waits.as_mut().filter(|waits| waits.is_over == is_over) else {
            let commits = seen.is_fresh.then_some(stored.entity.commits);
            let Now { moment: since, sweeps, writes, .. } = *now;
            self.waits = Some(Waits { is_over, since, sweeps, writes, commits, saves: 0 });
            return;
        };
        if seen.is_fresh {
            let before = waits.commits.replace(stored.entity.commits);
            waits.saves += u32::from(before.is_some_and(|before| before < stored.entity.commits));
        }
        // An old load may show what is gone.
        let broken = if seen.is_fresh { waits.is_orphan(now) } else { None };
        checks.push(self.check(Invariant::NoOrphan, broken));
    }
}

impl Waits {
    fn is_orphan(&self, now: &Now) -> Option<String> {
        if self.is_over && now.is_handled && self.saves > SAVES_MAX {
            return Some("its outbox entry is over, and was saved along again and again".to_owned());
        }
        let swept = now.sweeps.saturating_sub(self.sweeps.max(now.sweep_failed));
        let age = now.moment.shortest_since(self.since);
        if swept <= SWEEPS_MIN || age < now.sweep_age.saturating_mul(AGES_MIN) {
            return None;
        }
        match self.is_over {
            // Its clean-up may be refused by a store that takes no writes; nobody would say so.
            true if now.writes <= self.writes => None,
            true => Some(format!("its outbox entry is over, and {swept} sweeps have left it where it is")),
            false => {
                Some(format!("its outbox entry waits to be sent, and {swept} sweeps have passed it by without a word"))
            }
        }
    }
}

impl Last {
    const fn new(version: Version, entity: &Entity, content: u64, at: Moment) -> Self {
        Self { version, before: VecDeque::new(), commits: entity.commits, completed: entity.completed, content, at }
    }
}

/// All but the outbox: a store may leave out at once what it removes later, see [`Finished::Later`](crate::ports::Finished::Later).
fn content_of(entity: &Entity) -> u64 {
    let mut hasher = DefaultHasher::new();
    entity.state.hash(&mut hasher);
    entity.completed.hash(&mut hasher);
    entity.commits.hash(&mut hasher);
    for timeout in &entity.timeouts {
        timeout.message_id.hash(&mut hasher);
        timeout.due.hash(&mut hasher);
    }
    hasher.finish()
}
