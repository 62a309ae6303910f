//! The dispatcher's promises.

use std::sync::Arc;

use super::{
    Builder, CONFIRMED, Checked, IN_ORDER, Kept, OWN_RESULT, REFUSED_BEFORE, UNCHANGED,
    line::{Line, QUIET, bodies},
};
use crate::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, PartitionKey},
    ports::{DispatchError, Settlement},
    testing::{Broken, samples},
};

/// Largest message that is tried, in bytes: more would measure the machine that runs the suite.
const MESSAGE_TRIED_MAX: usize = 64 << 20;
const TOO_LARGE_TO_TRY: Kept = Kept::NotClaimed("the transport's limit is above what the suite tries");

/// Promise 1. *Confirmed:* `Ok` for a message means the transport has it, as durably as it keeps anything.
///
/// Every confirmed message comes, though the sender leaves as soon as it has the confirmation; also to an endpoint that
/// is away at the moment, and to every subscriber of a topic.
pub async fn confirmed(builder: &dyn Builder) -> Checked {
    const CALLS: usize = 20;
    const EACH: usize = 10;
    let receiver = Line::new(builder, CONFIRMED).await?;
    let all = bodies(CALLS * EACH);
    let sender = Line::new(builder, CONFIRMED).await?;
    for call in all.chunks(EACH) {
        sender.send(&to(&receiver.endpoint, call)).await?;
    }
    drop(sender);
    receiver.drain(EACH, &all).await?;

    let endpoint = receiver.endpoint.clone();
    drop(receiver);
    let all = bodies(EACH);
    Line::new(builder, CONFIRMED).await?.send(&to(&endpoint, &all)).await?;
    Line::of(builder, CONFIRMED, &endpoint, &[]).await?.drain(1, &all).await?;

    let topic = samples::message_type();
    let subscribed = std::slice::from_ref(&topic);
    let one = Line::of(builder, CONFIRMED, &samples::endpoint(), subscribed).await?;
    let other = Line::of(builder, CONFIRMED, &samples::endpoint(), subscribed).await?;
    let all = bodies(EACH);
    let published = all.iter().map(|body| {
        let envelope = Envelope { message_type: topic.clone(), ..samples::envelope(body.clone()) };
        Outgoing { destination: Destination::Topic(topic.clone()), envelope: Arc::new(envelope) }
    });
    Line::new(builder, CONFIRMED).await?.send(&published.collect::<Vec<_>>()).await?;
    one.drain(EACH, &all).await?;
    other.drain(EACH, &all).await?;
    Ok(Kept::Shown)
}

fn to(endpoint: &EndpointName, bodies: &[String]) -> Vec<Outgoing> {
    bodies.iter().map(|body| samples::outgoing(endpoint, samples::envelope(body.clone()))).collect()
}

/// Promise 2. *Own result:* each message has its own result, in the order given.
///
/// Judged on calls in which one message is too large for the transport. Those whose result is `Ok` come, and one that is
/// refused for good does not.
pub async fn own_result(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, OWN_RESULT).await?;
    let bytes_max = line.capabilities.message_bytes_max;
    if bytes_max > MESSAGE_TRIED_MAX {
        return Ok(TOO_LARGE_TO_TRY);
    }
    const MESSAGES: usize = 3;
    for large in 0..MESSAGES {
        let mut small = bodies(MESSAGES);
        let mut outgoing = to(&line.endpoint, &small);
        let body = of_size(&samples::envelope(""), bytes_max + 1, &small[large]);
        small[large].clone_from(&body);
        outgoing[large] = samples::outgoing(&line.endpoint, samples::envelope(body));
        let results = line.ends.dispatcher.dispatch(&outgoing).await;
        if results.len() != outgoing.len() {
            return Err(line.broken(format!("{MESSAGES} messages have {} results", results.len())));
        }
        let confirmed = small.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let confirmed: Vec<String> = confirmed.map(|(body, _)| body.clone()).collect();
        line.drain(1, &confirmed).await?;
        for (body, _) in small.iter().zip(&results).filter(|(_, r)| matches!(r, Err(DispatchError::Permanent(_)))) {
            expect_nothing_with(&line, body).await?;
        }
    }
    Ok(Kept::Shown)
}

async fn expect_nothing_with(line: &Line, body: &str) -> Result<(), Broken> {
    for delivery in line.receive(10, QUIET).await? {
        if delivery.envelope.body == body.as_bytes() {
            return Err(line.broken("a message that was refused for good comes all the same"));
        }
        line.settle(&delivery, Settlement::Ack).await?;
    }
    Ok(())
}

/// A body that makes a message of just this size, beginning with `start`.
fn of_size(envelope: &Envelope, bytes: usize, start: &str) -> String {
    let empty = Envelope { body: bytes::Bytes::new(), ..envelope.clone() }.size();
    format!("{start}{}", "x".repeat(bytes.saturating_sub(empty + start.len())))
}

