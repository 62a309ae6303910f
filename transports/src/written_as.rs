//! What messages look like on the way.

#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
use std::borrow::Cow;

use bytes::Bytes;
use hapax_core::envelope::{
    Envelope,
    cloudevents::{self, STRUCTURED_CONTENT_TYPE, Source},
    plain,
};

/// The header that says what a body is.
pub(crate) const CONTENT_TYPE: &str = "content-type";

/// What messages that are sent look like. Those that come are read in every form, whatever is said here.
///
/// # Source
/// CloudEvents 1.0.2, "Message": binary and structured mode. What attributes are called in a broker's own headers is in the chapter on the
/// broker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WrittenAs {
    /// A header for each one of [`plain`], and the body as it is.
    Plain,
    /// A header for each attribute of a CloudEvent, and the body as it is: binary mode.
    CloudEvents(Source),
    /// A CloudEvent in JSON as body, and one header that says so: structured mode. A body that is no JSON takes a third more room there.
    StructuredCloudEvents(Source),
}

impl WrittenAs {
    /// The form of what a receiver puts somewhere else, as a dead letter: with the body as it came. An event in JSON may be larger than the broker
    /// takes, of a message that came in another form, and then it could be put nowhere.
    #[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
    pub(crate) fn with_body_as_it_is(&self) -> Cow<'_, Self> {
        match self {
            Self::StructuredCloudEvents(source) => Cow::Owned(Self::CloudEvents(source.clone())),
            Self::Plain | Self::CloudEvents(_) => Cow::Borrowed(self),
        }
    }

    /// The headers of `envelope`, with attributes called as over HTTP.
    pub(crate) fn headers(&self, envelope: &Envelope) -> Vec<(String, String)> {
        match self {
            Self::Plain => plain::to_headers(envelope),
            Self::CloudEvents(source) => cloudevents::to_binary(envelope, source),
            Self::StructuredCloudEvents(_) => vec![(CONTENT_TYPE.to_owned(), STRUCTURED_CONTENT_TYPE.to_owned())],
        }
    }

    /// Its body.
    pub(crate) fn body(&self, envelope: &Envelope) -> Bytes {
        match self {
            Self::Plain | Self::CloudEvents(_) => envelope.body.clone(),
            Self::StructuredCloudEvents(source) => cloudevents::to_structured(envelope, source).into(),
        }
    }
}
