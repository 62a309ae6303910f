//! Commits, of which it is known how each has ended.

use std::time::Duration;

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer},
    error::KafkaResult,
};

use super::{
    asker::{Place, committed},
    dealt::Client,
    receiver::End,
};

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

/// The client library tells how the commit of one partition has ended. Of several it fails only if all of them did: so the broker is asked what it
/// has. Nobody else commits these.
pub(super) fn commit_all(end: &End, consumer: &Client, places: Vec<(Place, i64)>) -> Vec<Ended> {
    let link = &end.broker().link;
    let sent = commit_these(consumer, &places);
    if let Err(e) = &sent {
        tracing::warn!(error = %e, "{}: a commit failed", link.place());
    }
    if sent.is_err() || places.len() == 1 {
        let is_done = sent.is_ok();
        return places.into_iter().map(|(place, offset)| (place, offset, is_done)).collect();
    }
    let ended = read_back(consumer, places, link.patience);
    for ((topic, partition), offset, _) in ended.iter().filter(|(_, _, is_done)| !is_done) {
        tracing::warn!("{}: offset {offset} of topic `{topic}`, partition {partition}, is not committed", link.place());
    }
    ended
}

/// Where the broker does not say it of all of them, each is committed alone.
fn read_back(consumer: &Client, places: Vec<(Place, i64)>, patience: Duration) -> Vec<Ended> {
    let asked: Vec<Place> = places.iter().map(|(place, _)| place.clone()).collect();
    let found = committed(consumer, &asked, patience);
    let ended = places.into_iter().map(|(place, offset)| {
        let is_done = match &found {
            Ok(found) => found.get(&place) == Some(&offset),
            Err(_) => commit_these(consumer, &[(place.clone(), offset)]).is_ok(),
        };
        (place, offset, is_done)
    });
    ended.collect()
}

fn commit_these(consumer: &Client, places: &[(Place, i64)]) -> KafkaResult<()> {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for ((topic, partition), offset) in places {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
    }
    consumer.commit(&list, CommitMode::Sync)
}
