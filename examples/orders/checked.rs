//! The three sagas, gone through in everything that can happen to a few of their messages.

use hapax::{
    Registry,
    check::{Check, Checked, External},
};

use crate::{
    card_service::CardService,
    door::Door,
    messages::{
        CancelPayment, Card, Goods, Line, OutOfStock, PaymentRefused, PaymentTaken, PlaceOrder, ReserveStock,
        ReturnStock, ShipStock, StockArrived, StockReserved, TakePayment,
    },
    order::{Order, Status},
    payment::{self, Payment},
    shop::{order_messages, payment_messages, stock_messages},
    stock::Stock,
};

fn goods(order: &str, quantity: u32) -> Goods {
    Goods { order: order.into(), article: "mug".into(), quantity }
}

fn arrived(quantity: u32) -> StockArrived {
    StockArrived { article: "mug".into(), quantity }
}

fn stock() -> Check<Stock> {
    let check = Check::saga(stock_messages(Registry::new()));
    check.always("goods are free, put aside or sold", |world| {
        let stock = world.state::<Stock>("mug").unwrap_or_default();
        stock.free >= 0 && stock.reserved >= 0 && stock.free + stock.reserved + stock.sold == stock.arrived
    })
}

fn holds(checked: &Checked) {
    println!("{checked}");
    assert!(checked.failure.is_none(), "{checked}");
}

#[test]
fn the_stock_never_promises_more_than_it_has() {
    let check = stock().message(ReserveStock(goods("A", 2))).message(arrived(3));
    let checked = check
        .at_rest("the order has one answer", |world| {
            world.sent::<StockReserved>().len() + world.sent::<OutOfStock>().len() == 1
        })
        .at_rest("what it promises is put aside", |world| {
            let reserved = world.state::<Stock>("mug").unwrap_or_default().reserved;
            reserved == 2 * i64::try_from(world.sent::<StockReserved>().len()).unwrap_or_default()
        })
        .report();
    holds(&checked);
}

#[test]
fn what_is_shipped_was_put_aside_and_what_is_returned_can_be_sold_again() {
    let shipped = stock().message(arrived(2)).message(ReserveStock(goods("A", 2)));
    let shipped = shipped.after::<StockReserved, _>(ShipStock(goods("A", 2))).crashes(1);
    holds(
        &shipped
            .at_rest("nothing stays put aside", |world| world.state::<Stock>("mug").unwrap_or_default().reserved == 0)
            .report(),
    );
    let returned = stock().message(arrived(2)).message(ReserveStock(goods("A", 2)));
    let returned = returned.after::<StockReserved, _>(ReturnStock(goods("A", 2))).duplicates(1);
    holds(
        &returned
            .at_rest("nothing is sold", |world| world.state::<Stock>("mug").unwrap_or_default().free == 2)
            .report(),
    );
}

/// The control: goods that come back although nobody has put them aside.
#[test]
fn a_return_that_nothing_has_caused_is_found() {
    let checked = stock().message(arrived(2)).message(ReturnStock(goods("A", 2))).report();
    let failure = checked.failure.map(|failure| failure.claim);
    assert_eq!(failure.as_deref(), Some("goods are free, put aside or sold"));
}

fn placed(articles: &[&str]) -> Check<Order> {
    let lines = articles.iter().map(|article| Line { article: (*article).into(), quantity: 2, price_cents: 890 });
    let place = PlaceOrder {
        order: "A".into(),
        customer: "Zoë".into(),
        card: Card::Good,
        card_number: None,
        lines: lines.collect(),
    };
    Check::saga(order_messages(Registry::new())).with(Door::new(1)).message(place)
}

