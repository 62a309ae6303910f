//! hapax on the server.

use hapax::ports::{DeadLetters, DedupStore, EntityStore};

use super::{Address, Cost, Load, Place};
use crate::{
    AnyError,
    books::Books,
    candidate::{
        WARMED_BY_MESSAGES_MAX,
        endpoint::{Commits, fed},
        entries, preload,
    },
    run::Run,
};

/// Where hapax's store is run.
pub(crate) trait Candidate: Sized {
    type Store: EntityStore + DedupStore + DeadLetters + Clone + 'static;

    fn address(&self) -> &Address;

    /// A store there, with the tuning of `load`, which makes its tables if it `migrates`.
    async fn open(at: &Address, tuning: Tuning, migrates: bool) -> Result<Self::Store, AnyError>;

    /// As [`Candidate::open`], with nothing tuned.
    async fn open_usual(at: &Address, migrates: bool) -> Result<Self::Store, AnyError> {
        Self::open(at, Tuning::default(), migrates).await
    }

    async fn close(store: Self::Store);

    /// Commits of the store so far.
    fn commits(store: &Self::Store) -> u64;

    /// Effects in all states of the store's tables, by a look of our own.
    async fn effects(&self) -> Result<u64, AnyError>;

    /// What else is in the store's tables.
    async fn left(&self) -> Result<Left, AnyError>;

    /// The store was filled with what waits to be sent: from now on it counts as saved just now, and what the filling has
    /// left to the server is done.
    async fn is_filled(&self) -> Result<(), AnyError>;
}

/// Settings of a store; 0 means its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuning {
    pub(crate) group_max: usize,
    pub(crate) writers: usize,
    pub(crate) readers: usize,
}

/// What is in a store's tables beside states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    pub(crate) dedup_entries: u64,
    /// Entities with something to be sent.
    pub(crate) waiting: u64,
}

/// An endpoint on a store in `place`, which makes its tables.
pub(super) async fn run<P: Place>(place: &P, load: &Load) -> Result<Run, AnyError> {
    let shape = &load.shape;
    let Load { group_max, writers, readers, .. } = *load;
    let store = P::open(place.address(), Tuning { group_max, writers, readers }, true).await?;
    if shape.entries > 0 {
        entries::insert(&store, shape).await?;
    }
    let many = shape.entities > WARMED_BY_MESSAGES_MAX;
    if many {
        preload(&store, shape.entities).await?;
    }
    let counted = store.clone();
    let commits = Box::new(move || Some(P::commits(&counted)));
    let done = measured(store.clone(), place, commits, load, !many).await?;
    P::close(store).await;
    let books = audit(place, load, done.books).await?;
    Ok(Run { sample: done.sample, books })
}

/// With the server's share of the cost. The whole run is counted for it, since the window opens within; so it is scaled to
/// the deliveries of the window.
async fn measured<P: Place>(
    store: P::Store,
    place: &P,
    commits: Commits,
    load: &Load,
    warm_up: bool,
) -> Result<Run, AnyError> {
    let before = place.cost().await?;
    let mut run = fed(store, commits, &load.shape, warm_up).await?;
    let after = place.cost().await?;
    let all = run.books.distinct as f64 / (1.0 - load.shape.repeats);
    let share = (run.sample.deliveries as f64 / all).min(1.0);
    Cost::add_to(&mut run.sample, before, after, share);
    Ok(run)
}

/// `books` with what is found in the tables of a store that had `load`.
pub(super) async fn audit<P: Place>(place: &P, load: &Load, books: Books) -> Result<Books, AnyError> {
    let (effects, Left { dedup_entries, waiting }) = (place.effects().await?, place.left().await?);
    let dedup_entries = Some(dedup_entries.saturating_sub(load.shape.entries));
    Ok(Books { effects, dedup_entries, outbox_left: waiting.saturating_sub(load.backlog), ..books })
}
