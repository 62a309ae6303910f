//! What hapax logs, a line each.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};

/// Hands over everything that a person should know.
pub fn lines(to: impl Fn(String) + Send + Sync + 'static) -> impl Subscriber + Send + Sync {
    Lines { to, whose: Whose::Hapax }
}

/// What hapax logs in this thread, and so in a test with a runtime of one thread, until this is dropped.
#[derive(Debug)]
pub struct LogLines {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: Option<DefaultGuard>,
}

/// One for the process.
static EVERYWHERE: OnceLock<Arc<Mutex<Vec<String>>>> = OnceLock::new();

impl LogLines {
    /// From now on.
    #[must_use]
    pub fn here() -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let told = lines.clone();
        let to = move |line| told.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Self { lines, _guard: Some(tracing::subscriber::set_default(self::lines(to))) }
    }

    /// What anybody logs down to `debug`, in any thread of the process: the drivers have threads of their own. Each line begins with
    /// its level and its target. Other tests of the process are heard too.
    ///
    /// # Panics
    /// When somebody else listens already.
    #[must_use]
    pub fn everywhere() -> Self {
        let lines = EVERYWHERE.get_or_init(|| {
            let lines = Arc::<Mutex<Vec<String>>>::default();
            let told = lines.clone();
            let to = move |line| told.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            let everybody = Lines { to, whose: Whose::Everybody };
            tracing::subscriber::set_global_default(everybody).expect("nobody else has begun");
            lines
        });
        Self { lines: lines.clone(), _guard: None }
    }

    /// Those that hold `text`.
    #[must_use]
    pub fn with(&self, text: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

struct Lines<F> {
    to: F,
    whose: Whose,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// What a person should know.
    Hapax,
    /// Everything but traces.
    Everybody,
}

/// The fields of an event, one after the other.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl<F: Fn(String) + 'static> Subscriber for Lines<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        match self.whose {
            Whose::Hapax => *metadata.level() <= Level::INFO && metadata.target().starts_with("hapax"),
            Whose::Everybody => *metadata.level() <= Level::DEBUG,
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut fields = Fields(metadata.level().to_string());
        if self.whose == Whose::Everybody {
            let _ = write!(fields.0, " {}", metadata.target());
        }
        event.record(&mut fields);
        (self.to)(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
