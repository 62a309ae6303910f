//! Who is asked by a client in another process.
#![allow(dead_code)] // Each program uses a part of it.

use hapax::{Context, Correlation, Handle, HandlerError, Message, Saga};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Deposit {
    pub(crate) till: String,
    pub(crate) name: String,
}

impl Message for Deposit {
    const TYPE: &'static str = "crash.deposit";
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deposited {
    /// How many the till has, this one included.
    pub(crate) deposits: usize,
    /// Drawn anew by each run of the handler.
    pub(crate) run: u64,
}

impl Message for Deposited {
    const TYPE: &'static str = "crash.deposited";
}

/// All deposits, each time they were handled.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Till {
    handled: Vec<String>,
}

impl Saga for Till {
    const NAME: &'static str = "till";
}

impl Handle<Deposit> for Till {
    fn correlate(deposit: &Deposit) -> Correlation<'_> {
        (&deposit.till).into()
    }

    async fn handle(&mut self, deposit: Deposit, cx: &mut Context) -> Result<(), HandlerError> {
        self.handled.push(deposit.name);
        cx.reply(Deposited { deposits: self.handled.len(), run: fastrand::u64(..) })
    }
}
