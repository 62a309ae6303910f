//! The saga `order`: from a customer's order to goods on their way, or to nothing at all.
//!
//! It is written as if each message came once: it counts answers and sets goods down, without asking whether it has seen
//! a message before. A message handled twice, or lost, leaves a trace in `handled` that the books
//! find.

use std::time::Duration;

use hapax::{Context, Correlation, Handle, HandlerError, MessageId, Needs, Saga};
use serde::{Deserialize, Serialize};

use crate::{
    card_number,
    door::Door,
    messages::{
        CancelPayment, Card, Goods, Line, OutOfStock, PaymentOverdue, PaymentRefused, PaymentTaken, PlaceOrder,
        ReserveStock, ReturnStock, ShipStock, StockReserved, TakePayment, WriteOff,
    },
};

/// How often an order had been given when its letter was mended: the desk says so in this header.
pub(crate) const GIVEN: &str = "shop-given";
/// How long an order waits for its payment. A real shop would give it minutes; the example has seconds to run.
pub(crate) const PAYMENT_TIMEOUT: Duration = Duration::from_millis(800);

/// State of one order. It is never completed, although it could be: a tombstone has no state for the books to read.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) status: Status,
    pub(crate) card: Card,
    pub(crate) lines: Vec<Line>,
    /// What the stock has put aside for this order, until it is shipped or returned.
    pub(crate) reserved: Vec<Goods>,
    /// Articles that the stock did not have.
    pub(crate) missing: Vec<String>,
    /// Message id of the timeout, while it is set.
    pub(crate) timeout: Option<String>,
    /// Why it is written off.
    pub(crate) written_off: Option<WriteOff>,
    /// How often it had been given when it became the dead letter that was mended.
    pub(crate) given: Option<u32>,
    /// For the books: the id of each message, each time it was handled.
    pub(crate) handled: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    #[default]
    New,
    Reserving,
    Paying,
    Confirmed,
    OutOfStock,
    CardRefused,
    PaymentOverdue,
    /// It could not be taken: nothing was reserved, and nothing charged.
    WrittenOff,
}

#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
impl Status {
    /// The order has come to an end.
    pub(crate) const fn is_decided(self) -> bool {
        !matches!(self, Self::New | Self::Reserving | Self::Paying)
    }
}

impl Saga for Order {
    const NAME: &'static str = "order";

    fn needs() -> Needs {
        Needs::default().and::<Door>()
    }
}

impl Order {
    fn note(&mut self, cx: &Context) {
        self.handled.push(cx.incoming().message_id.to_string());
    }

    /// When all answers of the stock are in: ask for the money, or give back what there was.
    fn stock_has_answered(&mut self, cx: &mut Context) -> Result<(), HandlerError> {
        if self.reserved.len() + self.missing.len() < self.lines.len() {
            return Ok(());
        }
        if !self.missing.is_empty() {
            return self.cancel(Status::OutOfStock, cx);
        }
        self.status = Status::Paying;
        let order = cx.saga_key().to_string();
        let cents = self.lines.iter().map(|line| i64::from(line.quantity) * i64::from(line.price_cents)).sum();
        cx.send_local(TakePayment { order: order.clone(), card: self.card, cents })?;
        self.timeout = Some(cx.timeout(PAYMENT_TIMEOUT, PaymentOverdue { order })?.to_string());
        Ok(())
    }

    fn confirm(&mut self, cx: &mut Context) -> Result<(), HandlerError> {
        for goods in std::mem::take(&mut self.reserved) {
            cx.send_local(ShipStock(goods))?;
        }
        self.close(Status::Confirmed, cx)
    }

    fn cancel(&mut self, why: Status, cx: &mut Context) -> Result<(), HandlerError> {
        for goods in std::mem::take(&mut self.reserved) {
            cx.send_local(ReturnStock(goods))?;
        }
        self.close(why, cx)
    }

