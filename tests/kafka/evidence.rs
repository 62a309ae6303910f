//! What an endpoint remembers goes by evidence: by the offsets that its group has committed.

use super::rig::*;

#[path = "../broker/evidence.rs"]
mod broker;

/// Behind the one that waits, in one partition, and among several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_remembered_is_forgotten_when_the_queue_has_shown_that_it_is_gone() {
    for partitions in [1, 4] {
        let queue = options().partitions(partitions).open(url()).await.unwrap();
        broker::entries_go_when_the_queue_has_shown_that_their_messages_are_gone(queue, endpoint()).await;
    }
}

/// Beside the one that waits, in another partition: behind it nothing would be handled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_remembered_is_kept_while_another_partition_waits_where_order_is_kept() {
    let queue = options().partitions(2).ordered_keys(true).open(url()).await.unwrap();
    broker::entries_go_whatever_the_keys(queue, endpoint(), PARTED.map(Some)).await;
}
