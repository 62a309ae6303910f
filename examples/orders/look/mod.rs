//! A look at what is stored, in the words of what stores it and without hapax.

mod sql;

use std::collections::HashSet;

use crate::{Refusal, place::Kept};

/// Endpoint, saga, key, whether it is complete, whether its outbox holds anything, outbox and state.
pub(crate) type EntityRow = (String, String, String, bool, bool, Vec<u8>, Vec<u8>);
/// Message id, saga and reason.
pub(crate) type LetterRow = (String, String, String);

/// Looks into what a run keeps; connects when it is asked, and anew when its connection was lost.
pub(crate) struct Look(sql::Database);

impl Look {
    pub(crate) fn into(kept: &Kept) -> Self {
        Self(sql::Database::of(kept))
    }

    pub(crate) async fn entities(&mut self) -> Result<Vec<EntityRow>, Refusal> {
        self.0.entities().await
    }

    /// Keys of dedup entries. Those that do not count any more are left out.
    pub(crate) async fn dedup_keys(&mut self) -> Result<Vec<Vec<u8>>, Refusal> {
        self.0.dedup_keys().await
    }

    pub(crate) async fn dead_letters(&mut self) -> Result<Vec<LetterRow>, Refusal> {
        self.0.dead_letters().await
    }

    /// Those of the orders that are decided.
    pub(crate) async fn decided(&mut self, of: &HashSet<String>) -> Result<Vec<String>, Refusal> {
        self.0.decided(of).await
    }
}
