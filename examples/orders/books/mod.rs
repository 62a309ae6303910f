//! The books: do all stories in the database add up?
//!
//! Knows nothing of the run, only what was ordered and what is stored. What each saga says is held against the
//! others, against the card company's ledger and against the dedup entries, so that an effect too many or too few shows
//! in at least one place, whoever was wrong. `tests/cli.rs` falsifies a file in each of these ways to see that it does.

mod letters;
mod pages;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use hapax::{
    envelope::Envelope,
    ids::{DedupKey, EntityKey, MessageId, SagaKey, Scope, TypeName},
};
use pages::{Charge, Pages};

use crate::{
    Refusal,
    input::Input,
    messages::{Card, PlaceOrder},
    order::{Order, Status},
    payment::{Payment, Status as Paid},
    place::Database,
    shop::ENDPOINT,
    stock::{Step, Stock, Tally},
};

/// What the database says, added up.
#[derive(Debug, Default)]
pub struct Books {
    /// Orders that were paid and shipped.
    pub confirmed: usize,
    /// Orders cancelled because an article was out of stock.
    pub out_of_stock: usize,
    /// Orders cancelled because the card was refused.
    pub card_refused: usize,
    /// Orders cancelled because the payment did not come in time.
    pub overdue: usize,
    /// Orders that were written off: their dead letters could not be mended.
    pub written_off: usize,
    /// Orders whose dead letters were mended and retried, whatever came of them then.
    pub mended: usize,
    /// Orders that became dead letters after the last delivery that a rule grants, not at once.
    pub given_up: usize,
    /// Real charges in the card company's ledger.
    pub charges: usize,
    /// Those of them that were given back.
    pub refunds: usize,
    /// Messages handled, counted once for each saga that handled one: the dedup entries.
    pub handled: usize,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Something in the database that should not be so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// With what: an order, an article, an entity, the messages.
    pub about: String,
    /// What.
    pub what: String,
}

impl Finding {
    fn new(about: impl Into<String>, what: impl Into<String>) -> Self {
        Self { about: about.into(), what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.about, self.what)
    }
}

/// Checks the books in `database` against what was ordered.
///
/// # Errors
/// [`Refusal`] when it cannot be read at all.
pub async fn check(database: &Database, input: &Input) -> Result<Books, Refusal> {
    let unreadable = |e| Refusal::new(format!("the books in {database} cannot be read: {e}"));
    let mut pages = Pages::read(database).await.map_err(unreadable)?;
    let mut books = Books { findings: std::mem::take(&mut pages.findings), ..Books::default() };
    for order in &input.orders {
        let wrong = books.order(order, &pages);
        books.findings.extend(wrong.into_iter().map(|what| Finding::new(format!("order {}", order.order), what)));
    }
    books.letters(input, &pages);
    books.strangers(input, &pages);
    books.shelves(input, &pages);
    books.messages(input, &pages);
    Ok(books)
}

impl Books {
    /// One order, from its own saga, its payment and the ledger.
    fn order(&mut self, placed: &PlaceOrder, pages: &Pages) -> Vec<String> {
        let ledger = pages.ledger.get(&placed.order).map_or(&[][..], Vec::as_slice);
        self.charges += ledger.iter().filter(|row| row.answer == "charged").count();
        self.refunds += ledger.iter().filter(|row| row.answer == "charged" && row.refunded).count();
        let Some(order) = pages.orders.get(&placed.order) else { return vec!["was never handled".into()] };
        *match order.status {
            Status::Confirmed => &mut self.confirmed,
            Status::OutOfStock => &mut self.out_of_stock,
            Status::CardRefused => &mut self.card_refused,
            Status::PaymentOverdue => &mut self.overdue,
            Status::WrittenOff => &mut self.written_off,
            unfinished => return vec![format!("came to no end: it is {unfinished:?}")],
        } += 1;
        let payment = pages.payments.get(&placed.order);
        let mut wrong = Vec::new();
        check_story(placed, order, payment, &mut wrong);
        check_money(placed, order, payment, ledger, &mut wrong);
        check_handled(order, payment, &mut wrong);
        wrong
    }

    /// What is there but was never ordered.
    fn strangers(&mut self, input: &Input, pages: &Pages) {
        let ordered: HashSet<&String> = input.orders.iter().map(|order| &order.order).collect();
        let known = pages.orders.keys().chain(pages.payments.keys()).chain(pages.ledger.keys());
        let strangers = known.filter(|key| !ordered.contains(key)).collect::<HashSet<_>>();
        self.findings.extend(strangers.into_iter().map(|key| Finding::new(format!("order {key}"), "was never placed")));
    }

