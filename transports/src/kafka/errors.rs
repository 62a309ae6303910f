//! What Kafka refuses or does not answer, as errors of the ports, with what to do.

use hapax_core::ports::{ErrorKind, TransportError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::options::Secrets;

/// What was answered, also to who asks as an administrator: of that the library itself tells no code.
pub(super) fn code_of(error: &KafkaError) -> Option<Code> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    }
}

/// What a broker or the client has answered to `operation`. `written`: what was asked for may have happened all the same.
pub(super) fn failure(operation: &'static str, place: &str, error: &KafkaError, written: bool) -> TransportError {
    let unanswered = if written { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable };
    let Some(code) = code_of(error) else {
        return TransportError::new(unanswered, operation, format!("{place} does not do it")).caused_by(error.clone());
    };
    let (kind, why) = match code {
        Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed | Code::ClusterAuthorizationFailed => (
            ErrorKind::Denied,
            "does not let this user do it: grant what the chapter on Kafka lists under `Permissions`",
        ),
        Code::Authentication | Code::SaslAuthenticationFailed => {
            (ErrorKind::Denied, "does not let this user in: check name, password and SASL mechanism")
        }
        Code::SSL => (
            ErrorKind::Misconfigured,
            "does not speak TLS as this does, or shows a certificate that is not trusted: name its authority (KafkaOptions::certificate_authority)",
        ),
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge => (
            ErrorKind::TooLarge,
            "takes no message that large: raise the topic's `max.message.bytes`, or lower KafkaOptions::message_bytes_max",
        ),
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => (
            ErrorKind::Unavailable,
            "has no such topic or partition: start its endpoint once, let it be declared (KafkaOptions::declare), or correct the address",
        ),
        Code::LeaderNotAvailable => (
            ErrorKind::Unavailable,
            "does not list a topic or a partition, or not yet: try again; if it is gone for good, end the subscription to it (Kafka::unsubscribe)",
        ),
        Code::InvalidSessionTimeout => (
            ErrorKind::Misconfigured,
            "takes no such session: keep KafkaOptions::session between its `group.min.session.timeout.ms` and `group.max.session.timeout.ms`",
        ),
        Code::InvalidReplicationFactor => (
            ErrorKind::Misconfigured,
            "has fewer brokers than there shall be replicas: lower KafkaOptions::replicas, or add brokers",
        ),
        Code::NotEnoughReplicas => (
            ErrorKind::Unavailable,
            "has too few replicas in sync for `min.insync.replicas`: wait for its brokers, or raise the topic's replication factor",
        ),
        Code::NotEnoughReplicasAfterAppend => {
            (unanswered, "has too few replicas in sync for `min.insync.replicas`, and may keep the message or not")
        }
        Code::AutoOffsetReset | Code::OffsetOutOfRange => (
            ErrorKind::Misconfigured,
            "does not have the place any more from which this group reads on: its log went back, or was cut off",
        ),
        Code::QueueFull => (ErrorKind::Unavailable, "is given more than it takes; nothing was sent"),
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::Resolve => (
            unanswered,
            "cannot be reached, or has ended the connection: check host and port, and that Kafka runs there",
        ),
        Code::MessageTimedOut | Code::OperationTimedOut | Code::RequestTimedOut | Code::TimedOutQueue => {
            (unanswered, "did not answer in time: it may be busy or without a leader, or cannot be reached")
        }
        _ => (unanswered, "does not do it"),
    };
    TransportError::new(kind, operation, format!("{place} {why} ({code})")).caused_by(error.clone())
}

/// What the client library does not take as configured. Its own error repeats the value, which may be a password or a key: only what
/// is wrong with which setting is told.
pub(super) fn unusable(operation: &'static str, error: &KafkaError, secrets: &Secrets) -> TransportError {
    let why = match error {
        KafkaError::ClientConfig(_, _, key, _) => {
            format!("the client library does not take what was given for `{key}`: correct it, or leave it out")
        }
        KafkaError::ClientCreation(why) => {
            format!("the client cannot be made: {}", secrets.scrubbed(why))
        }
        _ => "the client cannot be made".to_owned(),
    };
    TransportError::new(ErrorKind::Misconfigured, operation, why)
}

/// Whether the message was refused for its size, here or there.
pub(super) fn is_too_large(error: &KafkaError) -> bool {
    matches!(code_of(error), Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge))
}

/// Whether the topic is not there, as far as who was asked knows.
pub(super) fn is_unknown_topic(error: &KafkaError) -> bool {
    matches!(code_of(error), Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_configuration_tells_no_value() {
        let mut config = rdkafka::ClientConfig::new();
        config.set("no.such.setting", "hunter2");
        let Err(error) = config.create_native_config() else { panic!("it is taken") };
        assert!(error.to_string().contains("hunter2"), "its own error repeats it: {error}");
        let secrets = Secrets::default();
        let told = format!("{:?}", unusable("opening", &error, &secrets));
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[test]
    fn what_was_sent_and_not_answered_is_of_an_unknown_outcome() {
        let late = KafkaError::MessageProduction(Code::MessageTimedOut);
        assert!(failure("sending", "Kafka", &late, true).is_unknown_outcome());
        assert!(!failure("asking", "Kafka", &late, false).is_unknown_outcome());
        let admin = |code| failure("declaring", "Kafka", &KafkaError::AdminOp(code), true).kind();
        assert_eq!(admin(Code::InvalidReplicationFactor), ErrorKind::Misconfigured);
        assert_eq!(admin(Code::TopicAuthorizationFailed), ErrorKind::Denied);
        let refused = KafkaError::MessageProduction(Code::NotEnoughReplicas);
        assert_eq!(failure("sending", "Kafka", &refused, true).kind(), ErrorKind::Unavailable);
    }
}