/// Promise 3. *Unchanged:* ids, headers and body arrive as they were given, each time (S60).
pub async fn unchanged(builder: &dyn Builder) -> Checked {
    let sender = Line::new(builder, UNCHANGED).await?;
    let mut text_id = samples::full_envelope(&samples::message_type());
    text_id.message_id = crate::ids::MessageId::parse("Order 7/ü \u{1F600}").expect("a valid id");
    for envelope in [samples::full_envelope(&samples::message_type()), text_id, samples::envelope("")] {
        let line = Line::new(builder, UNCHANGED).await?;
        let outgoing = samples::outgoing(&line.endpoint, envelope);
        let message = std::slice::from_ref(&outgoing);
        sender.send(message).await?;
        let first = line.next("that was confirmed").await?;
        sender.send(message).await?;
        // A transport that knows repeats by their id may drop the second.
        let second = line.receive(1, QUIET).await?;
        for copy in second.iter().chain([&first]) {
            if copy.envelope != outgoing.envelope {
                return Err(line.broken(format!("sent was {:?}, what came is {:?}", outgoing.envelope, copy.envelope)));
            }
            line.settle(copy, Settlement::Ack).await?;
        }
    }
    Ok(Kept::Shown)
}

/// Promise 4. *In order:* messages of one call to one destination are handed over in the order given. To be seen where
/// the transport keeps the order of a partition key.
pub async fn in_order(builder: &dyn Builder) -> Checked {
    const MESSAGES: usize = 30;
    let line = Line::new(builder, IN_ORDER).await?;
    if !line.capabilities.ordered_keys {
        return Ok(Kept::NotClaimed("the transport keeps no order"));
    }
    let all = bodies(MESSAGES);
    let key = PartitionKey::parse("partition").expect("a valid key");
    let keyed = |body: &String| Envelope { partition_key: Some(key.clone()), ..samples::envelope(body.clone()) };
    let outgoing: Vec<Outgoing> = all.iter().map(|body| samples::outgoing(&line.endpoint, keyed(body))).collect();
    line.send(&outgoing).await?;
    let came = line.drain(1, &all).await?;
    if !came.iter().map(|envelope| &envelope.message_id).eq(outgoing.iter().map(|o| &o.envelope.message_id)) {
        return Err(line.broken("messages of one call do not come in the order given"));
    }
    Ok(Kept::Shown)
}

/// Promise 5. *Refused before:* what [`check`](crate::ports::Dispatcher::check) accepts is not later refused for its size
/// or address.
///
/// A message of exactly the size that the transport says it takes is accepted and comes; one with a byte more is refused.
/// What is accepted for an endpoint or topic that nobody has heard of is not refused for good either.
pub async fn refused_before(builder: &dyn Builder) -> Checked {
    let line = Line::new(builder, REFUSED_BEFORE).await?;
    let unknown = [
        samples::outgoing(&samples::endpoint(), samples::envelope("")),
        Outgoing {
            destination: Destination::Topic(samples::message_type()),
            envelope: Arc::new(samples::envelope("")),
        },
    ];
    for outgoing in unknown {
        let accepted = line.ends.dispatcher.check(&outgoing).is_ok();
        let results = line.ends.dispatcher.dispatch(std::slice::from_ref(&outgoing)).await;
        if accepted && matches!(results[..], [Err(DispatchError::Permanent(_))]) {
            return Err(line.broken(format!("the address {} was accepted and then refused", outgoing.destination)));
        }
    }

    let bytes_max = line.capabilities.message_bytes_max;
    if bytes_max > MESSAGE_TRIED_MAX {
        return Ok(TOO_LARGE_TO_TRY);
    }
    let sized = |bytes| {
        let envelope = samples::envelope("");
        let body = of_size(&envelope, bytes, "");
        samples::outgoing(&line.endpoint, Envelope { body: body.into(), ..envelope })
    };
    let (largest, too_large) = (sized(bytes_max), sized(bytes_max + 1));
    if line.ends.dispatcher.check(&too_large).is_ok() {
        return Err(line.broken(format!("a message of {} bytes, one more than the limit, is accepted", bytes_max + 1)));
    }
    if let Err(refused) = line.ends.dispatcher.check(&largest) {
        return Err(line.broken(format!("a message of {bytes_max} bytes, which is the limit, is refused: {refused}")));
    }
    line.send(std::slice::from_ref(&largest)).await?;
    let came = line.next("of the largest size, which was confirmed").await?;
    if came.envelope != largest.envelope {
        return Err(Broken::new(UNCHANGED, "the largest message does not come as it was sent"));
    }
    line.end(&came, Settlement::Ack).await?;
    Ok(Kept::Shown)
}
