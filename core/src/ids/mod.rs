//! The identities of the promise, as types that cannot be taken for one another.
//!
//! Every id is parsed where it enters and never validated again: empty, over-long or malformed text is refused with
//! an [`InvalidId`] that says which id it was. Text is kept as it came (no trimming, no case folding), because two ids
//! that differ must never become one (`protocol.md` S58).

mod entity_key;
mod hashed;
mod message_id;
mod sequence;
mod type_name;

use std::{fmt, sync::Arc};

pub use entity_key::{EntityKey, Scope};
pub use hashed::{AttemptId, DedupKey, Fingerprint, Identity};
pub(crate) use hashed::{hex, prefixed};
pub(crate) use message_id::WireId;
pub use message_id::{CausationId, MessageId};
pub use sequence::{SequenceId, SequenceNumber};
pub use type_name::TypeName;

/// Longest message id, idempotency key or saga key, in bytes: what every store and broker we know takes as a key.
pub const ID_BYTES_MAX: usize = 255;
/// Longest endpoint, saga or message type name, in bytes: leaves room for the scope in any store's key.
pub const NAME_BYTES_MAX: usize = 100;

/// Text that cannot be the id it was meant to be.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct InvalidId {
    what: &'static str,
    problem: String,
}

/// The same sentence: what ends a `main` is shown so.
impl fmt::Debug for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl InvalidId {
    pub(crate) fn new(what: &'static str, problem: impl Into<String>) -> Self {
        Self { what, problem: problem.into() }
    }
}

fn check_text(what: &'static str, text: &str, bytes_max: usize) -> Result<(), InvalidId> {
    if (1..=bytes_max).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(()); // As most are; the rest looks at characters.
    }
    if text.is_empty() {
        return Err(InvalidId::new(what, "is empty"));
    }
    if text.len() > bytes_max {
        return Err(InvalidId::new(what, format!("has {} bytes, more than the {bytes_max} allowed", text.len())));
    }
    if let Some(at) = text.find(char::is_control) {
        return Err(InvalidId::new(what, format!("has a control character at byte {at}")));
    }
    Ok(())
}

fn check_name(what: &'static str, text: &str) -> Result<(), InvalidId> {
    let usual = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/".contains(&b);
    if (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(usual) {
        return Ok(()); // One look at each byte; the rest is for the error's sake.
    }
    if text.is_empty() {
        return Err(InvalidId::new(what, "is empty; give it ASCII letters, digits and - _ . : /"));
    }
    check_text(what, text, NAME_BYTES_MAX)?;
    match text.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.:/".contains(c))) {
        Some(at) => Err(InvalidId::new(
            what,
            format!("`{text}` may hold ASCII letters, digits and - _ . : / only, not what stands at byte {at}"),
        )),
        None => Ok(()),
    }
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes `text` as it is, or says what is wrong with it.
            ///
            /// # Errors
            /// [`InvalidId`] for text that is empty, too long or malformed.
            pub fn parse(text: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, InvalidId> {
                let check: fn(&'static str, &str) -> Result<(), InvalidId> = $check;
                check($what, text.as_ref())?;
                Ok(Self(text.into()))
            }

            /// The text, exactly as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }
    };
}

text!(
    /// Names an endpoint: one logical receiver with its own queue. Part of every dedup key, so renaming an endpoint
    /// forgets what it has seen (S78).
    EndpointName, "endpoint name", check_name
);
text!(
    /// Names a saga or a stateless handler. Part of every dedup key; explicit, never a Rust path.
    SagaName, "saga name", check_name
);
text!(
    /// Which instance of a saga: the correlation value of a message.
    SagaKey, "saga key", |what, text| check_text(what, text, ID_BYTES_MAX)
);
text!(
    /// The sender's own name for one intent. Where given, it is the identity of the message for deduplication, so
    /// that the same intent sent under two message ids is handled once.
    IdempotencyKey, "idempotency key", |what, text| check_text(what, text, ID_BYTES_MAX)
);
text!(
    /// Which business process a message belongs to.
    CorrelationId, "correlation id", |what, text| check_text(what, text, ID_BYTES_MAX)
);
text!(
    /// Keeps messages of one key together where a broker has partitions, and names a partition of a store that has some.
    PartitionKey, "partition key", |what, text| check_text(what, text, ID_BYTES_MAX)
);
text!(
    /// Whose message it is, in a system of several tenants.
    TenantId, "tenant id", |what, text| check_text(what, text, ID_BYTES_MAX)
);
text!(
    /// A W3C trace context `traceparent` value, carried and never interpreted.
    TraceParent, "traceparent", |what, text| check_text(what, text, ID_BYTES_MAX)
);

impl From<&SagaKey> for PartitionKey {
    fn from(key: &SagaKey) -> Self {
        Self(key.0.clone()) // Any saga key is a valid partition key: the limits are the same.
    }
}
