//! Queues on the server of the tests, RabbitMQ with its plugin for AMQP 1.0, or in a namespace of the service itself; and short ways to
//! send and receive.
//!
//! AMQP cannot create a queue. So what [`ServiceBus::az_commands`] says is done before an endpoint connects: on RabbitMQ by its own
//! protocol, in Azure by running the commands.

use std::{fmt, process::Command, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    ServiceBus,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{
        Connected, DeadLetter, DeadLetters, Delivery, DispatchError, Dispatcher, Page, Refused, Settled, Settlement,
        StoreError, Transport, TransportCapabilities, TransportError,
    },
    testing,
    transports::servicebus::ServiceBusOptions,
};
use lapin::{
    BasicProperties, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};

/// Where the server is: set by `cargo xtask test`, which starts one.
const SERVER: &str = "HAPAX_TEST_SERVICEBUS";
/// The service itself takes its place where this is set, with its connection string and its resource group in the others.
const AZURE: &str = "HAPAX_AZURE";
const NAMESPACE: &str = "HAPAX_AZURE_SERVICEBUS";
const GROUP: &str = "HAPAX_AZURE_GROUP";
/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Queues of tests go by themselves.
const UNUSED_MILLIS: i32 = 120_000;
/// One prefix for all tests: endpoints have names of their own.
const PREFIX: &str = "hapax-test";

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("no server to test with: run `cargo xtask test`, or set {name}"))
}

pub(crate) fn is_azure() -> bool {
    std::env::var(AZURE).is_ok_and(|value| value.trim() != "0")
}

/// Where the server of the tests is.
pub(crate) fn url() -> String {
    if is_azure() { variable(NAMESPACE) } else { variable(SERVER) }
}

pub(crate) fn options() -> ServiceBusOptions {
    options_at(&url())
}

pub(crate) fn options_at(url: &str) -> ServiceBusOptions {
    let options = ServiceBus::options().prefix(PREFIX);
    match is_plain(url) {
        // Where RabbitMQ's plugin finds queues and topics.
        true => options.addresses("/amq/queue/", format!("/exchange/{PREFIX}.topics/")),
        false => options.lock_duration(Duration::from_secs(5)),
    }
}

fn is_plain(url: &str) -> bool {
    url.starts_with("amqp://")
}

pub(crate) async fn open() -> Queues {
    Queues::open(url()).await
}

/// A transport whose queues are made when an endpoint connects.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    pub(crate) bus: ServiceBus,
    url: String,
    /// Who does what the commands say, where nobody else does.
    tool: Option<Arc<dyn Tool>>,
}

/// What stands in for Azure's own.
pub(crate) trait Tool: fmt::Debug + Send + Sync {
    fn run(&self, commands: &str);
}

impl Queues {
    pub(crate) async fn open(url: String) -> Self {
        Self { bus: options_at(&url).open(&url).await.unwrap(), url, tool: None }
    }

    /// Where `tool` does what the commands say.
    pub(crate) async fn with(options: ServiceBusOptions, url: String, tool: Arc<dyn Tool>) -> Self {
        Self { bus: options.open(&url).await.unwrap(), url, tool: Some(tool) }
    }

    /// The same over a line to `server`, which is told directly what queues there are.
    pub(crate) async fn over(options: ServiceBusOptions, line: &str, server: String) -> Self {
        Self { bus: options.open(line).await.unwrap(), url: server, tool: None }
    }

    pub(crate) async fn declare(&self, endpoint: &EndpointName, types: &[TypeName]) {
        let commands = self.bus.az_commands(endpoint, types);
        if let Some(tool) = &self.tool {
            return tool.run(&commands);
        }
        if !is_plain(&self.url) {
            return run(&commands);
        }
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let exchange = format!("{PREFIX}.topics");
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(short(&exchange), ExchangeKind::Direct, durable, FieldTable::default()).await.unwrap();
        for command in commands.lines() {
            let word = |name: &str| {
                let mut words = command.split(' ').skip_while(|word| *word != name).skip(1);
                words.next().unwrap_or_else(|| panic!("`{command}` has no {name}"))
            };
            if command.starts_with("az servicebus queue create") {
                let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
                let mut arguments = FieldTable::default();
                arguments.insert("x-expires".into(), AMQPValue::LongInt(UNUSED_MILLIS));
                channel.queue_declare(short(word("--name")), durable, arguments).await.unwrap();
            } else if command.starts_with("az servicebus topic subscription create") {
                let (queue, topic) = (word("--forward-to"), word("--topic-name"));
                let options = QueueBindOptions::default();
                let none = FieldTable::default();
                channel.queue_bind(short(queue), short(&exchange), short(topic), options, none).await.unwrap();
            }
        }
        connection.close(200, short("")).await.unwrap();
    }
}

pub(crate) fn short(text: &str) -> lapin::types::ShortString {
    lapin::types::ShortString::try_new(text).unwrap()
}

