//! Promises of the marks that show that no copy is left.

use std::time::Duration;

use super::{
    ANY_PROCESS, BEHIND_ALL, Builder, Checked, GONE_FOR_GOOD, IN_THE_END, Kept,
    line::{Line, QUIET, bodies},
};
use crate::{
    envelope::Envelope,
    ids::PartitionKey,
    ports::{Mark, Marks, Settlement},
    testing::{Broken, samples, wait::eventually},
    time::Timestamp,
};

const NOT_CLAIMED: Kept = Kept::NotClaimed("the transport does not show when messages are gone");
/// For how long a message is held back or put off, where it has to be seen that it is.
const WAIT: Duration = Duration::from_millis(300);

/// What a connection knows of marks.
impl Line {
    /// Whether there is anything to check.
    fn has_marks(&self) -> Result<bool, Broken> {
        match (self.capabilities.marks, self.ends.marks.is_some()) {
            (true, false) => Err(self.broken("the transport says that it has marks, and gives none")),
            (false, true) => Err(self.broken("the transport gives marks, and does not say that it has them")),
            (has, _) => Ok(has),
        }
    }

    fn marks(&self) -> Result<&dyn Marks, Broken> {
        self.ends.marks.as_deref().ok_or_else(|| self.broken("another connection has no marks"))
    }

    /// As another process would be told of it: nothing but its numbers.
    async fn mark(&self) -> Result<Mark, Broken> {
        let mark = self.marks()?.end().await.map_err(|e| Broken::failed(self.promise, "asking for a mark", &e))?;
        Ok(Mark::new(mark.places().to_vec()))
    }

    async fn has_passed(&self, mark: &Mark) -> Result<bool, Broken> {
        let passed = self.marks()?.passed(mark).await;
        passed.map_err(|e| Broken::failed(self.promise, "asking whether a mark has passed", &e))
    }

    async fn expect_left(&self, mark: &Mark, what: &str) -> Result<(), Broken> {
        match self.has_passed(mark).await? {
            true => Err(self.broken(format!("a mark is said to have passed, and in front of it is a message {what}"))),
            false => Ok(()),
        }
    }

    /// That a mark of now is behind what is in the queue.
    async fn expect_in_front(&self, what: &str) -> Result<(), Broken> {
        let mark = self.mark().await?;
        self.expect_left(&mark, what).await
    }

    async fn expect_passed(&self, mark: &Mark, why: &str) -> Result<(), Broken> {
        // Where something else is to be shown, nothing can be without it.
        let promise = if self.promise == GONE_FOR_GOOD { IN_THE_END } else { self.promise };
        let never = || Broken::new(promise, format!("a mark never passes {why}"));
        eventually(never, || async { Ok(self.has_passed(mark).await?.then_some(())) }).await
    }

    /// A message that is not due for a while, where the transport holds it back.
    async fn send_later(&self) -> Result<bool, Broken> {
        let holds = self.capabilities.delays.hold(WAIT);
        if holds {
            let due = Some(Timestamp::now().after(WAIT));
            let later = Envelope { due, ..samples::envelope("later") };
            self.send(&[samples::outgoing(&self.endpoint, later)]).await?;
        }
        Ok(holds)
    }

    /// Messages of one key.
    async fn send_keyed(&self, bodies: &[String]) -> Result<(), Broken> {
        let key = PartitionKey::parse("partition").expect("a valid key");
        let keyed = |body: &String| Envelope { partition_key: Some(key.clone()), ..samples::envelope(body.clone()) };
        let outgoing: Vec<_> = bodies.iter().map(|body| samples::outgoing(&self.endpoint, keyed(body))).collect();
        self.send(&outgoing).await
    }
}

