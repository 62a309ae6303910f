//! Readers: tasks with one connection each, fed by one queue. Whatever queued while the last statement ran is asked in
//! one `SELECT`, which is one snapshot for all of them and takes no lock.

use std::sync::Arc;

use hapax_core::{
    ids::{DedupKey, SagaKey},
    ports::{Loaded, StoreError, Stored},
};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{
    arguments::Bind,
    connection::Link,
    error::Failure,
    generations::{Generations, Place, View},
    rows::{Array, Found},
    statements,
};

/// What one row of an array takes, in bytes.
const ROW_BYTES: usize = 48;

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
    pub(super) ids: Vec<DedupKey>,
    pub(super) answer: oneshot::Sender<Result<Loaded, StoreError>>,
}

/// A rare read.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) operation: &'static str,
    pub(super) sql: &'static str,
    pub(super) arguments: SqliteArguments,
    pub(super) answer: oneshot::Sender<Result<Vec<SqliteRow>, StoreError>>,
}

/// One reader's own state.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) link: Link,
    pub(super) file: Arc<str>,
    pub(super) group_max: usize,
    pub(super) generations: Arc<Generations>,
}

impl Reader {
    /// Ends when the last handle to the store is gone, or when it is told to close. The reader that holds the lock waits
    /// for the next request and takes all there are; it gives the lock up before it reads.
    pub(super) async fn run(mut self, queue: Arc<Mutex<mpsc::Receiver<Read>>>) {
        let mut taken = Vec::with_capacity(self.group_max);
        loop {
            {
                let mut queue = queue.lock().await;
                if queue.recv_many(&mut taken, self.group_max).await == 0 {
                    break;
                }
                // Those who are ready to ask get into this group instead of the next one.
                tokio::task::yield_now().await;
                while taken.len() < self.group_max
                    && let Ok(read) = queue.try_recv()
                {
                    taken.push(read);
                }
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
                        let rows = self.link.read(alone.sql, alone.arguments).await;
                        let _ = alone.answer.send(rows.map_err(|e| e.store_error(alone.operation, &self.file)));
                    }
                    Read::Close => {}
                }
            }
            load(&mut self.link, &self.file, &self.generations, loads).await;
        }
        self.link.close().await;
    }
}

/// Asks for all `loads` in one statement, and answers each.
pub(super) async fn load(link: &mut Link, file: &str, generations: &Generations, loads: Vec<Load>) {
    if loads.is_empty() {
        return;
    }
    match look_up(link, file, &generations.view(), &loads).await {
        Ok(answers) => answer(loads, answers),
        // One by one, the load whose row is damaged hurts only itself.
        Err(failure) if loads.len() > 1 && failure.is_of_a_statement() && !failure.is_busy() => {
            tracing::warn!(file, ?failure, "a group of {} loads is read one by one", loads.len());
            for alone in loads {
                Box::pin(load(link, file, generations, vec![alone])).await;
            }
        }
        Err(failure) => {
            for load in loads {
                let _ = load.answer.send(Err(failure.store_error(load.operation, file)));
            }
        }
    }
}

/// What was found for a group of loads.
struct Answers {
    stored: Vec<Option<Result<Stored, StoreError>>>,
    found: Found,
    damaged: Option<StoreError>,
}

impl Answers {
    fn add(&mut self, rows: &[SqliteRow], file: &str) {
        for row in rows {
            match self.found.add(row, file) {
                Ok(None) => {}
                Ok(Some((request, entity))) => {
                    if let Some(slot) = self.stored.get_mut(request) {
                        *slot = Some(entity);
                    }
                }
                Err(e) => self.damaged = Some(e),
            }
        }
    }
}

/// Entities and dedup entries, in one snapshot. The marks that the outboxes wait for are known by then only; in closed
/// generations they are the same in any later snapshot.
async fn look_up(link: &mut Link, file: &str, view: &View, loads: &[Load]) -> Result<Answers, Failure> {
    let places = view.places(loads.iter().flat_map(|load| &load.ids));
    let (sql, arguments) = match loads {
        [load] if load.ids.len() <= 1 && places.is_empty() => (statements::LOAD_ONE, one(load, view.from)),
        _ => (statements::LOAD_MANY, many(loads, view.from, &places)),
    };
    let mut answers = Answers { stored: Vec::new(), found: Found::default(), damaged: None };
    answers.stored.resize_with(loads.len(), || None);
    answers.add(&link.read(sql, arguments).await?, file);

    let outboxes = answers.stored.iter().flatten().flatten().flat_map(|stored| &stored.entity.outbox);
    let marks: Vec<DedupKey> = outboxes.map(|entry| entry.key).collect();
    let places = view.places(&marks);
    if !places.is_empty() {
        let (places, keys) = marks_array(&marks, &places);
        let mut arguments = SqliteArguments::default();
        arguments.bind(places).bind(keys);
        answers.add(&link.read(statements::LOAD_MARKS, arguments).await?, file);
    }
    Ok(answers)
}

fn answer(loads: Vec<Load>, answers: Answers) {
    let Answers { stored, found, damaged } = answers;
    for (load, stored) in loads.into_iter().zip(stored) {
        let loaded = stored.transpose().and_then(|stored| match &damaged {
            // Whose dedup entry it was cannot be told, and "not seen" must never be said for want of an answer.
            Some(e) => Err(StoreError::new(e.kind(), load.operation, e.to_string())),
            None => Ok(Loaded { known: Some(found.known(&load.ids, stored.as_ref())), stored }),
        });
        let _ = load.answer.send(loaded);
    }
}

fn one(load: &Load, from: i64) -> SqliteArguments {
    let mut arguments = SqliteArguments::default();
    match &load.entity {
        Some((scope, key)) => arguments.bind(*scope).bind(key.as_str()),
        None => arguments.bind(None::<i64>).bind(None::<i64>),
    };
    arguments.bind(load.ids.first().map(|id| &id.as_bytes()[..])).bind(from);
    arguments
}

fn many(loads: &[Load], from: i64, places: &[Place]) -> SqliteArguments {
    let id_count = loads.iter().map(|load| load.ids.len()).sum();
    let mut entities = Array::with_room(loads.len(), ROW_BYTES, 0);
    let mut ids = Array::with_room(id_count, 8, id_count * DedupKey::BYTES);
    for load in loads {
        // A check without an entity takes its place too, so that a row's number is its request's.
        match &load.entity {
            Some((scope, key)) => entities.push(&(scope, key.as_str())),
            None => entities.push(&()),
        }
        for id in &load.ids {
            ids.push(&ids.blob.len());
            ids.blob.extend_from_slice(id.as_bytes());
        }
    }
    let (entities, _) = entities.close();
    let (offsets, ids) = ids.close();
    let mut arguments = SqliteArguments::default();
    arguments.bind(entities).bind(offsets).bind(ids).bind(from).bind(places_array(places).close().0);
    arguments
}

/// `[offset, generation]` of keys that lie one behind the other.
fn places_array(places: &[Place]) -> Array {
    let mut array = Array::with_room(places.len(), 16, 0);
    for (at, generation) in places {
        array.push(&(at * DedupKey::BYTES, generation));
    }
    array
}

fn marks_array(keys: &[DedupKey], places: &[Place]) -> (Option<String>, Vec<u8>) {
    let mut array = places_array(places);
    keys.iter().for_each(|key| array.blob.extend_from_slice(key.as_bytes()));
    array.close()
}
