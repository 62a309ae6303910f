//! One bound for the connections of many stores: a process that serves hundreds of tenants, each with a database of its own, must not
//! open some connections for each of them.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, MissedTickBehavior, interval, timeout},
};

/// For so long a connection that is used all the time stays with whoever has opened it, although others wait, or for as long as opening it
/// took: that costs some round trips and a process of the server's, and would otherwise be done for each statement.
const TENURE: Duration = Duration::from_millis(100);
/// One that nobody has used for so long goes to others at once: who is busy asks again sooner.
const IDLE: Duration = Duration::from_millis(10);
/// How often who waits looks whether somebody's tenure has passed.
const LOOK: Duration = Duration::from_millis(10);
/// The part of a statement's time that is left for the statement itself.
const WAIT_PART: u32 = 4;
/// For so long a server may let somebody wait who opens a connection and holds a place meanwhile: tenants on others need it.
pub(super) const OPENING: Duration = Duration::from_secs(5);
/// A server that does not take leave is left.
const LEAVE: Duration = Duration::from_secs(1);

/// What is told where none came free in time.
pub(super) const NO_PLACE: &str = "none of the connections that are shared came free in time, nothing was asked: give `Connections::at_most` \
                                   more of them, or run fewer stores in one process";

/// Connections that stores and queues of one process share the right to, whatever database of whatever server they are to. Clones
/// share it too.
///
/// Who has something to ask opens a connection when there is a place, and keeps it for the next time; who finds no place takes that of
/// the connection that has been idle longest. So stores that are in use have their connections, and those that are not have none. A
/// connection that is in use is not taken away; its place is given on once it has been held for a tenth of a second, or for as long as opening it took. Places are given
/// in the order in which they were asked for.
///
/// # Limits
/// Each store needs one place at a time, and is quick with as many as it has [writers](crate::sql::postgres::PostgresOptions::writers) and
/// readers: with fewer places than stores that are in use at a time, each opens its connections again and again. Who waits for a place for
/// longer than three quarters of what a write may take is told that the store is unavailable. Not counted are connections of the program's own (those behind an
/// outbox's `enqueue`) and the one that reads a server's log. Queues of servers whose connections are shared are not told by the server of new messages, since that
/// takes a connection each; they look for them.
///
/// ```
/// # use hapax_stores::sql::Connections;
/// let connections = Connections::at_most(20);
/// assert_eq!(connections.open(), 0);
/// ```
#[derive(Clone)]
pub struct Connections(Arc<Shared>);

struct Shared {
    max: usize,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Connections that are ended for the sake of those who wait.
    leaving: AtomicUsize,
    seats: Mutex<Vec<Weak<dyn Idle>>>,
}

impl Connections {
    /// At most `max` at a time, and at least one.
    #[must_use]
    pub fn at_most(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(max));
        let (waiting, leaving) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Shared { max, places, waiting, leaving, seats: Mutex::default() }))
    }

    /// How many there are now, those that are being opened or closed included.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.max - self.0.places.available_permits()
    }

    /// How many wait for a place now. If there are always some, more places, or fewer stores in one process, are needed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// A place, or `None` when there was none for `limit`.
    pub(super) async fn place(&self, limit: Duration) -> Option<Place> {
        let shared = &self.0;
        let placed = |permit| Place { _permit: permit, since: Instant::now(), tenure: TENURE, _opening: None };
        if let Ok(permit) = shared.places.clone().try_acquire_owned() {
            return Some(placed(permit));
        }
        let _waits = Waits::new(shared);
        let mut permit = std::pin::pin!(shared.places.clone().acquire_owned());
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let waiting = async {
            loop {
                tokio::select! {
                    biased;
                    permit = &mut permit => return permit.ok(),
                    _ = look.tick() => shared.take_idle(),
                }
            }
        };
        timeout(limit, waiting).await.ok().flatten().map(placed)
    }

    /// Somebody waits for whom none is ended yet.
    fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }

    fn add(&self, seat: Weak<dyn Idle>) {
        let mut seats = self.0.seats();
        seats.retain(|seat| seat.strong_count() > 0);
        seats.push(seat);
    }
}

impl Shared {
    fn seats(&self) -> MutexGuard<'_, Vec<Weak<dyn Idle>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > self.leaving.load(Ordering::Relaxed)
    }

    /// Closes the connection that has been idle longest, if one may be closed.
    fn take_idle(&self) {
        if !self.is_wanted() {
            return;
        }
        let seats: Vec<Arc<dyn Idle>> = self.seats().iter().filter_map(Weak::upgrade).collect();
        let longest = seats.iter().filter_map(|seat| Some((seat.idle_since()?, seat))).min_by_key(|(since, _)| *since);
        if let Some((_, seat)) = longest {
            seat.leave();
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("max", &self.0.max).field("open", &self.open()).finish_non_exhaustive()
    }
}

/// Counted while it waits, also where nobody polls it any more.
struct Waits<'s>(&'s AtomicUsize);

