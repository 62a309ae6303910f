//! hapax on PostgreSQL.

use hapax::{
    Postgres,
    ports::{DeadLetters, DedupStore, EntityStore},
};
use sqlx::{Connection, Row};

use super::{Load, server::Schema};
use crate::{
    AnyError,
    books::Books,
    candidate::{WARMED_BY_MESSAGES_MAX, effects_of, endpoint::fed, entries, preload},
    run::Run,
};

/// An endpoint on a store in `schema`, which it makes.
pub(super) async fn run(schema: &Schema, load: &Load) -> Result<Run, AnyError> {
    let shape = &load.shape;
    let mut options = Postgres::options(&schema.url).schema(&schema.name).migrate(true);
    if load.group_max > 0 {
        options = options.group_max(load.group_max);
    }
    if load.writers > 0 {
        options = options.writers(load.writers).readers(load.readers);
    }
    let store = options.open().await?;
    if shape.entries > 0 {
        entries::insert(&store, shape).await?;
    }
    let many = shape.entities > WARMED_BY_MESSAGES_MAX;
    if many {
        preload(&store, shape.entities).await?;
    }
    let counted = store.clone();
    let commits = Box::new(move || Some(counted.commits()));
    let done = measured(store.clone(), schema, commits, load, !many).await?;
    store.close().await;
    let books = audit(schema, load, done.books).await?;
    Ok(Run { sample: done.sample, books })
}

/// With the server's share of the cost. The whole run is counted for it, since the window opens within; so it is scaled to
/// the deliveries of the window.
async fn measured<S>(
    store: S,
    schema: &Schema,
    commits: crate::candidate::endpoint::Commits,
    load: &Load,
    warm_up: bool,
) -> Result<Run, AnyError>
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
{
    let before = schema.cost().await?;
    let mut run = fed(store, commits, &load.shape, warm_up).await?;
    let after = schema.cost().await?;
    let all = run.books.distinct as f64 / (1.0 - load.shape.repeats);
    let share = (run.sample.deliveries as f64 / all).min(1.0);
    run.sample.cpu_seconds += (after.cpu_seconds - before.cpu_seconds) * share;
    run.sample.flushes = Some(((after.flushes - before.flushes) as f64 * share) as u64);
    Ok(run)
}

pub(super) async fn audit(schema: &Schema, load: &Load, books: Books) -> Result<Books, AnyError> {
    let mut connection = schema.connect().await?;
    let mut effects = 0;
    for row in sqlx::query(schema.text("SELECT state FROM {s}.entity")).fetch_all(&mut connection).await? {
        effects += effects_of(row.try_get(0)?)?;
    }
    let counts = "SELECT (SELECT count(*) FROM {s}.dedup_0) + (SELECT count(*) FROM {s}.dedup_1), \
                  (SELECT count(*) FROM {s}.entity WHERE pending_since IS NOT NULL)";
    let row = sqlx::query(schema.text(counts)).fetch_one(&mut connection).await?;
    let count = |column: usize| -> Result<u64, AnyError> { Ok(row.try_get::<i64, _>(column)?.try_into()?) };
    let (dedup_entries, outbox_left) =
        (Some(count(0)?.saturating_sub(load.shape.entries)), count(1)?.saturating_sub(load.backlog));
    connection.close().await?;
    Ok(Books { effects, dedup_entries, outbox_left, ..books })
}
