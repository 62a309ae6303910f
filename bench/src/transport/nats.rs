//! NATS JetStream by hand: a pull consumer, a publication whose confirmation is awaited, an acknowledgement that is answered.

use std::convert::Infallible;

use async_nats::{
    HeaderMap,
    jetstream::{self, Message, consumer::PullConsumer},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hapax::Nats;

use super::{
    desk::{Desk, Outgoing},
    options::Options,
    place::{Named, Place, Queues},
    progress::Progress,
};
use crate::AnyError;

const MESSAGE_ID: &str = "Nats-Msg-Id";

pub(super) struct Streams {
    url: String,
    named: Named,
}

impl Place for Streams {
    type Transport = Nats;

    const DROPS_REPEATS: bool = true;

    async fn open(options: &Options) -> Result<Self, AnyError> {
        Ok(Self { url: options.server.clone(), named: Named::new() })
    }

    fn named(&self) -> &Named {
        &self.named
    }

    async fn transport(&self) -> Result<Nats, AnyError> {
        Ok(Nats::options().prefix(&self.named.prefix).open(&self.url).await?)
    }

    async fn by_hand(
        &self,
        queues: &Queues,
        in_flight: usize,
        desk: &mut Desk,
        progress: &Progress,
    ) -> Result<Infallible, AnyError> {
        let prefix = &self.named.prefix;
        let broker = jetstream::new(async_nats::connect(&self.url).await?);
        let stream = broker.get_stream(format!("{prefix}-queue-{}", queues.first)).await?;
        let consumer: PullConsumer = stream.get_consumer("receivers").await?;
        let mut messages = consumer.stream().max_messages_per_batch(in_flight).messages().await?;
        let subject = format!("{prefix}.queue.{}", queues.last);
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(ended) = under_way.next() => {
                    let () = ended?;
                    progress.settled(1);
                }
                message = messages.next(), if under_way.len() < in_flight => {
                    let message = message.ok_or("NATS gives nothing any more")??;
                    progress.received();
                    let id = message.headers.as_ref().and_then(|headers| headers.get(MESSAGE_ID));
                    let id = id.ok_or("a message has no id")?.as_str();
                    let outgoing = desk.handle(id, &message.payload)?.map(|outgoing| (headers(&outgoing, id), outgoing));
                    under_way.push(pass(&broker, &subject, message, outgoing));
                }
            }
        }
    }

    async fn remove(self) -> Result<(), AnyError> {
        Ok(self.transport().await?.remove(&self.named.all()?).await?)
    }
}

fn headers(outgoing: &Outgoing, cause: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(MESSAGE_ID, outgoing.id.as_str());
    headers.insert("hapax-type", "bench.changed");
    headers.insert("hapax-causation-id", cause);
    headers
}

async fn pass(
    broker: &jetstream::Context,
    subject: &str,
    message: Message,
    outgoing: Option<(HeaderMap, Outgoing)>,
) -> Result<(), AnyError> {
    if let Some((headers, outgoing)) = outgoing {
        broker.publish_with_headers(subject.to_owned(), headers, outgoing.body.into()).await?.await?;
    }
    message.double_ack().await
}
