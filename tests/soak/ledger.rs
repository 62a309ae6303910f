//! The books of a run: what is stored and what came out, against what was sent. Nothing here asks a worker.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hapax::{
    Sender,
    envelope::Outgoing,
    ids::{DedupKey, EntityKey, Scope},
    ports::{DispatchError, Dispatcher, Page, Refused, Stored},
};

use crate::{
    AnyError,
    load::envelope,
    messages::{BACK, FRONT, Handled, Ledger, Step},
    place::{Store, StorePlace},
    recount,
    sink::Sink,
};

/// Faults that are named of each kind.
const NAMED_MAX: usize = 5;
/// Marks that are asked for at a time.
const MARKS: usize = 200;
/// Letters that are read at a time.
const LETTERS: usize = 500;
/// Bytes in front of a stored state: its codec, and its schema.
const FRAME: usize = 2;

/// What the books found.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Steps that had to have their effects.
    pub(crate) steps: u64,
    pub(crate) effects: [u64; 2],
    /// Of both endpoints.
    pub(crate) entities: u64,
    pub(crate) letters: u64,
    pub(crate) marks: u64,
    /// Whether something is still to be sent.
    pub(crate) waits: bool,
    /// What was sent out a second time, or more often.
    pub(crate) copies: u64,
    /// What came out again without that.
    pub(crate) again: u64,
    pub(crate) faults: Vec<String>,
}

impl Books {
    /// What they found that is no fault, with a name each.
    pub(crate) fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("steps sent that had to have their effects", self.steps),
            ("effects at the first endpoint", self.effects[0]),
            ("effects at the second endpoint", self.effects[1]),
            ("copies that came out", self.copies),
            ("what came out and was given again", self.again),
            ("dead letters, all of them expected", self.letters),
            ("messages remembered", self.marks),
        ]
    }
}

/// Faults of a kind.
#[derive(Default)]
struct Found(Vec<String>, u64);

impl Found {
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.1 += 1;
        if self.0.len() < NAMED_MAX {
            self.0.push(what());
        }
    }

    fn told(self, kind: &str, faults: &mut Vec<String>) {
        if self.1 > 0 {
            faults.push(format!("{} {kind}: {}", self.1, self.0.join("; ")));
        }
    }
}

fn scope(endpoint: &str) -> Result<Arc<Scope>, AnyError> {
    Ok(Arc::new(Scope { endpoint: endpoint.parse()?, saga: "ledger".parse()? }))
}

fn entity_key(endpoint: &str, key: u32) -> Result<EntityKey, AnyError> {
    Ok(EntityKey::new(scope(endpoint)?, key.to_string().parse()?))
}

/// What an entity has handled, in order. `None`: there is no such entity.
async fn handled(store: &Store, endpoint: &str, key: u32) -> Result<Option<Handled>, AnyError> {
    let loaded = store.entities.load(&entity_key(endpoint, key)?, &[]).await?;
    let Some(Stored { entity, .. }) = loaded.stored else { return Ok(None) };
    let state = entity.state.get(FRAME..).ok_or("a state without a frame")?;
    Ok(Some(serde_json::from_slice::<Ledger>(state)?.handled))
}

/// How many steps both endpoints have handled.
pub(crate) async fn effects(store: &Store, keys: &[u32]) -> Result<[u64; 2], AnyError> {
    let mut effects = [0; 2];
    for (count, endpoint) in effects.iter_mut().zip([FRONT, BACK]) {
        for key in keys {
            *count += handled(store, endpoint, *key).await?.map_or(0, |handled| u64::from(handled.count()));
        }
    }
    Ok(effects)
}

