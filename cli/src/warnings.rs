//! What adapters warn of while they are opened, which a service finds in its log.

use std::{
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry,
};

/// Warnings that are kept until somebody takes them: who watches for days is told the first, and not all.
const KEPT_MAX: usize = 1_000;

/// Keeps what is a warning or worse.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Listens from now on, in all of the program.
    pub(crate) fn listen() -> Self {
        let warnings = Self::default();
        // Fails only where somebody listens already, and then he hears them.
        let _ = tracing::subscriber::set_global_default(registry().with(warnings.clone()));
        warnings
    }

    /// What was heard since it was asked last.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::WARN || !event.metadata().target().starts_with("hapax") {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            let mut line = Line::default();
            event.record(&mut line);
            kept.push(format!("{}{}", line.message, line.fields));
        }
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing into a text cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "; {name} {value:?}"),
        };
    }
}
