//! Scopes: each endpoint and saga has a number in the database, by which its entities are kept.

use std::sync::Arc;

use hapax_core::{
    ids::Scope,
    ports::{ErrorKind, StoreError},
};
use sqlx::{Row, mysql::MySqlArguments};

use super::{MySql, arguments::Bind, error::malformed};

const NAMING: &str = "naming an endpoint and a saga";

impl MySql {
    /// The number of `scope` in the database. Without one nothing of it is stored.
    pub(super) async fn scope(&self, scope: &Arc<Scope>) -> Result<Option<i64>, StoreError> {
        if let Some(id) = self.0.scopes.get(scope) {
            return Ok(Some(id));
        }
        let since = self.0.scopes.since();
        let rows = self.read_alone(NAMING, &self.0.texts.scope_id, scope_arguments(scope)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let damaged = |e| malformed(NAMING, self.place(), "the list of endpoints and sagas").caused_by(e);
        let id = row.try_get(0).map_err(damaged)?;
        // Another process may have written it, and a power cut may take back what is not on the disk yet: the number would be
        // another's then. It is remembered, so this is asked once.
        self.settle(NAMING).await?;
        self.0.scopes.add(since, scope.clone(), id);
        Ok(Some(id))
    }

    /// The number of `scope` in the database, written if it is new.
    pub(super) async fn scope_to_write(&self, scope: &Arc<Scope>) -> Result<i64, StoreError> {
        if let Some(id) = self.scope(scope).await? {
            return Ok(id);
        }
        // Whatever became of the name, what was to be written under it was not.
        let again = |e: StoreError| {
            let why = format!("{}: a new name could not be written in time: try again", self.place());
            StoreError::new(ErrorKind::Unavailable, NAMING, why).caused_by(e)
        };
        match self.rare(NAMING, &self.0.texts.scope_add, scope_arguments(scope)).await {
            Ok(_) => {}
            Err(e) if e.is_unknown_outcome() => return Err(again(e)),
            Err(e) => return Err(e),
        }
        let gone = || malformed(NAMING, self.place(), "the list of endpoints and sagas");
        self.scope(scope).await?.ok_or_else(gone)
    }
}

fn scope_arguments(scope: &Scope) -> MySqlArguments {
    let mut arguments = MySqlArguments::default();
    arguments.bind(scope.endpoint.as_str().as_bytes()).bind(scope.saga.as_str().as_bytes());
    arguments
}
