//! The order of application headers, where a broker does not keep it.

use hapax_core::envelope::{Envelope, Headers};

/// Their names in their order, if that is not the order of their names.
pub(crate) fn order_of(envelope: &Envelope) -> Option<String> {
    let names: Vec<&str> = envelope.headers.iter().map(|(name, _)| name).collect();
    (!names.is_sorted()).then(|| names.join(","))
}

/// `headers` with those of `order` first, in that order.
pub(crate) fn in_order(headers: &Headers, order: &str) -> Headers {
    let mut sorted = Headers::default();
    let first = order.split(',').filter_map(|name| headers.value(name).map(|value| (name, value)));
    for (name, value) in first.chain(headers.iter()) {
        if sorted.value(name).is_none() {
            // It was a header before, so it is one again.
            let _ = sorted.set(name, value);
        }
    }
    sorted
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use hapax_core::ids::{MessageId, TypeName};

    use super::*;

    #[test]
    fn headers_that_were_shuffled_are_as_they_were() {
        let kind = TypeName::parse("shop.added").unwrap();
        let mut envelope = Envelope::new(MessageId::random(), kind, "{}");
        for name in ["b", "c", "a"] {
            envelope.headers.set(name, name).unwrap();
        }
        let order = order_of(&envelope).unwrap();
        let mut shuffled = Headers::default();
        for name in ["a", "new", "b", "c"] {
            shuffled.set(name, name).unwrap();
        }
        let sorted = in_order(&shuffled, &order);
        let names: Vec<&str> = sorted.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "c", "a", "new"]);
        envelope.headers = Headers::default();
        assert_eq!(order_of(&envelope), None);
    }
}
