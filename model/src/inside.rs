//! What a message's `Debug` keeps from logs. Here nothing is secret, and two messages may differ in nothing else.

use std::fmt;

use bytes::Bytes;
use hapax_core::envelope::{Envelope, Headers};

/// The body of a message, and what its headers say.
#[derive(Clone, Copy)]
pub(crate) struct Inside<'e> {
    body: &'e Bytes,
    headers: &'e Headers,
}

impl<'e> Inside<'e> {
    pub(crate) const fn of(envelope: &'e Envelope) -> Self {
        Self { body: &envelope.body, headers: &envelope.headers }
    }
}

impl fmt::Debug for Inside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.body)?;
        if self.headers.is_empty() {
            return Ok(());
        }
        f.write_str(" with ")?;
        f.debug_map().entries(self.headers.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use hapax_core::ids::{MessageId, TypeName};

    use super::*;

    #[test]
    fn a_story_tells_what_is_in_a_message() {
        let kind: TypeName = "shop.placed".parse().expect("a type");
        let mut envelope = Envelope::new(MessageId::parse("order-1").expect("an id"), kind, &b"two"[..]);
        assert_eq!(format!("{:?}", Inside::of(&envelope)), "b\"two\"");
        envelope.headers.set("cups", "2").expect("a header");
        assert_eq!(format!("{:?}", Inside::of(&envelope)), "b\"two\" with {\"cups\": \"2\"}");
    }
}
