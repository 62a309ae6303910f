//! A commit that waits for a standby is told as done when somebody ends the wait (`pg_cancel_backend`), with a warning beside
//! it that it may be on no standby. The driver gives warnings to the log only, so that is where it is listened to.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    dispatcher::get_default,
    instrument::WithSubscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};

/// Where the driver logs what the server tells beside its answers.
const TARGET: &str = "sqlx::postgres::notice";

/// Runs `work`, and tells whether the server warned of anything meanwhile. Whatever is logged goes where it would have gone.
pub(super) async fn watched<W: Future>(work: W) -> (W::Output, bool) {
    let warned = Arc::new(AtomicBool::new(false));
    let level = LevelFilter::current().max(LevelFilter::WARN);
    let watch = Watch { log: get_default(Dispatch::clone), level, warned: warned.clone() };
    let done = work.with_subscriber(Dispatch::new(watch)).await;
    (done, warned.load(Ordering::Relaxed))
}

struct Watch {
    log: Dispatch,
    level: LevelFilter,
    warned: Arc<AtomicBool>,
}

/// Which words the warning has depends on the server's language; a statement of ours gives no other.
fn is_warning(of: &Metadata<'_>) -> bool {
    *of.level() == Level::WARN && of.target() == TARGET
}

impl Subscriber for Watch {
    fn register_callsite(&self, of: &'static Metadata<'static>) -> Interest {
        if is_warning(of) { Interest::always() } else { self.log.register_callsite(of) }
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        is_warning(of) || self.log.enabled(of)
    }
    fn event(&self, event: &Event<'_>) {
        if is_warning(event.metadata()) {
            self.warned.store(true, Ordering::Relaxed);
        }
        if self.log.enabled(event.metadata()) {
            self.log.event(event);
        }
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.log.new_span(span)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        self.log.record(span, values);
    }
    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.log.record_follows_from(span, follows);
    }
    fn enter(&self, span: &Id) {
        self.log.enter(span);
    }
    fn exit(&self, span: &Id) {
        self.log.exit(span);
    }
    fn clone_span(&self, id: &Id) -> Id {
        self.log.clone_span(id)
    }
    fn try_close(&self, id: Id) -> bool {
        self.log.try_close(id)
    }
}
