//! The queues and exchanges: declared, or looked for where others declare them.

use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, TypeName},
    ports::TransportError,
};
use lapin::{
    Channel, Connection, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use tokio::time::timeout;

use super::{
    Broker,
    errors::{error_of, late},
    names::{DELAY_LEVELS, delay_binding, due_binding, topic_key},
};

/// What a queue gives out before it takes a message for poison: far above what hapax counts itself, since a message that
/// the server drops is lost. (RabbitMQ 4 stops at 20 unless told otherwise.)
const DELIVERIES_MAX: i64 = 1_000_000;
/// Messages without a queue that are kept for a person: more than anybody reads.
const UNROUTED_MAX: i64 = 10_000;

const DECLARING: &str = "declaring queues";

impl Broker {
    /// Declares, or looks for, what all endpoints share.
    pub(super) async fn set_up(&self) -> Result<(), TransportError> {
        self.set_up_on(&self.publisher.open(&self.link).await?.connection).await
    }

    pub(super) async fn set_up_on(&self, connection: &Connection) -> Result<(), TransportError> {
        self.declare(connection, |declaring| Box::pin(declaring.shared())).await
    }

    /// Declares, or looks for, the queues of `endpoint`, and subscribes it to `types`.
    pub(super) async fn subscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        self.subscribe_on(&self.publisher.open(&self.link).await?.connection, endpoint, types).await
    }

    pub(super) async fn subscribe_on(
        &self,
        connection: &Connection,
        endpoint: &EndpointName,
        types: &[TypeName],
    ) -> Result<(), TransportError> {
        self.declare(connection, |declaring| Box::pin(declaring.endpoint(endpoint, types))).await
    }

    /// Declares, or looks for, the place for dead letters of `endpoint`. Only when there is one: most endpoints have none, and
    /// a quorum queue takes three of the server's file handles.
    pub(super) async fn keep_letters(&self, endpoint: &EndpointName) -> Result<(), TransportError> {
        let open = self.publisher.open(&self.link).await?;
        self.declare(&open.connection, |declaring| Box::pin(declaring.letters(endpoint))).await
    }

    /// Removes the bindings of `endpoint` to `types`.
    pub(super) async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        let open = self.publisher.open(&self.link).await?;
        self.declare(&open.connection, |declaring| Box::pin(declaring.unbind(endpoint, types))).await
    }

    async fn declare<'a, F>(&'a self, connection: &Connection, what: F) -> Result<(), TransportError>
    where
        F: FnOnce(Declaring<'a>) -> futures_util::future::BoxFuture<'a, lapin::Result<()>>,
    {
        let place = self.link.place();
        // A channel of its own: the server closes it when it refuses something.
        let declared = async {
            let channel = connection.create_channel().await?;
            what(Declaring { broker: self, channel }).await
        };
        match timeout(self.options.patience, declared).await {
            Ok(declared) => declared.map_err(|e| error_of(DECLARING, place, e, false)),
            Err(_) => Err(late(DECLARING, place, self.options.patience, false)),
        }
    }
}

struct Declaring<'b> {
    broker: &'b Broker,
    channel: Channel,
}

