//! A call to the outside is what no outbox takes back. A check cannot see it, so the fake that stands in for the service tells of it.

use std::sync::Arc;

use crate::explore::outside;

/// Tells a [`Check`](super::Check) of calls that a service outside would get. It belongs into the fake that stands in for
/// the service's client.
///
/// A message whose handling is repeated, after a crash or a lost race, repeats its calls. So a check breaks when a call
/// without a key can be made twice for one message, or under two keys. A call under
/// [`Context::idempotency_key`](hapax_core::Context::idempotency_key) may come as often as it likes: the service knows it
/// for a repeat. What only reads need not be told.
///
/// ```
/// use hapax_model::check::External;
///
/// struct FakeCards(External);
/// impl FakeCards {
///     fn charge(&self, _cents: u32, key: &str) {
///         self.0.call_with_key(key);
///     }
/// }
/// # FakeCards(External::new("charge")).charge(5, "a key");
/// ```
///
/// Outside of a check nothing is noted.
#[derive(Debug, Clone)]
pub struct External {
    name: Arc<str>,
}

impl External {
    /// A service, or one of its calls, under the name that it is to have in stories.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into() }
    }

    /// It is called, and would take a repeat for something new.
    pub fn call(&self) {
        outside::call(&self.name, None);
    }

    /// It is called under `key`, by which it knows a repeat.
    pub fn call_with_key(&self, key: &str) {
        outside::call(&self.name, Some(key));
    }
}