/// Promise 1. *Behind all:* every copy that was in the queue before a call of [`end`](crate::ports::Marks::end) began (given, waiting,
/// or not due yet) is in front of the mark.
///
/// Of a message in each state that it can be in, a mark that was made then has not passed.
pub async fn behind_all(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, BEHIND_ALL).await?;
    if !line.has_marks()? {
        return Ok(NOT_CLAIMED);
    }
    line.send_here("waits").await?;
    line.expect_in_front("that waits").await?;
    let given = line.next("that was confirmed").await?;
    line.expect_in_front("that is given").await?;
    line.end(&given, Settlement::Retry { delay: WAIT, counts: true }).await?;
    line.expect_in_front("that is put off").await?;
    let mut given = line.next("again, although it was put off").await?;
    line.expect_in_front("that is given again").await?;
    let line = if line.lease_is_too_long() {
        line
    } else {
        let line = line.lose_leases(builder).await?;
        line.expect_in_front("whose lease was lost").await?;
        given = line.next("again, after its lease was lost").await?;
        line
    };
    line.end(&given, Settlement::Ack).await?;
    if line.send_later().await? {
        line.expect_in_front("that is not due yet").await?;
        let given = line.next("although it is due").await?;
        line.end(&given, Settlement::Ack).await?;
    }
    line.send_keyed(&bodies(2)).await?;
    let first = line.next("of its key").await?;
    line.expect_in_front("that is given, of a key").await?;
    line.end(&first, Settlement::Ack).await?;
    line.expect_in_front("that waits behind one of its key").await?;
    Ok(Kept::Shown)
}

/// Promise 2. *Gone for good:* once [`passed`](crate::ports::Marks::passed) has said yes, no copy in front of the mark is given again, to
/// anybody, ever, unless a person rewinds the queue.
///
/// Whatever becomes of messages that are not settled for good, a mark behind them does not pass; once it has, nothing comes.
pub async fn gone_for_good(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, GONE_FOR_GOOD).await?;
    if !line.has_marks()? {
        return Ok(NOT_CLAIMED);
    }
    line.send_here("gone").await?;
    let mark = line.mark().await?;
    let given = line.next("that was confirmed").await?;
    line.expect_left(&mark, "that is given").await?;
    line.end(&given, Settlement::Retry { delay: Duration::ZERO, counts: true }).await?;
    line.expect_left(&mark, "that is to be retried").await?;
    let given = line.next("again, although it was to be retried").await?;
    line.end(&given, Settlement::Retry { delay: WAIT, counts: false }).await?;
    line.expect_left(&mark, "that is put off").await?;
    let mut given = line.next("again, although it was put off").await?;
    let line = if line.lease_is_too_long() {
        line
    } else {
        let line = line.lose_leases(builder).await?;
        line.expect_left(&mark, "whose lease was lost").await?;
        given = line.next("again, after its lease was lost").await?;
        line
    };
    line.end(&given, Settlement::Ack).await?;
    if line.send_later().await? {
        let mark = line.mark().await?;
        line.expect_left(&mark, "that is not due yet").await?;
        let given = line.next("although it is due").await?;
        line.expect_left(&mark, "that is given now that it is due").await?;
        line.end(&given, Settlement::Ack).await?;
    }
    line.expect_passed(&mark, "although the message in front of it was acknowledged").await?;
    let line = line.lose_leases(builder).await?;
    line.expect_none(QUIET, "in front of a mark that has passed").await?;
    for left in [0, MANY / 2, MANY - 1] {
        one_of_many(builder, left).await?;
    }
    Ok(Kept::Shown)
}

const MANY: usize = 7;

/// All are settled but one, which holds the mark; it comes again when its receiver is gone, and then what has passed is gone.
async fn one_of_many(builder: &dyn Builder, left: usize) -> Result<(), Broken> {
    let line = Line::new(builder, GONE_FOR_GOOD).await?;
    let all = bodies(MANY);
    for body in &all {
        line.send_here(body).await?;
    }
    let mark = line.mark().await?;
    let mut held = None;
    for place in 0..MANY {
        let delivery = line.next("that was confirmed").await?;
        match place == left {
            true => held = Some(delivery),
            false => line.end(&delivery, Settlement::Ack).await?,
        }
        line.expect_left(&mark, "that is not settled, among others that are").await?;
    }
    let Some(held) = held.filter(|_| line.lease_is_too_long()) else {
        let line = line.lose_leases(builder).await?;
        let never = || Broken::new(IN_THE_END, "a mark never passes although all that comes is acknowledged");
        let look = || async {
            for delivery in line.receive(1, QUIET).await? {
                line.end(&delivery, Settlement::Ack).await?;
            }
            Ok(line.has_passed(&mark).await?.then_some(()))
        };
        eventually(never, look).await?;
        return line.expect_none(QUIET, "in front of a mark that has passed").await;
    };
    line.end(&held, Settlement::Ack).await?;
    line.expect_passed(&mark, "although all in front of it is acknowledged").await
}

