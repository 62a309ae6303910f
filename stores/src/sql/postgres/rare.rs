//! What is rare: new names, dead letters and upkeep, on a connection of its own.

use std::sync::Arc;

use hapax_core::ports::StoreError;
use sqlx::{
    PgConnection,
    postgres::{PgArguments, PgRow},
};

use super::{Postgres, connection::Work, error::Failure};

impl Postgres {
    /// A statement that writes. In a task of its own: dropped half-way, it would leave the connection in the middle of it.
    pub(super) async fn rare(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (link, sql) = (self.0.rare.clone(), sql.clone());
        let task = self.0.runtime.spawn(async move { link.lock().await.write_again(&sql, arguments).await });
        self.told(operation, task.await)
    }

    /// Work of several statements.
    pub(super) async fn rarely<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl for<'c> Fn(&'c mut PgConnection) -> Work<'c, T> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let link = self.0.rare.clone();
        let task = self.0.runtime.spawn(async move { link.lock().await.with_again(work).await });
        self.told(operation, task.await)
    }

    pub(super) fn told<T>(
        &self,
        operation: &'static str,
        ended: Result<Result<T, Failure>, tokio::task::JoinError>,
    ) -> Result<T, StoreError> {
        match ended {
            Ok(done) => done.map_err(|failure| failure.store_error(operation, self.place())),
            Err(_) => Err(self.closed(operation)),
        }
    }
}