    fn close(&mut self, status: Status, cx: &mut Context) -> Result<(), HandlerError> {
        self.status = status;
        if let Some(timeout) = self.timeout.take() {
            // Exact: however late the timeout arrives, it is not handled.
            cx.cancel_timeout(&MessageId::parse(&timeout)?);
        }
        cx.get::<Door>()?.left(cx.saga_key().as_str());
        Ok(())
    }
}

impl Handle<PlaceOrder> for Order {
    fn correlate(place: &PlaceOrder) -> Correlation<'_> {
        Correlation::of("order", &place.order)
    }

    async fn handle(&mut self, place: PlaceOrder, cx: &mut Context) -> Result<(), HandlerError> {
        let PlaceOrder { order, card, card_number, lines, .. } = place;
        if let Err(why) = card_number.as_deref().map_or(Ok(()), look_at) {
            // Whoever waits at the door need not wait for the desk. Nothing of this order is stored.
            cx.get::<Door>()?.left(&order);
            return Err(why);
        }
        self.note(cx);
        self.given = cx.incoming().headers.value(GIVEN).and_then(|given| given.parse().ok());
        self.status = Status::Reserving;
        self.card = card;
        for Line { article, quantity, .. } in lines.clone() {
            cx.send_local(ReserveStock(Goods { order: order.clone(), article, quantity }))?;
        }
        self.lines = lines;
        Ok(())
    }
}

fn look_at(card_number: &str) -> Result<(), HandlerError> {
    // However often it is tried: so it is a dead letter at once.
    card_number::check(card_number).map_err(HandlerError::permanent)?;
    // Another delivery may do; by a rule for that error there are some, and then it is a dead letter too.
    Ok(card_number::find_issuer(card_number)?)
}

/// Starts the order, since nothing of it was stored when it became a dead letter.
impl Handle<WriteOff> for Order {
    fn correlate(off: &WriteOff) -> Correlation<'_> {
        Correlation::of("order", &off.order)
    }

    async fn handle(&mut self, off: WriteOff, cx: &mut Context) -> Result<(), HandlerError> {
        self.note(cx);
        self.written_off = Some(off);
        self.close(Status::WrittenOff, cx)
    }
}

impl Handle<StockReserved> for Order {
    fn correlate(StockReserved(goods): &StockReserved) -> Correlation<'_> {
        Correlation::of("order", &goods.order)
    }

    async fn handle(&mut self, StockReserved(goods): StockReserved, cx: &mut Context) -> Result<(), HandlerError> {
        self.note(cx);
        self.reserved.push(goods);
        self.stock_has_answered(cx)
    }
}

impl Handle<OutOfStock> for Order {
    fn correlate(OutOfStock(goods): &OutOfStock) -> Correlation<'_> {
        Correlation::of("order", &goods.order)
    }

    async fn handle(&mut self, OutOfStock(goods): OutOfStock, cx: &mut Context) -> Result<(), HandlerError> {
        self.note(cx);
        self.missing.push(goods.article);
        self.stock_has_answered(cx)
    }
}

/// An answer that comes after the order has given up changes nothing: the payment has been told to give the money back.
impl Handle<PaymentTaken> for Order {
    fn correlate(taken: &PaymentTaken) -> Correlation<'_> {
        Correlation::of("order", &taken.order)
    }

    async fn handle(&mut self, _: PaymentTaken, cx: &mut Context) -> Result<(), HandlerError> {
        self.note(cx);
        if self.status == Status::Paying { self.confirm(cx) } else { Ok(()) }
    }
}

impl Handle<PaymentRefused> for Order {
    fn correlate(refused: &PaymentRefused) -> Correlation<'_> {
        Correlation::of("order", &refused.order)
    }

    async fn handle(&mut self, _: PaymentRefused, cx: &mut Context) -> Result<(), HandlerError> {
        self.note(cx);
        if self.status == Status::Paying { self.cancel(Status::CardRefused, cx) } else { Ok(()) }
    }
}

