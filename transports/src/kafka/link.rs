//! How a cluster is reached: one producer for all that is sent, and clients that are kept for what is asked.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hapax_core::ports::{ErrorKind, TransportError};
use rdkafka::{
    ClientConfig, ClientContext,
    admin::AdminClient,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::task::spawn_blocking;

use super::{
    KafkaOptions,
    address::Address,
    asker::Asker,
    errors::{failure, unusable},
    options::Secrets,
    producing::Producing,
};

const CONNECTING: &str = "connecting to Kafka";
/// How long the client waits for a connection, at most; it then tries the next broker.
const CONNECT: Duration = Duration::from_secs(10);
/// Between two tries to connect again, at most.
const REST_MAX: Duration = Duration::from_secs(2);
/// Topics that are known to be there. Beyond it all are asked for anew.
const KNOWN_MAX: usize = 10_000;
/// Groups for which a client is kept that asks. Beyond it all are made anew.
const ASKERS_MAX: usize = 16;

/// What reaches a cluster: one producer for everything that is sent, and a client for what is asked.
pub(super) struct Link {
    base: ClientConfig,
    secrets: Secrets,
    place: Arc<str>,
    pub(super) patience: Duration,
    pub(super) producing: Producing,
    asker: Arc<Mutex<Asker>>,
    /// By group.
    askers: Mutex<HashMap<String, Arc<Mutex<Asker>>>>,
    known: Mutex<HashSet<String>>,
    /// Held by who looks whether a topic is there before something is sent to it.
    pub(super) looking: tokio::sync::Mutex<()>,
}

impl Link {
    /// Asks of a topic that nobody has: a cluster that answers is there, and lets this user in.
    pub(super) async fn open(url: &str, options: &KafkaOptions, nobodys: String) -> Result<Self, TransportError> {
        let misconfigured = |why: String| TransportError::new(ErrorKind::Misconfigured, CONNECTING, why);
        let address = Address::parse(url).map_err(|why| misconfigured(why.into()))?;
        let base = base(&address, options).map_err(misconfigured)?;
        let place: Arc<str> = format!("Kafka at {}", address.brokers).into();
        let mut secrets = address.secrets();
        secrets.0.extend(options.tls.client.iter().map(|(_, key)| key.clone()));
        let unusable = |e: KafkaError| unusable(CONNECTING, &e, &secrets);
        let producing = Producing::new(&base, options, place.clone()).map_err(unusable)?;
        let asker = Asker::new(&reader(&base, None), &place, options.patience).map_err(unusable)?;
        let asker = Arc::new(Mutex::new(asker));
        let patience = options.patience;
        let (askers, known) = (Mutex::default(), Mutex::default());
        let link =
            Self { base, secrets, place, patience, producing, asker, askers, known, looking: Default::default() };
        link.ask(CONNECTING, move |asker| asker.partitions(&nobodys).map(drop)).await?;
        Ok(link)
    }

    /// The cluster, for messages.
    pub(super) fn place(&self) -> &Arc<str> {
        &self.place
    }

    /// What a client that reads needs; as one of `group`, if of any. A place is told as what is there, whatever is not certain to stay of a
    /// transaction: a mark has to lie behind everything that was confirmed.
    pub(super) fn reader(&self, group: Option<&str>) -> ClientConfig {
        reader(&self.base, group)
    }

    pub(super) fn admin(&self) -> Result<AdminClient<Heard>, TransportError> {
        let context = Heard::new(self.place.clone());
        self.base.create_with_context(context).map_err(|e| unusable(CONNECTING, &e, &self.secrets))
    }

    /// A client for what is asked of `group`, the same each time: to make one takes threads, and a connection to each broker.
    pub(super) async fn asker_for(&self, group: &str) -> Result<Arc<Mutex<Asker>>, TransportError> {
        let askers = || self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        let found = askers().get(group).cloned();
        if let Some(found) = found {
            return Ok(found);
        }
        let made = self.asker_of(group).await?;
        let mut askers = askers();
        if askers.len() >= ASKERS_MAX {
            let left = std::mem::take(&mut *askers);
            drop(spawn_blocking(move || drop(left))); // Each ends by itself, and may take a while for it.
        }
        askers.insert(group.to_owned(), made.clone());
        Ok(made)
    }

    /// A client for what is asked of `group`.
    pub(super) async fn asker_of(&self, group: &str) -> Result<Arc<Mutex<Asker>>, TransportError> {
        let (config, place, patience) = (self.reader(Some(group)), self.place.clone(), self.patience);
        let made = blocking(CONNECTING, move || Asker::new(&config, &place, patience)).await?;
        made.map(|asker| Arc::new(Mutex::new(asker))).map_err(|e| self.unusable(&e))
    }

    pub(super) fn consumer<C: ConsumerContext>(
        &self,
        config: &ClientConfig,
        context: C,
    ) -> Result<BaseConsumer<C>, TransportError> {
        config.create_with_context(context).map_err(|e| self.unusable(&e))
    }

    fn unusable(&self, error: &KafkaError) -> TransportError {
        unusable(CONNECTING, error, &self.secrets)
    }

    /// Asks the cluster.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        operation: &'static str,
        question: impl FnOnce(&Asker) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, TransportError> {
        self.ask_as(operation, &self.asker, question).await
    }

    /// Asks the cluster as one of the asker's group.
    pub(super) async fn ask_as<T: Send + 'static>(
        &self,
        operation: &'static str,
        asker: &Arc<Mutex<Asker>>,
        question: impl FnOnce(&Asker) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, TransportError> {
        let asker = asker.clone();
        let asked = blocking(operation, move || {
            let asker = asker.lock().unwrap_or_else(PoisonError::into_inner);
            question(&asker).map_err(|e| asker.heard().cause().unwrap_or(e))
        });
        asked.await?.map_err(|e| failure(operation, &self.place, &e, false))
    }

    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a broker has said that the topic is there.
    pub(super) fn is_known(&self, topic: &str) -> bool {
        self.known().contains(topic)
    }

    pub(super) fn knows(&self, topic: &str) {
        let mut known = self.known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(topic.to_owned());
    }

    /// It was not there after all.
    pub(super) fn forget(&self, topic: &str) {
        self.known().remove(topic);
    }
}

/// A call of the client library that waits, on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    operation: &'static str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TransportError> {
    spawn_blocking(call).await.map_err(|e| {
        let why = "the runtime is stopping, or the client library has failed in itself; the outcome is unknown";
        TransportError::new(ErrorKind::UnknownOutcome, operation, why).caused_by(e)
    })
}