/// In Azure, by its own tool, which has to be logged in. Queues go when nobody has used them for five minutes.
fn run(commands: &str) {
    for command in commands.lines() {
        let command = match command.contains("servicebus queue create") || command.contains("topic create") {
            true => format!("{command} --auto-delete-on-idle PT5M"),
            false => command.to_owned(),
        };
        let ran = Command::new("sh").args(["-c", &command]).env("GROUP", variable(GROUP)).output().unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[async_trait]
impl Transport for Queues {
    fn capabilities(&self) -> TransportCapabilities {
        self.bus.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.declare(endpoint, types).await;
        self.bus.connect(endpoint, types).await
    }
}

#[async_trait]
impl Dispatcher for Queues {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.bus.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        self.bus.dispatch(outgoing).await
    }
}

#[async_trait]
impl DeadLetters for Queues {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.declare(&letter.endpoint, &[]).await;
        self.bus.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.declare(endpoint, &[]).await;
        self.bus.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.bus.discard(letters).await
    }
}

/// For the suites.
#[derive(Debug)]
pub(crate) struct Opened;

#[async_trait]
impl testing::transport::Builder for Opened {
    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(open().await)
    }
}

/// What the suite may leave untried: less on the service itself, since RabbitMQ has no leases here and no delays.
pub(crate) fn unclaimed() -> Vec<&'static str> {
    let mut unclaimed = vec!["in_order", "given_in_order", "behind_all", "gone_for_good", "in_the_end", "any_process"];
    if !is_azure() {
        unclaimed.extend(["late_settles_are_refused", "not_early"]);
    }
    unclaimed
}

#[async_trait]
impl testing::dead_letters::Builder for Opened {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(open().await)
    }
}

pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{}", MessageId::random())
}

pub(crate) fn endpoint() -> EndpointName {
    EndpointName::parse(unique("shop")).unwrap()
}

pub(crate) fn envelope(body: &str) -> Envelope {
    let kind = TypeName::parse("shop.added").unwrap();
    Envelope::new(MessageId::random(), kind, body.as_bytes().to_vec())
}

pub(crate) fn to(endpoint: &EndpointName, envelope: Envelope) -> Outgoing {
    Outgoing { destination: Destination::Endpoint(endpoint.clone()), envelope: Arc::new(envelope) }
}

pub(crate) async fn send(queue: &impl Dispatcher, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

pub(crate) async fn next(ends: &Connected) -> Delivery {
    let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("nothing came");
    received.unwrap().pop().unwrap()
}

pub(crate) fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.envelope.body.to_vec()).unwrap()
}

pub(crate) async fn settle(ends: &Connected, delivery: &Delivery, settlement: Settlement) {
    assert_eq!(ends.receiver.settle(&delivery.receipt, settlement).await.unwrap(), Settled::Done);
}

/// What an endpoint's queue is called.
pub(crate) fn queue_of(endpoint: &EndpointName) -> String {
    format!("{PREFIX}.queue.{endpoint}")
}

/// How many messages are in the queue of an endpoint and with nobody; on RabbitMQ alone.
pub(crate) async fn waiting(endpoint: &EndpointName) -> u32 {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare(short(&queue_of(endpoint)), passive, FieldTable::default()).await.unwrap();
    let messages = queue.message_count();
    connection.close(200, short("")).await.unwrap();
    messages
}

pub(crate) async fn until_waiting(endpoint: &EndpointName, messages: u32) {
    let looking = async {
        while waiting(endpoint).await != messages {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let looked = tokio::time::timeout(PATIENCE, looking).await;
    looked.unwrap_or_else(|_| panic!("there are never {messages} messages"));
}

/// An exchange; on RabbitMQ alone.
pub(crate) async fn make_exchange(name: &str) {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let options = ExchangeDeclareOptions { auto_delete: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(short(name), ExchangeKind::Direct, options, FieldTable::default()).await.unwrap();
    connection.close(200, short("")).await.unwrap();
}

/// Where RabbitMQ's plugin finds the application properties of a message that did not come by AMQP 1.0, since its headers are not among them; and
/// puts those of one that did.
pub(crate) const APPLICATION_PROPERTIES: &str = "x-amqp-1.0-app-properties";

/// A section of application properties as AMQP 1.0 writes it: a map of short texts.
fn application_properties(properties: &[(&str, &str)]) -> Vec<u8> {
    let mut map = vec![u8::try_from(2 * properties.len()).unwrap()];
    for text in properties.iter().flat_map(|(name, value)| [name, value]) {
        map.extend([0xa1, u8::try_from(text.len()).unwrap()]);
        map.extend(text.as_bytes());
    }
    let mut section = vec![0x00, 0x53, 0x74, 0xc1, u8::try_from(map.len()).unwrap()];
    section.append(&mut map);
    section
}

/// A message by a program that speaks AMQP 0-9-1, confirmed; on RabbitMQ alone.
pub(crate) async fn put(queue: &str, id: Option<&str>, content_type: &str, application: &[(&str, &str)], body: &[u8]) {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let mut table = FieldTable::default();
    let application = application_properties(application);
    table.insert(short(APPLICATION_PROPERTIES), AMQPValue::LongString(application.into()));
    let mut properties = BasicProperties::default().with_headers(table).with_content_type(short(content_type));
    if let Some(id) = id {
        properties = properties.with_message_id(short(id));
    }
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let confirm = channel.basic_publish(short(""), short(queue), options, body, properties).await.unwrap();
    assert!(confirm.await.unwrap().is_ack());
}
