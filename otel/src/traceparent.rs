//! A span's context as text, and back.

use hapax_core::ids::TraceParent;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The only version there is.
const VERSION: &str = "00";

/// `None` for what is no trace context, which then counts as none: a message is not refused for it.
///
/// # Source
/// W3C Trace Context, level 1, sections 3.2 (the fields) and 4.3 (later versions: their first four fields are read).
pub(crate) fn read(text: &TraceParent) -> Option<SpanContext> {
    let mut fields = text.as_str().split('-');
    let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_later = fields.next().is_some();
    if !is_hex(version, 2) || version == "ff" || (is_later && version == VERSION) {
        return None;
    }
    if !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2) {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

/// `None` for a context that is in no trace.
pub(crate) fn write(context: &SpanContext) -> Option<TraceParent> {
    if !context.is_valid() {
        return None;
    }
    let (trace, span, flags) = (context.trace_id(), context.span_id(), context.trace_flags() & TraceFlags::SAMPLED);
    TraceParent::parse(format!("{VERSION}-{trace}-{span}-{:02x}", flags.to_u8())).ok()
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parent(text: &str) -> TraceParent {
        TraceParent::parse(text).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "00-00000000000000000000000000000001-0000000000000001-01",
        ] {
            let context = read(&parent(text)).unwrap();
            assert!(context.is_remote());
            assert_eq!(write(&context).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_later_version_may_have_more_to_say() {
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-will-be-like";
        assert!(read(&parent(later)).is_some());
    }

    #[test]
    fn what_is_no_trace_context_counts_as_none() {
        for text in [
            "none",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(read(&parent(text)), None, "{text}");
        }
        assert_eq!(write(&SpanContext::empty_context()), None);
    }
}
