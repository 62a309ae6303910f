//! What hapax logs, a line each.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};

/// Hands over everything that a person should know.
pub fn lines(to: impl Fn(String) + Send + Sync + 'static) -> impl Subscriber + Send + Sync {
    Lines(to)
}

/// What hapax logs in this thread, and so in a test with a runtime of one thread, until this is dropped.
#[derive(Debug)]
pub struct LogLines {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl LogLines {
    /// From now on.
    #[must_use]
    pub fn here() -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let told = lines.clone();
        let to = move |line| told.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Self { lines, _guard: tracing::subscriber::set_default(self::lines(to)) }
    }

    /// Those that hold `text`.
    #[must_use]
    pub fn with(&self, text: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

struct Lines<F>(F);

/// The fields of an event, one after the other.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl<F: Fn(String) + 'static> Subscriber for Lines<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("hapax")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        (self.0)(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
