//! Streams and consumers: declared, or looked for where others declare them; and what the server's confirmation is worth.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::TransportError,
};
use serde_json::{Value, json};

use super::{
    Broker,
    declared::Look,
    errors::{refusal, unanswered},
    names::{Names, Part},
    options::HEADERS_BYTES,
};

/// For how long it is kept that a delivery did not count. A message whose next delivery is later counts one more.
const UNCOUNTED_AGE: Duration = Duration::from_secs(24 * 3600);
/// Messages of which that is kept, at most; of the oldest it is forgotten first.
const UNCOUNTED_MAX: u64 = 1_000_000;
/// Within it a stream knows ids that is given none by us.
const USUAL_WINDOW: Duration = Duration::from_secs(120);

/// The first minor version of the server that goes on after kills that follow each other soon: seen in eleven runs on 2.10.26 to 2.15.1, and not on
/// 2.9.10 (docs/nats.md).
const OUTLIVES_KILLS: (i64, i64) = (2, 10);

const DECLARING: &str = "declaring queues";

/// A consumer that an endpoint receives from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) stream: String,
    pub(super) consumer: String,
}

impl Broker {
    /// Declares, or looks for, what all endpoints share.
    pub(super) async fn set_up(&self) -> Result<(), TransportError> {
        let names = &self.names;
        let limits = json!({ "retention": "limits" });
        let uncounted = json!({
            "retention": "limits", "max_msgs_per_subject": 1, "max_msgs": UNCOUNTED_MAX, "max_age": nanos(UNCOUNTED_AGE),
        });
        let topics = json!({ "retention": "interest", "duplicate_window": nanos(self.options.dedup_window) });
        self.stream(&names.topics(), names.topics_subjects(), &topics).await?;
        self.stream(&names.dead_letters(), names.dead_letters_subjects(), &limits).await?;
        self.stream(&names.uncounted(), names.uncounted_subjects(), &uncounted).await
    }

    /// Says once, when this is opened, what the server's confirmation is worth.
    pub(super) fn tell_what_is_kept(&self) {
        let options = &self.options;
        let version = self.link.client.server_info().version;
        tracing::info!(
            server = %version,
            replicas = options.replicas,
            sync_interval = ?options.sync_interval,
            dedup_window = ?options.dedup_window,
            "{}: a message that is confirmed outlives a crash of the server; without replicas, a machine that loses power may lose what was confirmed within the server's `sync_interval`, which is said to be this",
            self.link.place()
        );
        let (major, minor) = OUTLIVES_KILLS;
        if !self.link.client.is_server_compatible(major, minor, 0) {
            tracing::warn!(
                server = %version,
                "{}: a server before {major}.{minor} that is killed, and killed again soon, may give to nobody what it has confirmed (docs/nats.md): use a newer one",
                self.link.place()
            );
        }
    }

    /// Declares, or looks for, the queue of `endpoint`, and subscribes it to `types`.
    pub(super) async fn subscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        let (names, ordered) = (&self.names, self.options.ordered_keys);
        let queue = names.queue(endpoint);
        let more = json!({ "retention": "workqueue", "duplicate_window": nanos(self.options.dedup_window) });
        self.stream(&queue, names.queue_subjects(endpoint), &more).await?;
        for part in Part::received(ordered) {
            let filter = names.queue_filter(endpoint, part);
            self.consumer(&queue, &Names::queue_consumer(part), &filter, "all", part).await?;
        }
        for topic in types {
            for part in Part::received(ordered) {
                let (consumer, filter) =
                    (Names::topic_consumer(endpoint, topic, part), names.topic_filter(topic, part));
                self.consumer(&names.topics(), &consumer, &filter, "new", part).await?;
            }
        }
        Ok(())
    }

    /// What an endpoint receives from, in a fixed order.
    pub(super) fn sources(&self, endpoint: &EndpointName, types: &[TypeName]) -> Vec<Source> {
        let parts = || Part::received(self.options.ordered_keys).into_iter();
        let queue = self.names.queue(endpoint);
        let own = parts().map(|part| Source { stream: queue.clone(), consumer: Names::queue_consumer(part) });
        let topics = types.iter().flat_map(|topic| {
            parts().map(|part| Source {
                stream: self.names.topics(),
                consumer: Names::topic_consumer(endpoint, topic, part),
            })
        });
        own.chain(topics).collect()
    }

    /// Removes the subscriptions of `endpoint` to `types`.
    pub(super) async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        for topic in types {
            for part in Part::received(self.options.ordered_keys) {
                let consumer = Names::topic_consumer(endpoint, topic, part);
                let subject = format!("CONSUMER.DELETE.{}.{consumer}", self.names.topics());
                self.removed("ending a subscription", subject, ErrorCode::CONSUMER_NOT_FOUND).await?;
            }
        }
        Ok(())
    }

    /// Removes what may be gone already.
    pub(super) async fn removed(
        &self,
        operation: &'static str,
        subject: String,
        gone: ErrorCode,
    ) -> Result<(), TransportError> {
        match self.link.request(subject, &json!({})).await {
            Ok(Err(error)) if error.error_code() == gone => Ok(()),
            Ok(Err(error)) => Err(refusal(operation, self.link.place(), &error)),
            Ok(Ok(_)) => Ok(()),
            Err(e) => Err(unanswered(operation, self.link.place(), self.link.patience, e)),
        }
    }

    async fn stream(&self, name: &str, subjects: Vec<String>, more: &Value) -> Result<(), TransportError> {
        let mut config = json!({
            "name": name,
            "subjects": subjects,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "storage": "file",
            "discard": "old",
            "num_replicas": self.options.replicas,
            "duplicate_window": nanos(USUAL_WINDOW),
        });
        if let (Some(config), Some(more)) = (config.as_object_mut(), more.as_object()) {
            config.extend(more.clone());
        }
        if self.options.declare {
            return self.link.ask(DECLARING, format!("STREAM.CREATE.{name}"), &config).await.map(drop);
        }
        let info = self.link.ask(DECLARING, format!("STREAM.INFO.{name}"), &json!({})).await?;
        let look = Look::at_stream(&info["config"], &config, self.bytes_max + HEADERS_BYTES);
        look.judged(DECLARING, self.link.place(), ("stream", name), (&format!("STREAM.UPDATE.{name}"), &config))
    }

    async fn consumer(
        &self,
        stream: &str,
        name: &str,
        filter: &str,
        from: &str,
        part: Part,
    ) -> Result<(), TransportError> {
        // One at a time, for order; else the server holds nothing back: what waits for its due time is given and not settled.
        let pending = if matches!(part, Part::Slot(_)) { 1 } else { -1 };
        let mut config = json!({
            "durable_name": name,
            "deliver_policy": from,
            "ack_policy": "explicit",
            "ack_wait": nanos(self.options.lease + super::receiver::LEASE_MARGIN),
            "max_deliver": -1,
            "max_ack_pending": pending,
            "replay_policy": "instant",
            "num_replicas": 0,
        });
        if let (Some(config), false) = (config.as_object_mut(), filter.is_empty()) {
            config.insert("filter_subject".into(), filter.into());
        }
        let (subject, request) =
            (format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), json!({ "stream_name": stream, "config": config }));
        if self.options.declare {
            return self.link.ask(DECLARING, subject, &request).await.map(drop);
        }
        let info = self.link.ask(DECLARING, format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await?;
        let look = Look::at_consumer(&info["config"], &request["config"], self.options.replicas);
        let consumer = format!("{stream} {name}");
        look.judged(DECLARING, self.link.place(), ("consumer", &consumer), (&subject, &request))
    }
}

/// As JetStream counts time.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1)
}