impl<'s> Waits<'s> {
    fn new(shared: &'s Shared) -> Self {
        shared.waiting.fetch_add(1, Ordering::Relaxed);
        Self(&shared.waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counted while a connection takes leave, also where nobody polls that any more.
struct Leaving(Arc<Shared>);

impl Leaving {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.leaving.fetch_add(1, Ordering::Relaxed);
        Self(shared.clone())
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leaving.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What somebody has got who needs a connection.
pub(super) enum Found<C> {
    Place(Place),
    Connection(C, Place),
}

/// The right to one connection, for as long as it lives.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    since: Instant,
    tenure: Duration,
    /// While it is being opened: of one place one at a time, so that a server that is away holds few.
    _opening: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// The connection is there.
    pub(super) fn opened(self) -> Self {
        let tenure = TENURE.max(self.since.elapsed());
        Self { since: Instant::now(), tenure, _opening: None, ..self }
    }

    fn has_had_its_time(&self) -> bool {
        self.since.elapsed() >= self.tenure
    }
}

/// A connection that takes leave of its server.
pub(super) trait Leave: fmt::Debug + Send + 'static {
    fn leave(self) -> impl Future<Output = ()> + Send;
}

/// Where connections to one place are while nobody uses them. Whoever asks the same server in the same way takes one, and others may
/// have their places.
#[derive(Debug)]
pub(super) struct Seats<C> {
    connections: Connections,
    /// The one that was used last is the last.
    idle: Mutex<Vec<Sitting<C>>>,
    opening: Arc<Semaphore>,
    /// How often a connection may have been followed by one to another server.
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Sitting<C> {
    connection: C,
    place: Place,
    since: Instant,
}

impl<C> Sitting<C> {
    fn may_be_taken(&self) -> bool {
        self.since.elapsed() >= IDLE || self.place.has_had_its_time()
    }
}

impl<C: Leave> Seats<C> {
    /// Whoever remembers something of a server asks `lost` whether it may be another one by now.
    pub(super) fn new(connections: &Connections, lost: &Arc<AtomicU64>) -> Arc<Self> {
        let (idle, opening) = (Mutex::new(Vec::new()), Arc::new(Semaphore::new(1)));
        let seats = Arc::new(Self { connections: connections.clone(), idle, opening, lost: lost.clone() });
        let idle: Weak<Self> = Arc::downgrade(&seats);
        connections.add(idle);
        seats
    }

    /// A place for one more. Who waits for a statement hears what is wrong before it gives up itself.
    pub(super) async fn place(&self, limit: Duration) -> Option<Place> {
        let limit = limit - limit / WAIT_PART;
        let begun = Instant::now();
        let opening = timeout(limit, self.opening.clone().acquire_owned()).await.ok()?.ok()?;
        let place = self.connections.place(limit.saturating_sub(begun.elapsed())).await?;
        Some(Place { _opening: Some(opening), ..place })
    }

    /// The same, or a connection that has sat down meanwhile.
    pub(super) async fn place_or_one(&self, limit: Duration) -> Option<Found<C>> {
        let mut place = std::pin::pin!(self.place(limit));
        let mut look = interval(LOOK);
        loop {
            tokio::select! {
                biased;
                place = &mut place => return place.map(Found::Place),
                _ = look.tick() => if let Some((connection, place)) = self.rise() {
                    return Some(Found::Connection(connection, place));
                },
            }
        }
    }

    /// None of them is used again: the server they were to may be gone.
    pub(super) fn clear(&self) {
        self.idle().clear();
    }

    /// One that sits there, if there is one.
    pub(super) fn rise(&self) -> Option<(C, Place)> {
        self.idle().pop().map(|sitting| (sitting.connection, sitting.place))
    }

    /// It is not needed for now. Where others wait, and it has been there for its time, it ends.
    pub(super) fn sit(&self, connection: C, place: Place) {
        if self.connections.is_wanted() && place.has_had_its_time() {
            self.end(connection, place);
        } else {
            self.idle().push(Sitting { connection, place, since: Instant::now() });
        }
    }

    /// The place is free when the server has been told.
    fn end(&self, connection: C, place: Place) {
        // Before the next one is opened, and without a failure that would tell.
        self.lost.fetch_add(1, Ordering::Release);
        let Ok(runtime) = Handle::try_current() else { return };
        let leaving = Leaving::new(&self.connections.0);
        runtime.spawn(async move {
            let _ = timeout(LEAVE, connection.leave()).await; // Nothing was under way.
            drop(place);
            drop(leaving);
        });
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Sitting<C>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seats, whatever their connections are.
trait Idle: Send + Sync {
    /// Since when the one sits there that was not used for longest, if it may be taken.
    fn idle_since(&self) -> Option<Instant>;

    fn leave(&self);
}

impl<C: Leave> Idle for Seats<C> {
    fn idle_since(&self) -> Option<Instant> {
        self.idle().first().filter(|sitting| sitting.may_be_taken()).map(|sitting| sitting.since)
    }

    fn leave(&self) {
        let mut idle = self.idle();
        if idle.first().is_some_and(Sitting::may_be_taken) {
            let Sitting { connection, place, .. } = idle.remove(0);
            drop(idle);
            self.end(connection, place);
        }
    }
}

#[cfg(test)]
mod tests;
