//! Scopes: each endpoint and saga has a number in the file, by which its entities are kept.

use std::sync::{Arc, PoisonError};

use hapax_core::{
    ids::Scope,
    ports::{ErrorKind, StoreError},
};
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{Sqlite, arguments::Bind, error::malformed, statements};

const NAMING: &str = "naming an endpoint and a saga";

impl Sqlite {
    /// The number of `scope` in the file. Without one nothing of it is stored.
    pub(super) async fn scope(&self, scope: &Arc<Scope>) -> Result<Option<i64>, StoreError> {
        if let Some(id) = self.0.scopes.read().unwrap_or_else(PoisonError::into_inner).get(scope) {
            return Ok(Some(*id));
        }
        let rows = self.read_alone(NAMING, statements::SCOPE_ID, scope_arguments(scope)).await?;
        rows.first().map(|row| self.remember(scope, row)).transpose()
    }

    /// The number of `scope` in the file, written if it is new.
    pub(super) async fn scope_to_write(&self, scope: &Arc<Scope>) -> Result<i64, StoreError> {
        if let Some(id) = self.scope(scope).await? {
            return Ok(id);
        }
        match self.write_alone(NAMING, statements::SCOPE, 4, scope_arguments(scope)).await {
            Ok(ran) => self.remember(scope, ran.rows.first().ok_or_else(|| self.damaged_scopes())?),
            // Whatever became of the name, what was to be written under it was not.
            Err(e) if e.is_unknown_outcome() => {
                let why = format!("{}: a new name could not be written in time: try again", self.file());
                Err(StoreError::new(ErrorKind::Unavailable, NAMING, why).caused_by(e))
            }
            Err(e) => Err(e),
        }
    }

    fn remember(&self, scope: &Arc<Scope>, row: &SqliteRow) -> Result<i64, StoreError> {
        let id = row.try_get(0).map_err(|e| self.damaged_scopes().caused_by(e))?;
        self.0.scopes.write().unwrap_or_else(PoisonError::into_inner).insert(scope.clone(), id);
        Ok(id)
    }

    fn damaged_scopes(&self) -> StoreError {
        malformed(NAMING, self.file(), "the list of endpoints and sagas")
    }
}

fn scope_arguments(scope: &Scope) -> SqliteArguments {
    let mut arguments = SqliteArguments::default();
    arguments.bind(scope.endpoint.as_str()).bind(scope.saga.as_str());
    arguments
}
