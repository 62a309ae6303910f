//! Readers: tasks with one connection each, fed by one queue. Whatever queued while the last statement ran is asked in one
//! `SELECT`, which is one snapshot for all of them and takes no lock on any row: a row lock would show the entity as it is
//! by then beside dedup entries as they were before.

use std::{collections::HashMap, sync::Arc};

use hapax_core::{
    ids::{DedupKey, SagaKey},
    ports::{Loaded, StoreError, Stored},
};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{
    super::{clean_ups::Over, races::ROTATIONS_MAX},
    arguments::{Bind, Text},
    connection::Link,
    error::{Failure, malformed},
    generations::{Generations, View},
    names::Names,
    rows::{self, Columns, Found},
    statements::{self, DEDUP, GENERATION, LOOK_ENTITIES, LOOK_GENERATIONS, UNION_ALL},
    upkeep::of_keys,
};

/// A text that every server takes in one message. A load that is longer by itself goes alone.
const TEXT_BYTES_MAX: usize = 512 << 10;
/// Outbox entries that are asked for at once.
const MARKS_MAX: usize = 2000;
/// What a reader is asked for.
#[derive(Debug)]
pub(super) enum Read {
    /// May share a statement with others.
    Load(Load),
    /// Runs by itself.
    Alone(Alone),
    /// Read what is queued, then close.
    Close,
}

/// A load with its check, or a check alone.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) operation: &'static str,
    pub(super) entity: Option<(i64, SagaKey)>,
    /// Where nothing in its outbox is left to do.
    pub(super) over: Option<Over>,
    pub(super) ids: Vec<DedupKey>,
    pub(super) answer: oneshot::Sender<Result<Loaded, StoreError>>,
}

impl Load {
    /// What it adds to a text: each id stands in it once for each generation.
    fn text_bytes(&self) -> usize {
        let key = self.entity.as_ref().map_or(0, |(_, key)| 2 * key.as_str().len() + 10);
        key + self.ids.len() * 4 * (2 * DedupKey::BYTES + 6)
    }
}

/// Another read.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) operation: &'static str,
    pub(super) sql: Arc<str>,
    pub(super) arguments: MySqlArguments,
    pub(super) answer: oneshot::Sender<Result<Vec<MySqlRow>, StoreError>>,
}

/// One reader's own state.
#[derive(Debug)]
pub(super) struct Reader {
    link: Link,
    place: Arc<str>,
    group_max: usize,
    names: Names,
    generations: Arc<Generations>,
    /// The text for one load, with the generations that are in it.
    text: Option<(Arc<View>, Arc<str>)>,
}

impl Reader {
    pub(super) const fn new(
        link: Link,
        place: Arc<str>,
        group_max: usize,
        names: Names,
        generations: Arc<Generations>,
    ) -> Self {
        Self { link, place, group_max, names, generations, text: None }
    }

    /// Ends when the last handle to the store is gone, or when it is told to close. The reader that holds the lock waits for
    /// the next request and takes all there are; it gives the lock up before it reads.
    pub(super) async fn run(mut self, queue: Arc<Mutex<mpsc::Receiver<Read>>>) {
        let mut taken = Vec::with_capacity(self.group_max);
        let mut busy = false;
        loop {
            {
                let mut queue = queue.lock().await;
                if queue.recv_many(&mut taken, self.group_max).await == 0 {
                    break;
                }
                // Those who are ready to ask get into this group instead of the next one: see the writer.
                if busy || taken.len() > 1 {
                    tokio::task::yield_now().await;
                }
                while taken.len() < self.group_max
                    && let Ok(read) = queue.try_recv()
                {
                    taken.push(read);
                }
                busy = taken.len() > 1;
                if taken.iter().any(|read| matches!(read, Read::Close)) {
                    queue.close();
                }
            }
            let mut loads = Vec::with_capacity(taken.len());
            for read in taken.drain(..) {
                match read {
                    Read::Load(load) if load.answer.is_closed() => {}
                    Read::Load(load) => loads.push(load),
                    Read::Alone(alone) => {
                        let rows = self.link.read(&alone.sql, alone.arguments).await;
                        let _ = alone.answer.send(rows.map_err(|e| e.store_error(alone.operation, &self.place)));
                    }
                    Read::Close => {}
                }
            }
            self.load(loads).await;
        }
        self.link.close().await;
    }

