//! Checks that a [`Schedule`] keeps its promises, each by a function of the promise's name.
//!
//! ```ignore
//! hapax_core::schedule_suite!(MyBuilder::new()); // one test for each promise
//! ```
//!
//! or, in a test of your own, [`check_all`]`(&builder).await.assert()`. It takes some seconds, for it waits for due times and leases.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use super::{
    Broken, Checked, Kept, Report,
    report::run,
    samples,
    wait::{SideBySide, eventually, insistently, together},
};
use crate::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId},
    ports::{Due, Next, Receipt, Schedule, Take},
    time::Timestamp,
};

const KEPT_WHOLE: &str = "schedule 1, kept whole";
const ONCE_PER_MESSAGE: &str = "schedule 2, once per message";
const NOT_EARLY: &str = "schedule 3, not early";
const HIDDEN_UNDER_A_LEASE: &str = "schedule 4, hidden under a lease";
const DONE_ALONE: &str = "schedule 5, done alone";
const CANCELLED: &str = "schedule 6, cancelled";
const TOLD_WHEN: &str = "schedule 7, told when";

/// A lease that ends while the suite waits; long beside what a busy machine takes between two steps.
const LEASE: Duration = Duration::from_millis(600);
/// A lease that does not end in the suite.
const LONG: Duration = Duration::from_secs(300);
/// What a clock may be behind, a timer ahead or a time rounded.
const TOLERANCE: Duration = Duration::from_millis(50);
/// More than any check puts.
const ALL: usize = 100;

/// Opens the schedule under test.
#[async_trait]
pub trait Builder: fmt::Debug + Send + Sync {
    /// Another handle onto the same schedule, as another process would open it.
    async fn schedule(&self) -> Arc<dyn Schedule>;
}

/// Checks every promise.
pub async fn check_all(builder: &dyn Builder) -> Report {
    crate::schedule_suite!(@run [builder all])
}

/// Checks the promises one by one and ends at the first that is broken: for tests that a suite has teeth.
pub async fn first_broken(builder: &dyn Builder) -> Option<Broken> {
    crate::schedule_suite!(@run [builder first_broken])
}

/// One test for each promise of [`Schedule`], named as the promise. The argument is an expression for a [`Builder`], made anew in
/// each test; the crate needs tokio with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! schedule_suite {
    (@run [$($args:tt)*]) => { $crate::schedule_suite!(@each [run] [$($args)*]) };
    (@each [$($each:tt)*] [$($args:tt)*]) => {
        $($each)*! {
            [$($args)*]
            KEPT_WHOLE kept_whole
            ONCE_PER_MESSAGE once_per_message
            NOT_EARLY not_early
            HIDDEN_UNDER_A_LEASE hidden_under_a_lease
            DONE_ALONE done_alone
            CANCELLED cancelled
            TOLD_WHEN told_when
        }
    };
    ($builder:expr) => { $crate::schedule_suite!(@each [$crate::suite_tests] [schedule $builder]); };
}

/// One handle, an endpoint, and the promise that is being checked with them.
#[derive(Clone)]
struct Hand {
    schedule: Arc<dyn Schedule>,
    endpoint: EndpointName,
    promise: &'static str,
}

impl Hand {
    async fn new(builder: &dyn Builder, promise: &'static str) -> Self {
        Self { schedule: builder.schedule().await, endpoint: samples::endpoint(), promise }
    }

    /// Another process of the same endpoint.
    async fn again(&self, builder: &dyn Builder) -> Self {
        Self { schedule: builder.schedule().await, ..self.clone() }
    }

    fn broken(&self, what: impl Into<String>) -> Broken {
        Broken::new(self.promise, what)
    }

    async fn put(&self, messages: &[Outgoing]) -> Result<(), Broken> {
        let put = || self.schedule.put(&self.endpoint, messages);
        insistently(self.promise, "putting messages", put).await
    }

