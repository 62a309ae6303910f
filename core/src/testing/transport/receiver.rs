//! The receiver's promises.

use std::{collections::HashMap, time::Duration};

use futures_util::future::select;
use tokio::time::{Instant, timeout};

use super::{
    Builder, COUNTED, Checked, GIVEN_IN_ORDER, HIDDEN_UNDER_A_LEASE, KEPT_UNTIL_SETTLED, Kept,
    LATE_SETTLES_ARE_REFUSED, NOT_EARLY, RETRY_COMES_BACK,
    line::{Line, QUIET, bodies},
};
use crate::{
    envelope::Envelope,
    ids::PartitionKey,
    ports::{Delays, Page, Settled, Settlement},
    testing::{Broken, samples, wait::eventually},
    time::Timestamp,
};

const LEASE_TOO_LONG: Kept = Kept::NotClaimed("leases last longer than the suite waits");
/// What a clock may be behind or a timer ahead.
const TOLERANCE: Duration = Duration::from_millis(20);

/// Promise 1. *Kept until settled:* a message is given again, to this or another receiver, until it is settled with
/// [`Settlement::Ack`] or [`Settlement::DeadLetter`]; when its lease runs out or its receiver dies, sooner or later.
///
/// After a receive, a lost lease, a receiver that is dropped, and calls to receive that are dropped. Once it is settled, and where the
/// transport keeps [`offsets`](crate::ports::TransportCapabilities::offsets) all before it, it does not come again, and among the transport's dead letters is what was settled as one.
pub async fn kept_until_settled(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, KEPT_UNTIL_SETTLED).await?;
    if line.lease_is_too_long() {
        return Ok(LEASE_TOO_LONG);
    }
    let sent = line.send_here("kept").await?;
    let first = line.next("that was confirmed").await?;
    let line = line.lose_leases(builder).await?;
    let second = line.next("again, after its lease was lost").await?;
    let endpoint = line.endpoint.clone();
    drop(line);
    let line = Line::of(builder, KEPT_UNTIL_SETTLED, &endpoint, &[]).await?;
    let third = line.next("again, after its receiver was dropped").await?;
    if [&first, &second, &third].iter().any(|given| *given.envelope != sent) {
        return Err(line.broken("a message that is given again has changed"));
    }
    line.end(&third, Settlement::Ack).await?;
    let line = line.lose_leases(builder).await?;
    line.expect_none(QUIET, "after it was acknowledged").await?;

    half_settled(builder).await?;
    dropped_calls(builder).await?;
    left_by_another(builder).await?;
    set_aside(builder).await
}

/// Of several messages received at once, those that are not settled come again, and no other unless an offset holds them.
async fn half_settled(builder: &dyn Builder) -> Checked {
    const MESSAGES: usize = 10;
    let line = Line::new(builder, KEPT_UNTIL_SETTLED).await?;
    let all = bodies(MESSAGES);
    for body in &all {
        line.send_here(body).await?;
    }
    let mut left = all.clone();
    for index in 0..MESSAGES {
        let delivery = line.next("that was confirmed").await?;
        if index % 2 == 0 {
            line.end(&delivery, Settlement::Ack).await?;
            left.retain(|body| body.as_bytes() != delivery.envelope.body);
        }
    }
    let line = line.lose_leases(builder).await?;
    while !left.is_empty() {
        let delivery = line.next("again, although it was not settled").await?;
        let before = left.len();
        left.retain(|body| body.as_bytes() != delivery.envelope.body);
        if left.len() == before && !line.capabilities.offsets {
            return Err(line.broken("a message is given again although it was acknowledged"));
        }
        line.end(&delivery, Settlement::Ack).await?;
    }
    Ok(Kept::Shown)
}

/// A call that is dropped loses nothing.
async fn dropped_calls(builder: &dyn Builder) -> Checked {
    const MESSAGES: usize = 20;
    let line = Line::new(builder, KEPT_UNTIL_SETTLED).await?;
    let all = bodies(MESSAGES);
    let sender = line.again(builder).await?;
    for (index, body) in all.iter().enumerate() {
        sender.send_here(body).await?;
        // What it takes, if it is done at once, is not settled either.
        line.receive(2, Duration::from_millis(index as u64 % 3)).await?;
    }
    drop(sender);
    let line = line.lose_leases(builder).await?;
    line.drain(MESSAGES, &all).await?;
    Ok(Kept::Shown)
}

