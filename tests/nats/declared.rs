//! What somebody else has declared, for who may not: what breaks a promise is refused by name, with the request that mends it.

use async_nats::jetstream::{self, response::Response};
use hapax::{
    Nats,
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, Transport, TransportError},
    transports::nats::NatsOptions,
};
use serde_json::{Value, json};

use super::rig::*;

const SECOND: u64 = 1_000_000_000;

/// All that an endpoint needs, under a prefix of the test's own.
struct Declared {
    prefix: String,
    here: EndpointName,
    topic: TypeName,
    owner: Nats,
    client: jetstream::Context,
}

impl Declared {
    async fn new() -> Self {
        let prefix = unique("guest")[..30].to_owned();
        let owner = options().prefix(&prefix).open(url()).await.unwrap();
        let declared = Self { prefix, here: endpoint(), topic: message_type(), owner, client: client().await };
        declared.anew().await;
        declared
    }

    fn guest(&self) -> NatsOptions {
        options().prefix(&self.prefix).declare(false)
    }

    /// The owner declares what is missing.
    async fn anew(&self) {
        let owner = options().prefix(&self.prefix).open(url()).await.unwrap();
        owner.connect(&self.here, std::slice::from_ref(&self.topic)).await.unwrap();
    }

    async fn opened(&self, guest: NatsOptions) -> Result<(), TransportError> {
        guest.open(url()).await?.connect(&self.here, std::slice::from_ref(&self.topic)).await.map(drop)
    }

    async fn ask(&self, subject: String, request: Value) -> Result<Value, String> {
        match self.client.request::<_, _, Response<Value>>(subject.clone(), &request).await.unwrap() {
            Response::Ok(answer) => Ok(answer),
            Response::Err { error } => Err(format!("{subject}: {error}")),
        }
    }

    /// What is declared, declared once more with this changed.
    async fn change(&self, stream: &str, consumer: Option<&str>, changes: &Value) {
        let (info, delete) = match consumer {
            Some(consumer) => {
                (format!("CONSUMER.INFO.{stream}.{consumer}"), format!("CONSUMER.DELETE.{stream}.{consumer}"))
            }
            None => (format!("STREAM.INFO.{stream}"), format!("STREAM.DELETE.{stream}")),
        };
        let mut config = self.ask(info, json!({})).await.unwrap()["config"].take();
        let settings = config.as_object_mut().unwrap();
        for (name, value) in changes.as_object().unwrap() {
            settings.insert(name.clone(), value.clone());
        }
        self.ask(delete, json!({})).await.unwrap();
        let (subject, request) = match consumer {
            Some(consumer) => (
                format!("CONSUMER.DURABLE.CREATE.{stream}.{consumer}"),
                json!({ "stream_name": stream, "config": config }),
            ),
            None => (format!("STREAM.CREATE.{stream}"), config),
        };
        self.ask(subject, request).await.unwrap();
    }

    /// The guest is told what is wrong, does what it is told to do, and is let in.
    async fn is_refused_and_mended(&self, says: &str, is_changed: bool) {
        let error = self.opened(self.guest()).await.expect_err(says);
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{text}");
        assert!(text.contains(says) && text.contains("NatsOptions::declare"), "{says}: {text}");
        let request = text.split_once("'$JS.API.").unwrap().1;
        let (subject, request) = request.split_once("' '").unwrap();
        let request: Value = serde_json::from_str(request.split_once("'`").unwrap().0).unwrap();
        let mended = self.ask(subject.to_owned(), request).await;
        let opened = self.opened(self.guest()).await;
        match mended {
            Ok(_) => opened.unwrap_or_else(|e| panic!("{says}: {e}")),
            Err(why) => {
                assert!(!is_changed, "{says}: {why}");
                opened.expect_err(says);
            }
        }
    }

    async fn remove(self) {
        self.owner.remove(&[self.here]).await.unwrap();
    }
}

/// Whether each version of the server changes it in what is there, or some want it deleted first: 2.9 no retention, 2.15 no `mem_storage`.
const CHANGED: bool = true;
const FIXED: bool = false;

#[tokio::test]
async fn a_stream_that_breaks_a_promise_is_refused_by_name_and_mended_as_is_said() {
    let declared = Declared::new().await;
    let queue = format!("{}-queue-{}", declared.prefix, declared.here);
    let letters = format!("{}-dead-letters", declared.prefix);
    let topics = format!("{}-topics", declared.prefix);
    let subject = format!("{}.queue.{}", declared.prefix, declared.here);
    for (stream, changes, says, mends) in [
        (&queue, json!({ "retention": "limits" }), "retention is \"limits\", needed: \"workqueue\"", FIXED),
        (&topics, json!({ "retention": "limits" }), "retention is \"limits\", needed: \"interest\"", FIXED),
        (&queue, json!({ "storage": "memory" }), "storage is \"memory\"", FIXED),
        (&queue, json!({ "subjects": [subject] }), "subjects is", CHANGED),
        (&queue, json!({ "max_msgs": 10 }), "max_msgs is 10 with discard \"old\"", CHANGED),
        (&topics, json!({ "max_bytes": 1 << 20 }), "max_bytes is 1048576 with discard \"old\"", CHANGED),
        (&queue, json!({ "max_age": 3600 * SECOND }), "max_age is", CHANGED),
        (&queue, json!({ "max_msgs_per_subject": 1 }), "max_msgs_per_subject is 1", CHANGED),
        (&queue, json!({ "max_msg_size": 1000 }), "max_msg_size is 1000", CHANGED),
        (&queue, json!({ "duplicate_window": SECOND }), "duplicate_window is 1000000000", CHANGED),
        (&queue, json!({ "no_ack": true }), "no_ack is true", CHANGED),
        (&letters, json!({ "deny_delete": true }), "deny_delete is true", FIXED),
    ] {
        declared.change(stream, None, &changes).await;
        declared.anew_but(stream).await;
        declared.is_refused_and_mended(says, mends).await;
        declared.ask(format!("STREAM.DELETE.{stream}"), json!({})).await.unwrap();
        declared.anew().await;
    }
    // What refuses what is new loses nothing, and a longer window drops no more.
    let harmless = json!({ "max_msgs": 10, "discard": "new", "duplicate_window": 600 * SECOND });
    declared.change(&queue, None, &harmless).await;
    declared.anew_but(&queue).await;
    declared.opened(declared.guest()).await.unwrap();
    let more = declared.opened(declared.guest().replicas(3)).await.unwrap_err();
    assert!(more.to_string().contains("num_replicas is 1, needed: 3"), "{more}");
    declared.remove().await;
}

