//! What is rare: new names, dead letters and upkeep, on a connection of its own.

use std::sync::Arc;

use hapax_core::ports::StoreError;
use sqlx::mysql::{MySqlArguments, MySqlRow};

use super::{
    MySql,
    connection::{Link, Work},
    error::Races,
};

impl MySql {
    /// A statement that writes.
    pub(super) async fn rare(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: MySqlArguments,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let sql = sql.clone();
        self.rarely(operation, move |link| {
            let (sql, arguments) = (sql.clone(), arguments.clone());
            Box::pin(async move { Ok(link.write(&sql, arguments).await?.rows) })
        })
        .await
    }

    /// Work of several statements. It is begun again where it lost a race with others: nothing of what lost was kept, and what
    /// it had committed before it does not do twice. In a task of its own: dropped half-way, it would leave the connection in
    /// the middle of it.
    pub(super) async fn rarely<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl for<'l> Fn(&'l mut Link) -> Work<'l, T> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let link = self.0.rare.clone();
        let task = self.0.runtime.spawn(async move {
            let mut link = link.lock().await;
            let mut races = Races::default();
            loop {
                match work(&mut link).await {
                    Err(failure) if failure.is_of_a_race() && races.allow(&failure) => {}
                    done => return done,
                }
            }
        });
        match task.await {
            Ok(done) => done.map_err(|failure| failure.store_error(operation, self.place())),
            Err(_) => Err(self.closed(operation)),
        }
    }
}
