//! What a careful hand writes without a library, on the same driver: publishing after the commit, and a relay that claims,
//! publishes and stores the status in batches.

use futures_util::future::join_all;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueuePurgeOptions},
};
use sqlx::{PgPool, Row};
use uuid::Uuid;

use crate::AnyError;

/// As large as the relay's calls to the transport.
const BATCH: i64 = 256;

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

    /// Nobody reads what is sent; it is not to fill the broker.
    pub(super) async fn purge(&self) -> Result<(), AnyError> {
        self.channel.queue_purge(self.queue.as_str().into(), QueuePurgeOptions::default()).await?;
        Ok(())
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
pub(super) async fn relay(pool: &PgPool, broker: &Broker) -> Result<u64, AnyError> {
    let mut sent = 0;
    loop {
        let mut tx = pool.begin().await?;
        let claim = "SELECT id, body FROM outbox WHERE status = 0 AND ready_at <= $1 ORDER BY ready_at LIMIT $2 \
                     FOR UPDATE SKIP LOCKED";
        let rows = sqlx::query(claim).bind(i64::MAX).bind(BATCH).fetch_all(&mut *tx).await?;
        if rows.is_empty() {
            return Ok(sent);
        }
        let rows: Vec<(Uuid, Vec<u8>)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        for published in join_all(rows.iter().map(|(id, body)| broker.publish(*id, body))).await {
            published?;
        }
        let ids: Vec<Uuid> = rows.iter().map(|(id, _)| *id).collect();
        let status = "UPDATE outbox SET status = 1, ended_at = 0 WHERE id = ANY ($1)";
        sqlx::query(status).bind(ids).execute(&mut *tx).await?;
        tx.commit().await?;
        sent += rows.len() as u64;
    }
}
