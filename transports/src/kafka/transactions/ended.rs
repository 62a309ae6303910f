//! How a message's transaction has ended, for whoever wanted it sent.

use hapax_core::ports::{DispatchError, ErrorKind, TransportError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::super::errors::{failure, is_too_large};

#[derive(Debug, Clone)]
pub(super) enum Ended {
    Sent,
    Failed(Failure),
    /// It alone, for ever: its topic does not take it.
    TooLarge(KafkaError),
}

/// Why nothing of a transaction is known to be there.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// Another took over: for this process it is over.
    Fenced {
        id: String,
        is_unknown: bool,
    },
    /// The broker is not as it has to be, or does not let this user do it.
    Refused(ErrorKind, String),
    /// Nothing is there, and it may be tried again.
    Aborted(KafkaError),
    /// It may be there: the answer to the commit is not known.
    Unknown(KafkaError),
    /// Others of the same call cannot be sent.
    WithOthers,
    /// Nothing was begun: what failed before rests.
    Rests(String),
    Gone,
}

impl Ended {
    pub(super) fn error(&self) -> Option<&KafkaError> {
        match self {
            Self::TooLarge(error) | Self::Failed(Failure::Aborted(error) | Failure::Unknown(error)) => Some(error),
            _ => None,
        }
    }

    pub(super) fn result(&self, operation: &'static str, place: &str) -> Result<(), DispatchError> {
        match self {
            Self::Sent => Ok(()),
            // Never for good, whatever it is: the message is as good as any, and somebody else may send it.
            Self::Failed(failure) => Err(DispatchError::Transient(failure.told(operation, place))),
            Self::TooLarge(error) => Err(DispatchError::Permanent(failure(operation, place, error, false))),
        }
    }
}

impl Failure {
    /// Of the thread that has the producer.
    pub(super) const fn gone() -> Self {
        Self::Gone
    }

    pub(super) fn told(&self, operation: &'static str, place: &str) -> TransportError {
        let told = |kind, why: String| TransportError::new(kind, operation, why);
        match self {
            Self::Fenced { id, is_unknown } => {
                let kind = if *is_unknown { ErrorKind::UnknownOutcome } else { ErrorKind::Misconfigured };
                let why = "another process has taken over its name for transactions, or the broker has ended a transaction of a process that stood still";
                let remedy = "this one sends nothing any more: end it, or start it anew under a name of its own (Transactions::of)";
                told(kind, format!("{place} refuses `{id}`: {why}; {remedy}"))
            }
            Self::Refused(kind, why) => told(*kind, format!("{place} {why}")),
            Self::Aborted(error) => failure(operation, place, error, false),
            Self::Unknown(error) => {
                let why = format!("{place} did not say whether a transaction is committed; it may be");
                told(ErrorKind::UnknownOutcome, why).caused_by(error.clone())
            }
            Self::WithOthers => {
                let why = "what is sent with it cannot be sent yet, and goes in the same transaction or not at all";
                told(ErrorKind::Unavailable, why.to_owned())
            }
            Self::Rests(why) => told(ErrorKind::Unavailable, format!("{place}: {why}")),
            Self::Gone => {
                let why = "the thread that sends in transactions has ended; the outcome is unknown";
                told(ErrorKind::UnknownOutcome, why.to_owned())
            }
        }
    }

    /// The same where no commit was asked for.
    pub(super) fn certain(self, id: &str) -> Self {
        match self {
            Self::Fenced { id, .. } => Self::Fenced { id, is_unknown: false },
            Self::Unknown(error) => Self::aborted(&error, id),
            other => other,
        }
    }

    /// Of what the broker says to the transaction as a whole, where nothing of it is there.
    pub(super) fn aborted(error: &KafkaError, id: &str) -> Self {
        match error.rdkafka_error_code() {
            Some(Code::UnsupportedFeature | Code::UnsupportedVersion) => Self::Refused(
                ErrorKind::Misconfigured,
                "does not know Kafka's transactions: leave KafkaOptions::transactions out, or take a broker that has them (Kafka has from 0.11 on)"
                    .to_owned(),
            ),
            Some(Code::TransactionalIdAuthorizationFailed) => Self::Refused(
                ErrorKind::Denied,
                format!("does not let this user have transactions: grant Describe and Write on the transactional id `{id}`"),
            ),
            Some(Code::InvalidTransactionTimeout) => Self::Refused(
                ErrorKind::Misconfigured,
                "takes no transaction that is open for so long: lower Transactions::timeout, or raise its `transaction.max.timeout.ms`"
                    .to_owned(),
            ),
            _ => Self::Aborted(error.clone()),
        }
    }
}

/// Whether it is of one message, and of no other in its transaction.
pub(super) fn is_its_own(error: &KafkaError) -> bool {
    is_too_large(error)
        || matches!(
            error.rdkafka_error_code(),
            Some(
                Code::UnknownTopicOrPartition
                    | Code::UnknownTopic
                    | Code::UnknownPartition
                    | Code::TopicAuthorizationFailed
                    | Code::InvalidRecord
                    | Code::InvalidTopic
            )
        )
}

/// Whether it is only what comes of an abort.
pub(super) fn is_cleared(error: &KafkaError) -> bool {
    matches!(error.rdkafka_error_code(), Some(Code::PurgeQueue | Code::PurgeInflight))
}

/// Whether the broker does not know the producer any more.
pub(super) const fn is_forgotten(code: Code) -> bool {
    matches!(code, Code::UnknownProducerId | Code::InvalidProducerIdMapping)
}

/// Whether the broker has given the producer's name to another, or its own number away.
pub(super) const fn is_fenced(code: Code) -> bool {
    matches!(code, Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch)
}