    async fn cancel(&self, ids: &[&MessageId]) -> Result<usize, Broken> {
        let ids: Vec<MessageId> = ids.iter().map(|id| (*id).clone()).collect();
        let cancel = || self.schedule.cancel(&self.endpoint, &ids);
        insistently(self.promise, "cancelling messages", cancel).await
    }

    async fn take(&self, within: Duration, max: usize, lease: Duration) -> Result<Vec<Due>, Broken> {
        self.take_as(Take { within, max, bytes_max: usize::MAX, lease }).await
    }

    async fn take_as(&self, take: Take) -> Result<Vec<Due>, Broken> {
        let take_due = || self.schedule.take_due(&self.endpoint, take);
        let taken = insistently(self.promise, "taking what is due", take_due).await?;
        if taken.len() > take.max {
            return Err(self.broken(format!("{} messages are given where {} were asked for", taken.len(), take.max)));
        }
        Ok(taken)
    }

    /// Whatever the schedule holds and nobody has been given.
    async fn take_all(&self, lease: Duration) -> Result<Vec<Due>, Broken> {
        self.take(Duration::MAX, ALL, lease).await
    }

    async fn done(&self, taken: &[&Due]) -> Result<(), Broken> {
        let receipts: Vec<Receipt> = taken.iter().map(|due| due.receipt.clone()).collect();
        let done = || self.schedule.done(&self.endpoint, &receipts);
        insistently(self.promise, "telling what is done", done).await
    }

    async fn next(&self) -> Result<Option<Next>, Broken> {
        insistently(self.promise, "asking for the next", || self.schedule.next(&self.endpoint)).await
    }

    /// The only message there is, once its lease has ended.
    async fn taken_again(&self, why: &str, lease: Duration) -> Result<Due, Broken> {
        let never = || self.broken(format!("a message is never given again, {why}"));
        eventually(never, || async { Ok(self.take_all(lease).await?.pop()) }).await
    }

    /// These are given now, in this order.
    fn expect(&self, taken: &[Due], messages: &[&Outgoing], why: &str) -> Result<(), Broken> {
        if taken.iter().map(|due| &due.outgoing).eq(messages.iter().copied()) {
            return Ok(());
        }
        let taken: Vec<&Outgoing> = taken.iter().map(|due| &due.outgoing).collect();
        Err(self.broken(format!("{why}: {messages:+?} were to be given, {taken:+?} are")))
    }
}

/// A message that is due so long after now.
fn due_in(wait: Duration) -> Outgoing {
    let envelope = Envelope { due: Some(Timestamp::now().after(wait)), ..samples::envelope("due") };
    samples::outgoing(&samples::endpoint(), envelope)
}

/// A message that has been due for so long.
fn due_since(millis: u64) -> Outgoing {
    let due = Timestamp::from_millis(Timestamp::now().as_millis() - millis);
    samples::outgoing(&samples::endpoint(), Envelope { due: Some(due), ..samples::envelope("due") })
}

/// Promise 1. *Kept whole:* once `put` has returned, the message is given once it is due, with its destination, id, headers and
/// body as they were put; one without a due time at once; to the endpoint that put it and to no other.
pub async fn kept_whole(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, KEPT_WHOLE).await;
    let full = samples::full_envelope(&samples::message_type());
    let topic = Outgoing { destination: Destination::Topic(samples::message_type()), envelope: Arc::new(full) };
    let to_endpoint = due_since(5_000);
    let plain = samples::outgoing(&hand.endpoint, samples::envelope(""));
    hand.put(&[plain.clone(), to_endpoint.clone(), topic.clone()]).await?;
    hand.put(&[]).await?;
    let other = Hand { endpoint: samples::endpoint(), ..hand.again(builder).await };
    other.expect(&other.take_all(LONG).await?, &[], "another endpoint has put nothing")?;
    let again = hand.again(builder).await;
    again.expect(&again.take(Duration::ZERO, ALL, LONG).await?, &[&topic, &to_endpoint, &plain], "all are due")?;
    Ok(Kept::Shown)
}