/// No check of the status: a timeout is handled only while it is set, and it is cancelled with the order.
impl Handle<PaymentOverdue> for Order {
    fn correlate(overdue: &PaymentOverdue) -> Correlation<'_> {
        Correlation::of("order", &overdue.order)
    }

    async fn handle(&mut self, overdue: PaymentOverdue, cx: &mut Context) -> Result<(), HandlerError> {
        self.note(cx);
        cx.send_local(CancelPayment { order: overdue.order })?;
        self.cancel(Status::PaymentOverdue, cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn goods() -> Goods {
        Goods { order: "A-1".into(), article: "mug".into(), quantity: 2 }
    }

    fn paying() -> Order {
        let lines = vec![Line { article: "mug".into(), quantity: 2, price_cents: 890 }];
        Order { status: Status::Reserving, lines, ..Order::default() }
    }

    #[tokio::test]
    async fn an_order_whose_goods_are_reserved_asks_for_the_money_and_sets_a_timeout() {
        let (mut order, mut cx) = (paying(), Context::for_test());
        order.handle(StockReserved(goods()), &mut cx).await.unwrap();
        assert_eq!(order.status, Status::Paying);
        assert_eq!(cx.sent::<TakePayment>().unwrap()[0].cents, 1780);
        assert_eq!(cx.sent::<PaymentOverdue>().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_late_answer_of_the_payment_changes_nothing() {
        let (mut order, mut cx) = (paying(), Context::for_test().with(Door::new(1)));
        order.handle(StockReserved(goods()), &mut cx).await.unwrap();
        order.handle(PaymentOverdue { order: "A-1".into() }, &mut cx).await.unwrap();
        order.handle(PaymentTaken { order: "A-1".into() }, &mut cx).await.unwrap();
        assert_eq!(order.status, Status::PaymentOverdue);
        assert_eq!(cx.sent::<ReturnStock>().unwrap().len(), 1);
        assert!(cx.sent::<ShipStock>().unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_order_with_a_malformed_card_number_is_refused_for_good_and_one_of_an_unknown_issuer_for_now() {
        let (mut order, mut cx) = (Order::default(), Context::for_test().with(Door::new(1)));
        let place = |number: &str| PlaceOrder {
            order: "A-1".into(),
            customer: "Zoë".into(),
            card: Card::Good,
            card_number: Some(number.into()),
            lines: paying().lines,
        };
        let refused = order.handle(place("4111 1111 1111 111I"), &mut cx).await.unwrap_err();
        assert!(refused.is_permanent() && refused.to_string().ends_with("'I' is no digit"), "{refused}");
        assert!(order.handled.is_empty() && cx.sent::<ReserveStock>().unwrap().is_empty());
        let unknown = order.handle(place("9000 2261 2965 3194"), &mut cx).await.unwrap_err();
        assert!(!unknown.is_permanent() && unknown.to_string().ends_with("not in the list yet"), "{unknown}");
        assert!(order.handled.is_empty() && cx.sent::<ReserveStock>().unwrap().is_empty());
        order.handle(place("4111 1111 1111 1111"), &mut cx).await.unwrap();
        assert_eq!(cx.sent::<ReserveStock>().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn an_order_with_one_article_out_of_stock_returns_the_others_and_asks_for_no_money() {
        let (mut order, mut cx) = (paying(), Context::for_test().with(Door::new(1)));
        order.lines.push(Line { article: "tray".into(), quantity: 1, price_cents: 3990 });
        order.handle(StockReserved(goods()), &mut cx).await.unwrap();
        order.handle(OutOfStock(Goods { article: "tray".into(), ..goods() }), &mut cx).await.unwrap();
        assert_eq!(order.status, Status::OutOfStock);
        assert_eq!(cx.sent::<ReturnStock>().unwrap().len(), 1);
        assert!(cx.sent::<TakePayment>().unwrap().is_empty());
    }
}
