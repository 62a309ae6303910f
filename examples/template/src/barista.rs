//! A handler without state: it hears of each paid order once.

use hapax::{Context, Handler, HandlerError};

use crate::messages::OrderPaid;

pub struct Barista;

impl Handler<OrderPaid> for Barista {
    const NAME: &'static str = "barista";

    async fn handle(&self, paid: OrderPaid, _: &mut Context) -> Result<(), HandlerError> {
        // A printer or a service outside may be called twice for one message: hand it `cx.idempotency_key("make")`.
        println!("{} cups for {}, order {}", paid.cups, paid.customer, paid.order);
        Ok(())
    }
}
