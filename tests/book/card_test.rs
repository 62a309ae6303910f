use std::error::Error;

use hapax::{Memory, Registry, check::Check, testing::Harness};
use my_shop::{
    card::{Card, CupForFree},
    messages::{OrderPaid, Pay, PlaceOrder},
    shop,
};

#[tokio::test]
async fn twelve_cups_are_one_for_free_however_often_they_are_told() -> Result<(), Box<dyn Error>> {
    let mut shop = Harness::start(shop().store(Memory::new())).await?;
    for order in ["1", "2", "3"] {
        shop.send(&PlaceOrder { order: order.into(), customer: "ann".into(), cups: 4 }).await?;
        shop.send(&Pay { order: order.into() }).await?;
    }
    shop.redeliver().await?; // Everything comes once more.
    assert_eq!(shop.published::<CupForFree>()?, [CupForFree { customer: "ann".into() }]);
    assert_eq!(shop.state::<Card>("ann").await?.map(|card| card.stamps), Some(2));
    Ok(())
}

#[test]
fn stamps_are_neither_lost_nor_doubled_in_any_world() {
    let paid = |order: &str| OrderPaid { order: order.into(), customer: "ann".into(), cups: 6 };
    Check::saga(Registry::<Card>::new().starts::<OrderPaid>())
        .message(paid("1"))
        .message(paid("2"))
        .at_rest("one cup is free", |world| assert_eq!(world.sent::<CupForFree>().len(), 1))
        .at_rest("two stamps are left", |world| world.state::<Card>("ann").is_some_and(|card| card.stamps == 2))
        .run();
}
