//! A look at what is stored, in the words of what stores it and without hapax.

mod sql;

use std::collections::HashSet;

#[cfg(feature = "cosmos")]
use crate::services::cosmos::Documents;
#[cfg(feature = "dynamodb")]
use crate::services::dynamodb::Items;
use crate::{
    Refusal,
    place::{Database, Kept},
};

/// Endpoint, saga, key, whether it is complete, whether its outbox holds anything, outbox and state.
pub(crate) type EntityRow = (String, String, String, bool, bool, Vec<u8>, Vec<u8>);
/// Message id, saga and reason.
pub(crate) type LetterRow = (String, String, String);

/// Looks into what a run keeps; connects when it is asked, and anew when its connection was lost.
pub(crate) struct Look {
    at: At,
    database: Database,
}

enum At {
    Rows(Box<sql::Rows>),
    #[cfg(feature = "dynamodb")]
    Items(Items),
    #[cfg(feature = "cosmos")]
    Documents(Documents),
    /// A service that is not compiled in: nothing was ever kept there.
    #[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
    Nowhere,
}

/// Asks whatever it is.
macro_rules! ask {
    ($look:expr, $question:ident ( $($about:expr),* )) => {
        match &mut $look.at {
            At::Rows(rows) => rows.$question($($about),*).await,
            #[cfg(feature = "dynamodb")]
            At::Items(items) => items.$question($($about),*).await,
            #[cfg(feature = "cosmos")]
            At::Documents(documents) => documents.$question($($about),*).await,
            #[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
            At::Nowhere => Ok(Vec::new()),
        }
    };
}

impl Look {
    pub(crate) fn into(database: &Database) -> Self {
        let at = match &database.kept {
            Kept::Service(service) => match service.kind {
                #[cfg(feature = "dynamodb")]
                crate::place::ServiceKind::DynamoDb => At::Items(Items::of(service)),
                #[cfg(feature = "cosmos")]
                crate::place::ServiceKind::CosmosDb => At::Documents(Documents::of(service)),
                #[cfg(not(all(feature = "dynamodb", feature = "cosmos")))]
                _ => At::Nowhere,
            },
            kept => At::Rows(Box::new(sql::Rows::of(kept))),
        };
        Self { at, database: database.clone() }
    }

    pub(crate) async fn entities(&mut self) -> Result<Vec<EntityRow>, Refusal> {
        ask!(self, entities())
    }

    /// Keys of dedup entries. Those that do not count any more are left out.
    pub(crate) async fn dedup_keys(&mut self) -> Result<Vec<Vec<u8>>, Refusal> {
        match &self.database.dedup {
            Some(apart) => apart.keys().await,
            None => ask!(self, dedup_keys()),
        }
    }

    pub(crate) async fn dead_letters(&mut self) -> Result<Vec<LetterRow>, Refusal> {
        ask!(self, dead_letters())
    }

    /// Those of the orders that are decided.
    pub(crate) async fn decided(&mut self, of: &HashSet<String>) -> Result<Vec<String>, Refusal> {
        ask!(self, decided(of))
    }
}

/// `None` for what is no key, such as a file that is being written.
pub(crate) fn from_hex(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}