    /// Asks for all `loads` in one statement, or a few where it would be too long for one, and answers each.
    async fn load(&mut self, loads: Vec<Load>) {
        let mut loads = loads.into_iter().peekable();
        while let Some(first) = loads.next() {
            let mut bytes = first.text_bytes();
            let mut part = vec![first];
            while let Some(load) = loads.next_if(|load| bytes + load.text_bytes() <= TEXT_BYTES_MAX) {
                bytes += load.text_bytes();
                part.push(load);
            }
            self.load_part(part).await;
        }
    }

    async fn load_part(&mut self, loads: Vec<Load>) {
        match self.look_up(&loads).await {
            Ok(answers) => answer(loads, answers),
            Err(failure) => {
                for load in loads {
                    let _ = load.answer.send(Err(failure.store_error(load.operation, &self.place)));
                }
            }
        }
    }

    async fn look_up(&mut self, loads: &[Load]) -> Result<Answers, Failure> {
        let mut view = self.generations.view();
        for _ in 0..=ROTATIONS_MAX {
            let rows = match one(loads) {
                Some((over, scope, key, id)) => {
                    let mut arguments = MySqlArguments::default();
                    arguments.bind(over).bind(scope).bind(key);
                    for _ in &view.live {
                        arguments.bind(id);
                    }
                    let sql = self.text(&view);
                    self.link.read(&sql, arguments).await
                }
                None => {
                    let ids = loads.iter().flat_map(|load| &load.ids).copied().collect();
                    let text = many(&self.names, &view, loads, ids);
                    self.link.read_text(text).await
                }
            };
            let mut answers = Answers::new(loads);
            match rows {
                Ok(rows) => answers.add(&rows, &self.place),
                // A table was emptied under it: it says so instead of showing what was there.
                Err(failure) if failure.is_of_a_race() => {
                    view = self.generations.look(&mut self.link).await?;
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            if view.is(&answers.generations) {
                self.look_up_marks(&view, &mut answers).await?;
                return Ok(answers);
            }
            view = self.generations.look(&mut self.link).await?;
        }
        Err(Failure::rotating())
    }

    /// What is known of the outbox entries of the entities that were loaded. Of a later moment than these, so that a
    /// generation that was dropped meanwhile is one whose time was over.
    async fn look_up_marks(&mut self, view: &Arc<View>, answers: &mut Answers) -> Result<(), Failure> {
        let stored = answers.stored.iter().flatten().flatten();
        let mut keys: Vec<DedupKey> = stored.flat_map(|stored| rows::keys(&stored.entity)).collect();
        keys.sort_unstable();
        keys.dedup();
        for keys in keys.chunks(MARKS_MAX) {
            self.look_up_some(view, keys, answers).await?;
        }
        Ok(())
    }

    async fn look_up_some(
        &mut self,
        view: &Arc<View>,
        keys: &[DedupKey],
        answers: &mut Answers,
    ) -> Result<(), Failure> {
        let mut view = view.clone();
        for _ in 0..=ROTATIONS_MAX {
            let text = many(&self.names, &view, &[], keys.to_vec());
            let rows = match self.link.read_text(text).await {
                Err(failure) if failure.is_of_a_race() => Vec::new(),
                rows => rows?,
            };
            let mut found = Answers::new(&[]);
            found.add(&rows, &self.place);
            if view.is(&found.generations) {
                answers.damaged = answers.damaged.take().or(found.damaged);
                answers.found.take(found.found);
                return Ok(());
            }
            view = self.generations.look(&mut self.link).await?;
        }
        Err(Failure::rotating())
    }

    fn text(&mut self, view: &Arc<View>) -> Arc<str> {
        let known = self.text.take().filter(|(known, _)| known == view);
        let make = || (view.clone(), self.names.put_into(&statements::load_one(&view.live)).into());
        let (_, text) = self.text.insert(known.unwrap_or_else(make));
        text.clone()
    }
}

/// The version at which nothing in the outbox is left to do, the number of a scope, a key in it, and the dedup key of a message.
type One<'l> = (Option<i64>, i64, &'l [u8], Option<&'l [u8]>);

/// What is prepared once: one entity, and at most one message.
fn one(loads: &[Load]) -> Option<One<'_>> {
    let [Load { entity: Some((scope, key)), over, ids, .. }] = loads else { return None };
    let id = ids.first().map(|id| &id.as_bytes()[..]);
    let over = over.as_ref().map(|over| over.version);
    (ids.len() <= 1).then_some((over, *scope, key.as_str().as_bytes(), id))
}

/// Load and check of many, in one snapshot, as one `SELECT`. Entities of one scope are one part of it.
pub(super) fn many(names: &Names, view: &View, loads: &[Load], mut ids: Vec<DedupKey>) -> Text {
    let mut entities: Vec<(i64, &[u8])> = Vec::with_capacity(loads.len());
    entities.extend(loads.iter().filter_map(|load| load.entity.as_ref()).map(|(scope, key)| (*scope, bytes_of(key))));
    entities.sort_unstable();
    entities.dedup();
    ids.sort_unstable();
    ids.dedup();
    let mut text = Text::with_capacity(1000 + entities.len() * 100 + ids.len() * view.live.len() * 60);
    let mut parts = 0;
    for of_scope in entities.chunk_by(|(a, _), (b, _)| a == b) {
        let keys: Vec<&[u8]> = of_scope.iter().map(|(_, key)| *key).collect();
        text.sql(if parts == 0 { "" } else { UNION_ALL }).sql(&names.put_into(LOOK_ENTITIES));
        of_keys(&mut text, of_scope[0].0, &keys).sql(")");
        parts += 1;
    }
    if !ids.is_empty() {
        for slot in &view.live {
            text.sql(if parts == 0 { "" } else { UNION_ALL }).sql(&names.put_into(&statements::look_dedup(*slot)));
            for (at, id) in ids.iter().enumerate() {
                text.sql(if at == 0 { " IN (" } else { ", " }).bytes(id.as_bytes());
            }
            text.sql(")");
            parts += 1;
        }
    }
    let generations = names.put_into(LOOK_GENERATIONS);
    text.sql(if parts == 0 { generations.trim_start_matches(UNION_ALL) } else { &generations });
    text
}

fn bytes_of(key: &SagaKey) -> &[u8] {
    key.as_str().as_bytes()
}

/// What was found for a group of loads.
struct Answers {
    over: Vec<Option<Over>>,
    stored: Vec<Option<Result<Stored, StoreError>>>,
    /// Which of them ask for an entity.
    asked: HashMap<(i64, Vec<u8>), Vec<usize>>,
    found: Found,
    generations: Vec<i64>,
    damaged: Option<StoreError>,
}

impl Answers {
    fn new(loads: &[Load]) -> Self {
        let mut stored = Vec::new();
        stored.resize_with(loads.len(), || None);
        let mut asked: HashMap<_, Vec<usize>> = HashMap::with_capacity(loads.len());
        for (at, load) in loads.iter().enumerate() {
            if let Some((scope, key)) = &load.entity {
                asked.entry((*scope, bytes_of(key).to_vec())).or_default().push(at);
            }
        }
        let over = loads.iter().map(|load| load.over.clone()).collect();
        Self { over, stored, asked, found: Found::default(), generations: Vec::new(), damaged: None }
    }

