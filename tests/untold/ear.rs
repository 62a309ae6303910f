//! Hears everything, and knows how a secret looks in it.

use std::{
    error::Error,
    fmt::{Debug, Display, Write as _},
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// All that was said in this process since somebody first listened: the drivers have threads of their own.
static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn heard() -> MutexGuard<'static, Vec<String>> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens for one secret.
pub(crate) struct Ear {
    pub(crate) secret: String,
}

impl Ear {
    pub(crate) fn new() -> Self {
        static LISTENS: Once = Once::new();
        LISTENS.call_once(|| tracing::subscriber::set_global_default(Listens).expect("nobody else listens"));
        Self { secret: format!("secret-{:016x}", fastrand::u64(..)) }
    }

    /// What was said of an error, as programs do.
    pub(crate) fn error(&self, error: &(dyn Error + 'static)) {
        let mut told = Vec::new();
        let mut cause = Some(error);
        while let Some(error) = cause {
            told.push(format!("{error} {error:?} {error:#?}"));
            cause = error.source();
        }
        heard().extend(told);
    }

    /// The same, of a call that may fail; whether it has.
    pub(crate) fn fails<T: Debug>(&self, called: Result<T, impl Error + 'static>) -> bool {
        match called {
            Ok(given) => {
                self.shown(&given);
                false
            }
            Err(error) => {
                self.error(&error);
                true
            }
        }
    }

    pub(crate) fn shown(&self, given: &impl Debug) {
        heard().push(format!("{given:?} {given:#?}"));
    }

    pub(crate) fn said(&self, text: &impl Display) {
        heard().push(text.to_string());
    }

    /// How many lines hold `text`.
    pub(crate) fn count(&self, text: &str) -> usize {
        heard().iter().filter(|line| line.contains(text)).count()
    }

    /// As text, as hexadecimal digits, and as a list of bytes.
    #[track_caller]
    pub(crate) fn assert_untold(&self) {
        let bytes = self.secret.as_bytes();
        let hex: String = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let list = format!("{bytes:?}");
        let lines = format!("{bytes:#?}").replace("    ", "");
        let forms =
            [&self.secret, &hex, &hex.to_uppercase(), list.trim_matches(['[', ']']), lines.trim_matches(['[', ']'])];
        let told: Vec<String> = heard()
            .iter()
            .filter(|line| forms.iter().any(|form| line.contains(*form) || line.replace("    ", "").contains(*form)))
            .cloned()
            .collect();
        assert_eq!(told, Vec::<String>::new());
    }
}

struct Listens;

/// The fields of a span or an event, one after the other.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Listens {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let metadata = span.metadata();
        let mut fields = Fields(format!("{} {}", metadata.target(), metadata.name()));
        span.record(&mut fields);
        heard().push(fields.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        heard().push(fields.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut fields = Fields(format!("{} {}", metadata.level(), metadata.target()));
        event.record(&mut fields);
        heard().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
