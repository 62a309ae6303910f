//! What was called, when, and how it ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use hapax::{
    entity::Version,
    ports::{ErrorKind, Finished, Known, Loaded, Saved, StoreError},
};

use crate::{
    checker::{Act, Step, Told, is_linearizable},
    names::Names,
    reference::{Content, Key, Mark, Message, Number},
};

/// Numbers for moments: who took a lower one before a call began took it before.
#[derive(Debug, Default)]
pub(crate) struct Moments(AtomicU64);

impl Moments {
    pub(crate) fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// A call, on one entity and its messages.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) task: usize,
    /// By a handle of which a lost race may be one with itself, as the port says: then nobody knows.
    pub(crate) repeats: bool,
    pub(crate) invoked: u64,
    pub(crate) returned: u64,
    pub(crate) call: Call,
}

/// What was asked and answered; no answer: it was not waited for.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Load(Vec<Message>, Option<Result<Loaded, Kind>>),
    Version(Option<Result<Option<Version>, Kind>>),
    Contains(Vec<Message>, Option<Result<Known, Kind>>),
    Insert(Vec<Mark>, Option<Result<(), Kind>>),
    Save(Saving, Vec<Mark>, Option<Result<Saved, Kind>>),
    Finish(Vec<Mark>, Option<Saving>, Option<Result<Option<Finished>, Kind>>),
}

/// What a save expects, and what it saves.
pub(crate) type Saving = (Option<Version>, Content);

/// Of an error.
pub(crate) type Kind = ErrorKind;

/// The kind of an error, for errors cannot be copied.
pub(crate) fn kind(error: StoreError) -> Kind {
    error.kind()
}

/// What calls have met.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Met {
    pub(crate) calls: usize,
    pub(crate) overlapping: usize,
    pub(crate) conflicts: usize,
    pub(crate) unknown: usize,
}

impl Met {
    pub(crate) const fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.overlapping += other.overlapping;
        self.conflicts += other.conflicts;
        self.unknown += other.unknown;
    }
}

/// The calls of one round.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) names: Names,
    pub(crate) records: Vec<Record>,
}

/// Most calls on one entity in a round: so that a check takes milliseconds.
const CALLS_MAX: usize = 30;

impl History {
    /// Checks each entity with its messages by itself: if each is linearizable, all together are.
    pub(crate) fn check(&self) -> Result<Met, String> {
        let mut met = Met::default();
        for key in self.records.iter().map(|record| record.key).collect::<BTreeSet<Key>>() {
            let mut records: Vec<Record> = self.records.iter().filter(|record| record.key == key).cloned().collect();
            records.sort_by_key(|record| record.invoked);
            assert!(records.len() <= CALLS_MAX, "{} calls on one entity: draw shorter rounds", records.len());
            met.add(met_by(&records));
            if !is_linearizable(key, &self.steps(&records)?) {
                return Err(self.told(key, records));
            }
        }
        Ok(met)
    }

    /// The calls as steps; an error when somebody was told what nobody has written.
    fn steps(&self, records: &[Record]) -> Result<Vec<Step>, String> {
        let mut steps = Steps { names: &self.names, numbers: BTreeMap::new(), all: Vec::new() };
        for record in records {
            steps.add(record).map_err(|why| format!("{why}: {record}"))?;
        }
        Ok(steps.all)
    }

    /// What cannot have happened, without the reads that are not needed to see that.
    fn told(&self, key: Key, mut records: Vec<Record>) -> String {
        let mut index = 0;
        while index < records.len() {
            let mut fewer = records.clone();
            let removed = fewer.remove(index);
            let is_read = |steps: Vec<Step>| steps.iter().all(|step| step.act.is_read());
            let read = self.steps(&[removed]).is_ok_and(is_read);
            if read && self.steps(&fewer).is_ok_and(|steps| !is_linearizable(key, &steps)) {
                records = fewer;
            } else {
                index += 1;
            }
        }
        let lines: Vec<String> = records.iter().map(|record| format!("  {record}")).collect();
        format!("not in any order can this have happened, to {key:?}:\n{}", lines.join("\n"))
    }
}

fn met_by(records: &[Record]) -> Met {
    let overlaps = |pair: &&[Record]| pair[1].invoked < pair[0].returned;
    let unknown = |record: &&Record| {
        matches!(
            record.call,
            Call::Save(_, _, None | Some(Err(Kind::UnknownOutcome)))
                | Call::Insert(_, None | Some(Err(Kind::UnknownOutcome)))
                | Call::Finish(_, _, None | Some(Err(Kind::UnknownOutcome)))
        )
    };
    let conflicts = |record: &&Record| matches!(record.call, Call::Save(_, _, Some(Ok(Saved::Conflict))));
    Met {
        calls: records.len(),
        overlapping: records.windows(2).filter(overlaps).count(),
        conflicts: records.iter().filter(conflicts).count(),
        unknown: records.iter().filter(unknown).count(),
    }
}

struct Steps<'n> {
    names: &'n Names,
    numbers: BTreeMap<String, Number>,
    all: Vec<Step>,
}