#[tokio::test]
async fn a_consumer_that_breaks_a_promise_is_refused_by_name_and_mended_as_is_said() {
    let declared = Declared::new().await;
    let topics = format!("{}-topics", declared.prefix);
    let consumer = format!("{}~shop=2Eadded", declared.here);
    let other = format!("{}.topic.*.shop.other", declared.prefix);
    for (changes, says, mends) in [
        (json!({ "ack_policy": "all" }), "ack_policy is \"all\", needed: \"explicit\"", FIXED),
        (json!({ "ack_policy": "none", "max_ack_pending": 0, "max_deliver": -1 }), "ack_policy is \"none\"", FIXED),
        (json!({ "replay_policy": "original" }), "replay_policy is", FIXED),
        (json!({ "ack_wait": SECOND / 2 }), "ack_wait is 500000000", CHANGED),
        (json!({ "max_deliver": 3 }), "max_deliver is 3", CHANGED),
        (json!({ "max_ack_pending": 100 }), "max_ack_pending is 100", CHANGED),
        (json!({ "max_deliver": 5, "backoff": [SECOND, 2 * SECOND] }), "backoff is", CHANGED),
        (json!({ "filter_subject": other }), "filter_subject is", CHANGED),
        (json!({ "headers_only": true }), "headers_only is true", CHANGED),
        (json!({ "inactive_threshold": 3600 * SECOND }), "inactive_threshold is", CHANGED),
        (json!({ "max_batch": 10 }), "max_batch is 10", CHANGED),
        (json!({ "max_expires": SECOND }), "max_expires is", CHANGED),
        (json!({ "mem_storage": true }), "mem_storage is true", FIXED),
        (json!({ "deliver_subject": unique("pushed"), "max_waiting": 0 }), "deliver_subject is", FIXED),
    ] {
        declared.change(&topics, Some(&consumer), &changes).await;
        declared.is_refused_and_mended(says, mends).await;
        declared.ask(format!("CONSUMER.DELETE.{topics}.{consumer}"), json!({})).await.unwrap();
        declared.anew().await;
    }
    // A longer lease keeps what a shorter one promises.
    declared.change(&topics, Some(&consumer), &json!({ "ack_wait": 600 * SECOND })).await;
    declared.opened(declared.guest()).await.unwrap();
    declared.remove().await;
}

/// Where order is kept, two messages of a slot at a time would be out of it.
#[tokio::test]
async fn a_slot_that_gives_two_at_a_time_is_refused() {
    let declared = Declared::new().await;
    let ordered = || declared.guest().ordered_keys(true);
    let here = endpoint();
    let owner = options().prefix(&declared.prefix).ordered_keys(true).open(url()).await.unwrap();
    owner.connect(&here, &[]).await.unwrap();
    let guest = ordered().open(url()).await.unwrap();
    guest.connect(&here, &[]).await.unwrap();
    let queue = format!("{}-queue-{here}", declared.prefix);
    declared.change(&queue, Some("receivers~7"), &json!({ "max_ack_pending": 2 })).await;
    let error = guest.connect(&here, &[]).await.unwrap_err();
    assert!(error.to_string().contains("max_ack_pending is 2, needed: 1"), "{error}");
    assert!(error.to_string().contains("receivers~7"), "{error}");
    owner.remove(&[here]).await.unwrap();
    declared.remove().await;
}

impl Declared {
    /// The consumers of a stream that was made anew went with the one before.
    async fn anew_but(&self, stream: &str) {
        let topics = format!("{}-topics", self.prefix);
        let (consumer, filter) = if stream == topics {
            let filter = format!("{}.topic.*.{}", self.prefix, self.topic);
            (format!("{}~shop=2Eadded", self.here), filter)
        } else if stream.ends_with(self.here.as_str()) {
            ("receivers".to_owned(), String::new())
        } else {
            return;
        };
        let config = json!({
            "durable_name": consumer, "ack_policy": "explicit", "deliver_policy": "all", "replay_policy": "instant",
            "ack_wait": 600 * SECOND, "max_ack_pending": -1, "filter_subject": filter,
        });
        let request = json!({ "stream_name": stream, "config": config });
        self.ask(format!("CONSUMER.DURABLE.CREATE.{stream}.{consumer}"), request).await.unwrap();
    }
}
