//! A program that charges what was sold: it keeps an inbox, its own table and an outbox in one transaction.

use std::{path::Path, time::Duration};

use hapax::{
    Context, Endpoint, HandlerError, Message, PostgresOutbox, RabbitMq,
    deliver::Recoverability,
    endpoint::Settings,
    inbox::TransactionHandler,
    stores::postgres::outbox::{PostgresInbox, PostgresTransaction},
};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, postgres::PgPoolOptions};

use crate::{
    OFTEN, log, sells,
    serve::input_closed,
    shops::{AUDIT, OnPostgres, Shop, Sold},
    stored::server_of,
};

/// Who charges.
pub(crate) const BILLING: &str = "billing";

/// What is to be charged.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bill {
    pub(crate) order: i32,
}

impl Message for Bill {
    const TYPE: &'static str = "billing.bill";
}

/// Adds a row for each order, whatever rows there are, and tells the audit.
struct Charge {
    schema: String,
}

impl TransactionHandler<Bill, PostgresInbox> for Charge {
    const NAME: &'static str = "charge";

    async fn handle(&self, bill: Bill, cx: &mut Context, tx: &mut PostgresTransaction) -> Result<(), HandlerError> {
        let sql = format!("INSERT INTO {}.charge (id) VALUES ($1)", self.schema);
        sqlx::query(AssertSqlSafe(sql)).bind(bill.order).execute(&mut **tx).await?;
        cx.send(AUDIT, Sold { order: bill.order })
    }
}

/// Charges and relays until whoever has started this process closes its standard input.
pub(crate) async fn charge(folder: &Path) {
    log::begin();
    let (url, schema) = server_of(folder).unwrap();
    let broker = std::fs::read_to_string(folder.join("broker")).unwrap();
    let outbox: PostgresOutbox = OnPostgres::outbox(&url, &schema, false).await.unwrap();
    let relay = sells::begin(outbox.clone(), &broker).await.unwrap();
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
    let rest = Duration::from_millis(20);
    let recoverability = Recoverability {
        attempts_max: OFTEN,
        poison_above: OFTEN,
        retry_delay: rest,
        retry_delay_max: rest * 5,
        ..Recoverability::default()
    };
    let endpoint = Endpoint::builder(BILLING)
        .transport(RabbitMq::open(&broker).await.unwrap())
        .dead_letters(hapax::Memory::new())
        .in_transaction(&outbox.inbox(pool), Charge { schema })
        .settings(Settings { recoverability, ..Settings::default() });
    eprintln!("started");
    endpoint.run_until(input_closed()).await.unwrap();
    relay.stop().await.unwrap();
}
