//! SQS by hand: as many calls for messages at a time as the adapter makes; what one has brought is sent in one call, and then deleted in
//! another.

use std::{collections::HashMap, convert::Infallible};

use aws_sdk_sqs::{
    Client,
    types::{DeleteMessageBatchRequestEntry, Message, MessageAttributeValue, SendMessageBatchRequestEntry},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hapax::Sqs;

use super::{
    desk::{Desk, Outgoing},
    options::Options,
    place::{Named, Place, Queues},
    progress::Progress,
};
use crate::AnyError;

/// The service gives and takes no more in a call.
const TOGETHER: usize = 10;
/// Calls for messages at a time, as the adapter's by default.
const POLLS: usize = 4;
/// Seconds that the service holds a call.
const HELD: i32 = 20;
const MESSAGE_ID: &str = "hapax-message-id";

pub(super) struct Service {
    client: Client,
    named: Named,
}

impl Place for Service {
    type Transport = Sqs;

    const DROPS_REPEATS: bool = false;

    async fn open(options: &Options) -> Result<Self, AnyError> {
        Ok(Self { client: Sqs::local_client(&options.server), named: Named::new() })
    }

    fn named(&self) -> &Named {
        &self.named
    }

    async fn transport(&self) -> Result<Sqs, AnyError> {
        Ok(Sqs::options().prefix(&self.named.prefix).open(&self.client).await?)
    }

    async fn by_hand(
        &self,
        queues: &Queues,
        in_flight: usize,
        desk: &mut Desk,
        progress: &Progress,
    ) -> Result<Infallible, AnyError> {
        let prefix = &self.named.prefix;
        let first = self.url(format!("{prefix}_queue_{}", queues.first)).await?;
        let last = self.url(format!("{prefix}_queue_{}", queues.last)).await?;
        let lanes = POLLS.min(in_flight.div_ceil(TOGETHER));
        let lane = |sends, over| self.lane(&first, &last, sends, over, progress);
        let mut under_way: FuturesUnordered<_> = (0..lanes).map(|_| lane(Vec::new(), Vec::new())).collect();
        while let Some(came) = under_way.next().await {
            let (mut sends, mut over) = (Vec::new(), Vec::new());
            for message in came? {
                progress.received();
                let attributes = message.message_attributes.as_ref();
                let id = attributes.and_then(|all| all.get(MESSAGE_ID)).and_then(|id| id.string_value.as_deref());
                let id = id.ok_or("a message has no id")?;
                let body = message.body.as_deref().ok_or("a message has no body")?;
                if let Some(outgoing) = desk.handle(id, body.as_bytes())? {
                    sends.push(entry(sends.len(), outgoing, id)?);
                }
                let handle = message.receipt_handle.as_deref().ok_or("a message has no receipt")?;
                let deleted = DeleteMessageBatchRequestEntry::builder().id(over.len().to_string());
                over.push(deleted.receipt_handle(handle).build()?);
            }
            under_way.push(lane(sends, over));
        }
        Err("no call for messages is left".into())
    }

    async fn remove(self) -> Result<(), AnyError> {
        Ok(self.transport().await?.remove(&self.named.all()?).await?)
    }
}

impl Service {
    async fn url(&self, name: String) -> Result<String, AnyError> {
        let found = self.client.get_queue_url().queue_name(name).send().await?;
        Ok(found.queue_url.ok_or("a queue has no URL")?)
    }

    /// Sends, deletes once that is confirmed, and asks for the next.
    async fn lane(
        &self,
        first: &str,
        last: &str,
        sends: Vec<SendMessageBatchRequestEntry>,
        over: Vec<DeleteMessageBatchRequestEntry>,
        progress: &Progress,
    ) -> Result<Vec<Message>, AnyError> {
        if !sends.is_empty() {
            let sent = self.client.send_message_batch().queue_url(last).set_entries(Some(sends)).send().await?;
            if !sent.failed.is_empty() {
                return Err(format!("not sent: {:?}", sent.failed).into());
            }
        }
        if !over.is_empty() {
            let deleted = self.client.delete_message_batch().queue_url(first).set_entries(Some(over)).send().await?;
            if !deleted.failed.is_empty() {
                return Err(format!("not deleted: {:?}", deleted.failed).into());
            }
            progress.settled(deleted.successful.len() as u64);
        }
        let asked = self.client.receive_message().queue_url(first).max_number_of_messages(TOGETHER as i32);
        let came = asked.wait_time_seconds(HELD).message_attribute_names("All").send().await?;
        Ok(came.messages.unwrap_or_default())
    }
}

fn entry(number: usize, outgoing: Outgoing, cause: &str) -> Result<SendMessageBatchRequestEntry, AnyError> {
    let mut attributes = HashMap::new();
    for (name, value) in [
        ("content-type", "application/json"),
        (MESSAGE_ID, &outgoing.id),
        ("hapax-type", "bench.changed"),
        ("hapax-causation-id", cause),
    ] {
        let value = MessageAttributeValue::builder().data_type("String").string_value(value).build()?;
        attributes.insert(name.to_owned(), value);
    }
    let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
    Ok(entry.message_body(String::from_utf8(outgoing.body)?).set_message_attributes(Some(attributes)).build()?)
}