/// Promise 2. *Once per message:* putting a message of which there is one already (same endpoint, message id and destination)
/// is success and changes nothing, not even the due time.
pub async fn once_per_message(builder: &dyn Builder) -> Checked {
    const TIMES: u64 = 4;
    let hand = Hand::new(builder, ONCE_PER_MESSAGE).await;
    let message = due_in(LONG);
    hand.put(&[message.clone(), message.clone()]).await?;
    let mut checks = SideBySide::default();
    for time in 0..TIMES {
        let (hand, mut envelope) = (hand.again(builder).await, (*message.envelope).clone());
        envelope.due = Some(Timestamp::from_millis(time));
        let again = Outgoing { envelope: Arc::new(envelope), ..message.clone() };
        checks.add(async move { hand.put(&[again]).await });
    }
    checks.end().await?;
    hand.expect(&hand.take(Duration::ZERO, ALL, LEASE).await?, &[], "its due time was to stay as it was put first")?;
    let elsewhere = Outgoing { destination: Destination::Topic(samples::message_type()), ..message.clone() };
    let of_another = Hand { endpoint: samples::endpoint(), ..hand.again(builder).await };
    hand.put(std::slice::from_ref(&elsewhere)).await?;
    of_another.put(std::slice::from_ref(&message)).await?;
    let taken = hand.take_all(LONG).await?;
    let of_message = taken.iter().filter(|due| due.outgoing == message).count();
    if of_message != 1 || taken.len() != 2 || !taken.iter().any(|due| due.outgoing == elsewhere) {
        return Err(hand.broken(format!("{message:+?} and {elsewhere:+?} were to be given, each once; {taken:+?} are")));
    }
    // While somebody has it, too.
    hand.put(std::slice::from_ref(&message)).await?;
    hand.expect(&hand.take_all(LONG).await?, &[], "a message that is put again while it is given")?;
    of_another.expect(&of_another.take_all(LONG).await?, &[&message], "another endpoint has put it too")?;
    Ok(Kept::Shown)
}

/// Promise 3. *Not early:* a message is not given earlier than `within` before its due time, by the schedule's own clock; the
/// earliest first, and at a time `max` at most, of `bytes_max` together unless the first alone has more.
pub async fn not_early(builder: &dyn Builder) -> Checked {
    const WAIT: Duration = Duration::from_millis(700);
    let hand = Hand::new(builder, NOT_EARLY).await;
    let (late, later, soon) = (due_since(2_000), due_since(1_000), due_in(WAIT));
    let far = due_in(LONG);
    hand.put(&[far.clone(), soon.clone(), later.clone(), late.clone()]).await?;
    hand.expect(&hand.take(Duration::ZERO, 1, LONG).await?, &[&late], "the earliest comes first")?;
    hand.expect(&hand.take(Duration::ZERO, ALL, LONG).await?, &[&later], "one more is due")?;
    let due = soon.envelope.due.unwrap_or(Timestamp::MAX);
    let never = || hand.broken("a message that is due is not given");
    let came = eventually(never, || async { Ok(hand.take(Duration::ZERO, ALL, LONG).await?.pop()) }).await?;
    let now = Timestamp::now();
    if came.outgoing != soon || now.after(TOLERANCE) < due {
        return Err(hand.broken(format!("{soon:+?} was to be given at {due}, {came:+?} is given at {now}")));
    }
    hand.expect(&hand.take(LONG / 2, ALL, LONG).await?, &[], "nothing more is due within half of the time")?;
    hand.expect(&hand.take(LONG * 2, ALL, LONG).await?, &[&far], "the last is due within twice the time")?;
    not_more_bytes(&Hand { endpoint: samples::endpoint(), ..hand }).await?;
    Ok(Kept::Shown)
}

