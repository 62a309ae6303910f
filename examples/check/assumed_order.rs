//! A saga that takes it for granted that goods are reserved before they are shipped, and how that is found:
//! `cargo run --example check-assumed-order --features check`, and with `-- thorough` when more goes wrong at a time.

use hapax::{Context, Correlation, Handle, HandlerError, Message, Registry, Saga, check::Check};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Reserve {
    order: String,
}

impl Message for Reserve {
    const TYPE: &'static str = "shop.reserve";
}

#[derive(Serialize, Deserialize)]
struct Ship {
    order: String,
}

impl Message for Ship {
    const TYPE: &'static str = "shop.ship";
}

#[derive(Serialize, Deserialize)]
struct Shipped {
    order: String,
}

impl Message for Shipped {
    const TYPE: &'static str = "shop.shipped";
}

#[derive(Default, Serialize, Deserialize)]
struct Parcel {
    reserved: bool,
}

impl Saga for Parcel {
    const NAME: &'static str = "parcel";
}

impl Handle<Reserve> for Parcel {
    fn correlate(reserve: &Reserve) -> Correlation<'_> {
        (&reserve.order).into()
    }

    async fn handle(&mut self, _: Reserve, _: &mut Context) -> Result<(), HandlerError> {
        self.reserved = true;
        Ok(())
    }
}

impl Handle<Ship> for Parcel {
    fn correlate(ship: &Ship) -> Correlation<'_> {
        (&ship.order).into()
    }

    async fn handle(&mut self, ship: Ship, cx: &mut Context) -> Result<(), HandlerError> {
        // Came too early? Then it is forgotten, and the parcel never leaves.
        if self.reserved { cx.publish(Shipped { order: ship.order }) } else { Ok(()) }
    }
}

/// A parcel's two messages, in whatever order.
fn check(parcel: Registry<Parcel>) -> Check<Parcel> {
    let order = || "A-1".to_owned();
    let check = Check::saga(parcel)
        .message(Reserve { order: order() })
        .message(Ship { order: order() })
        .at_rest("what is reserved and to be shipped has left", |world| world.sent::<Shipped>().len() == 1);
    if std::env::args().any(|arg| arg == "thorough") { check.thorough() } else { check }
}

fn main() {
    println!("{}\n", check(Registry::new().starts::<Reserve>().starts::<Ship>()).report());

    // The remedy here: a message that may not start the saga waits until another has.
    let waits = check(Registry::new().starts::<Reserve>().handles::<Ship>()).report();
    println!("with `handles` instead of `starts`:\n{waits}");
}
