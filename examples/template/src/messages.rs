//! What is sent. A name on the wire stays when the type is renamed.

use hapax::Message;
use serde::{Deserialize, Serialize};

/// A customer wants so many cups.
#[derive(Debug, Serialize, Deserialize)]
pub struct PlaceOrder {
    pub order: String,
    pub customer: String,
    pub cups: u32,
}

impl Message for PlaceOrder {
    const TYPE: &'static str = "shop.place-order";
}

/// The order was paid for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pay {
    pub order: String,
}

impl Message for Pay {
    const TYPE: &'static str = "shop.pay";
}

/// The time to pay is over: the order tells itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Lapse {
    pub order: String,
}

impl Message for Lapse {
    const TYPE: &'static str = "shop.lapse";
}

/// An event: an order was paid.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderPaid {
    pub order: String,
    pub customer: String,
    pub cups: u32,
}

impl Message for OrderPaid {
    const TYPE: &'static str = "shop.order-paid";
}

/// An event: nobody paid in time.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderLapsed {
    pub order: String,
}

impl Message for OrderLapsed {
    const TYPE: &'static str = "shop.order-lapsed";
}