/// Whether anything waits to be sent.
pub(crate) async fn waits(store: &Store) -> Result<bool, AnyError> {
    for endpoint in [FRONT, BACK] {
        if !store.entities.pending(&scope(endpoint)?, Duration::ZERO, None, 1).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The books of `rounds` steps of each of the keys; `place` is where `store` is.
pub(crate) async fn judge(
    store: &Store,
    place: &StorePlace,
    sink: &Sink,
    keys: &[u32],
    rounds: u32,
) -> Result<Books, AnyError> {
    let mut books = Books { copies: sink.copies(), again: sink.again(), faults: sink.faults(), ..Books::default() };
    let [mut lost, mut twice, mut strange, mut misplaced, mut gone, mut extra] =
        std::array::from_fn(|_| Found::default());
    for &key in keys {
        let steps = (0..rounds).map(|number| Step { key, number });
        let due: BTreeSet<u32> = steps.filter(|step| !step.is_ruined()).map(|step| step.number).collect();
        books.steps += due.len() as u64;
        for (at, endpoint) in [FRONT, BACK].into_iter().enumerate() {
            let handled = handled(store, endpoint, key).await?;
            books.entities += u64::from(handled.is_some());
            let handled = handled.unwrap_or_default();
            let mut seen = BTreeSet::new();
            for (number, place) in handled.iter().zip(1..) {
                let step = Step { key, number };
                books.effects[at] += 1;
                if !due.contains(&number) {
                    strange.add(|| format!("{step:?} at {endpoint}"));
                } else if !seen.insert(number) {
                    twice.add(|| format!("{step:?} at {endpoint}"));
                } else if sink.of(step).is_some_and(|come| come.places[at] != place) {
                    misplaced.add(|| format!("{step:?} is at {place} of {endpoint}, and told {:?}", sink.of(step)));
                }
            }
            for number in due.difference(&seen) {
                lost.add(|| format!("{:?} at {endpoint}", Step { key, number: *number }));
            }
        }
        for number in &due {
            let step = Step { key, number: *number };
            if sink.of(step).is_none() {
                gone.add(|| format!("{step:?}"));
            }
        }
    }
    if sink.distinct() > books.steps {
        extra.add(|| format!("{} came out", sink.distinct()));
    }
    let faults = &mut books.faults;
    lost.told("lost", faults);
    twice.told("with two effects", faults);
    strange.told("that nobody may handle, handled", faults);
    misplaced.told("told as if at another place", faults);
    gone.told("never came out", faults);
    extra.told("too many", faults);
    books.waits = waits(store).await?;
    if books.waits {
        books.faults.push("something still waits in an outbox".to_owned());
    }
    judge_letters(store, keys, rounds, &mut books).await?;
    judge_marks(store, sink, keys, rounds, &mut books).await?;
    let differences = recount::differences(place, &books).await?;
    books.faults.extend(differences);
    Ok(books)
}

/// Each ruined step is one letter, and nothing else is.
async fn judge_letters(store: &Store, keys: &[u32], rounds: u32, books: &mut Books) -> Result<(), AnyError> {
    let all = keys.iter().flat_map(|&key| (0..rounds).map(move |number| Step { key, number }));
    let ruined = all.filter(|step| step.is_ruined()).map(|step| format!("soak-{}-{}", step.key, step.number));
    let mut due: BTreeSet<String> = ruined.collect();
    let mut wrong = Found::default();
    for endpoint in [FRONT, BACK] {
        let (name, mut skip) = (endpoint.parse()?, 0);
        loop {
            let letters = store.letters.list(&name, &Page { skip, ..Page::first(LETTERS) }).await?;
            for letter in &letters {
                books.letters += 1;
                let id = letter.envelope.message_id.to_string();
                if !due.remove(&id) {
                    wrong.add(|| format!("{id} at {endpoint}, {}", letter.reason));
                }
            }
            skip += letters.len();
            if letters.len() < LETTERS {
                break;
            }
        }
    }
    wrong.told("set aside that were not to be, or twice", &mut books.faults);
    let mut missing = Found::default();
    for id in due {
        missing.add(|| id);
    }
    missing.told("not among the dead letters", &mut books.faults);
    Ok(())
}

/// Of each message that was handled it is remembered that it was.
async fn judge_marks(store: &Store, sink: &Sink, keys: &[u32], rounds: u32, books: &mut Books) -> Result<(), AnyError> {
    let sender = Sender::new(Arc::new(Nowhere));
    let (mut forgotten, mut causeless) = (Found::default(), Found::default());
    for &key in keys {
        let [front, back] = [entity_key(FRONT, key)?, entity_key(BACK, key)?];
        let mut marks = Vec::new();
        for number in 0..rounds {
            let step = Step { key, number };
            if step.is_ruined() {
                continue;
            }
            let mut envelope = envelope(&sender, step)?;
            marks.push((format!("{step:?} at {FRONT}"), DedupKey::of(&front, &envelope)));
            match sink.of(step).map(|come| come.cause) {
                Some(Some(cause)) => {
                    envelope.message_id = cause.parse()?;
                    marks.push((format!("{step:?} at {BACK}"), DedupKey::of(&back, &envelope)));
                }
                // Nobody could ask whether the second endpoint remembers it.
                Some(None) => causeless.add(|| format!("{step:?}")),
                None => {} // It never came out, which is told.
            }
        }
        for marks in marks.chunks(MARKS) {
            let keys: Vec<DedupKey> = marks.iter().map(|(_, key)| *key).collect();
            let known = store.dedup.contains(&keys).await?;
            for (what, key) in marks {
                match known.entry(key) {
                    Some(_) => books.marks += 1,
                    None => forgotten.add(|| what.clone()),
                }
            }
        }
    }
    forgotten.told("handled and not remembered", &mut books.faults);
    causeless.told("came out without the message that they came of", &mut books.faults);
    Ok(())
}

/// What makes envelopes and sends none.
#[derive(Debug)]
struct Nowhere;

#[async_trait::async_trait]
impl Dispatcher for Nowhere {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, _: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hapax_tests::{Scratch, samples};

    use super::*;
    use crate::place::Front;

    /// Rounds of which one step can never be handled.
    const ROUNDS: u32 = 499;

    #[tokio::test]
    async fn where_nothing_is_everything_is_missed_by_its_kind() {
        let scratch = Scratch::new("ledger");
        let place = StorePlace::Sqlite { file: scratch.file("store.db") };
        let store = place.open(Front::Plain).await.unwrap();
        store.letters.add(&samples::letter(FRONT.parse().unwrap(), "of nobody")).await.unwrap();
        let books = judge(&store, &place, &Sink::default(), &[0], ROUNDS).await.unwrap();
        assert_eq!((books.steps, books.effects, books.letters, books.marks), (498, [0, 0], 1, 0));
        let kinds = [
            "996 lost: ",
            "498 never came out: ",
            "1 set aside that were not to be, or twice: ",
            "1 not among the dead letters: soak-0-498",
            "498 handled and not remembered: ",
        ];
        let is_of = |(fault, kind): (&String, &str)| fault.starts_with(kind);
        assert!(books.faults.len() == kinds.len() && books.faults.iter().zip(kinds).all(is_of), "{:?}", books.faults);
    }
}
