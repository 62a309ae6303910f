//! What may be asked of a store, and what the reference says to it.

use std::collections::BTreeMap;

use hapax_tests::Backend;
use proptest::{prelude::*, sample::subsequence};
use proptest_state_machine::ReferenceStateMachine;

use crate::reference::{Content, Key, Mark, Message, Number, Reference, Row};

/// Two sagas, one of them with two instances.
pub(crate) const KEYS: [Key; 3] = [Key { scope: 0, name: 0 }, Key { scope: 0, name: 1 }, Key { scope: 1, name: 0 }];
/// Messages of each entity, for a dedup key is of one: few, so that calls meet.
const EACH: usize = 3;
/// All of them.
pub(crate) const MESSAGES: [Message; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
/// Handles onto one place.
pub(crate) const HANDS: u8 = 2;

/// One call, through one of the handles.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) hand: u8,
    pub(crate) call: Call,
}

#[derive(Debug, Clone)]
pub(crate) enum Call {
    Load { key: Key, ids: Vec<Message> },
    Save { key: Key, expected: Guess, completed: bool, keep: bool, adds: Vec<Mark>, processed: Vec<Mark> },
    SaveTooMuch { key: Key, expected: Guess, processed: Vec<Mark> },
    Finish { key: Key, done: Vec<Mark>, clean_up: Option<Guess> },
    Version { key: Key },
    Contains { ids: Vec<Message> },
    Insert { key: Key, marks: Vec<Mark> },
    Pending { scope: u8, after: Option<Key>, limit: usize },
    PendingForAnHour { scope: u8 },
    Purge { scope: u8 },
    PurgeAfterAnHour { scope: u8 },
    Evict,
    EvictAfterAnHour,
}

/// What a save expects.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Guess {
    Absent,
    /// So many versions before the last one that was given for the key, in whichever of its lives.
    Back(u8),
}

/// The messages of an entity.
pub(crate) fn messages_of(key: Key) -> &'static [Message] {
    let place = KEYS.iter().position(|known| *known == key).unwrap();
    &MESSAGES[place * EACH..][..EACH]
}

/// What a store declares of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Can {
    /// Marks ride with a save.
    pub(crate) together: bool,
    /// It is told to evict; otherwise it does so by itself, later than any run.
    pub(crate) evicts: bool,
}

impl Can {
    pub(crate) fn of(store: &impl Backend) -> Self {
        Self { together: store.capabilities().together, evicts: store.dedup_capabilities().keeps.is_none() }
    }
}

impl Default for Can {
    fn default() -> Self {
        Self { together: true, evicts: true }
    }
}

/// What the reference holds after some calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// What the store is that is asked the same.
    pub(crate) can: Can,
    pub(crate) stored: Reference,
    /// Every version of each key, with what was saved.
    given: BTreeMap<Key, Vec<(Number, Content)>>,
    last: Number,
    /// A retention was asked for that no entry has outlived.
    pub(crate) retained: bool,
}

/// A call with its guesses resolved, and how it must end.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// As said, and nothing is changed by it.
    AsSaid,
    Save {
        key: Key,
        expected: Option<Number>,
        content: Content,
        processed: Vec<Mark>,
        at: Option<Number>,
    },
    Finish {
        key: Key,
        done: Vec<Mark>,
        clean_up: Option<(Number, Content)>,
        at: Option<Number>,
    },
    Purge {
        gone: usize,
    },
    Evict {
        gone: usize,
    },
}

impl State {
    /// The version that `guess` means; `None`: there is no such version.
    fn resolve(&self, key: Key, guess: Guess) -> Option<Option<(Number, Content)>> {
        match guess {
            Guess::Absent => Some(None),
            Guess::Back(back) => {
                let given = self.given.get(&key)?;
                given.iter().rev().nth(usize::from(back)).cloned().map(Some)
            }
        }
    }

    fn is_possible(&self, call: &Call) -> bool {
        match call {
            Call::Save { key, expected, .. } | Call::SaveTooMuch { key, expected, .. } => {
                self.resolve(*key, *expected).is_some()
            }
            Call::Finish { key, clean_up: Some(clean_up), .. } => {
                self.resolve(*key, *clean_up).is_some_and(|version| version.is_some())
            }
            _ => true,
        }
    }

