//! The pages of the books: everything in the database file, read with plain SQL.

use std::{collections::HashMap, path::Path};

use hapax::codec::{FRAME_BYTES, record::decode_outbox};
use serde::de::DeserializeOwned;
use sqlx::{
    Connection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteRow},
};

use super::Finding;
use crate::{order::Order, payment::Payment, shop::ENDPOINT, stock::Stock};

/// What the file says, without an opinion.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) orders: HashMap<String, Order>,
    pub(super) payments: HashMap<String, Payment>,
    pub(super) stocks: HashMap<String, Stock>,
    /// The card company's rows, by order.
    pub(super) ledger: HashMap<String, Vec<Charge>>,
    /// Keys of the dedup entries.
    pub(super) dedup: Vec<Vec<u8>>,
    /// Entities that cannot be read, or have something left to do; dead letters.
    pub(super) findings: Vec<Finding>,
}

/// A row of the card company's ledger.
#[derive(Debug)]
pub(super) struct Charge {
    pub(super) key: String,
    pub(super) cents: i64,
    pub(super) answer: String,
    pub(super) refunded: bool,
}

const ENTITIES: &str = "SELECT s.endpoint, s.saga, e.key, e.completed, e.pending IS NOT NULL, e.outbox, e.state \
                        FROM hapax_entity AS e JOIN hapax_scope AS s ON s.id = e.scope";
/// Entries of a generation that is gone do not count, and none is gone within the retention.
const DEDUP: &str = "SELECT d.key FROM hapax_dedup AS d JOIN hapax_generation AS g ON g.id = d.generation";
const DEAD_LETTERS: &str = "SELECT message_id, saga, reason FROM hapax_dead_letter";
const LEDGER: &str = "SELECT key, order_id, cents, answer, refunded FROM orders_card_ledger";

impl Pages {
    pub(super) async fn read(database: &Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(database).read_only(true);
        let mut file = SqliteConnection::connect_with(&options).await?;
        let mut pages = Self::default();
        for row in sqlx::query(ENTITIES).fetch_all(&mut file).await? {
            pages.entity(&row)?;
        }
        pages.dedup = sqlx::query_scalar(DEDUP).fetch_all(&mut file).await?;
        for row in sqlx::query(DEAD_LETTERS).fetch_all(&mut file).await? {
            let (id, saga, reason): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            pages.findings.push(Finding::new(format!("message {id}"), format!("is a dead letter of {saga}: {reason}")));
        }
        for row in sqlx::query(LEDGER).fetch_all(&mut file).await? {
            let charge = Charge {
                key: row.try_get(0)?,
                cents: row.try_get(2)?,
                answer: row.try_get(3)?,
                refunded: row.try_get::<i64, _>(4)? != 0,
            };
            pages.ledger.entry(row.try_get(1)?).or_default().push(charge);
        }
        file.close().await?;
        Ok(pages)
    }

    fn entity(&mut self, row: &SqliteRow) -> Result<(), sqlx::Error> {
        let (endpoint, saga, key): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (completed, pending): (bool, bool) = (row.try_get(3)?, row.try_get(4)?);
        let (outbox, state): (Vec<u8>, Vec<u8>) = (row.try_get(5)?, row.try_get(6)?);
        let about = format!("{saga} {key}");
        let mut wrong = |what: String| self.findings.push(Finding::new(about.clone(), what));
        if endpoint != ENDPOINT || completed {
            wrong(format!("does not belong here: endpoint {endpoint}, completed {completed}"));
        }
        match decode_outbox(state.clone().into(), &outbox) {
            Ok(entity) if entity.outbox.is_empty() && !pending => {}
            Ok(entity) => wrong(format!("has {} outbox entries that nobody has finished", entity.outbox.len())),
            Err(e) => wrong(format!("has an outbox that cannot be read: {e}")),
        }
        let unreadable = match saga.as_str() {
            "order" => keep(&mut self.orders, key, &state),
            "payment" => keep(&mut self.payments, key, &state),
            "stock" => keep(&mut self.stocks, key, &state),
            _ => Some("is of a saga that the shop does not have".into()),
        };
        self.findings.extend(unreadable.map(|what| Finding::new(about, what)));
        Ok(())
    }
}

/// The state behind its frame; it is JSON, as the shop did not ask for another codec.
fn keep<T: DeserializeOwned>(into: &mut HashMap<String, T>, key: String, framed: &[u8]) -> Option<String> {
    match serde_json::from_slice(framed.get(FRAME_BYTES..).unwrap_or_default()) {
        Ok(state) => {
            into.insert(key, state);
            None
        }
        Err(e) => Some(format!("has a state that cannot be read: {e}")),
    }
}
