//! A commit that waits for a standby is told as done when somebody ends the wait (`pg_cancel_backend`), with a warning beside
//! it that it may be on no standby. The driver gives warnings to the log only, so that is where it is listened to.

use std::sync::{
    Arc, OnceLock, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    dispatcher::{WeakDispatch, get_default},
    instrument::WithSubscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};

/// Where the driver logs what the server tells beside its answers.
const TARGET: &str = "sqlx::postgres::notice";

/// Listens to one connection. Made once and not for each write: with a new listener all that was ever logged is asked for
/// anew, under a lock of the whole process.
#[derive(Debug)]
pub(super) struct Notices {
    listener: Dispatch,
    heard: Arc<Heard>,
}

impl Notices {
    /// There is always a second one. With a single listener, `tracing` asks whether a kind of event is wanted where that kind
    /// first comes up and not at the listener: were that a warning on somebody else's connection, to which nobody listens, no
    /// later one would be told.
    pub(super) fn new() -> Self {
        static SECOND: OnceLock<Notices> = OnceLock::new();
        SECOND.get_or_init(Self::alone);
        Self::alone()
    }

    fn alone() -> Self {
        let log = RwLock::new(get_default(Dispatch::downgrade));
        let heard = Arc::new(Heard { log, warned: AtomicBool::default() });
        Self { listener: Dispatch::new(Watch(heard.clone())), heard }
    }

    /// Runs `work`, and tells whether the server warned of anything meanwhile. Whatever is logged goes where it would have
    /// gone.
    pub(super) async fn listen<W: Future>(&self, work: W) -> (W::Output, bool) {
        let log = get_default(Dispatch::clone);
        *self.heard.log.write().unwrap_or_else(PoisonError::into_inner) = log.downgrade();
        self.heard.warned.store(false, Ordering::Relaxed);
        let done = work.with_subscriber(self.listener.clone()).await;
        (done, self.heard.warned.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Heard {
    /// Where what is logged goes. Whoever works holds it.
    log: RwLock<WeakDispatch>,
    warned: AtomicBool,
}

struct Watch(Arc<Heard>);

impl Watch {
    fn log(&self) -> Dispatch {
        let log = self.0.log.read().unwrap_or_else(PoisonError::into_inner);
        log.upgrade().unwrap_or_else(Dispatch::none)
    }
}

/// Which words the warning has depends on the server's language; a statement of ours gives no other.
fn is_warning(of: &Metadata<'_>) -> bool {
    *of.level() == Level::WARN && of.target() == TARGET
}

impl Subscriber for Watch {
    fn register_callsite(&self, of: &'static Metadata<'static>) -> Interest {
        if is_warning(of) { Interest::always() } else { self.log().register_callsite(of) }
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN) // And more where the log itself asks for more.
    }
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        is_warning(of) || self.log().enabled(of)
    }
    fn event(&self, event: &Event<'_>) {
        if is_warning(event.metadata()) {
            self.0.warned.store(true, Ordering::Relaxed);
        }
        let log = self.log();
        if log.enabled(event.metadata()) {
            log.event(event);
        }
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.log().new_span(span)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        self.log().record(span, values);
    }
    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.log().record_follows_from(span, follows);
    }
    fn enter(&self, span: &Id) {
        self.log().enter(span);
    }
    fn exit(&self, span: &Id) {
        self.log().exit(span);
    }
    fn clone_span(&self, id: &Id) -> Id {
        self.log().clone_span(id)
    }
    fn try_close(&self, id: Id) -> bool {
        self.log().try_close(id)
    }
}
