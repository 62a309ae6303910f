//! A card with stamps: ten cups, and the next one is free.

use hapax::{Context, Correlation, Handle, HandlerError, Message, Saga};
use serde::{Deserialize, Serialize};

use crate::messages::OrderPaid;

/// Stamps for a cup that is free.
pub const STAMPS: u32 = 10;

/// An event: a customer has a cup for free.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct CupForFree {
    pub customer: String,
}

impl Message for CupForFree {
    const TYPE: &'static str = "shop.cup-for-free";
}

/// The card of one customer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Card {
    pub stamps: u32,
}

impl Saga for Card {
    const NAME: &'static str = "card";
}

impl Handle<OrderPaid> for Card {
    fn correlate(paid: &OrderPaid) -> Correlation<'_> {
        (&paid.customer).into()
    }

    async fn handle(&mut self, paid: OrderPaid, cx: &mut Context) -> Result<(), HandlerError> {
        self.stamps += paid.cups;
        while self.stamps >= STAMPS {
            self.stamps -= STAMPS;
            cx.publish(CupForFree { customer: paid.customer.clone() })?;
        }
        Ok(())
    }
}