/// Of two that wait, one takes the message and dies; it comes to the other, whose call is as old as that.
async fn left_by_another(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, KEPT_UNTIL_SETTLED).await?;
    if line.lease_is_too_long() {
        return Ok(LEASE_TOO_LONG);
    }
    let sender = line.again(builder).await?;
    let (one, other) = (line.waiting(), sender.again(builder).await?.waiting());
    let mut first = select(one, other);
    if timeout(QUIET, &mut first).await.is_ok() {
        return Err(sender.broken("a message is given that was not sent"));
    }
    let sent = sender.send_here("left").await?;
    let (taken, other) = first.await.factor_first();
    drop(taken?); // With its connection, and without a settle.
    let (line, delivery) = other.await?;
    let Some(delivery) = delivery else {
        return Err(line.broken("one that waited is not given what another took and left"));
    };
    if *delivery.envelope != sent {
        return Err(line.broken("a message that another left has changed"));
    }
    line.end(&delivery, Settlement::Ack).await?;
    Ok(Kept::Shown)
}

async fn set_aside(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, KEPT_UNTIL_SETTLED).await?;
    let sent = line.send_here("set aside").await?;
    let delivery = line.next("that was confirmed").await?;
    line.end(&delivery, Settlement::DeadLetter { reason: "not wanted".into() }).await?;
    let line = line.lose_leases(builder).await?;
    line.expect_none(QUIET, "after it was set aside as a dead letter").await?;
    if let Some(letters) = line.ends.dead_letters.clone() {
        let never = || line.broken("what was set aside is not among the transport's dead letters");
        let look = || async {
            let listed = letters.list(&line.endpoint, &Page::first(10)).await;
            let listed = listed.map_err(|e| Broken::failed(line.promise, "listing dead letters", &e))?;
            let found = listed.iter().any(|l| *l.envelope == sent && l.reason.contains("not wanted"));
            Ok(found.then_some(()))
        };
        eventually(never, look).await?;
    }
    Ok(Kept::Shown)
}

/// Promise 2. *Hidden under a lease:* while a lease lasts, the transport does not hand the message to others; and it
/// lasts as long as it is extended.
pub async fn hidden_under_a_lease(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, HIDDEN_UNDER_A_LEASE).await?;
    let other = line.again(builder).await?;
    line.send_here("hidden").await?;
    let delivery = line.next("that was confirmed").await?;
    let Some(lease) = line.lease() else {
        other.expect_none(QUIET, "to another receiver although its lease lasts").await?;
        line.end(&delivery, Settlement::Ack).await?;
        return Ok(Kept::Shown);
    };
    let until = Instant::now() + lease * 5 / 2;
    while Instant::now() < until {
        other.expect_none(lease / 4, "to another receiver although its lease lasts").await?;
        let extended = line.ends.receiver.extend(std::slice::from_ref(&delivery.receipt)).await;
        extended.map_err(|e| Broken::failed(line.promise, "extending a lease", &e))?;
    }
    line.end(&delivery, Settlement::Ack).await?;
    Ok(Kept::Shown)
}

/// Promise 3. *Late settles are refused:* a settle with a lost lease is [`Settled::LeaseLost`] and changes nothing. Nor
/// does extending bring it back.
pub async fn late_settles_are_refused(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, LATE_SETTLES_ARE_REFUSED).await?;
    if line.capabilities.lease.is_none() {
        return Ok(Kept::NotClaimed("leases last as long as the connection, and so does the right to settle"));
    }
    if line.lease_is_too_long() {
        return Ok(LEASE_TOO_LONG);
    }
    line.send_here("late").await?;
    let late = line.next("that was confirmed").await?;
    let line = line.lose_leases(builder).await?;
    expect_late(&line, &late, "with a lease that ran out").await?;

    let other = line.again(builder).await?;
    let current = other.next("again, after a settle that was late").await?;
    drop(line.ends.receiver.extend(std::slice::from_ref(&late.receipt)).await); // It may say so, or do nothing.
    expect_late(&line, &late, "with a lease that another has now").await?;
    if other.settle(&current, Settlement::Ack).await? != Settled::Done {
        return Err(line.broken("a settle with a lost lease has ended the lease that another has now"));
    }
    Ok(Kept::Shown)
}

async fn expect_late(line: &Line, late: &crate::ports::Delivery, how: &str) -> Result<(), Broken> {
    let settlements = [
        Settlement::Ack,
        Settlement::Retry { delay: Duration::ZERO, counts: true },
        Settlement::DeadLetter { reason: "".into() },
    ];
    for settlement in settlements {
        if line.settle(late, settlement.clone()).await? != Settled::LeaseLost {
            return Err(line.broken(format!("{settlement:?} {how} was taken")));
        }
    }
    Ok(())
}

