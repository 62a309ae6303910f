//! Lies about what is in a queue, told to a person.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    SqliteQueue,
    ids::{EndpointName, MessageId},
    ports::{Answer, Queue, QueueSurvey, QueuedMessage, Transport, TransportError},
    testing::{
        Checked,
        queue_survey::{self, Surveyed},
    },
    time::Timestamp,
};
use hapax_tests::Scratch;

use crate::lie::expect;

const COUNTED: &str = "queue survey 1, counted";
const FOUND: &str = "queue survey 2, found";
const HONEST: &str = "queue survey 4, honest";

/// Short: one check waits for its end.
const LEASE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Leaves out what somebody has, and does not say so.
    LeavesLeasedOut,
    /// Says nothing of a limit that was reached.
    HidesTheLimit,
    /// Takes everything for under a lease.
    AllIsLeased,
    /// Shows a message that is not there.
    ShowsStrangers,
    /// Shows what somebody has as if nobody had it.
    HidesLeases,
    /// Looks by receiving.
    Receives,
    /// Gives no reason.
    SaysNoReason,
    /// Says that there is nothing where it does not know.
    MakesNothingUp,
}

#[derive(Debug)]
struct Liar(Arc<SqliteQueue>, Lie);

#[derive(Debug)]
struct Queues(Scratch, Lie);

#[async_trait]
impl queue_survey::Builder for Queues {
    async fn surveyed(&self) -> Surveyed {
        let queue = Arc::new(SqliteQueue::options().lease(LEASE).open(self.0.file("queue.db")).await.unwrap());
        Surveyed { survey: Arc::new(Liar(queue.clone(), self.1)), transport: queue }
    }
}

#[async_trait]
impl QueueSurvey for Liar {
    async fn queue(&self, endpoint: &EndpointName, limit: u64) -> Result<Queue, TransportError> {
        let mut queue = self.0.queue(endpoint, limit).await?;
        let leased = queue.leased.is().copied().unwrap();
        match self.1 {
            Lie::LeavesLeasedOut => queue.messages.number -= leased.number,
            Lie::HidesTheLimit => queue.messages.at_least = false,
            Lie::AllIsLeased => queue.leased = Answer::Is(queue.messages),
            Lie::SaysNoReason => queue.leased = Answer::unknown(" "),
            Lie::Receives => {
                let ends = self.0.connect(endpoint, &[]).await?;
                drop(tokio::time::timeout(Duration::from_millis(50), ends.receiver.receive(1)).await);
            }
            _ => {}
        }
        Ok(queue)
    }

    async fn queued(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
        limit: u64,
    ) -> Result<Answer<Vec<QueuedMessage>>, TransportError> {
        let queued = self.0.queued(endpoint, id, limit).await?;
        Ok(match self.1 {
            Lie::MakesNothingUp => Answer::Is(Vec::new()),
            Lie::HidesLeases => queued.map(|mut copies| {
                copies.iter_mut().for_each(|copy| copy.leased = false);
                copies
            }),
            Lie::ShowsStrangers if queued.is().is_some_and(Vec::is_empty) => {
                let now = Timestamp::now();
                Answer::Is(vec![QueuedMessage { attempts: 0, leased: false, available: now, sent: now }])
            }
            _ => queued,
        })
    }
}

async fn rejected(lie: Lie, promise: &'static str) {
    expect(promise, queue_survey::first_broken(&Queues(Scratch::new("liar"), lie)).await);
}

macro_rules! lies {
    ($($name:ident, $lie:ident, $promise:ident;)*) => {$(
        #[tokio::test]
        async fn $name() {
            rejected(Lie::$lie, $promise).await;
        }
    )*};
}

lies! {
    a_queue_that_does_not_count_what_is_leased_is_rejected, LeavesLeasedOut, COUNTED;
    a_queue_that_hides_its_limit_is_rejected, HidesTheLimit, COUNTED;
    a_queue_that_takes_all_for_leased_is_rejected, AllIsLeased, COUNTED;
    a_queue_that_shows_what_is_not_there_is_rejected, ShowsStrangers, FOUND;
    a_queue_that_hides_leases_is_rejected, HidesLeases, FOUND;
    a_queue_that_gives_no_reason_is_rejected, SaysNoReason, HONEST;
}

/// Of a check that others come before.
async fn fails(lie: Lie, check: impl AsyncFn(&dyn queue_survey::Builder) -> Checked) {
    let checked = check(&Queues(Scratch::new("liar"), lie)).await;
    assert!(checked.is_err(), "{lie:?}: {checked:?}");
}

#[tokio::test]
async fn a_queue_that_is_received_from_by_a_look_is_rejected() {
    fails(Lie::Receives, queue_survey::read_only).await;
}

#[tokio::test]
async fn a_queue_that_shows_nothing_where_something_is_is_rejected() {
    fails(Lie::MakesNothingUp, queue_survey::found).await;
    fails(Lie::MakesNothingUp, queue_survey::honest).await;
}