/// As many as the bytes are that are asked for.
async fn not_more_bytes(hand: &Hand) -> Result<(), Broken> {
    const BYTES: usize = 10_000;
    let large = |millis| {
        let small = due_since(millis);
        Outgoing {
            envelope: Arc::new(Envelope { body: vec![b'x'; BYTES].into(), ..(*small.envelope).clone() }),
            ..small
        }
    };
    let messages = [4_000, 3_000, 2_000, 1_000].map(large);
    hand.put(&messages).await?;
    for (bytes_max, given, why) in [
        (BYTES * 5 / 2, &messages[..2], "two of the same size are within two and a half times that size"),
        (1, &messages[2..3], "one message is given however large it is"),
        (usize::MAX, &messages[3..], "one is left"),
    ] {
        let taken = hand.take_as(Take { within: Duration::ZERO, max: ALL, bytes_max, lease: LONG }).await?;
        hand.expect(&taken, &given.iter().collect::<Vec<_>>(), why)?;
    }
    Ok(())
}

/// Promise 4. *Hidden under a lease:* while a lease lasts, the message is not given to others. When it has ended, it is given
/// again.
pub async fn hidden_under_a_lease(builder: &dyn Builder) -> Checked {
    const MESSAGES: usize = 20;
    const TAKERS: usize = 4;
    let hand = Hand::new(builder, HIDDEN_UNDER_A_LEASE).await;
    let messages: Vec<Outgoing> = (0..MESSAGES as u64).map(due_since).collect();
    hand.put(&messages).await?;
    let mut takers = Vec::new();
    for _ in 0..TAKERS {
        let hand = hand.again(builder).await;
        takers.push(async move {
            let mut taken = Vec::new();
            for _ in 0..MESSAGES {
                taken.extend(hand.take_all(LONG).await?);
            }
            Ok(taken)
        });
    }
    let taken: Vec<Due> = together(takers).await?.into_iter().flatten().collect();
    for message in &messages {
        let times = taken.iter().filter(|due| due.outgoing == *message).count();
        if times != 1 {
            return Err(hand.broken(format!("{TAKERS} take what is due, a message is given {times} times")));
        }
    }
    let hand = Hand::new(builder, HIDDEN_UNDER_A_LEASE).await;
    let message = due_since(0);
    hand.put(std::slice::from_ref(&message)).await?;
    let begun = Instant::now();
    hand.expect(&hand.take_all(LEASE).await?, &[&message], "it is due")?;
    let other = hand.again(builder).await;
    let again = other.taken_again("although its lease has ended", LONG).await?;
    if begun.elapsed() + TOLERANCE < LEASE {
        return Err(
            hand.broken(format!("a message with a lease of {LEASE:?} is given again after {:?}", begun.elapsed()))
        );
    }
    hand.expect(&[again], &[&message], "it is given again as it was put")?;
    Ok(Kept::Shown)
}

/// Promise 5. *Done alone:* `done` removes what its receipts stand for and nothing else. A receipt whose message somebody else has
/// been given since is lost, and changes nothing.
pub async fn done_alone(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, DONE_ALONE).await;
    let messages: Vec<Outgoing> = (0..3).map(|back| due_since(3_000 - back * 1_000)).collect();
    hand.put(&messages).await?;
    let taken = hand.take_all(LEASE).await?;
    hand.expect(&taken, &messages.iter().collect::<Vec<_>>(), "all are due")?;
    hand.done(&[&taken[0], &taken[2]]).await?;
    hand.done(&[&taken[0]]).await?;
    hand.done(&[]).await?;
    let other = hand.again(builder).await;
    let current = other.taken_again("when its neighbours are done", LEASE).await?;
    other.expect(std::slice::from_ref(&current), &[&messages[1]], "the one that is not done")?;

    hand.done(&[&taken[1]]).await?;
    let current = other.taken_again("after a receipt that was lost", LEASE).await?;
    other.done(&[&current]).await?;
    sleep(LEASE + TOLERANCE).await;
    hand.expect(&hand.take_all(LONG).await?, &[], "all are done")?;
    // What is put anew is another one.
    hand.put(&messages[1..2]).await?;
    hand.done(&[&current, &taken[1]]).await?;
    hand.expect(&hand.take_all(LONG).await?, &[&messages[1]], "put again after it was done")?;
    Ok(Kept::Shown)
}