    fn add(&mut self, rows: &[MySqlRow], place: &str) {
        for row in rows {
            if let Err(e) = self.add_row(row, place) {
                self.damaged = Some(e);
            }
        }
        self.generations.sort_unstable();
    }

    fn add_row(&mut self, row: &MySqlRow, place: &str) -> Result<(), StoreError> {
        let damaged = |e: sqlx::Error| malformed("loading an entity", place, "a row").caused_by(e);
        match row.number(0).map_err(damaged)? {
            DEDUP => self.found.add(row.number(1).map_err(damaged)?, row, place)?,
            GENERATION => self.generations.push(row.number(1).map_err(damaged)?),
            _ => {
                let key = row.bytes(4).map_err(damaged)?.unwrap_or_default().to_vec();
                let asked = self.asked.get(&(row.number(5).map_err(damaged)?, key));
                for at in asked.into_iter().flatten() {
                    let stored = rows::stored(row, self.over[*at].as_ref(), place);
                    self.stored[*at] = Some(stored); // One that cannot be read is the error of its request alone.
                }
            }
        }
        Ok(())
    }
}

fn answer(loads: Vec<Load>, answers: Answers) {
    let Answers { stored, found, damaged, .. } = answers;
    for (load, stored) in loads.into_iter().zip(stored) {
        let loaded = stored.transpose().and_then(|stored| match &damaged {
            // Whose dedup entry it was cannot be told, and "not seen" must never be said for want of an answer.
            Some(e) => Err(StoreError::new(e.kind(), load.operation, e.to_string())),
            None => Ok(Loaded { known: Some(found.known(&load.ids, stored.as_ref())), stored }),
        });
        let _ = load.answer.send(loaded);
    }
}