impl Steps<'_> {
    fn number(&mut self, version: &Version) -> Number {
        let next = Number::try_from(self.numbers.len()).unwrap();
        *self.numbers.entry(format!("{version:?}")).or_insert(next)
    }

    fn add(&mut self, record: &Record) -> Result<(), String> {
        match &record.call {
            Call::Load(ids, Some(Ok(loaded))) => {
                let (row, mut asked) = match &loaded.stored {
                    None => (None, ids.clone()),
                    Some(stored) => {
                        let content = self.names.content(&stored.entity).ok_or("an entity that nobody has saved")?;
                        let outbox = content.outbox.iter().map(|mark| mark.message);
                        let asked = ids.iter().copied().chain(outbox).collect();
                        (Some((self.number(&stored.version), content)), asked)
                    }
                };
                let read = self.push(record, true, None, Act::Row(row));
                asked.sort_unstable();
                asked.dedup();
                match &loaded.known {
                    // Of the same moment, or of a later one.
                    Some(known) => self.marked(record, &asked, known, Some(read)),
                    None => Ok(()),
                }
            }
            Call::Version(Some(Ok(version))) => {
                let version = version.as_ref().map(|version| self.number(version));
                self.push(record, true, None, Act::Version(version));
                Ok(())
            }
            // Each is of a moment of its own.
            Call::Contains(ids, Some(Ok(known))) => self.marked(record, ids, known, None),
            Call::Insert(marks, answer) => {
                if let Some(is_over) = is_over(answer.as_ref()) {
                    self.insert(record, is_over, marks);
                }
                Ok(())
            }
            Call::Save(saving, processed, answer) => {
                let told = match answer {
                    Some(Ok(Saved::At(version))) => Told::At(self.number(version)),
                    Some(Ok(Saved::Conflict)) if !record.repeats => Told::Conflict,
                    _ => Told::Unknown,
                };
                if let Some(is_over) = is_over(answer.as_ref()) {
                    self.save(record, is_over && told != Told::Unknown, None, saving, processed, told);
                }
                Ok(())
            }
            Call::Finish(done, saving, answer) => {
                let Some(is_over) = is_over(answer.as_ref()) else { return Ok(()) };
                let marked = self.insert(record, is_over, done);
                let told = match answer {
                    Some(Ok(Some(Finished::Cleaned(Some(version))))) => Told::At(self.number(version)),
                    // A clean-up gives way to others: that it is left says nothing.
                    Some(Ok(_)) if !record.repeats => return Ok(()),
                    _ => Told::Unknown,
                };
                if let Some(saving) = saving {
                    self.save(record, is_over && told != Told::Unknown, marked, saving, &[], told);
                }
                Ok(())
            }
            // A read without an answer.
            Call::Load(..) | Call::Version(_) | Call::Contains(..) => Ok(()),
        }
    }

    fn marked(
        &mut self,
        record: &Record,
        asked: &[Message],
        known: &Known,
        after: Option<usize>,
    ) -> Result<(), String> {
        for message in asked {
            let id = self.names.id(*message);
            let attempt = match known.entry(&id) {
                None => None,
                Some(entry) => {
                    let mark = self.names.mark_of(entry.key, entry.attempt).ok_or("a mark that nobody has made")?;
                    if self.names.mark(mark) != *entry {
                        return Err("a mark that is not whole".into());
                    }
                    Some(mark.attempt)
                }
            };
            self.push(record, true, after, Act::Marked(*message, attempt));
        }
        Ok(())
    }

    /// The last of the inserts.
    fn insert(&mut self, record: &Record, is_over: bool, marks: &[Mark]) -> Option<usize> {
        marks.iter().map(|mark| self.push(record, is_over, None, Act::Insert(*mark))).last()
    }

    fn save(
        &mut self,
        record: &Record,
        is_over: bool,
        after: Option<usize>,
        (expected, content): &Saving,
        processed: &[Mark],
        told: Told,
    ) {
        let expected = expected.as_ref().map(|version| self.number(version));
        let act = Act::Save { expected, content: content.clone(), processed: processed.to_vec(), told };
        self.push(record, is_over, after, act);
    }

    fn push(&mut self, record: &Record, is_over: bool, after: Option<usize>, act: Act) -> usize {
        let returned = is_over.then_some(record.returned);
        self.all.push(Step { invoked: record.invoked, returned, after, act });
        self.all.len() - 1
    }
}

/// Whether a write was done when it returned; `None`: it was not done and never will be, as its error says.
fn is_over<T>(answer: Option<&Result<T, Kind>>) -> Option<bool> {
    match answer {
        Some(Ok(_)) => Some(true),
        None | Some(Err(Kind::UnknownOutcome)) => Some(false),
        Some(Err(_)) => None,
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:4} to {:4}, task {}: ", self.invoked, self.returned, self.task)?;
        match &self.call {
            Call::Load(ids, Some(Ok(loaded))) => {
                let found = loaded.stored.as_ref().map(|stored| (&stored.version, &stored.entity.state));
                write!(f, "load, asking for {ids:?}: {found:?}, marked {:?}", loaded.known.as_ref().map(attempts))
            }
            Call::Contains(ids, Some(Ok(known))) => write!(f, "contains {ids:?}: marked {:?}", attempts(known)),
            call => write!(f, "{call:?}"),
        }
    }
}

/// As `known` prints, but short.
fn attempts(known: &Known) -> Vec<String> {
    let text = format!("{known:?}");
    text.split("attempt: ").skip(1).map(|rest| rest.chars().take(32).collect()).collect()
}
