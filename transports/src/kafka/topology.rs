//! Topics and where each is read from: declared, or looked for where others declare them; a subscription begins where it was noted.

use std::sync::{Arc, Mutex};

use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, TransportError},
};
use rdkafka::{
    admin::{AdminOptions, NewTopic, TopicReplication},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::time::{Instant, sleep};

use super::{
    Broker,
    asker::{Asker, Bounds},
    errors::failure,
    notes::{Notes, Pen, Start},
    options::HEADERS_BYTES,
};
use std::time::Duration;

const DECLARING: &str = "declaring queues";
/// Between two looks whether a topic that was made can be used: every broker has to hear of it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// As the broker has it by default.
const BROKERS_OWN: i32 = -1;
/// A part of a compacted topic is closed and may be compacted once it is as old, or as large: it is read from its beginning.
const SEGMENT_MILLIS: &str = "3600000";
const SEGMENT_BYTES: &str = "16777216";
/// What was taken away a moment ago is not compacted yet: of two who take away the same letter, the log tells who was first.
const COMPACTED_AFTER_MILLIS: &str = "60000";

/// What a topic is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Messages, for as long as they are kept.
    Messages,
    /// One record for each key, for ever.
    Keys,
}

impl Broker {
    /// Declares, or looks for, all that an endpoint needs, and subscribes it to `types`. A client that asks as its group.
    pub(super) async fn subscribe(
        &self,
        endpoint: &EndpointName,
        types: &[TypeName],
    ) -> Result<Arc<Mutex<Asker>>, TransportError> {
        let pen = Pen { topic: self.names.notes(endpoint), endpoint: endpoint.clone() };
        let topics: Vec<Arc<str>> = types.iter().map(|kind| self.names.topic(kind).into()).collect();
        let keys = [pen.topic.clone(), self.names.dead_letters(endpoint)].map(|topic| (topic, Use::Keys));
        let mut all = Vec::from(keys);
        all.extend(topics.iter().map(|topic| (topic.to_string(), Use::Messages)));
        // The last, so that whoever finds it finds the rest.
        all.push((self.names.queue(endpoint), Use::Messages));
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (topic, what) in all {
            let is_there = self.is_there(DECLARING, &topic).await?;
            if is_there { found.push((topic, what)) } else { missing.push((topic, what)) }
        }
        // Before its queue is made: that it was made now tells what is new.
        self.verified(DECLARING, &found).await?;
        let (own, mut is_first) = (self.names.queue(endpoint), false);
        for (topic, what) in missing {
            let is_made = self.declared(DECLARING, &topic, what).await?;
            is_first = is_made && topic == own;
        }
        let asker = self.link.asker_of(&self.names.group(endpoint)).await?;
        let noted = pen.topic.clone();
        let (is_here, starts) = self
            .link
            .ask_as(DECLARING, &asker, move |asker| {
                let notes = Notes::read(asker, &noted)?;
                let starts = starts(asker, &notes, &topics, is_first || notes.is_here())?;
                Ok((notes.is_here(), starts))
            })
            .await?;
        let who = fastrand::u64(..);
        let mut parcels: Vec<_> = starts.iter().map(|(topic, starts)| pen.starts(topic, starts, who)).collect();
        if !is_here {
            parcels.push(pen.here());
        }
        for put in self.link.producing.put_all(&parcels).await {
            put.map_err(|e| failure(DECLARING, self.link.place(), &e, true))?;
        }
        Ok(asker)
    }

