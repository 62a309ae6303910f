//! What a careful hand writes without a library, on the same driver: publishing after the commit, and a relay that claims,
//! publishes and stores the status in batches.

use futures_util::future::join_all;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueuePurgeOptions},
};
use uuid::Uuid;

use super::place::Place;
use crate::AnyError;

/// As large as the relay's calls to the transport.
pub(super) const BATCH: i64 = 256;

pub(super) struct Broker {
    _connection: Connection,
    channel: Channel,
    queue: String,
}

impl Broker {
    pub(super) async fn open(url: &str, queue: String) -> Result<Self, AnyError> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { _connection: connection, channel, queue })
    }

    /// Nobody reads what is sent; it is not to fill the broker. How many there were.
    pub(super) async fn purge(&self) -> Result<u32, AnyError> {
        Ok(self.channel.queue_purge(self.queue.as_str().into(), QueuePurgeOptions::default()).await?)
    }

    /// Publishes, and waits for the confirmation.
    pub(super) async fn publish(&self, id: Uuid, body: &[u8]) -> Result<(), AnyError> {
        let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(id.to_string().into());
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let published = self.channel.basic_publish("".into(), self.queue.as_str().into(), options, body, properties);
        match published.await?.await? {
            Confirmation::Ack(None) => Ok(()),
            other => Err(format!("not confirmed: {other:?}").into()),
        }
    }
}

/// Sends what waits in the outbox's table, batch after batch, until there is nothing left. How many there were.
pub(super) async fn relay<P: Place>(place: &P, broker: &Broker) -> Result<u64, AnyError> {
    let mut sent = 0;
    loop {
        let mut tx = place.begin().await?;
        let rows = P::claim(&mut tx).await?;
        if rows.is_empty() {
            return Ok(sent);
        }
        for published in join_all(rows.iter().map(|row| broker.publish(row.id, &row.body))).await {
            published?;
        }
        P::mark(&mut tx, &rows).await?;
        tx.commit().await?;
        sent += rows.len() as u64;
    }
}
