//! Checks that a [`QueueSurvey`] keeps its promises, each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::queue_survey_suite!(MyBuilder::new()); // one test for each promise
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`. Build the transport with short leases, of a few seconds.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{Broken, Checked, Kept, Report, report::run, samples, transport::line::Line, wait::eventually};
use crate::{
    ids::MessageId,
    ports::{Answer, Count, Queue, QueueSurvey, QueuedMessage, Settlement, Transport},
};

const COUNTED: &str = "queue survey 1, counted";
const FOUND: &str = "queue survey 2, found";
const READ_ONLY: &str = "queue survey 3, read only";
const HONEST: &str = "queue survey 4, honest";

/// More than any check sends.
const ALL: u64 = 1_000;

/// Opens the transport under test.
#[async_trait]
pub trait Builder: fmt::Debug + Send + Sync {
    /// Another connection to the same broker, with what it shows.
    async fn surveyed(&self) -> Surveyed;
}

/// One transport.
#[derive(Debug, Clone)]
pub struct Surveyed {
    /// What is checked.
    pub survey: Arc<dyn QueueSurvey>,
    /// What it shows.
    pub transport: Arc<dyn Transport>,
}

impl Surveyed {
    /// One that is both.
    pub fn of<T: Transport + QueueSurvey + 'static>(transport: &Arc<T>) -> Self {
        Self { survey: transport.clone(), transport: transport.clone() }
    }
}

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::queue_survey_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::queue_survey_suite!(@run [builder first_broken])
}

/// One test for each promise of [`QueueSurvey`], named as the promise. The argument is an expression for a [`Builder`], made anew in each
/// test; the crate needs tokio with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! queue_survey_suite {
    (@run [$($args:tt)*]) => { $crate::queue_survey_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        $($each)*! {
            [$($args)*]
            COUNTED counted
            FOUND found
            READ_ONLY read_only
            HONEST honest
        }
    };
    ($builder:expr) => { $crate::queue_survey_suite!(@each [$crate::suite_tests] [queue_survey $builder]); };
}

/// An endpoint that has connected, and who looks at its queue.
struct Hand {
    line: Line,
    survey: Arc<dyn QueueSurvey>,
}

impl Hand {
    async fn new(builder: &dyn Builder, promise: &'static str) -> Result<Self, Broken> {
        let Surveyed { survey, transport } = builder.surveyed().await;
        Ok(Self { line: Line::on(transport, promise, &samples::endpoint(), &[]).await?, survey })
    }

    async fn queue(&self, limit: u64) -> Result<Queue, Broken> {
        let queue = self.survey.queue(&self.line.endpoint, limit).await;
        queue.map_err(|e| Broken::failed(self.line.promise, "counting messages", &e))
    }

    async fn queued(&self, id: &MessageId) -> Result<Answer<Vec<QueuedMessage>>, Broken> {
        let queued = self.survey.queued(&self.line.endpoint, id, ALL).await;
        queued.map_err(|e| Broken::failed(self.line.promise, "looking for a message", &e))
    }

    /// Sooner or later: brokers tell what was a moment ago.
    async fn counts(&self, number: u64, when: &str) -> Result<(), Broken> {
        let never = || self.line.broken(format!("{when}, {number} messages are never told"));
        let look = async || {
            let told = self.queue(ALL).await?.messages;
            Ok((told.number == number || told.at_least && told.number < number).then_some(()))
        };
        eventually(never, look).await
    }
}

/// Promise 1. *Counted:* what waits and what is under a lease is counted, of this endpoint alone, and not what was acknowledged.
pub async fn counted(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, COUNTED).await?;
    let other = Hand::new(builder, COUNTED).await?;
    hand.counts(0, "of an endpoint to which nothing was sent").await?;
    for body in ["a", "b", "c"] {
        hand.line.send_here(body).await?;
    }
    other.line.send_here("elsewhere").await?;
    hand.counts(3, "of three that were sent").await?;
    other.counts(1, "of one that was sent").await?;
    let Count { number, at_least } = hand.queue(1).await?.messages;
    if (number, at_least) != (1, true) && number != 3 {
        return Err(hand
            .line
            .broken(format!("up to one of three is told as {number}, and whether there are more: {at_least}")));
    }
    let delivery = hand.line.next("of three").await?;
    hand.counts(3, "while one of three is being handled").await?;
    if let Answer::Is(leased) = hand.queue(ALL).await?.leased
        && leased != Count::exactly(1)
    {
        return Err(hand.line.broken(format!("one of three is under a lease, {leased} is told")));
    }
    hand.line.end(&delivery, Settlement::Ack).await?;
    hand.counts(2, "when one of three is acknowledged").await?;
    Ok(Kept::Shown)
}

/// Promise 2. *Found:* each copy of the message that is in this queue is shown, with whether somebody has it, and no other message.
pub async fn found(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, FOUND).await?;
    let (message, other) = (hand.line.send_here("a").await?, Hand::new(builder, FOUND).await?);
    let elsewhere = other.line.send_here("elsewhere").await?.message_id;
    let Answer::Is(copies) = hand.queued(&message.message_id).await? else {
        return Ok(Kept::NotClaimed("the broker shows no single messages"));
    };
    let show = |copies: &[QueuedMessage]| copies.iter().map(|one| (one.attempts, one.leased)).collect::<Vec<_>>();
    let wrong = |when: &str, copies: &[QueuedMessage]| {
        Err(hand.line.broken(format!("{when}, a message is shown as {copies:?}")))
    };
    if show(&copies) != [(0, false)] {
        return wrong("before it was given", &copies);
    }
    for strange in [elsewhere, MessageId::random()] {
        if hand.queued(&strange).await?.is().is_none_or(|copies| !copies.is_empty()) {
            return Err(hand.line.broken("a message that is not in the queue is shown there"));
        }
    }
    let delivery = hand.line.next("that was sent").await?;
    let Answer::Is(copies) = hand.queued(&message.message_id).await? else {
        return Err(hand.line.broken("a message is shown before it is given, and not after"));
    };
    if show(&copies) != [(1, hand.line.capabilities.lease.is_some())] {
        return wrong("while it is being handled", &copies);
    }
    hand.line.end(&delivery, Settlement::Ack).await?;
    match hand.queued(&message.message_id).await? {
        Answer::Is(copies) if copies.is_empty() => Ok(Kept::Shown),
        copies => Err(hand.line.broken(format!("once it is acknowledged, a message is shown as {copies:?}"))),
    }
}

/// Promise 3. *Read only:* nothing is given by a look, and no lease begins or ends.
pub async fn read_only(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, READ_ONLY).await?;
    let message = hand.line.send_here("a").await?;
    let look = async || Ok::<_, Broken>((hand.queue(ALL).await?, hand.queued(&message.message_id).await?));
    look().await?;
    let delivery = hand.line.next("that was looked at").await?;
    if delivery.attempts != 1 {
        return Err(hand.line.broken(format!("what was only looked at is given for the {}. time", delivery.attempts)));
    }
    look().await?;
    hand.line.end(&delivery, Settlement::Ack).await?;
    look().await?;
    Ok(Kept::Shown)
}

/// Promise 4. *Honest:* what the transport cannot tell is said with the reason.
pub async fn honest(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, HONEST).await?;
    let message = hand.line.send_here("a").await?;
    let (queue, queued) = (hand.queue(ALL).await?, hand.queued(&message.message_id).await?);
    let whys = [why(&queue.leased), why(&queued)];
    if whys.into_iter().flatten().any(|why| why.trim().len() < "why".len()) {
        return Err(hand.line.broken("something is not known, and why is not said"));
    }
    if queued.is().is_some_and(Vec::is_empty) {
        return Err(hand.line.broken("a message that waits is told as if it were not there"));
    }
    Ok(Kept::Shown)
}

fn why<T>(answer: &Answer<T>) -> Option<&str> {
    match answer {
        Answer::Is(_) => None,
        Answer::Unknown { why } => Some(why),
    }
}
