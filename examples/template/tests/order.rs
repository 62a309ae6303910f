//! The shop under test: in virtual time, with every message twice, and in everything that can happen.

use std::{error::Error, time::Duration};

use hapax::{Memory, Registry, check::Check, testing::Harness};
use my_shop::{
    messages::{Lapse, OrderLapsed, OrderPaid, Pay, PlaceOrder},
    order::{Order, TIME_TO_PAY},
    shop,
};

fn place() -> PlaceOrder {
    PlaceOrder { order: "7".into(), customer: "ann".into(), cups: 2 }
}

fn pay() -> Pay {
    Pay { order: "7".into() }
}

/// However often a broker delivers: here everything, once more.
#[tokio::test]
async fn an_order_is_paid_once() -> Result<(), Box<dyn Error>> {
    let mut shop = Harness::start(shop().store(Memory::new())).await?;
    shop.send(&place()).await?;
    shop.send(&pay()).await?;
    shop.redeliver().await?;
    assert_eq!(shop.published::<OrderPaid>()?, [OrderPaid { order: "7".into(), customer: "ann".into(), cups: 2 }]);
    Ok(())
}

/// A quarter of an hour passes in no time.
#[tokio::test]
async fn an_order_that_nobody_pays_lapses() -> Result<(), Box<dyn Error>> {
    let mut shop = Harness::start(shop().store(Memory::new())).await?;
    shop.send(&place()).await?;
    shop.advance(TIME_TO_PAY - Duration::from_secs(1)).await?;
    assert!(shop.published::<OrderLapsed>()?.is_empty());
    shop.advance(Duration::from_secs(1)).await?;
    assert_eq!(shop.published::<OrderLapsed>()?, [OrderLapsed { order: "7".into() }]);
    Ok(())
}

#[tokio::test]
async fn an_order_of_nothing_is_set_aside() -> Result<(), Box<dyn Error>> {
    let mut shop = Harness::start(shop().store(Memory::new())).await?;
    shop.send(&PlaceOrder { cups: 0, ..place() }).await?;
    assert!(shop.dead_letters().await?[0].reason.contains("at least one cup"));
    Ok(())
}

/// Every order of messages, crashes between any two calls, lost answers, copies, two workers: no world in which it is both.
#[test]
fn an_order_is_paid_or_lapses_and_never_both() {
    Check::saga(Registry::<Order>::new().starts::<PlaceOrder>().handles::<Pay>().handles::<Lapse>())
        .message(place())
        .message(pay())
        .may_set_aside() // A payment for an order that has lapsed: somebody gives the money back.
        .always("paid or lapsed", |world| world.sent::<OrderPaid>().len() + world.sent::<OrderLapsed>().len() <= 1)
        .run();
}
