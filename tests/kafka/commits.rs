//! Commits that the broker does, and whose answers are lost: nobody is told more than is known, and no offset goes back.

use std::time::Duration;

use hapax::{
    Kafka,
    ids::EndpointName,
    ports::{Connected, Delivery, Settled, Settlement, Transport, TransportError},
};

use super::{proxy::Proxied, rig::*};

/// How long something that may come again is waited for at a time.
const MOMENT: Duration = Duration::from_millis(300);

/// An endpoint with a single partition, of which something is settled already: its first commit of all is of where it begins.
struct Commits {
    ends: Connected,
    queue: Kafka,
    here: EndpointName,
    // Goes last.
    proxied: Proxied,
}

impl Commits {
    async fn begin(patience: Duration) -> Self {
        let (proxied, here) = (Proxied::start().await, endpoint());
        let queue = options().partitions(1).patience(patience).open(proxied.url()).await.unwrap();
        let ends = queue.connect(&here, &[]).await.unwrap();
        let begun = Self { ends, queue, here, proxied };
        ack(&begun.ends, &begun.given("before").await).await;
        assert_eq!(begun.at().await, Some(1));
        begun
    }

    async fn given(&self, text: &str) -> Delivery {
        send(&self.queue, &[to(&self.here, envelope(text))]).await;
        next(&self.ends).await
    }

    /// Settles one while the answers to so many commits are lost.
    async fn settled_unheard(&self, commits: u32) -> (Delivery, Result<Settled, TransportError>) {
        let given = self.given("its answer is lost").await;
        self.proxied.loses_commits(&format!("{PREFIX}.queue.{}", self.here), commits);
        let settled = self.ends.receiver.settle(&given.receipt, Settlement::Ack).await;
        (given, settled)
    }

    /// What the broker has as committed.
    async fn at(&self) -> Option<i64> {
        let (group, topic) = (format!("{PREFIX}.{}", self.here), format!("{PREFIX}.queue.{}", self.here));
        let url = self.proxied.url();
        tokio::task::spawn_blocking(move || committed_at(&url, &group, &topic, 0)).await.unwrap()
    }

    /// What is sent now is given and settled, nothing but it and `lost` comes, and no offset goes back, neither here nor for who is next.
    async fn goes_on(mut self, lost: &Delivery) {
        send(&self.queue, &[to(&self.here, envelope("after"))]).await;
        let (mut came, mut before) = (Vec::new(), self.at().await);
        let all = async {
            // What is not settled comes again, or has gone in spite of its answer.
            while !self.queue.backlog(&self.here).await.is_ok_and(|left| left == 0) {
                if let Ok(Ok(given)) = tokio::time::timeout(MOMENT, self.ends.receiver.receive(1)).await {
                    for delivery in given {
                        drop(self.ends.receiver.settle(&delivery.receipt, Settlement::Ack).await);
                        came.push((delivery.envelope.message_id.clone(), body(&delivery)));
                    }
                }
                let now = self.at().await;
                assert!(now >= before, "what is committed went back from {before:?} to {now:?}");
                before = now;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("it is not settled");
        assert!(came.iter().any(|(_, body)| body == "after"), "it never came: {came:?}");
        assert!(came.iter().all(|(id, body)| body == "after" || *id == lost.envelope.message_id), "{came:?}");
        assert_eq!(self.at().await, Some(3));
        self.ends = self.queue.connect(&self.here, &[]).await.unwrap();
        let last = self.given("last").await;
        assert_eq!((body(&last).as_str(), last.attempts), ("last", 1), "what is committed comes again");
        ack(&self.ends, &last).await;
        assert_eq!(self.at().await, Some(4));
    }
}

/// It is asked for again, on another connection: who settles hears that it is done, or that nobody knows.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_though_the_answer_is_lost_is_settled_or_told_as_unknown() {
    let commits = Commits::begin(Duration::from_secs(10)).await;
    let (given, settled) = commits.settled_unheard(1).await;
    assert_eq!(commits.proxied.commits_lost(), 1, "no answer was lost");
    match settled {
        Ok(settled) => assert_eq!(settled, Settled::Done),
        Err(error) => assert!(error.is_unknown_outcome(), "{error:?}"),
    }
    assert_eq!(commits.at().await, Some(2));
    commits.goes_on(&given).await;
}

/// For as long as anybody waits for one.
#[tokio::test(flavor = "multi_thread")]
async fn while_no_commit_is_answered_nothing_is_told_as_settled_and_then_no_offset_goes_back() {
    let commits = Commits::begin(Duration::from_secs(4)).await;
    let (given, settled) = commits.settled_unheard(u32::MAX).await;
    let error = settled.expect_err("nobody has said that it is committed");
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert!(commits.proxied.commits_lost() > 0, "no answer was lost");
    assert_eq!(commits.at().await, Some(2), "the broker has not done it");
    commits.proxied.answers_commits();
    commits.goes_on(&given).await;
}
