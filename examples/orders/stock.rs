//! The saga `stock`: the shelf of one article. The most popular one is in every second order, so its entity is hot: its
//! queued messages are handled in one pass and saved together.

use hapax::{Context, Correlation, Handle, HandlerError, Saga};
use serde::{Deserialize, Serialize};

use crate::messages::{Goods, OutOfStock, ReserveStock, ReturnStock, ShipStock, StockArrived, StockReserved};

/// State of one shelf. Small whatever happened to it, since it is saved with every pass. Signed, so that an effect too many
/// is a wrong number and no panic.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stock {
    /// Came in.
    pub(crate) arrived: i64,
    /// Can be sold.
    pub(crate) free: i64,
    /// Put aside for orders that are not decided.
    pub(crate) reserved: i64,
    /// Left the house.
    pub(crate) sold: i64,
    /// For the books: what was handled.
    pub(crate) tally: Tally,
}

impl Saga for Stock {
    const NAME: &'static str = "stock";
}

/// What was done to a shelf, in a form that can be compared without listing it: how many steps, and a sum over a hash of
/// each. A step too many, too few or for the wrong order shows, whatever the order in which they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    pub(crate) sum: u64,
}

/// What can be done to a shelf.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Arrive = 1,
    Reserve,
    Return,
    Ship,
}

impl Tally {
    pub(crate) fn add(&mut self, step: Step, order: &str, quantity: u32) {
        self.steps += 1;
        self.sum = self.sum.wrapping_add(hash(&[&[step as u8], &quantity.to_be_bytes(), order.as_bytes()]));
    }
}

/// FNV-1a: the same in every build, which the standard library's hasher does not promise.
fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Handle<StockArrived> for Stock {
    fn correlate(arrived: &StockArrived) -> Correlation<'_> {
        Correlation::of("stock", &arrived.article)
    }

    async fn handle(&mut self, arrived: StockArrived, _: &mut Context) -> Result<(), HandlerError> {
        self.tally.add(Step::Arrive, "", arrived.quantity);
        self.arrived += i64::from(arrived.quantity);
        self.free += i64::from(arrived.quantity);
        Ok(())
    }
}

/// An article that never came in has an empty shelf, so this too may start the saga.
impl Handle<ReserveStock> for Stock {
    fn correlate(ReserveStock(goods): &ReserveStock) -> Correlation<'_> {
        Correlation::of("article", &goods.article)
    }

    async fn handle(&mut self, ReserveStock(goods): ReserveStock, cx: &mut Context) -> Result<(), HandlerError> {
        let quantity = self.step(Step::Reserve, &goods);
        if self.free < quantity {
            return cx.publish(OutOfStock(goods));
        }
        self.free -= quantity;
        self.reserved += quantity;
        cx.publish(StockReserved(goods))
    }
}

impl Handle<ReturnStock> for Stock {
    fn correlate(ReturnStock(goods): &ReturnStock) -> Correlation<'_> {
        Correlation::of("article", &goods.article)
    }

    async fn handle(&mut self, ReturnStock(goods): ReturnStock, _: &mut Context) -> Result<(), HandlerError> {
        let quantity = self.step(Step::Return, &goods);
        self.reserved -= quantity;
        self.free += quantity;
        Ok(())
    }
}

impl Handle<ShipStock> for Stock {
    fn correlate(ShipStock(goods): &ShipStock) -> Correlation<'_> {
        Correlation::of("article", &goods.article)
    }

    async fn handle(&mut self, ShipStock(goods): ShipStock, _: &mut Context) -> Result<(), HandlerError> {
        let quantity = self.step(Step::Ship, &goods);
        self.reserved -= quantity;
        self.sold += quantity;
        Ok(())
    }
}

impl Stock {
    fn step(&mut self, step: Step, goods: &Goods) -> i64 {
        self.tally.add(step, &goods.order, goods.quantity);
        goods.quantity.into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn goods(order: &str, quantity: u32) -> Goods {
        Goods { order: order.into(), article: "mug".into(), quantity }
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_reserved() {
        let (mut stock, mut cx) = (Stock::default(), Context::for_test());
        stock.handle(StockArrived { article: "mug".into(), quantity: 3 }, &mut cx).await.unwrap();
        stock.handle(ReserveStock(goods("A", 2)), &mut cx).await.unwrap();
        stock.handle(ReserveStock(goods("B", 2)), &mut cx).await.unwrap();
        assert_eq!((stock.free, stock.reserved), (1, 2));
        assert_eq!(cx.sent::<OutOfStock>().unwrap()[0].0.order, "B");
    }

    #[test]
    fn a_tally_tells_a_step_for_another_order_but_not_another_sequence() {
        let tally = |steps: &[(&str, u32)]| {
            let mut tally = Tally::default();
            steps.iter().for_each(|(order, quantity)| tally.add(Step::Ship, order, *quantity));
            tally
        };
        assert_eq!(tally(&[("A", 1), ("B", 2)]), tally(&[("B", 2), ("A", 1)]));
        assert_ne!(tally(&[("A", 1), ("B", 1)]), tally(&[("A", 1), ("A", 1)]));
    }
}
