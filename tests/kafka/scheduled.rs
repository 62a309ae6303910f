//! Kafka holds nothing back until it is due: what waits in a schedule comes over it at its time.

use std::time::Duration;

use super::rig::*;

#[path = "../broker/scheduled.rs"]
mod broker;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_later_waits_in_a_schedule_and_comes_over_the_broker_at_its_time() {
    let queue = options().partitions(1).open(url()).await.unwrap();
    let here = endpoint();
    let given = async || {
        let topic = format!("{PREFIX}.queue.{here}");
        tokio::task::spawn_blocking(move || records(&topic, 0).len()).await.unwrap()
    };
    broker::waits_and_comes_at_its_time(queue.clone(), queue.sender(), here.clone(), Duration::ZERO, given).await;
}
