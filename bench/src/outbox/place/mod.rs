//! The databases that an outbox may be in: a place of one run with the shop's own tables and an outbox, and the broker.

mod mysql;
mod postgres;
mod sqlite;

use std::time::Duration;

use hapax::{
    RabbitMq,
    envelope::Outgoing,
    ports::{OutboxTable, Transport},
    relay::Ticket,
};
pub(super) use mysql::MySqlPlace;
pub(super) use postgres::PostgresPlace;
pub(super) use sqlite::SqlitePlace;
use sqlx::{Pool, Transaction};
use uuid::Uuid;

use super::{Options, SINK, Sold};
use crate::AnyError;

/// A transaction of the user's.
pub(super) type Tx<P> = Transaction<'static, <P as Place>::Driver>;

/// A message that waits, as a hand reads it.
pub(super) struct Waiting {
    pub(super) number: i64,
    pub(super) id: Uuid,
    pub(super) body: Vec<u8>,
}

/// What each database has of its own.
pub(super) trait Place: Sized {
    type Driver: sqlx::Database;
    type Outbox: OutboxTable + Clone + 'static;

    /// A new one; its user has so many connections.
    async fn new(options: &Options, connections: u32) -> Result<Self, AnyError>;

    async fn remove(self) -> Result<(), AnyError>;

    fn shop(&self) -> &Shop<Self>;

    /// A row of the shop's own.
    async fn insert_order(tx: &mut Tx<Self>, order: i64) -> Result<(), AnyError>;

    /// One more, as large as a message.
    async fn insert_note(tx: &mut Tx<Self>, order: i64, body: String) -> Result<(), AnyError>;

    fn outgoing(&self, sold: &Sold) -> Result<Outgoing, AnyError>;

    async fn enqueue(&self, tx: &mut Tx<Self>, messages: &[Outgoing]) -> Result<Ticket, AnyError>;

    async fn commit(&self, tx: Tx<Self>, ticket: Ticket) -> Result<(), AnyError>;

    /// Messages that are stored as sent.
    async fn sent(&self) -> Result<i64, AnyError>;

    /// The next that wait, locked for others where the database can.
    async fn claim(tx: &mut Tx<Self>) -> Result<Vec<Waiting>, AnyError>;

    /// Stores them as sent.
    async fn mark(tx: &mut Tx<Self>, sent: &[Waiting]) -> Result<(), AnyError>;

    /// The number of the thread by which the server, on this machine, serves the session of `tx`; `None`: it has none for it
    /// alone.
    async fn thread(tx: &mut Tx<Self>) -> Result<Option<i64>, AnyError>;

    /// Waits, and tells how many queries the server has seen meanwhile, by its own count and from everybody: nobody else may ask it
    /// anything. `None`: there is no server.
    async fn queries_during(&self, time: Duration) -> Result<Option<i64>, AnyError>;

    async fn begin(&self) -> Result<Tx<Self>, AnyError> {
        Ok(self.shop().pool.begin().await?)
    }

    /// Stores a backlog, in one transaction for each thousand.
    async fn store(&self, count: u32) -> Result<(), AnyError> {
        let orders: Vec<i64> = (0..i64::from(count)).collect();
        for orders in orders.chunks(1000) {
            let messages = orders.iter().map(|order| self.outgoing(&Sold::new(*order)));
            let messages = messages.collect::<Result<Vec<Outgoing>, _>>()?;
            let mut tx = self.begin().await?;
            let ticket = self.enqueue(&mut tx, &messages).await?;
            self.commit(tx, ticket).await?;
        }
        Ok(())
    }
}

/// What all have.
pub(super) struct Shop<P: Place> {
    /// The user's own connections.
    pub(super) pool: Pool<P::Driver>,
    pub(super) outbox: P::Outbox,
    pub(super) broker: RabbitMq,
}

/// With the queue that is sent to.
async fn broker(options: &Options) -> Result<RabbitMq, AnyError> {
    let broker = RabbitMq::open(&options.rabbitmq).await?;
    broker.connect(&SINK.parse()?, &[]).await?;
    Ok(broker)
}

/// The shop's own tables.
const TABLES: [&str; 2] = [
    "CREATE TABLE shop_order (id bigint PRIMARY KEY, note text NOT NULL)",
    "CREATE TABLE shop_note (id bigint PRIMARY KEY, note text NOT NULL)",
];

/// What is the same everywhere but for the types of the driver and the way in which it numbers values.
macro_rules! usual {
    ($values:literal, $table:literal) => {
        fn shop(&self) -> &super::Shop<Self> {
            &self.shop
        }

        async fn insert_order(tx: &mut super::Tx<Self>, order: i64) -> Result<(), crate::AnyError> {
            let insert = concat!("INSERT INTO shop_order VALUES ", $values);
            sqlx::query(insert).bind(order).bind("an order").execute(&mut **tx).await?;
            Ok(())
        }

        async fn insert_note(tx: &mut super::Tx<Self>, order: i64, body: String) -> Result<(), crate::AnyError> {
            let insert = concat!("INSERT INTO shop_note VALUES ", $values);
            sqlx::query(insert).bind(order).bind(body).execute(&mut **tx).await?;
            Ok(())
        }

        fn outgoing(&self, sold: &super::Sold) -> Result<hapax::envelope::Outgoing, crate::AnyError> {
            Ok(self.shop.outbox.outgoing(sold)?)
        }

        async fn enqueue(
            &self,
            tx: &mut super::Tx<Self>,
            messages: &[hapax::envelope::Outgoing],
        ) -> Result<hapax::relay::Ticket, crate::AnyError> {
            Ok(self.shop.outbox.enqueue_all(&mut **tx, messages).await?)
        }

        async fn commit(&self, tx: super::Tx<Self>, ticket: hapax::relay::Ticket) -> Result<(), crate::AnyError> {
            Ok(self.shop.outbox.commit(tx, ticket).await?)
        }

        async fn sent(&self) -> Result<i64, crate::AnyError> {
            let count = concat!("SELECT count(*) FROM ", $table, " WHERE status = 1");
            let (count,): (i64,) = sqlx::query_as(count).fetch_one(&self.shop.pool).await?;
            Ok(count)
        }
    };
}
use usual;

/// The statement of [`Place::mark`] where a driver has no lists: as many values as there are rows, which are seldom another
/// number, so that it is prepared once.
macro_rules! mark_each {
    ($table:literal) => {
        async fn mark(tx: &mut super::Tx<Self>, sent: &[super::Waiting]) -> Result<(), crate::AnyError> {
            let values = vec!["?"; sent.len()].join(", ");
            let update = format!("UPDATE {} SET status = 1, ended_at = 0 WHERE number IN ({values})", $table);
            let update = sqlx::query(sqlx::AssertSqlSafe(update));
            sent.iter().fold(update, |update, row| update.bind(row.number)).execute(&mut **tx).await?;
            Ok(())
        }
    };
}
use mark_each;