/// Promise 6. *Cancelled:* once `cancel` has returned, the messages are given to nobody any more, and all others still are. It
/// tells how many were there. Cancelled ones can be put again. What was given before may still be sent.
pub async fn cancelled(builder: &dyn Builder) -> Checked {
    let hand = Hand::new(builder, CANCELLED).await;
    let other = Hand { endpoint: samples::endpoint(), ..hand.again(builder).await };
    let [first, second, third, given] = [4_000, 3_000, 2_000, 1_000].map(due_since);
    let elsewhere = Outgoing { destination: Destination::Topic(samples::message_type()), ..first.clone() };
    hand.put(std::slice::from_ref(&given)).await?;
    let taken = hand.take_all(LEASE).await?;
    hand.put(&[first.clone(), elsewhere.clone(), second.clone(), third.clone()]).await?;
    other.put(std::slice::from_ref(&first)).await?;
    let [id, second_id, given_id] = [&first, &second, &given].map(|message| &message.envelope.message_id);
    let unknown = MessageId::random();
    for (ids, there) in [(vec![id, &unknown], 2), (vec![id], 0), (vec![], 0), (vec![given_id, second_id], 2)] {
        let told = hand.again(builder).await.cancel(&ids).await?;
        if told != there {
            return Err(hand.broken(format!("{told} messages are told to be cancelled, {there} of them were there")));
        }
    }
    hand.expect(&hand.take_all(LONG).await?, &[&third], "one is not cancelled")?;
    other.expect(&other.take_all(LONG).await?, &[&first], "another endpoint has cancelled nothing")?;
    sleep(LEASE + TOLERANCE).await;
    hand.expect(&hand.take_all(LONG).await?, &[], "a lease of what is cancelled has ended")?;
    hand.put(&[first.clone(), given.clone()]).await?;
    hand.done(&taken.iter().collect::<Vec<_>>()).await?;
    hand.expect(&hand.take_all(LONG).await?, &[&first, &given], "put again after they were cancelled")?;
    Ok(Kept::Shown)
}

/// Promise 7. *Told when:* `next` tells when the earliest message becomes due, or for how long it has been, given to somebody or not.
pub async fn told_when(builder: &dyn Builder) -> Checked {
    /// What the check itself may take.
    const SLACK: Duration = Duration::from_secs(30);
    let hand = Hand::new(builder, TOLD_WHEN).await;
    let told_otherwise = |next: Option<Next>, why: &str| Err(hand.broken(format!("{next:?} is told, where {why}")));
    match hand.next().await? {
        None => {}
        next => return told_otherwise(next, "there is nothing"),
    }
    hand.put(&[due_in(LONG * 2), due_in(LONG)]).await?;
    match hand.again(builder).await.next().await? {
        Some(Next::In(wait)) if wait <= LONG + TOLERANCE && wait + SLACK >= LONG => {}
        next => return told_otherwise(next, "the earliest is due in five minutes"),
    }
    hand.put(&[due_since(60_000)]).await?;
    for why in ["one has been due for a minute", "one has been due for a minute and is given to somebody"] {
        match hand.next().await? {
            Some(Next::Overdue(late)) if late + TOLERANCE >= Duration::from_secs(60) && late < LONG => {}
            next => return told_otherwise(next, why),
        }
        hand.take(Duration::ZERO, ALL, LONG).await?;
    }
    Ok(Kept::Shown)
}
