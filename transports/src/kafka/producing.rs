//! What is sent: confirmed one by one, by a client that tells the broker which were sent already.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use rdkafka::{
    ClientConfig, ClientContext, Message,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer},
};
use tokio::{sync::oneshot, time::timeout};

use super::{
    KafkaOptions, errors::is_unknown_topic, link::Heard, link::millis, message::Headers, options::HEADERS_BYTES,
};

/// What waits to be sent, at most: beyond it nothing is taken until some of it is confirmed.
const QUEUED_MESSAGES_MAX: &str = "100000";
/// The same in KiB, 256 MiB.
const QUEUED_KIB_MAX: &str = "262144";
/// Beyond what the client library says when it gives up.
const MARGIN: Duration = Duration::from_secs(5);

/// A record on its way.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) topic: String,
    pub(super) partition: Option<i32>,
    pub(super) key: Option<String>,
    pub(super) headers: Headers,
    pub(super) body: Option<Bytes>,
}

/// Where it was put, or why it was not.
pub(super) type Put = Result<i64, KafkaError>;

/// Who is told.
pub(super) struct Report(Box<dyn FnOnce(Put) + Send + Sync>);

/// Who is told of what a client has sent.
struct Told {
    heard: Heard,
    /// It was told that a topic is not there, and goes on saying so of its own accord, for minutes, though it is made meanwhile; or it has given
    /// up on a message, and the numbers of those behind it do not fit any more.
    is_stale: AtomicBool,
}

impl Told {
    fn of(&self, put: &Put) {
        let is_late = |e: &KafkaError| e.rdkafka_error_code() == Some(Code::MessageTimedOut);
        if put.as_ref().is_err_and(|e| is_unknown_topic(e) || is_late(e)) {
            self.is_stale.store(true, Ordering::Relaxed);
        }
    }
}

impl ClientContext for Told {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.heard.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.heard.error(error, reason);
    }
}

impl ProducerContext for Told {
    type DeliveryOpaque = Box<Report>;

    fn delivery(&self, result: &DeliveryResult<'_>, report: Box<Report>) {
        let put = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.clone()),
        };
        self.of(&put);
        (report.0)(put);
    }
}

type Client = ThreadedProducer<Told>;

/// One client for all, until it cannot go on.
pub(super) struct Producing {
    config: ClientConfig,
    place: Arc<str>,
    patience: Duration,
    current: Mutex<Arc<Client>>,
}

impl Producing {
    pub(super) fn new(base: &ClientConfig, options: &KafkaOptions, place: Arc<str>) -> Result<Self, KafkaError> {
        let mut config = base.clone();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // As clients in Java do it, so that messages of one key are in one partition whoever sends them.
            .set("partitioner", "murmur2_random")
            .set("message.timeout.ms", millis(options.patience))
            .set("topic.metadata.propagation.max.ms", millis(options.patience))
            .set("linger.ms", "0")
            .set("batch.num.messages", options.batch.to_string())
            .set("message.max.bytes", (options.message_bytes_max + HEADERS_BYTES).max(1000).to_string())
            .set("queue.buffering.max.messages", QUEUED_MESSAGES_MAX)
            .set("queue.buffering.max.kbytes", QUEUED_KIB_MAX);
        let current = Mutex::new(client(&config, &place)?);
        Ok(Self { config, place, patience: options.patience, current })
    }

    /// How its clients are configured.
    #[cfg(feature = "preview-kafka-transactions")]
    pub(super) const fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn current(&self) -> Arc<Client> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another client in place of one that cannot go on: it has told the broker what the broker does not believe, or has given up on a
    /// message, and the numbers of those behind it do not fit any more; or it does not believe that a topic is there again.
    fn renewed(&self, failed: &Arc<Client>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&current, failed) {
            return;
        }
        match client(&self.config, &self.place) {
            Ok(client) => {
                let (left, patience) = (std::mem::replace(&mut *current, client), self.patience + MARGIN);
                // What it has under way is waited for, by somebody who may; and who is told is told in any case.
                drop(std::thread::Builder::new().name("hapax-kafka-left".to_owned()).spawn(move || {
                    drop(left.flush(patience));
                    drop(left);
                }));
            }
            Err(_) => tracing::warn!("{}: a client that cannot go on cannot be replaced; tried again", self.place),
        }
    }

    /// Sends, and has `told` be told once. Never waits.
    pub(super) fn put(&self, parcel: &Parcel, told: impl FnOnce(Put) + Send + Sync + 'static) {
        let client = self.current();
        let is_stale = client.client().context().is_stale.load(Ordering::Relaxed);
        if is_stale || client.client().fatal_error().is_some() {
            self.renewed(&client);
        }
        let client = self.current();
        let mut headers = OwnedHeaders::new_with_capacity(parcel.headers.len());
        for (name, value) in &parcel.headers {
            headers = headers.insert(Header { key: name, value: Some(value) });
        }
        let mut record = BaseRecord::with_opaque_to(&parcel.topic, Box::new(Report(Box::new(told)))).headers(headers);
        record.key = parcel.key.as_deref();
        record.payload = parcel.body.as_deref();
        record.partition = parcel.partition;
        if let Err((error, refused)) = client.send(record) {
            let put = Err(error);
            client.client().context().of(&put);
            (refused.delivery_opaque.0)(put);
        }
    }

    /// Sends all, in order and all of them under way at once; one result for each.
    pub(super) async fn put_all(&self, parcels: &[Parcel]) -> Vec<Put> {
        let (client, mut waiting) = (self.current(), Vec::with_capacity(parcels.len()));
        for parcel in parcels {
            let (tell, told) = oneshot::channel();
            self.put(parcel, move |put| drop(tell.send(put))); // Nobody may listen any more.
            waiting.push(told);
        }
        let mut puts = Vec::with_capacity(waiting.len());
        for told in waiting {
            let late = || Err(KafkaError::MessageProduction(Code::MessageTimedOut));
            let told = timeout(self.patience + MARGIN, told).await;
            puts.push(told.ok().and_then(Result::ok).unwrap_or_else(late));
        }
        let is_late = |put: &Put| put.as_ref().is_err_and(|e| e.rdkafka_error_code() == Some(Code::MessageTimedOut));
        if puts.iter().any(is_late) {
            self.renewed(&client);
        }
        puts
    }

    pub(super) async fn put_one(&self, parcel: &Parcel) -> Put {
        let mut puts = self.put_all(std::slice::from_ref(parcel)).await;
        puts.pop().unwrap_or(Err(KafkaError::Canceled))
    }
}

fn client(config: &ClientConfig, place: &Arc<str>) -> Result<Arc<Client>, KafkaError> {
    let told = Told { heard: Heard::new(place.clone()), is_stale: AtomicBool::new(false) };
    config.create_with_context(told).map(Arc::new)
}
