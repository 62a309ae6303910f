//! A shop that sells coffee by messages. What it does is here and in the modules; where it is kept is `place`.

pub mod barista;
pub mod messages;
pub mod order;
pub mod place;

use barista::Barista;
use hapax::{Endpoint, endpoint::EndpointBuilder};
use messages::{Lapse, Pay, PlaceOrder};
use order::Order;

/// The endpoint's name. It is in every dedup key, so it stays: a shop of another name has forgotten everything.
pub const SHOP: &str = "shop";

/// The shop, the same for production and for tests: only where it is kept differs.
pub fn shop() -> EndpointBuilder {
    Endpoint::builder(SHOP)
        .saga::<Order>(|order| order.starts::<PlaceOrder>().handles::<Pay>().handles::<Lapse>())
        .handler(Barista)
}