/// Its own timeout comes whenever it likes, as it does in production: so there are two ends.
#[test]
fn a_paid_order_is_shipped_or_given_up_and_never_both() {
    let check = placed(&["mug"]).after::<ReserveStock, _>(StockReserved(goods("A", 2)));
    let check = check.after::<TakePayment, _>(PaymentTaken { order: "A".into() }).crashes(1);
    let checked = check
        .always("money is asked for before goods leave", |world| {
            world.sent::<ShipStock>().is_empty() || world.sent::<TakePayment>().len() == 1
        })
        .at_rest("it is shipped, or its goods and its money go back", |world| {
            let status = world.state::<Order>("A").unwrap_or_default().status;
            let shipped = (world.sent::<ShipStock>().len(), world.sent::<ReturnStock>().len());
            match (status, shipped, world.sent::<CancelPayment>().len()) {
                (Status::Confirmed, (1, 0), 0) | (Status::PaymentOverdue, (0, 1), 1) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .report();
    holds(&checked);
}

#[test]
fn an_order_whose_card_is_refused_gives_its_goods_back() {
    let check = placed(&["mug"]).after::<ReserveStock, _>(StockReserved(goods("A", 2)));
    let check = check.after::<TakePayment, _>(PaymentRefused { order: "A".into() }).duplicates(1);
    holds(&check.at_rest("all comes back once", |world| world.sent::<ReturnStock>().len() == 1).report());
}

#[test]
fn an_order_with_an_article_out_of_stock_asks_for_no_money() {
    let missing = Goods { article: "tray".into(), ..goods("A", 2) };
    let check = placed(&["mug", "tray"]).after::<ReserveStock, _>(StockReserved(goods("A", 2)));
    let check = check.after::<ReserveStock, _>(OutOfStock(missing)).crashes(1);
    let checked = check
        .always("no money", |world| world.sent::<TakePayment>().is_empty())
        .at_rest("what there was comes back once", |world| world.sent::<ReturnStock>().len() == 1)
        .report();
    holds(&checked);
}

/// Under the key of the message, the company may be asked as often as it likes; and whichever comes first, the charge or
/// the cancellation, the customer has the money in the end.
#[tokio::test]
async fn a_card_is_charged_under_one_key_and_a_cancelled_charge_is_given_back() {
    let take = TakePayment { order: "A".into(), card: Card::Good, cents: 1780 };
    let check = Check::saga(payment_messages(Registry::new())).with(CardService::told(External::new("card company")));
    let checked = check
        .message(take)
        .message(CancelPayment { order: "A".into() })
        .at_rest("the money is back", |world| {
            let status = world.state::<Payment>("A").map(|payment| payment.status);
            matches!(status, Some(payment::Status::Refunded | payment::Status::Voided))
        })
        .report();
    holds(&checked);
}

/// All three together: each gets what the others send. Whichever way it ends, goods and money are on the same side.
#[tokio::test]
async fn goods_and_money_change_hands_or_neither_does() {
    let line = Line { article: "mug".into(), quantity: 2, price_cents: 890 };
    let place = PlaceOrder {
        order: "A".into(),
        customer: "Zoë".into(),
        card: Card::Good,
        card_number: None,
        lines: vec![line],
    };
    let check = Check::saga(order_messages(Registry::new()))
        .and(payment_messages(Registry::new()))
        .and(stock_messages(Registry::new()))
        .with(Door::new(1))
        .with(CardService::told(External::new("card company")));
    let checked = check
        .message(arrived(2))
        .message(place)
        .workers(1)
        .crashes(1)
        .at_rest("sold and paid, or neither", |world| {
            let status = world.state::<Order>("A").unwrap_or_default().status;
            let sold = world.state::<Stock>("mug").unwrap_or_default().sold;
            let paid = world.state::<Payment>("A").map(|payment| payment.status);
            match (status, sold, paid) {
                (Status::Confirmed, 2, Some(payment::Status::Taken)) | (Status::OutOfStock, 0, None) => Ok(()),
                (Status::PaymentOverdue, 0, Some(payment::Status::Refunded | payment::Status::Voided)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .report();
    holds(&checked);
}
