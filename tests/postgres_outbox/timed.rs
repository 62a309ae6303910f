//! What an outbox promises, once more on a table with time partitions; and what only such a table does.
#![allow(clippy::duplicate_mod, reason = "what goes for both tables takes what is its own from the `rig` beside it")]

mod drops;
mod limits;
mod start;

#[path = "../outbox/claims.rs"]
mod claims;
#[path = "../outbox/failures.rs"]
mod failures;
#[path = "../outbox/inbox.rs"]
mod inbox;
#[path = "../outbox/invisible.rs"]
mod invisible;
#[path = "../outbox/ordered.rs"]
mod ordered;
#[path = "../outbox/place.rs"]
mod place;
#[allow(dead_code)] // Lies of `rows.rs`, which archives what is over: here that takes a partition's time.
#[path = "../outbox/promises.rs"]
mod promises;
#[allow(dead_code)] // What the other table's tests need.
#[path = "rig.rs"]
mod rig;
#[path = "../outbox/sink.rs"]
mod sink;
#[path = "../outbox/stops.rs"]
mod stops;
#[path = "../outbox/storing.rs"]
mod storing;
#[path = "../outbox/tables.rs"]
mod tables;
#[path = "../outbox/woken.rs"]
mod woken;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use hapax::{
    MessageId,
    envelope::Outgoing,
    stores::postgres::outbox::{PostgresOutbox, PostgresOutboxOptions},
};
use rig::{Outbox, Place};
use sink::Placed;
use sqlx::types::Uuid;

/// The shortest: tests that go on for a while have rows in several.
const MINUTE: Duration = Duration::from_secs(60);

/// How the outbox of a [`Place`] is opened.
fn options() -> PostgresOutboxOptions {
    PostgresOutbox::options().time_partitions(MINUTE)
}

fn now() -> u64 {
    u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

/// An id that tells `millis`.
fn id(millis: u64) -> Uuid {
    let random = fastrand::u128(..) >> 66;
    Uuid::from_u128((u128::from(millis) << 80) | (7 << 76) | (2 << 62) | random)
}

/// A message under `id`.
fn message(outbox: &Outbox, order: u32, id: Uuid) -> Outgoing {
    let Outgoing { destination, envelope } = outbox.outgoing(&Placed { order }).unwrap();
    let mut envelope = (*envelope).clone();
    envelope.message_id = MessageId::from(id);
    Outgoing { destination, envelope: Arc::new(envelope) }
}

/// A partition of the past, as it was made then.
#[derive(Debug, Clone, Copy)]
struct Part {
    from: u64,
}

impl Part {
    async fn new(place: &Place, minutes_ago: u64) -> Self {
        let minute = 60_000;
        let from = (now() / minute - minutes_ago) * minute;
        let part = Self { from };
        let [first, behind] = [from, from + minute].map(|millis| Uuid::from_u128(u128::from(millis) << 80));
        place
            .run(&format!(
                "CREATE TABLE {} PARTITION OF hapax.outbox FOR VALUES FROM ('{first}') TO ('{behind}')",
                part.table()
            ))
            .await;
        part
    }

    fn table(self) -> String {
        format!("hapax.outbox_t{}", self.from)
    }

    /// Stores messages in it, which wait.
    async fn fill(self, place: &Place, outbox: &Outbox, orders: impl IntoIterator<Item = u32>) {
        let messages: Vec<Outgoing> = orders.into_iter().map(|order| message(outbox, order, id(self.from))).collect();
        let mut tx = place.begin().await;
        let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
        outbox.commit(tx, ticket).await.unwrap();
    }

    /// All that is in it was sent within the time that it is for.
    async fn sent(self, place: &Place) {
        let Self { from } = self;
        place.run(&format!("UPDATE {} SET status = 1, ended_at = {from}", self.table())).await;
    }

    /// One of its rows becomes another one's.
    async fn one(self, place: &Place, status: i16) {
        let table = self.table();
        place
            .run(&format!(
                "UPDATE {table} SET status = {status} WHERE id = (SELECT id FROM {table} ORDER BY id LIMIT 1)"
            ))
            .await;
    }

    async fn is_there(self, place: &Place) -> bool {
        place.number(&format!("SELECT count(*) FROM pg_class WHERE oid = to_regclass('{}')", self.table())).await == 1
    }

    async fn rows(self, place: &Place) -> i64 {
        place.number(&format!("SELECT count(*) FROM {}", self.table())).await
    }
}

/// How many partitions there are beside that for the rest.
async fn parts(place: &Place) -> i64 {
    place.number("SELECT count(*) - 1 FROM pg_inherits WHERE inhparent = 'hapax.outbox'::regclass").await
}