/// Promise 3. *In the end:* when every copy in front of the mark has been settled for good, [`passed`](crate::ports::Marks::passed) says yes
/// sooner or later, whatever comes behind.
///
/// Acknowledged and set aside alike; though what comes behind it waits, is given, or is not due.
pub async fn in_the_end(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, IN_THE_END).await?;
    if !line.has_marks()? {
        return Ok(NOT_CLAIMED);
    }
    let mark = line.mark().await?;
    line.send_here("behind").await?;
    line.expect_passed(&mark, "although the queue was empty").await?;

    let line = Line::new(builder, IN_THE_END).await?;
    line.send_here("front").await?;
    let mark = line.mark().await?;
    let given = line.next("that was confirmed").await?;
    line.end(&given, Settlement::Ack).await?;
    line.send_here("behind").await?;
    line.expect_passed(&mark, "where a message comes once all in front of it is gone").await?;

    let line = Line::new(builder, IN_THE_END).await?;
    let (front, behind) = (bodies(MANY), bodies(MANY));
    for body in &front {
        line.send_here(body).await?;
    }
    let mark = line.mark().await?;
    for body in &behind {
        line.send_here(body).await?;
    }
    line.send_later().await?;
    let mut open: Vec<&[u8]> = front.iter().map(String::as_bytes).collect();
    while !open.is_empty() {
        let delivery = line.next("that was confirmed").await?;
        let Some(place) = open.iter().position(|body| *body == delivery.envelope.body) else { continue };
        open.swap_remove(place);
        let aside = open.len().is_multiple_of(2);
        let settlement = if aside { Settlement::DeadLetter { reason: "for a test".into() } } else { Settlement::Ack };
        line.end(&delivery, settlement).await?;
    }
    line.expect_passed(&mark, "although all in front of it is settled, because of what is behind").await?;
    Ok(Kept::Shown)
}

/// Promise 4. *Any process:* a mark holds for every process that receives from the queue, and after a restart.
///
/// Made by one connection, asked of another, of one that came later, and of one after all others have gone.
pub async fn any_process(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, ANY_PROCESS).await?;
    if !line.has_marks()? {
        return Ok(NOT_CLAIMED);
    }
    let other = line.again(builder).await?;
    line.send_here("here").await?;
    let mark = line.mark().await?;
    other.expect_left(&mark, "that waits, says another connection").await?;
    let given = line.next("that was confirmed").await?;
    other.expect_left(&mark, "that is given to another").await?;
    let of_other = other.mark().await?;
    for one in [&line, &other, &line.again(builder).await?] {
        one.expect_left(&of_other, "that was given to another when the mark was made").await?;
    }
    line.end(&given, Settlement::Ack).await?;
    for one in [&line, &other, &line.again(builder).await?] {
        for mark in [&mark, &of_other] {
            one.expect_passed(mark, "for another connection").await?;
        }
    }

    line.send_here("restarted").await?;
    let mark = line.mark().await?;
    let endpoint = line.endpoint.clone();
    drop((line, other));
    let line = Line::of(builder, ANY_PROCESS, &endpoint, &[]).await?;
    line.expect_left(&mark, "that waits, and its receiver has begun anew").await?;
    let given = line.next("after its receiver has begun anew").await?;
    line.end(&given, Settlement::Ack).await?;
    drop(line);
    let line = Line::of(builder, ANY_PROCESS, &endpoint, &[]).await?;
    line.expect_passed(&mark, "after its receiver has begun anew").await?;
    Ok(Kept::Shown)
}
