//! Readers: tasks with one connection each, fed by one queue. Whatever queued while the last statement ran is asked in one
//! `SELECT`, which is one snapshot for all of them and takes no lock on any row: a row lock would show the entity as it is
//! by then beside dedup entries as they were before.

use std::sync::Arc;

use hapax_core::{
    ids::{DedupKey, SagaKey},
    ports::{Loaded, StoreError, Stored},
};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{
    super::{clean_ups::Over, races::ROTATIONS_MAX},
    arguments::Bind,
    connection::Link,
    error::{Failure, malformed},
    generations::{Generations, View},
    names::Names,
    rows::{self, Found},
    statements::{self, DEDUP, GENERATION},
};

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

/// Another read.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) operation: &'static str,
    pub(super) sql: Arc<str>,
    pub(super) arguments: PgArguments,
    pub(super) answer: oneshot::Sender<Result<Vec<PgRow>, StoreError>>,
}

/// One reader's own state.
#[derive(Debug)]
pub(super) struct Reader {
    link: Link,
    place: Arc<str>,
    group_max: usize,
    names: Names,
    generations: Arc<Generations>,
    /// The texts for one load and for many, with the generations that are in them.
    texts: Option<(Arc<View>, Arc<str>, Arc<str>)>,
}

impl Reader {
    pub(super) const fn new(
        link: Link,
        place: Arc<str>,
        group_max: usize,
        names: Names,
        generations: Arc<Generations>,
    ) -> Self {
        Self { link, place, group_max, names, generations, texts: None }
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

    /// Asks for all `loads` in one statement, and answers each.
    async fn load(&mut self, loads: Vec<Load>) {
        if loads.is_empty() {
            return;
        }
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
            let sql = self.text(&view, loads);
            let rows = self.link.read(&sql, arguments(loads)).await?;
            let mut answers = Answers::new(loads);
            answers.add(&rows, &self.place);
            if view.is(&answers.generations) {
                if is_one(loads) {
                    self.look_up_marks(&view, &mut answers).await?;
                }
                return Ok(answers);
            }
            view = self.generations.look(&mut self.link).await?;
        }
        Err(Failure::rotating())
    }

    /// What is known of the outbox entries of the one entity that was loaded. Of a later moment than the entity, so that a
    /// generation that was dropped meanwhile is one whose time was over.
    async fn look_up_marks(&mut self, view: &Arc<View>, answers: &mut Answers) -> Result<(), Failure> {
        let stored = answers.stored.iter().flatten().flatten();
        let keys: Vec<DedupKey> = stored.flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let (answer, _) = oneshot::channel();
        let marks = [Load { operation: "", entity: None, over: None, ids: keys, answer }];
        let mut view = view.clone();
        for _ in 0..=ROTATIONS_MAX {
            let sql = self.many(&view);
            let rows = self.link.read(&sql, many(&marks)).await?;
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

    fn many(&mut self, view: &Arc<View>) -> Arc<str> {
        self.texts(view).1.clone()
    }

    fn text(&mut self, view: &Arc<View>, loads: &[Load]) -> Arc<str> {
        let (one, many) = self.texts(view);
        if is_one(loads) { one.clone() } else { many.clone() }
    }

    fn texts(&mut self, view: &Arc<View>) -> (&Arc<str>, &Arc<str>) {
        let known = self.texts.take().filter(|(known, ..)| known == view);
        let (_, one, many) = self.texts.insert(known.unwrap_or_else(|| {
            let text = |sql: String| self.names.put_into(&sql).into();
            (view.clone(), text(statements::load_one(&view.live)), text(statements::load_many(&view.live)))
        }));
        (one, many)
    }
}

/// Whether it is asked for without arrays, which is faster.
fn is_one(loads: &[Load]) -> bool {
    matches!(loads, [load] if load.ids.len() <= 1)
}

fn arguments(loads: &[Load]) -> PgArguments {
    let mut arguments = PgArguments::default();
    if let [load] = loads
        && is_one(loads)
    {
        let entity = load.entity.as_ref();
        arguments.bind(entity.map(|(scope, _)| *scope)).bind(entity.map(|(_, key)| key.as_str()));
        arguments.bind(load.ids.first().map(|id| &id.as_bytes()[..]));
        arguments.bind(load.over.as_ref().map(|over| over.version));
        return arguments;
    }
    many(loads)
}

fn many(loads: &[Load]) -> PgArguments {
    let mut arguments = PgArguments::default();
    let (mut scopes, mut keys, mut numbers, mut overs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (number, load) in (0_i64..).zip(loads) {
        if let Some((scope, key)) = &load.entity {
            scopes.push(*scope);
            keys.push(key.as_str());
            numbers.push(number);
            overs.push(load.over.as_ref().map(|over| over.version));
        }
    }
    let ids: Vec<&[u8]> = loads.iter().flat_map(|load| &load.ids).map(|id| &id.as_bytes()[..]).collect();
    arguments.bind(scopes).bind(keys).bind(numbers).bind(ids).bind(overs);
    arguments
}

/// What was found for a group of loads.
struct Answers {
    over: Vec<Option<Over>>,
    stored: Vec<Option<Result<Stored, StoreError>>>,
    found: Found,
    generations: Vec<i64>,
    damaged: Option<StoreError>,
}

impl Answers {
    fn new(loads: &[Load]) -> Self {
        let mut stored = Vec::new();
        stored.resize_with(loads.len(), || None);
        let over = loads.iter().map(|load| load.over.clone()).collect();
        Self { over, stored, found: Found::default(), generations: Vec::new(), damaged: None }
    }

    fn add(&mut self, rows: &[PgRow], place: &str) {
        for row in rows {
            if let Err(e) = self.add_row(row, place) {
                self.damaged = Some(e);
            }
        }
        self.generations.sort_unstable();
    }

    fn add_row(&mut self, row: &PgRow, place: &str) -> Result<(), StoreError> {
        let damaged = |e: sqlx::Error| malformed("loading an entity", place, "a row").caused_by(e);
        match row.try_get::<i64, _>(0).map_err(damaged)? {
            DEDUP => self.found.add(row.try_get(1).map_err(damaged)?, row, place)?,
            GENERATION => self.generations.push(row.try_get(1).map_err(damaged)?),
            request => {
                let slot = usize::try_from(request).ok().and_then(|at| self.stored.get_mut(at));
                if let Some(slot) = slot {
                    let over = usize::try_from(request).ok().and_then(|at| self.over.get(at)?.as_ref());
                    let stored = rows::stored(row, over, place);
                    *slot = Some(stored); // One that cannot be read is the error of its request alone.
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
