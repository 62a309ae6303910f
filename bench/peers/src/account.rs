//! The handler of every peer, and what it reads and writes: as in `hapax-bench`.

use serde::{Deserialize, Serialize};

/// A message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deposit {
    /// Key of the entity.
    pub account: String,
    amount: u32,
    note: String,
}

/// What is sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Changed {
    /// Key of the entity.
    pub account: String,
    effects: u64,
    balance: u64,
    note: String,
}

/// The state, about 200 bytes as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Account {
    /// Messages that took effect.
    pub effects: u64,
    balance: u64,
    note: String,
}

impl Account {
    /// One of the usual size that no message has reached.
    #[must_use]
    pub fn usual() -> Self {
        const NOTE_BYTES: usize = 140;
        Self { note: "n".repeat(NOTE_BYTES), ..Self::default() }
    }

    /// The handler.
    pub fn apply(&mut self, deposit: &Deposit) -> Changed {
        self.effects += 1;
        self.balance += u64::from(deposit.amount);
        self.note.clone_from(&deposit.note);
        let Self { effects, balance, .. } = *self;
        Changed { account: deposit.account.clone(), effects, balance, note: deposit.note.clone() }
    }
}

impl Changed {
    /// Tells it from every other.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.account, self.effects)
    }
}