    /// Every shelf, from what came in and what the orders say they took.
    fn shelves(&mut self, input: &Input, pages: &Pages) {
        let mut expected: HashMap<&str, Stock> = HashMap::new();
        for stock in &input.stock {
            let shelf = expected.entry(&stock.article).or_default();
            shelf.arrived += i64::from(stock.quantity);
            shelf.tally.add(Step::Arrive, "", stock.quantity);
        }
        for (id, order) in &pages.orders {
            for line in &order.lines {
                let shelf = expected.entry(&line.article).or_default();
                shelf.tally.add(Step::Reserve, id, line.quantity);
                if order.status == Status::Confirmed {
                    shelf.tally.add(Step::Ship, id, line.quantity);
                    shelf.sold += i64::from(line.quantity);
                } else if !order.missing.contains(&line.article) {
                    shelf.tally.add(Step::Return, id, line.quantity);
                }
            }
        }
        for (article, shelf) in &mut expected {
            shelf.free = shelf.arrived - shelf.sold;
            let wrong = match pages.stocks.get(*article) {
                Some(found) if found == shelf => continue,
                Some(found) => format!("should be {shelf:?} but is {found:?}"),
                None => "has no saga".into(),
            };
            self.findings.push(Finding::new(format!("stock {article}"), wrong));
        }
        let strangers = pages.stocks.keys().filter(|article| !expected.contains_key(article.as_str()));
        self.findings.extend(strangers.map(|article| Finding::new(format!("stock {article}"), "nobody asked for it")));
    }

    /// As many dedup entries as there are pairs of message and saga, and those of orders and payments by name.
    fn messages(&mut self, input: &Input, pages: &Pages) {
        self.handled = pages.dedup.len();
        let found: HashSet<&[u8]> = pages.dedup.iter().map(Vec::as_slice).collect();
        let mut wrong = |what: String| self.findings.push(Finding::new("messages", what));
        if found.len() < pages.dedup.len() {
            wrong(format!("{} dedup entries are there twice", pages.dedup.len() - found.len()));
        }
        let mut ids = HashSet::new();
        let orders = pages.orders.iter().map(|(key, order)| ("order", key, &order.handled));
        let payments = pages.payments.iter().map(|(key, payment)| ("payment", key, &payment.handled));
        for (saga, key, handled) in orders.chain(payments) {
            for id in handled {
                if !ids.insert(id) {
                    wrong(format!("{id} was handled more than once, the last time by {saga} {key}"));
                }
                if !dedup_key(saga, key, id).is_some_and(|key| found.contains(key.as_bytes().as_slice())) {
                    wrong(format!("{id} was handled by {saga} {key} but has no dedup entry"));
                }
            }
        }
        let stories = input.orders.iter().filter_map(|placed| pairs(placed, pages));
        let expected = input.stock.len() as u64 + stories.sum::<u64>();
        if expected != self.handled as u64 {
            wrong(format!("the stories need {expected} dedup entries, but there are {}", self.handled));
        }
        let on_shelves: u64 = pages.stocks.values().map(|Stock { tally: Tally { steps, .. }, .. }| steps).sum();
        if ids.len() as u64 + on_shelves != self.handled as u64 {
            let (sagas, entries) = (ids.len() as u64 + on_shelves, self.handled);
            wrong(format!("the sagas have handled {sagas} messages, but there are {entries} dedup entries"));
        }
    }
}

/// Did the order end in a way that its card allows? How fast things went is left open: even a good card may be overdue.
fn check_story(placed: &PlaceOrder, order: &Order, payment: Option<&Payment>, wrong: &mut Vec<String>) {
    let PlaceOrder { card, lines, .. } = placed;
    // Of one that is written off nothing was ever stored; that its card number is to blame is seen to with the letters.
    let written_off = order.status == Status::WrittenOff && order.lines.is_empty();
    if !written_off && (order.lines != *lines || order.card != *card) {
        wrong.push("is not what was ordered".into());
    }
    let allowed = match (order.status, card) {
        (Status::Confirmed, card) => matches!(card, Card::Good | Card::Slow),
        (Status::CardRefused, card) => *card == Card::Refused,
        _ => true,
    };
    if !allowed {
        wrong.push(format!("is {:?}, which a {card:?} card does not allow", order.status));
    }
    if order.missing.is_empty() == (order.status == Status::OutOfStock) || !order.reserved.is_empty() {
        wrong.push(format!("is {:?} with {:?} missing, {:?} reserved", order.status, order.missing, order.reserved));
    }
    let paid = payment.map(|payment| (payment.status, payment.cancelled));
    let fits = match order.status {
        Status::Confirmed => paid == Some((Paid::Taken, false)),
        Status::CardRefused => paid == Some((Paid::Refused, false)),
        Status::PaymentOverdue => {
            matches!(paid, Some((Paid::Refunded | Paid::Voided, true))) || paid == Some((Paid::Refused, true))
        }
        _ => paid.is_none(),
    };
    if !fits {
        wrong.push(format!("is {:?}, but its payment is {paid:?} (status, cancelled)", order.status));
    }
}