/// Promise 4. *Retry comes back:* a message settled with [`Settlement::Retry`] is given again, not before its delay.
pub async fn retry_comes_back(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, RETRY_COMES_BACK).await?;
    let sent = line.send_here("again").await?;
    let mut delivery = line.next("that was confirmed").await?;
    for delay in [0, 300, 0, 50].map(Duration::from_millis) {
        let settled = Instant::now();
        line.end(&delivery, Settlement::Retry { delay, counts: true }).await?;
        delivery = line.next("again, although it was settled as to be retried").await?;
        if settled.elapsed() + TOLERANCE < delay {
            let after = settled.elapsed();
            return Err(line.broken(format!("a message to be retried after {delay:?} is given after {after:?}")));
        }
        if *delivery.envelope != sent {
            return Err(line.broken("a message that is retried has changed"));
        }
    }
    line.end(&delivery, Settlement::Ack).await?;
    Ok(Kept::Shown)
}

/// Promise 5. *Counted:* where [`counts_deliveries`](crate::ports::TransportCapabilities::counts_deliveries),
/// [`attempts`](crate::ports::Delivery::attempts) grows by one each time the message is given, also after a crash. It is 1
/// where the transport does not count.
pub async fn counted(builder: &dyn Builder) -> Checked {
    const RETRIES: u32 = 3;
    let mut line = Line::new(builder, COUNTED).await?;
    let counts = line.capabilities.counts_deliveries;
    let too_long = line.lease_is_too_long();
    line.send_here("counted").await?;
    for time in 1..=RETRIES + 2 {
        let delivery = line.next("although it was not settled for good").await?;
        let expected = if counts { time } else { 1 };
        if delivery.attempts != expected {
            let attempts = delivery.attempts;
            return Err(line.broken(format!("a message that is given for the {time}. time has {attempts} attempts")));
        }
        if time <= RETRIES || too_long {
            line.end(&delivery, Settlement::Retry { delay: Duration::ZERO, counts: true }).await?;
        } else if time == RETRIES + 1 {
            line = line.lose_leases(builder).await?;
        } else {
            line.end(&delivery, Settlement::Ack).await?;
        }
    }
    Ok(Kept::Shown)
}

/// Promise 6. *Not early:* a message is not given before its due time, where that is within what
/// [`delays`](crate::ports::TransportCapabilities::delays) says. It holds up no other.
pub async fn not_early(builder: &dyn Builder) -> Checked {
    const DELAY: Duration = Duration::from_millis(500);
    let line = Line::new(builder, NOT_EARLY).await?;
    let delay = match line.capabilities.delays {
        Delays::Never => return Ok(Kept::NotClaimed("the transport does not hold messages back")),
        Delays::UpTo(longest) => longest.min(DELAY),
        Delays::Any => DELAY,
    };
    let due = Timestamp::now().after(delay);
    let later = Envelope { due: Some(due), ..samples::envelope("later") };
    let past = Envelope { due: Some(Timestamp::from_millis(1)), ..samples::envelope("past") };
    let now = samples::envelope("now");
    let outgoing = [later, past, now].map(|envelope| samples::outgoing(&line.endpoint, envelope));
    line.send(&outgoing).await?;
    for _ in &outgoing {
        let delivery = line.next("although it is due").await?;
        let now = Timestamp::now();
        if delivery.envelope.due.is_some_and(|due| now.after(TOLERANCE) < due) {
            return Err(line.broken(format!("a message that is due at {due} is given at {now}")));
        }
        line.end(&delivery, Settlement::Ack).await?;
    }
    Ok(Kept::Shown)
}

/// Promise 7. *Given in order:* where [`ordered_keys`](crate::ports::TransportCapabilities::ordered_keys), messages of one
/// partition key sent one after the other are given in that order as long as none is retried.
pub async fn given_in_order(builder: &dyn Builder) -> Checked {
    const KEYS: usize = 3;
    const MESSAGES: usize = 60;
    const MAX: usize = 7;
    let line = Line::new(builder, GIVEN_IN_ORDER).await?;
    if !line.capabilities.ordered_keys {
        return Ok(Kept::NotClaimed("the transport keeps no order"));
    }
    let all = bodies(MESSAGES);
    let mut sent: HashMap<PartitionKey, Vec<Envelope>> = HashMap::new();
    for (number, body) in all.iter().enumerate() {
        let key = PartitionKey::parse(format!("key {}", number % KEYS)).expect("a valid key");
        let envelope = Envelope { partition_key: Some(key.clone()), ..samples::envelope(body.clone()) };
        line.send(&[samples::outgoing(&line.endpoint, envelope.clone())]).await?;
        sent.entry(key).or_default().push(envelope);
    }
    let came = line.drain(MAX, &all).await?;
    for (key, sent) in sent {
        let of_key = came.iter().filter(|envelope| envelope.partition_key.as_ref() == Some(&key));
        if !of_key.map(|envelope| &**envelope).eq(&sent) {
            return Err(line.broken(format!("messages of partition key {key} are not given in the order sent")));
        }
    }
    Ok(Kept::Shown)
}
