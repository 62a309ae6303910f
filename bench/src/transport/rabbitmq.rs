//! RabbitMQ by hand: a consumer with a prefetch, publisher confirms that are awaited, acknowledgements.

use std::convert::Infallible;

use futures_util::{StreamExt, stream::FuturesUnordered};
use hapax::RabbitMq;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};

use super::{
    desk::{Desk, Outgoing},
    options::Options,
    place::{Named, Place, Queues},
    progress::Progress,
};
use crate::AnyError;

/// Kept by the message, not by AMQP's `delivery-mode` 1.
const PERSISTENT: u8 = 2;

pub(super) struct Exchange {
    url: String,
    named: Named,
}

impl Place for Exchange {
    type Transport = RabbitMq;

    const DROPS_REPEATS: bool = false;

    async fn open(options: &Options) -> Result<Self, AnyError> {
        Ok(Self { url: options.server.clone(), named: Named::new() })
    }

    fn named(&self) -> &Named {
        &self.named
    }

    async fn transport(&self) -> Result<RabbitMq, AnyError> {
        Ok(RabbitMq::options().prefix(&self.named.prefix).open(&self.url).await?)
    }

    async fn by_hand(
        &self,
        queues: &Queues,
        in_flight: usize,
        desk: &mut Desk,
        progress: &Progress,
    ) -> Result<Infallible, AnyError> {
        // Two connections, as hapax has them: a server that holds publishers back goes on delivering.
        let connect = || Connection::connect(&self.url, ConnectionProperties::default());
        let (publishing, consuming) = (connect().await?, connect().await?);
        let channel = publishing.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let from = consuming.create_channel().await?;
        from.basic_qos(u16::try_from(in_flight)?, BasicQosOptions::default()).await?;
        let [first, last] = [&queues.first, &queues.last].map(|name| format!("{}.queue.{name}", self.named.prefix));
        let consumed =
            from.basic_consume(first.as_str().into(), "".into(), BasicConsumeOptions::default(), FieldTable::default());
        let mut messages = consumed.await?;
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(ended) = under_way.next() => {
                    let () = ended?;
                    progress.settled(1);
                }
                message = messages.next(), if under_way.len() < in_flight => {
                    let message = message.ok_or("RabbitMQ gives nothing any more")??;
                    progress.received();
                    let id = message.properties.message_id().as_ref().ok_or("a message has no id")?.as_str();
                    let outgoing = desk.handle(id, &message.data)?;
                    let outgoing = outgoing.map(|outgoing| (properties(&outgoing, id), outgoing));
                    under_way.push(pass(&channel, &last, message, outgoing));
                }
            }
        }
    }

    async fn remove(self) -> Result<(), AnyError> {
        Ok(self.transport().await?.remove(&self.named.all()?).await?)
    }
}

fn properties(outgoing: &Outgoing, cause: &str) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("hapax-causation-id".into(), AMQPValue::LongString(cause.into()));
    BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(outgoing.id.as_str().into())
        .with_type("bench.changed".into())
        .with_content_type("application/json".into())
        .with_headers(headers)
}

async fn pass(
    channel: &Channel,
    queue: &str,
    message: Delivery,
    outgoing: Option<(BasicProperties, Outgoing)>,
) -> Result<(), AnyError> {
    if let Some((properties, outgoing)) = outgoing {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let published = channel.basic_publish("".into(), queue.into(), options, &outgoing.body, properties);
        match published.await?.await? {
            Confirmation::Ack(None) => {}
            other => return Err(format!("not confirmed: {other:?}").into()),
        }
    }
    if !message.acker.ack(BasicAckOptions::default()).await? {
        return Err("an acknowledgement was not taken".into());
    }
    Ok(())
}
