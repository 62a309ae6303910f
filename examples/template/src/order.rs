//! One order, from its placing to its payment. Nothing here asks whether a message has come before.

use std::time::Duration;

use hapax::{Context, Correlation, Handle, HandlerError, MessageId, Saga};
use serde::{Deserialize, Serialize};

use crate::messages::{Lapse, OrderLapsed, OrderPaid, Pay, PlaceOrder};

/// After it an order that nobody paid lapses.
pub const TIME_TO_PAY: Duration = Duration::from_secs(15 * 60);

/// The state of one order; `Default` is an order that there is not yet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Order {
    pub customer: String,
    pub cups: u32,
    lapse: Option<MessageId>,
}

impl Saga for Order {
    const NAME: &'static str = "order";
}

impl Handle<PlaceOrder> for Order {
    fn correlate(place: &PlaceOrder) -> Correlation<'_> {
        (&place.order).into()
    }

    async fn handle(&mut self, place: PlaceOrder, cx: &mut Context) -> Result<(), HandlerError> {
        if place.cups == 0 {
            return Err(HandlerError::permanent("an order has at least one cup")); // No repeat would cure it.
        }
        if self.lapse.is_some() {
            return Ok(()); // Another message places the same order: the first one counts.
        }
        self.customer = place.customer;
        self.cups = place.cups;
        self.lapse = Some(cx.timeout(TIME_TO_PAY, Lapse { order: place.order })?);
        Ok(())
    }
}

impl Handle<Pay> for Order {
    fn correlate(pay: &Pay) -> Correlation<'_> {
        (&pay.order).into()
    }

    async fn handle(&mut self, pay: Pay, cx: &mut Context) -> Result<(), HandlerError> {
        if let Some(lapse) = self.lapse.take() {
            cx.cancel_timeout(&lapse);
        }
        cx.publish(OrderPaid { order: pay.order, customer: self.customer.clone(), cups: self.cups })?;
        cx.complete();
        Ok(())
    }
}

impl Handle<Lapse> for Order {
    fn correlate(lapse: &Lapse) -> Correlation<'_> {
        (&lapse.order).into()
    }

    async fn handle(&mut self, lapse: Lapse, cx: &mut Context) -> Result<(), HandlerError> {
        cx.publish(OrderLapsed { order: lapse.order })?;
        cx.complete();
        Ok(())
    }
}
