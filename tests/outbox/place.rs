//! What tests do with a database, whichever it is.

use hapax::relay::Ticket;
use sqlx::{AssertSqlSafe, Executor};

use super::{
    rig::{Outbox, Place, Transaction},
    sink::{PATIENCE, Placed},
};

impl Place {
    pub(crate) async fn new() -> Self {
        Self::made(false).await
    }

    /// One whose outbox keeps order.
    pub(crate) async fn ordered() -> Self {
        Self::made(true).await
    }

    async fn made(ordered: bool) -> Self {
        let place = Self::empty(ordered).await;
        place.outbox().await;
        place.run("CREATE TABLE hapax.orders (id INT PRIMARY KEY)").await;
        place
    }

    /// A handle with connections of its own, as another process would open it.
    pub(crate) async fn outbox(&self) -> Outbox {
        self.options().ordered_keys(self.ordered).migrate(true).open_database(self.database()).await.unwrap()
    }

    /// Another outbox, whose messages may be stored in the same transactions.
    pub(crate) async fn other(&self) -> Outbox {
        self.options().ordered_keys(self.ordered).migrate(true).open_database(self.other_database()).await.unwrap()
    }

    pub(crate) async fn begin(&self) -> Transaction {
        self.pool.begin().await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.pool.execute(sqlx::raw_sql(AssertSqlSafe(self.sql(sql)))).await.unwrap();
    }

    pub(crate) async fn within(&self, tx: &mut Transaction, sql: &str) {
        self.try_within(tx, sql).await.unwrap();
    }

    pub(crate) async fn try_within(&self, tx: &mut Transaction, sql: &str) -> Result<(), sqlx::Error> {
        tx.execute(sqlx::raw_sql(AssertSqlSafe(self.sql(sql)))).await.map(drop)
    }

    /// An order and its message in one transaction, not committed yet.
    pub(crate) async fn order(&self, outbox: &Outbox, order: u32) -> (Transaction, Ticket) {
        let mut tx = self.begin().await;
        self.within(&mut tx, &format!("INSERT INTO hapax.orders VALUES ({order})")).await;
        let ticket = outbox.enqueue(&mut tx, &Placed { order }).await.unwrap();
        (tx, ticket)
    }

    /// Stores orders, each in a transaction of its own.
    pub(crate) async fn orders(&self, outbox: &Outbox, orders: impl IntoIterator<Item = u32>) {
        for order in orders {
            let (tx, ticket) = self.order(outbox, order).await;
            outbox.commit(tx, ticket).await.unwrap();
        }
    }

    /// Waits until `sql` says `number`.
    pub(crate) async fn until(&self, sql: &str, number: i64) {
        let looking = async {
            while self.number(sql).await != number {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, looking).await.is_err() {
            panic!("`{sql}` is {} and not {number}", self.number(sql).await);
        }
    }
}
