//! The pages of the books: everything that is stored, read without hapax.

use std::{collections::HashMap, path::Path};

use hapax::codec::{FRAME_BYTES, record::decode_outbox};
use serde::{Deserialize, de::DeserializeOwned};
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{Finding, letters::Action};
use crate::{
    Refusal,
    look::{EntityRow, Look},
    order::Order,
    payment::Payment,
    place::Database,
    refusal::again,
    shop::ENDPOINT,
    stock::Stock,
};

/// What the database says, without an opinion.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) orders: HashMap<String, Order>,
    pub(super) payments: HashMap<String, Payment>,
    pub(super) stocks: HashMap<String, Stock>,
    /// The card company's rows, by order.
    pub(super) ledger: HashMap<String, Vec<Charge>>,
    /// What was done with dead letters, as hapax has recorded it.
    pub(super) actions: Vec<Action>,
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

/// The one entity that is hapax's own: what was done with dead letters.
const RECORD: &str = "hapax.dead-letters";

#[derive(Deserialize)]
struct Record {
    actions: Vec<Action>,
}

const LEDGER: &str = "SELECT key, order_id, cents, answer, refunded FROM orders_card_ledger";

impl Pages {
    pub(super) async fn read(database: &Database) -> Result<Self, Refusal> {
        let (mut pages, mut look) = (Self::default(), Look::into(database));
        let patience = database.patience();
        for row in again(patience, async || look.entities().await).await? {
            pages.entity(row);
        }
        pages.dedup = again(patience, async || look.dedup_keys().await).await?;
        let letters = again(patience, async || look.dead_letters().await).await?;
        for (id, saga, reason) in letters {
            pages.findings.push(Finding::new(format!("message {id}"), format!("is a dead letter of {saga}: {reason}")));
        }
        pages.ledger(&database.ledger).await.map_err(|e| Refusal::new(e.to_string()))?;
        Ok(pages)
    }

    async fn ledger(&mut self, file: &Path) -> Result<(), sqlx::Error> {
        let file = SqliteConnectOptions::new().filename(file).read_only(true);
        let mut file = SqliteConnection::connect_with(&file).await?;
        for row in sqlx::query(LEDGER).fetch_all(&mut file).await? {
            let charge = Charge {
                key: row.try_get(0)?,
                cents: row.try_get(2)?,
                answer: row.try_get(3)?,
                refunded: row.try_get::<i64, _>(4)? != 0,
            };
            self.ledger.entry(row.try_get(1)?).or_default().push(charge);
        }
        file.close().await
    }

    fn entity(&mut self, (endpoint, saga, key, completed, pending, outbox, state): EntityRow) {
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
            RECORD => match read::<Record>(&state) {
                Ok(record) => {
                    self.actions.extend(record.actions);
                    None
                }
                Err(why) => Some(why),
            },
            _ => Some("is of a saga that the shop does not have".into()),
        };
        self.findings.extend(unreadable.map(|what| Finding::new(about, what)));
    }
}

fn keep<T: DeserializeOwned>(into: &mut HashMap<String, T>, key: String, framed: &[u8]) -> Option<String> {
    read(framed).map(|state| drop(into.insert(key, state))).err()
}

/// The state behind its frame; it is JSON, as the shop did not ask for another codec.
fn read<T: DeserializeOwned>(framed: &[u8]) -> Result<T, String> {
    let json = framed.get(FRAME_BYTES..).unwrap_or_default();
    serde_json::from_slice(json).map_err(|e| format!("has a state that cannot be read: {e}"))
}