    /// What would be rare: a purge where there is something to purge, a late save of what was purged, a late clean-up.
    fn fitting(&self) -> Vec<Call> {
        let purge = self.stored.rows.iter().filter(|(_, row)| row.content.completed && row.content.outbox.is_empty());
        let purged = self.given.keys().filter(|key| !self.stored.rows.contains_key(key));
        let save = |key: &Key| Call::Save {
            key: *key,
            expected: Guess::Back(0),
            completed: false,
            keep: false,
            adds: Vec::new(),
            processed: vec![Mark { message: messages_of(*key)[0], attempt: 0 }],
        };
        let changed = self.given.iter().filter(|(_, given)| given.len() > 1).map(|(key, _)| key);
        let finish = |key: &Key| Call::Finish {
            key: *key,
            done: vec![Mark { message: messages_of(*key)[1], attempt: 0 }],
            clean_up: Some(Guess::Back(1)),
        };
        let purge = purge.map(|(key, _)| Call::Purge { scope: key.scope });
        purge.chain(purged.map(save)).chain(changed.map(finish)).collect()
    }

    fn save(&mut self, key: Key, expected: Option<Number>, content: &Content, processed: &[Mark]) -> Option<Number> {
        self.last += 1;
        let row = Row { version: Some(self.last), content: content.clone() };
        self.stored.save(key, expected, row, processed).then(|| {
            self.given.entry(key).or_default().push((self.last, content.clone()));
            self.last
        })
    }

    /// Takes the call.
    pub(crate) fn step(&mut self, call: &Call) -> Asked {
        match call {
            Call::Save { key, expected, completed, keep, adds, processed } => {
                let expected = self.resolve(*key, *expected).flatten().map(|(number, _)| number);
                let before = self.stored.rows.get(key).filter(|_| *keep);
                let mut outbox = before.map_or_else(Vec::new, |row| row.content.outbox.clone());
                outbox.retain(|kept| adds.iter().all(|added| added.message != kept.message));
                outbox.extend(adds);
                outbox.sort_unstable();
                let content = Content { tag: self.last + 1, completed: *completed, outbox };
                // Nobody saves what the check of its pass has shown to be over; to a store it may be a lost race.
                let is_over =
                    |mark: &&Mark| self.stored.marks.get(&mark.message).is_some_and(|known| *known != mark.attempt);
                let processed: Vec<Mark> = processed.iter().filter(|mark| !is_over(mark)).copied().collect();
                let riding: &[Mark] = if self.can.together { &processed } else { &[] };
                let at = self.save(*key, expected, &content, riding);
                Asked::Save { key: *key, expected, content, processed, at }
            }
            Call::Finish { key, done, clean_up } => {
                let mut done = done.clone();
                let clean_up = clean_up.and_then(|guess| self.resolve(*key, guess).flatten());
                let clean_up = clean_up.map(|(number, content)| {
                    // What is cleaned up is what is done.
                    let own = content.outbox.iter().filter(|own| done.iter().all(|mark| mark.message != own.message));
                    let own: Vec<Mark> = own.take(2).copied().collect();
                    done.extend(own);
                    let outbox = content.outbox.iter().filter(|entry| !done.contains(entry)).copied().collect();
                    (number, Content { outbox, ..content })
                });
                self.stored.insert(&done);
                let saved = clean_up.clone().and_then(|(number, content)| self.save(*key, Some(number), &content, &[]));
                Asked::Finish { key: *key, done, clean_up, at: saved }
            }
            Call::Insert { marks, .. } => {
                self.stored.insert(marks);
                Asked::AsSaid
            }
            Call::Purge { scope } => Asked::Purge { gone: self.stored.purge(*scope) },
            Call::Evict if self.retained || !self.can.evicts => Asked::Evict { gone: 0 },
            Call::Evict => Asked::Evict { gone: std::mem::take(&mut self.stored.marks).len() },
            Call::EvictAfterAnHour => {
                self.retained = true;
                Asked::AsSaid
            }
            _ => Asked::AsSaid,
        }
    }