fn reader(base: &ClientConfig, group: Option<&str>) -> ClientConfig {
    let mut config = base.clone();
    config
        .set("isolation.level", "read_uncommitted")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // A place that is gone is an error that is told, never a jump to somewhere else.
        .set("auto.offset.reset", "error");
    if let Some(group) = group {
        config.set("group.id", group);
    }
    config
}

/// What all clients have in common.
fn base(address: &Address, options: &KafkaOptions) -> Result<ClientConfig, String> {
    let mut config = ClientConfig::new();
    let name = options.connection_name.as_deref().unwrap_or("hapax");
    config
        .set("bootstrap.servers", &address.brokers)
        .set("client.id", name)
        // Whoever misspells an address is told, and makes no topic.
        .set("allow.auto.create.topics", "false")
        .set("socket.keepalive.enable", "true")
        .set("socket.connection.setup.timeout.ms", millis(CONNECT))
        .set("reconnect.backoff.max.ms", millis(REST_MAX))
        .set("log.connection.close", "false")
        .set_log_level(RDKafkaLogLevel::Warning);
    let has_login = address.user.is_some();
    let protocol = match (address.uses_tls, has_login) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some((user, password)) = &address.user {
        let mechanism = options.mechanism;
        if mechanism != super::options::Mechanism::Plain && !cfg!(feature = "kafka-tls") {
            return Err(format!("{} is asked for; build hapax with the feature `kafka-tls`", mechanism.name()));
        }
        config.set("sasl.mechanism", mechanism.name()).set("sasl.username", user).set("sasl.password", password);
    }
    tls(&mut config, address.uses_tls, options)?;
    Ok(config)
}

/// What is certainly wrong is found before a broker is asked.
fn tls(config: &mut ClientConfig, is_used: bool, options: &KafkaOptions) -> Result<(), String> {
    let tls = &options.tls;
    let is_told = tls.authority.is_some() || tls.client.is_some() || tls.accepts_any;
    if is_told && !is_used {
        return Err(
            "something is said of certificates, and the URL does not ask for TLS: begin it with kafka+tls://".into()
        );
    }
    if !is_used {
        return Ok(());
    }
    if !cfg!(feature = "kafka-tls") {
        return Err("the URL asks for TLS (kafka+tls://); build hapax with the feature `kafka-tls`".into());
    }
    config.set("ssl.endpoint.identification.algorithm", "https");
    if tls.accepts_any {
        config.set("enable.ssl.certificate.verification", "false");
    }
    if let Some(pem) = &tls.authority {
        if !pem.contains("-----BEGIN CERTIFICATE-----") {
            return Err("the certificate authority is not PEM: it has no line `-----BEGIN CERTIFICATE-----`".into());
        }
        config.set("ssl.ca.pem", pem);
    }
    if let Some((certificate, key)) = &tls.client {
        if !certificate.contains("-----BEGIN CERTIFICATE-----") {
            return Err("the client's certificate is not PEM: it has no line `-----BEGIN CERTIFICATE-----`".into());
        }
        if !key.contains("PRIVATE KEY-----") {
            return Err("the client's key is not PEM: it has no line `-----BEGIN PRIVATE KEY-----`".into());
        }
        config.set("ssl.certificate.pem", certificate).set("ssl.key.pem", key);
    }
    Ok(())
}

pub(super) fn millis(time: Duration) -> String {
    time.as_millis().max(1).to_string()
}

/// What the client library says by itself: to the log; and the last reason why it cannot connect, which its answers leave out.
#[derive(Debug)]
pub(super) struct Heard {
    place: Arc<str>,
    cause: Mutex<Option<Code>>,
}

impl Heard {
    pub(super) fn new(place: Arc<str>) -> Self {
        Self { place, cause: Mutex::default() }
    }

    /// Why it cannot connect, where that is for a person to mend.
    pub(super) fn cause(&self) -> Option<KafkaError> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).take().map(KafkaError::Global)
    }
}

impl ClientContext for Heard {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let place = &self.place;
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::warn!(facility, "{place}: {message}");
            }
            _ => tracing::debug!(facility, "{place}: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("{}: {error}: {reason}", self.place);
        if let Some(code @ (Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL)) =
            error.rdkafka_error_code()
        {
            *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
        }
    }
}

impl ConsumerContext for Heard {}
