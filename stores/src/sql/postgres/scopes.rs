//! Scopes: each endpoint and saga has a number in the database, by which its entities are kept.

use std::sync::Arc;

use hapax_core::{
    ids::{EntityKey, Scope},
    ports::{ErrorKind, StoreError},
};
use sqlx::{Row, postgres::PgArguments};

use super::{Postgres, arguments::Bind, error::malformed};

const NAMING: &str = "naming an endpoint and a saga";

impl Postgres {
    pub(super) fn known_scope(&self, scope: &Arc<Scope>) -> Option<i64> {
        self.0.scopes.get(scope)
    }

    /// The number of `scope` in the database. Without one nothing of it is stored.
    pub(super) async fn scope(&self, scope: &Arc<Scope>) -> Result<Option<i64>, StoreError> {
        if let Some(id) = self.known_scope(scope) {
            return Ok(Some(id));
        }
        let since = self.0.scopes.since();
        let rows = self.read_alone(NAMING, &self.0.texts.scope_id, scope_arguments(scope)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let damaged = |e| malformed(NAMING, self.place(), "the list of endpoints and sagas").caused_by(e);
        let id = row.try_get(0).map_err(damaged)?;
        self.0.scopes.add(since, scope.clone(), id);
        Ok(Some(id))
    }

    /// The number of `key`'s scope in the database, written if it is new. Nearly always it is known, and then the future
    /// for the rest is not made: what many requests hold while they wait has to be small.
    pub(super) async fn scope_to_write(&self, key: &EntityKey) -> Result<i64, StoreError> {
        match self.known_scope(key.scope()) {
            Some(id) => Ok(id),
            None => Box::pin(self.scope_added(key.scope())).await,
        }
    }

    async fn scope_added(&self, scope: &Arc<Scope>) -> Result<i64, StoreError> {
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

fn scope_arguments(scope: &Scope) -> PgArguments {
    let mut arguments = PgArguments::default();
    arguments.bind(scope.endpoint.as_str()).bind(scope.saga.as_str());
    arguments
}
