//! What the sagas say to one another. The names on the wire are constants, so that a Rust type can be renamed without
//! losing the messages under way.

use hapax::Message;
use serde::{Deserialize, Serialize};

macro_rules! message {
    ($name:ident, $on_the_wire:literal) => {
        impl Message for $name {
            const TYPE: &'static str = $on_the_wire;
        }
    };
}

/// A customer orders. The first of everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceOrder {
    /// Names the order: key of the sagas `order` and `payment`.
    pub order: String,
    /// Who orders.
    pub customer: String,
    /// How the card company will behave: the story of this order.
    pub card: Card,
    /// The number of the card as the customer has typed it, if it is not the one on file. It goes no further than to the order, which
    /// looks at it and keeps nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card_number: Option<String>,
    /// What is ordered; each article once.
    pub lines: Vec<Line>,
}

/// How the card company behaves when it is asked to charge this card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Card {
    /// Charges and answers.
    #[default]
    Good,
    /// Refuses and says so.
    Refused,
    /// Charges, and answers when the order has given up waiting.
    Slow,
    /// Does nothing and never answers.
    Silent,
    /// Charges, but its answer never arrives: the worst of them, since nobody knows.
    Lost,
}

/// One article of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Names the article: key of the saga `stock`.
    pub article: String,
    /// How many.
    pub quantity: u32,
    /// Price of one, in cents.
    pub price_cents: u32,
}

impl PlaceOrder {
    /// What the order costs, in cents. Cannot overflow: the input has limits.
    #[must_use]
    pub fn total_cents(&self) -> i64 {
        self.lines.iter().map(|line| i64::from(line.quantity) * i64::from(line.price_cents)).sum()
    }
}

/// Goods come in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StockArrived {
    /// Which article.
    #[serde(rename = "stock")]
    pub article: String,
    /// How many.
    pub quantity: u32,
}

/// Goods of one article for one order: what the order asks of the stock, and what the stock answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goods {
    /// For which order.
    pub order: String,
    /// Which article.
    pub article: String,
    /// How many.
    pub quantity: u32,
}

/// Command to the order: it cannot be mended, and is given up. From the desk that reads the dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOff {
    /// Which order.
    pub order: String,
    /// Id of the message that had become a dead letter.
    pub letter: String,
    /// What the customer is told.
    pub reason: String,
}

/// Command to the stock: put these aside for the order.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReserveStock(pub Goods);
/// Command to the stock: the order is off, these can be sold again.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReturnStock(pub Goods);
/// Command to the stock: the order is paid, these leave the house.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShipStock(pub Goods);
/// Event of the stock: these are put aside.
#[derive(Debug, Serialize, Deserialize)]
pub struct StockReserved(pub Goods);
/// Event of the stock: there are not as many.
#[derive(Debug, Serialize, Deserialize)]
pub struct OutOfStock(pub Goods);

/// Command to the payment: get the money.
#[derive(Debug, Serialize, Deserialize)]
pub struct TakePayment {
    /// For which order.
    pub order: String,
    /// Which card.
    pub card: Card,
    /// How much.
    pub cents: i64,
}

/// Command to the payment: the order is off; whatever became of the money, the customer is to have it.
#[derive(Debug, Serialize, Deserialize)]
pub struct CancelPayment {
    /// For which order.
    pub order: String,
}

/// Event of the payment: the card was charged.
#[derive(Debug, Serialize, Deserialize)]
pub struct PaymentTaken {
    /// For which order.
    pub order: String,
}

/// Event of the payment: the card was refused.
#[derive(Debug, Serialize, Deserialize)]
pub struct PaymentRefused {
    /// For which order.
    pub order: String,
}

/// Timeout that an order sets for itself: the payment has had its time.
#[derive(Debug, Serialize, Deserialize)]
pub struct PaymentOverdue {
    /// Which order.
    pub order: String,
}

message!(PlaceOrder, "shop.place-order");
message!(StockArrived, "shop.stock-arrived");
message!(WriteOff, "shop.write-off");
message!(ReserveStock, "shop.reserve-stock");
message!(ReturnStock, "shop.return-stock");
message!(ShipStock, "shop.ship-stock");
message!(StockReserved, "shop.stock-reserved");
message!(OutOfStock, "shop.out-of-stock");
message!(TakePayment, "shop.take-payment");
message!(CancelPayment, "shop.cancel-payment");
message!(PaymentTaken, "shop.payment-taken");
message!(PaymentRefused, "shop.payment-refused");
message!(PaymentOverdue, "shop.payment-overdue");
