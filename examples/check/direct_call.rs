//! A handler that charges a card directly, and how the second charge is found:
//! `cargo run --example check-direct-call --features check`.

use hapax::{
    Context, Handler, HandlerError, Message,
    check::{Check, External},
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Charge {
    order: String,
    cents: u32,
}

impl Message for Charge {
    const TYPE: &'static str = "shop.charge";
}

/// Stands in for the card company's client.
struct FakeCards(External);

impl FakeCards {
    fn charge(&self, _cents: u32, key: Option<&str>) {
        match key {
            Some(key) => self.0.call_with_key(key),
            None => self.0.call(),
        }
    }
}

/// Charges as if its handler were run once.
struct Careless;

impl Handler<Charge> for Careless {
    const NAME: &'static str = "careless";

    async fn handle(&self, charge: Charge, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<FakeCards>()?.charge(charge.cents, None);
        Ok(())
    }
}

/// The same, with a key by which the company knows a repeat.
struct Careful;

impl Handler<Charge> for Careful {
    const NAME: &'static str = "careful";

    async fn handle(&self, charge: Charge, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<FakeCards>()?.charge(charge.cents, Some(&cx.idempotency_key("charge")));
        Ok(())
    }
}

fn main() {
    let charge = || Charge { order: "A-1".into(), cents: 890 };
    let cards = || FakeCards(External::new("charge the card"));
    println!("{}\n", Check::handler(Careless).with(cards()).message(charge()).report());
    println!("with a key:\n{}", Check::handler(Careful).with(cards()).message(charge()).report());
}
