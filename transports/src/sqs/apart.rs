//! What a sending is told apart by in a FIFO queue.
//!
//! The service takes a message for a copy of another that had the same deduplication id within five minutes, says that it has it, and gives
//! it to nobody; whatever became of the first one. So no two sendings have the same, not even of one message: a dead letter that is retried
//! soon, the same message for two sagas, or one that is given back while its first sending is not answered yet would be lost unheard. It
//! is repeated by the tries of one call alone, for which it was made: there the service drops the copy. What is sent anew since nobody
//! knows what became of it is a copy that the endpoint drops.

use hapax_core::ids::MessageId;

use super::names::fitting;

/// Of a message id that is part of another.
const ID_BYTES_MAX: usize = 80;

/// The deduplication id of one sending. It begins with the message's, for people.
pub(super) fn dedup_id(message_id: &MessageId) -> String {
    format!("{}.{:032x}", fitting(&message_id.to_string(), ID_BYTES_MAX), fastrand::u128(..))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_service_takes_begins_with_the_messages_and_is_another_each_time() {
        let message_id = MessageId::parse("order-7").unwrap();
        assert!(dedup_id(&message_id).starts_with("order-7."));
        assert_ne!(dedup_id(&message_id), dedup_id(&message_id));
        for id in ["Order 7/ü \u{1F600}", &"x".repeat(255)] {
            let dedup_id = dedup_id(&MessageId::parse(id).unwrap());
            assert!(dedup_id.len() <= 128 && dedup_id.bytes().all(|byte| byte.is_ascii_graphic()), "{dedup_id}");
        }
    }
}
