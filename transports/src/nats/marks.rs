//! What shows that copies are gone: numbers of the stream of an endpoint's queue, and of the stream of what is published.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use async_trait::async_trait;
use futures_util::TryStreamExt;
use hapax_core::{
    ids::EndpointName,
    ports::{ErrorKind, Mark, Marks, TransportError},
};
use serde_json::{Value, json};

use super::{Broker, Nats, errors::failed};

const MARKING: &str = "asking for the end of a queue";
const ASKING: &str = "asking whether messages are gone";
/// Marks of which it is remembered since when they are seen to have passed: an endpoint asks for one at a time.
const SEEN_MAX: usize = 64;

/// Since when a mark is seen to have passed.
#[derive(Default)]
pub(super) struct Seen(Mutex<VecDeque<(EndpointName, Mark, Instant)>>);

impl Seen {
    fn since(&self, endpoint: &EndpointName, mark: &Mark) -> Instant {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.iter().find(|(of, known, _)| of == endpoint && known == mark);
        if let Some((_, _, since)) = known {
            return *since;
        }
        let now = Instant::now();
        if seen.len() == SEEN_MAX {
            seen.pop_front();
        }
        seen.push_back((endpoint.clone(), mark.clone(), now));
        now
    }
}

/// What an endpoint has in front of it.
#[derive(Debug)]
pub(super) struct Offsets {
    pub(super) nats: Nats,
    pub(super) endpoint: EndpointName,
}

#[async_trait]
impl Marks for Offsets {
    async fn end(&self) -> Result<Mark, TransportError> {
        let broker = &self.nats.0;
        let queue = broker.state(MARKING, &broker.names.queue(&self.endpoint)).await?;
        let topics = broker.state(MARKING, &broker.names.topics()).await?;
        Ok(Mark::new([queue.last, topics.last]))
    }

    /// A settled message is no more in the stream of its queue; of what is published, the consumers' acknowledged floors tell. What is seen
    /// has to be as old as the server may take to write it: a crash would bring it back.
    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError> {
        let broker = &self.nats.0;
        let [queue, topics] = *mark.places() else {
            let why = format!("{mark:?} is no mark of the queue of {}: ask the transport that gave it", self.endpoint);
            return Err(TransportError::new(ErrorKind::Malformed, ASKING, why));
        };
        let state = broker.state(ASKING, &broker.names.queue(&self.endpoint)).await?;
        let is_gone =
            (state.messages == 0 || state.first > queue) && broker.all_settled(&self.endpoint, topics).await?;
        if !is_gone {
            return Ok(false);
        }
        Ok(broker.seen.since(&self.endpoint, mark).elapsed() >= broker.options.sync_interval)
    }
}

/// Of a stream.
struct State {
    messages: u64,
    first: u64,
    last: u64,
}

impl Broker {
    async fn state(&self, operation: &'static str, stream: &str) -> Result<State, TransportError> {
        let info = self.link.ask(operation, format!("STREAM.INFO.{stream}"), &json!({})).await?;
        let number = |name: &str| {
            info["state"][name].as_u64().ok_or_else(|| {
                let why = format!("{} does not say `{name}` of stream {stream}", self.link.place());
                TransportError::new(ErrorKind::Malformed, operation, why)
            })
        };
        Ok(State { messages: number("messages")?, first: number("first_seq")?, last: number("last_seq")? })
    }

    /// Whether every consumer of `endpoint` has settled what was published up to `mark`: also those for types that this process
    /// does not subscribe to.
    async fn all_settled(&self, endpoint: &EndpointName, mark: u64) -> Result<bool, TransportError> {
        let (topics, begin) = (self.names.topics(), super::names::Names::topic_consumers(endpoint));
        let (unavailable, place) = (ErrorKind::Unavailable, self.link.place());
        let stream = self.link.jetstream.get_stream_no_info(&topics).await;
        let mut names = stream.map_err(|e| failed(unavailable, ASKING, place, e))?.consumer_names();
        while let Some(name) = names.try_next().await.map_err(|e| failed(unavailable, ASKING, place, e))? {
            if name.starts_with(&begin) && !self.has_settled(&topics, &name, mark).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn has_settled(&self, stream: &str, consumer: &str, mark: u64) -> Result<bool, TransportError> {
        let info = self.link.ask(ASKING, format!("CONSUMER.INFO.{stream}.{consumer}"), &json!({})).await?;
        let none_left = info["num_pending"].as_u64() == Some(0) && info["num_ack_pending"].as_u64() == Some(0);
        let floor = info["ack_floor"]["stream_seq"].as_u64().unwrap_or_default();
        if none_left || floor >= mark {
            return Ok(true);
        }
        // The floor stays where the last one was acknowledged: what comes next of its type may be behind the mark.
        let Some(filter) = info["config"]["filter_subject"].as_str() else { return Ok(false) };
        let next = self.next_on(ASKING, stream, filter, floor + 1).await?;
        Ok(next.is_none_or(|next| next.sequence > mark))
    }

    /// What consumers of `endpoint` say: `num_pending`, or `num_ack_pending`.
    pub(super) async fn counted(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
        what: &str,
    ) -> Result<u64, TransportError> {
        let (unavailable, place) = (ErrorKind::Unavailable, self.link.place());
        let begin = super::names::Names::topic_consumers(endpoint);
        let mut sum = 0;
        for (stream, begin) in [(self.names.queue(endpoint), String::new()), (self.names.topics(), begin)] {
            self.state(operation, &stream).await?; // One that is not there is not empty.
            let consumers = self.link.jetstream.get_stream_no_info(&stream).await;
            let consumers = consumers.map_err(|e| failed(unavailable, operation, place, e))?;
            let names = consumers.consumer_names().try_collect::<Vec<String>>().await;
            let names = names.map_err(|e| failed(unavailable, operation, place, e))?;
            for name in names.iter().filter(|name| name.starts_with(&begin)) {
                let info = self.link.ask(operation, format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await?;
                sum += info.get(what).and_then(Value::as_u64).unwrap_or_default();
            }
        }
        Ok(sum)
    }
}