    /// Makes a topic that is not there, or looks for it. Whether it was made now.
    pub(super) async fn declared(
        &self,
        operation: &'static str,
        topic: &str,
        what: Use,
    ) -> Result<bool, TransportError> {
        if self.is_there(operation, topic).await? {
            return Ok(false);
        }
        if !self.options.declare {
            let place = self.link.place();
            let why =
                format!("{place} has no topic `{topic}`: let it be declared (KafkaOptions::declare), or declare it");
            return Err(TransportError::new(ErrorKind::Misconfigured, operation, why));
        }
        let made = self.make(operation, topic, what).await?;
        let deadline = Instant::now() + self.link.patience;
        while !self.is_there(operation, topic).await? {
            if Instant::now() > deadline {
                let why =
                    format!("{} has made topic `{topic}`, and does not show it yet: try again", self.link.place());
                return Err(TransportError::new(ErrorKind::Unavailable, operation, why));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(made)
    }

    /// Whether a broker says that the topic is there. One that does not know it yet may say no.
    pub(super) async fn is_there(&self, operation: &'static str, topic: &str) -> Result<bool, TransportError> {
        let asked = topic.to_owned();
        let found = self.link.ask(operation, move |asker| asker.partitions(&asked)).await?;
        if found.is_some() {
            self.link.knows(topic);
        }
        Ok(found.is_some())
    }

    /// Whether it was this that made it, and no other at the same time.
    async fn make(&self, operation: &'static str, topic: &str, what: Use) -> Result<bool, TransportError> {
        let options = &self.options;
        let replicas = options.replicas.map_or(BROKERS_OWN, i32::from);
        let partitions = if what == Use::Keys { 1 } else { i32::from(options.partitions) };
        let bytes_max = (options.message_bytes_max + HEADERS_BYTES).to_string();
        let retention = options.retention.as_millis().to_string();
        let new =
            NewTopic::new(topic, partitions, TopicReplication::Fixed(replicas)).set("max.message.bytes", &bytes_max);
        let new = match what {
            Use::Messages => {
                new.set("cleanup.policy", "delete").set("retention.ms", &retention).set("retention.bytes", "-1")
            }
            Use::Keys => new
                .set("cleanup.policy", "compact")
                .set("segment.ms", SEGMENT_MILLIS)
                .set("segment.bytes", SEGMENT_BYTES)
                .set("min.compaction.lag.ms", COMPACTED_AFTER_MILLIS),
        };
        let within =
            AdminOptions::new().request_timeout(Some(self.link.patience)).operation_timeout(Some(self.link.patience));
        let admin = self.link.admin()?;
        let made = admin.create_topics([&new], &within).await;
        let failed = |e: &KafkaError| failure(operation, self.link.place(), e, true);
        match made.map_err(|e| failed(&e))?.pop() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, Code::TopicAlreadyExists))) => Ok(false),
            Some(Err((_, code))) => Err(failed(&KafkaError::AdminOp(code))),
            None => Err(failed(&KafkaError::AdminOp(Code::Unknown))),
        }
    }
}

/// Of a topic, and of its partitions in their order.
type Starts = (Arc<str>, Vec<Start>);

/// Where subscriptions begin that are not noted, by topic and there by partition.
fn starts(asker: &Asker, notes: &Notes, topics: &[Arc<str>], is_new: bool) -> Result<Vec<Starts>, KafkaError> {
    let wanted: Vec<&Arc<str>> = topics.iter().filter(|topic| !notes.is_subscribed(topic)).collect();
    let places = asker.places_soon(&wanted)?;
    let committed = asker.committed(&places)?;
    let mut starts: Vec<Starts> = Vec::with_capacity(wanted.len());
    for place in places {
        let (bounds, over) = (asker.bounds(&place)?, committed.get(&place).copied());
        let start = Start { at: start(bounds, over, is_new, notes.has_ended(&place.0)), over };
        match starts.last_mut().filter(|(topic, _)| *topic == place.0) {
            Some((_, of_topic)) => of_topic.push(start),
            None => starts.push((place.0, vec![start])),
        }
    }
    Ok(starts)
}

/// A new subscription gets what is published from now on. Where it cannot be told whether it is new, because the endpoint was there before
/// its notes, it gets all that is kept: some of it may have been its own already. What the endpoint has committed shows that it has read there:
/// it goes on from there, unless that subscription is known to have ended.
fn start(bounds: Bounds, committed: Option<i64>, is_new: bool, has_ended: bool) -> i64 {
    match committed {
        Some(committed) if !(is_new && has_ended) => committed,
        _ if is_new => bounds.high,
        _ => bounds.low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_begins_now_unless_it_may_have_begun_before() {
        let bounds = Bounds { low: 3, high: 50 };
        assert_eq!(start(bounds, None, true, false), 50);
        assert_eq!(start(bounds, None, false, false), 3, "it was there before its notes");
        assert_eq!(start(bounds, Some(20), false, false), 20);
        assert_eq!(start(bounds, Some(20), true, true), 50, "that one had ended");
        assert_eq!(start(bounds, Some(20), true, false), 20, "it has read there, though nothing is noted of it");
    }
}