    /// What is pending of a scope: keys in order, and what waits in each.
    pub(crate) fn pending(&self, scope: u8, after: Option<Key>, limit: usize) -> Vec<(Key, Vec<Mark>)> {
        let rows = self.stored.rows.iter().filter(|(key, row)| {
            key.scope == scope && after.is_none_or(|after| **key > after) && !row.content.outbox.is_empty()
        });
        rows.take(limit).map(|(key, row)| (*key, row.content.outbox.clone())).collect()
    }
}

/// Attempts at messages of an entity, by their places among all that it has: of each message at most one, in order.
fn attempts(max: usize) -> impl Strategy<Value = Vec<(usize, u8)>> {
    let places = subsequence((0..EACH).collect::<Vec<_>>(), 0..=max);
    (places, any::<[bool; EACH]>())
        .prop_map(|(places, seconds)| places.into_iter().map(|place| (place, u8::from(seconds[place]))).collect())
}

fn marks(key: Key, attempts: Vec<(usize, u8)>) -> Vec<Mark> {
    let mark = |(place, attempt): (usize, u8)| Mark { message: messages_of(key)[place], attempt };
    attempts.into_iter().map(mark).collect()
}

fn call() -> impl Strategy<Value = Call> {
    let key = || proptest::sample::select(KEYS.to_vec());
    let ids = || subsequence(MESSAGES.to_vec(), 0..=MESSAGES.len());
    let places = || subsequence((0..EACH).collect::<Vec<_>>(), 0..=EACH);
    let guess =
        || prop_oneof![8 => Just(Guess::Back(0)), 4 => Just(Guess::Absent), 3 => (1..4u8).prop_map(Guess::Back)];
    let clean_up = proptest::option::of(prop_oneof![4 => Just(Guess::Back(0)), 2 => (1..3u8).prop_map(Guess::Back)]);
    let often = |often| proptest::bool::weighted(often);
    let save = (key(), guess(), often(0.35), often(0.5), attempts(2), attempts(2));
    let after = proptest::option::of(key());
    prop_oneof![
        4 => (key(), places()).prop_map(|(key, places)| {
            Call::Load { key, ids: places.into_iter().map(|place| messages_of(key)[place]).collect() }
        }),
        10 => save.prop_map(|(key, expected, completed, keep, adds, processed)| {
            Call::Save { key, expected, completed, keep, adds: marks(key, adds), processed: marks(key, processed) }
        }),
        1 => (key(), guess(), attempts(1)).prop_map(|(key, expected, processed)| {
            Call::SaveTooMuch { key, expected, processed: marks(key, processed) }
        }),
        5 => (key(), attempts(2), clean_up).prop_map(|(key, done, clean_up)| {
            Call::Finish { key, done: marks(key, done), clean_up }
        }),
        2 => key().prop_map(|key| Call::Version { key }),
        4 => ids().prop_map(|ids| Call::Contains { ids }),
        4 => (key(), attempts(3)).prop_map(|(key, attempts)| Call::Insert { key, marks: marks(key, attempts) }),
        2 => (0..2u8, after, 1..4usize).prop_map(|(scope, after, limit)| Call::Pending { scope, after, limit }),
        1 => (0..2u8).prop_map(|scope| Call::PendingForAnHour { scope }),
        5 => (0..2u8).prop_map(|scope| Call::Purge { scope }),
        1 => (0..2u8).prop_map(|scope| Call::PurgeAfterAnHour { scope }),
        2 => Just(Call::Evict),
        1 => Just(Call::EvictAfterAnHour),
    ]
}

/// Calls one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Calls;

impl ReferenceStateMachine for Calls {
    type State = State;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<State> {
        Just(State::default()).boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Step> {
        let (fitting, state) = (state.fitting(), state.clone());
        let possible = call().prop_filter("there is no such version", move |call| state.is_possible(call));
        let call = if fitting.is_empty() {
            possible.boxed()
        } else {
            prop_oneof![4 => possible, 1 => proptest::sample::select(fitting)].boxed()
        };
        (0..HANDS, call).prop_map(|(hand, call)| Step { hand, call }).boxed()
    }

    fn preconditions(state: &State, step: &Step) -> bool {
        state.is_possible(&step.call)
    }

    fn apply(mut state: State, step: &Step) -> State {
        state.step(&step.call);
        state
    }
}