/// Charged once and for the right sum if it was confirmed, and in no other case for good.
fn check_money(
    placed: &PlaceOrder,
    order: &Order,
    payment: Option<&Payment>,
    ledger: &[Charge],
    wrong: &mut Vec<String>,
) {
    let charged: Vec<_> = ledger.iter().filter(|row| row.answer == "charged").collect();
    let kept = charged.iter().filter(|row| !row.refunded).count();
    let due = usize::from(order.status == Status::Confirmed);
    if charged.len() > 1 || kept != due {
        let times = charged.len();
        wrong.push(format!("is {:?} and was charged {times} times, {} given back", order.status, times - kept));
    }
    if let Some(row) = charged.iter().find(|row| row.cents != placed.total_cents()) {
        wrong.push(format!("costs {} cents and was charged {}", placed.total_cents(), row.cents));
    }
    // One payment asks under one key. A second key would be a second charge that happened to be refused or voided.
    let keys: Vec<&str> = ledger.iter().map(|row| row.key.as_str()).collect();
    let asked: Vec<&str> = payment.and_then(|payment| payment.key.as_deref()).into_iter().collect();
    if keys != asked {
        wrong.push(format!("is in the ledger under {keys:?}, but its payment asked under {asked:?}"));
    }
    let answers: &[&str] = match payment.map(|payment| payment.status) {
        None => return,
        Some(Paid::Taken | Paid::Refunded) => &["charged"],
        Some(Paid::Refused) => &["refused"],
        Some(Paid::Voided) => &["void", "charged", "refused"],
        Some(Paid::Open) => &[],
    };
    if let Some(row) = ledger.iter().find(|row| !answers.contains(&row.answer.as_str())) {
        let paid = payment.map(|payment| payment.status);
        wrong.push(format!("has a payment that is {paid:?}, but the card company says {}", row.answer));
    }
}

/// Has each saga of the order handled as many messages as the story has?
fn check_handled(order: &Order, payment: Option<&Payment>, wrong: &mut Vec<String>) {
    let (by_order, by_payment) = story(order, payment);
    if order.handled.len() as u64 != by_order {
        wrong.push(format!("has handled {} messages, its story has {by_order}", order.handled.len()));
    }
    let handled = payment.map_or(0, |payment| payment.handled.len() as u64);
    if handled != by_payment {
        wrong.push(format!("has a payment that has handled {handled} messages, its story has {by_payment}"));
    }
}

/// How many messages the order and its payment handle in the story that ended like this.
fn story(order: &Order, payment: Option<&Payment>) -> (u64, u64) {
    let overdue = u64::from(order.status == Status::PaymentOverdue);
    let answered = payment.is_some_and(|p| matches!(p.status, Paid::Taken | Paid::Refunded | Paid::Refused));
    // Placed, or written off; an answer for each line; the payment's answer; the timeout.
    let by_order = 1 + order.lines.len() as u64 + u64::from(answered) + overdue;
    // Take; cancel.
    let by_payment = match order.status {
        Status::OutOfStock | Status::WrittenOff => 0,
        _ => 1 + overdue,
    };
    (by_order, by_payment)
}

/// How many pairs of message and saga the story of an order has.
fn pairs(placed: &PlaceOrder, pages: &Pages) -> Option<u64> {
    let order = pages.orders.get(&placed.order)?;
    let (by_order, by_payment) = story(order, pages.payments.get(&placed.order));
    // Each line is reserved; then shipped or returned, unless it was missing.
    let by_stock = 2 * order.lines.len() - order.missing.len().min(order.lines.len());
    Some(by_order + by_payment + by_stock as u64)
}

/// Under what hapax remembers that `saga` `key` has handled the message `id`.
fn dedup_key(saga: &str, key: &str, id: &str) -> Option<DedupKey> {
    let scope = Scope { endpoint: ENDPOINT.parse().ok()?, saga: saga.parse().ok()? };
    let entity = EntityKey::new(Arc::new(scope), SagaKey::parse(key).ok()?);
    let message = Envelope::new(MessageId::parse(id).ok()?, TypeName::parse("any").ok()?, "");
    Some(DedupKey::of(&entity, &message))
}
