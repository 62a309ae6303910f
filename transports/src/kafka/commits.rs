//! Commits, of which it is known how each has ended.

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer},
    error::KafkaResult,
};

use super::{asker::Place, dealt::Client, receiver::End};

/// A place, and whether the broker has it.
pub(super) type Ended = (Place, i64, bool);

/// Commits what is settled, if something is, and waits until the broker has it. Whether it is to be waited for a while before the next.
pub(super) fn commit(end: &End, consumer: &Client) -> bool {
    let places = end.state().commits();
    if places.is_empty() {
        return false;
    }
    let mut has_failed = false;
    for (place, offset, is_done) in commit_all(end, consumer, places) {
        has_failed |= !is_done;
        end.state().commit_ended(&place, offset, is_done);
    }
    has_failed
}

/// The client library tells of one commit how it has ended: that it failed, if it did for any of the partitions. All of them are wanted again
/// then, which is harmless for those that were committed.
pub(super) fn commit_all(end: &End, consumer: &Client, places: Vec<(Place, i64)>) -> Vec<Ended> {
    let sent = commit_these(consumer, &places);
    if let Err(e) = &sent {
        tracing::warn!(error = %e, "{}: a commit failed", end.broker().link.place());
    }
    let is_done = sent.is_ok();
    places.into_iter().map(|(place, offset)| (place, offset, is_done)).collect()
}

fn commit_these(consumer: &Client, places: &[(Place, i64)]) -> KafkaResult<()> {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for ((topic, partition), offset) in places {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
    }
    consumer.commit(&list, CommitMode::Sync)
}