impl Declaring<'_> {
    async fn shared(self) -> lapin::Result<()> {
        let names = &self.broker.names;
        let (topics, due, unrouted) = (names.topics(), names.due(), names.unrouted());
        self.exchange(&topics, ExchangeKind::Direct, FieldTable::default()).await?;
        self.exchange(&unrouted, ExchangeKind::Fanout, FieldTable::default()).await?;
        let mut bounded = FieldTable::default();
        bounded.insert("x-max-length".into(), AMQPValue::LongLongInt(UNROUTED_MAX));
        self.queue(&unrouted, bounded).await?;
        self.bind(&unrouted, &unrouted, "").await?;
        // What nothing is bound for would be tried again for ever where it waited, and hold up others.
        let mut alternate = FieldTable::default();
        alternate.insert("alternate-exchange".into(), text(&unrouted));
        self.exchange(&due, ExchangeKind::Topic, alternate).await?;
        for level in 0..DELAY_LEVELS {
            self.delay(level).await?;
        }
        Ok(())
    }

    async fn delay(&self, level: u32) -> lapin::Result<()> {
        let names = &self.broker.names;
        let (name, next) = (names.delay(level), names.after_delay(level));
        let mut arguments = FieldTable::default();
        arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(1 << level));
        arguments.insert("x-dead-letter-exchange".into(), text(&next));
        // A classic queue, and a quorum queue unless told so, forgets a message while it hands it on when it is killed.
        arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        arguments.insert("x-overflow".into(), text("reject-publish"));
        self.exchange(&name, ExchangeKind::Topic, FieldTable::default()).await?;
        self.queue(&name, arguments).await?;
        self.bind(&name, &name, &delay_binding(level, '1')).await?;
        if self.broker.options.declare {
            let (to, from) = (short(&next)?, short(&name)?);
            let key = short(&delay_binding(level, '0'))?;
            self.channel.exchange_bind(to, from, key, Default::default(), FieldTable::default()).await?;
        }
        Ok(())
    }

    async fn endpoint(self, endpoint: &EndpointName, types: &[TypeName]) -> lapin::Result<()> {
        let names = &self.broker.names;
        let (queue, due) = (names.queue(endpoint), names.due());
        let mut arguments = FieldTable::default();
        if self.broker.options.ordered_keys {
            arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
        }
        self.unused(&mut arguments);
        self.queue(&queue, arguments).await?;
        if !self.broker.options.declare {
            self.queue(&names.dead_letters(endpoint), FieldTable::default()).await?;
        }
        self.bind(&queue, &due, &due_binding(&Destination::Endpoint(endpoint.clone()))).await?;
        for topic in types {
            self.bind(&queue, &names.topics(), &topic_key(topic)).await?;
            self.bind(&queue, &due, &due_binding(&Destination::Topic(topic.clone()))).await?;
        }
        Ok(())
    }

    async fn letters(self, endpoint: &'_ EndpointName) -> lapin::Result<()> {
        let mut arguments = FieldTable::default();
        self.unused(&mut arguments);
        self.queue(&self.broker.names.dead_letters(endpoint), arguments).await
    }

    /// Ends a queue of an endpoint that nobody uses any more.
    fn unused(&self, arguments: &mut FieldTable) {
        if let Some(unused) = self.broker.options.unused_max {
            let millis = i64::try_from(unused.as_millis()).unwrap_or(i64::MAX);
            arguments.insert("x-expires".into(), AMQPValue::LongLongInt(millis));
        }
    }

    async fn unbind(self, endpoint: &'_ EndpointName, types: &'_ [TypeName]) -> lapin::Result<()> {
        let names = &self.broker.names;
        let queue = short(&names.queue(endpoint))?;
        for topic in types {
            for (exchange, key) in
                [(names.topics(), topic_key(topic)), (names.due(), due_binding(&Destination::Topic(topic.clone())))]
            {
                let (exchange, key) = (short(&exchange)?, short(&key)?);
                self.channel.queue_unbind(queue.clone(), exchange, key, FieldTable::default()).await?;
            }
        }
        Ok(())
    }

    async fn exchange(&self, name: &str, kind: ExchangeKind, arguments: FieldTable) -> lapin::Result<()> {
        let passive = !self.broker.options.declare;
        let options = ExchangeDeclareOptions { passive, durable: true, ..ExchangeDeclareOptions::default() };
        self.channel.exchange_declare(short(name)?, kind, options, arguments).await
    }

    async fn queue(&self, name: &str, mut arguments: FieldTable) -> lapin::Result<()> {
        let passive = !self.broker.options.declare;
        let options = QueueDeclareOptions { passive, durable: true, ..QueueDeclareOptions::default() };
        arguments.insert("x-queue-type".into(), text("quorum"));
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(DELIVERIES_MAX));
        self.channel.queue_declare(short(name)?, options, arguments).await.map(|_| ())
    }

    async fn bind(&self, queue: &str, exchange: &str, key: &str) -> lapin::Result<()> {
        if !self.broker.options.declare {
            return Ok(()); // There is no way to look for one.
        }
        let options = QueueBindOptions::default();
        self.channel.queue_bind(short(queue)?, short(exchange)?, short(key)?, options, FieldTable::default()).await
    }
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// A name as AMQP has it. [`Names`](super::names::Names) makes none that is too long.
pub(super) fn short(text: &str) -> lapin::Result<ShortString> {
    ShortString::try_new(text).map_err(|e| lapin::Error::from(std::io::Error::other(e)))
}
