//! An application's endpoint in virtual time.

use std::time::Duration;

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Memory, Message, MessageId, Saga, Sender,
    codec::Codec,
    endpoint::{EndpointBuilder, Settings},
    envelope::{Destination, Envelope},
    testing::{Harness, HarnessError},
};
use serde::{Deserialize, Serialize};

use crate::parts::{Part, Parts};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Serialize, Deserialize)]
struct PlaceOrder {
    order: String,
    item: String,
}

impl Message for PlaceOrder {
    const TYPE: &'static str = "shop.place-order";
}

#[derive(Serialize, Deserialize)]
struct PayOrder {
    order: String,
}

impl Message for PayOrder {
    const TYPE: &'static str = "shop.pay-order";
}

#[derive(Serialize, Deserialize)]
struct Lapse {
    order: String,
}

impl Message for Lapse {
    const TYPE: &'static str = "shop.lapse";
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OrderEnded {
    order: String,
    how: String,
}

impl Message for OrderEnded {
    const TYPE: &'static str = "shop.order-ended";
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Order {
    items: Vec<String>,
    lapses: Option<String>,
}

impl Order {
    fn end(cx: &mut Context, order: String, how: &str) -> Result<(), HandlerError> {
        cx.publish(OrderEnded { order, how: how.into() })?;
        cx.complete();
        Ok(())
    }
}

impl Saga for Order {
    const NAME: &'static str = "order";
}

impl Handle<PlaceOrder> for Order {
    fn correlate(place: &PlaceOrder) -> Correlation<'_> {
        (&place.order).into()
    }
    async fn handle(&mut self, place: PlaceOrder, cx: &mut Context) -> Result<(), HandlerError> {
        match place.item.as_str() {
            "unsellable" => return Err(HandlerError::transient("nobody sells it")),
            "forbidden" => return Err(HandlerError::permanent("nobody may sell it")),
            _ => self.items.push(place.item),
        }
        if self.lapses.is_none() {
            self.lapses = Some(cx.timeout(DAY, Lapse { order: place.order })?.to_string());
        }
        Ok(())
    }
}

impl Handle<PayOrder> for Order {
    fn correlate(pay: &PayOrder) -> Correlation<'_> {
        (&pay.order).into()
    }
    async fn handle(&mut self, pay: PayOrder, cx: &mut Context) -> Result<(), HandlerError> {
        Self::end(cx, pay.order, "paid")
    }
}

impl Handle<Lapse> for Order {
    fn correlate(lapse: &Lapse) -> Correlation<'_> {
        (&lapse.order).into()
    }
    async fn handle(&mut self, lapse: Lapse, cx: &mut Context) -> Result<(), HandlerError> {
        Self::end(cx, lapse.order, "lapsed")
    }
}

/// Counts the ends of orders, of whatever endpoint.
#[derive(Default, Serialize, Deserialize)]
struct Ends {
    count: u32,
}

impl Saga for Ends {
    const NAME: &'static str = "ends";
}

impl Handle<OrderEnded> for Ends {
    fn correlate(_: &OrderEnded) -> Correlation<'_> {
        "all".into()
    }
    async fn handle(&mut self, _: OrderEnded, _: &mut Context) -> Result<(), HandlerError> {
        self.count += 1;
        Ok(())
    }
}

/// As an application would write it for production too, but for the store.
fn shop() -> EndpointBuilder {
    sagas(Endpoint::builder("shop").store(Memory::default()))
}

fn sagas(shop: EndpointBuilder) -> EndpointBuilder {
    shop.saga::<Order>(|order| order.starts::<PlaceOrder>().handles::<PayOrder>().handles::<Lapse>())
        .saga::<Ends>(|ends| ends.starts::<OrderEnded>())
}

fn place(order: &str, item: &str) -> PlaceOrder {
    PlaceOrder { order: order.into(), item: item.into() }
}

fn ended(order: &str, how: &str) -> OrderEnded {
    OrderEnded { order: order.into(), how: how.into() }
}

#[tokio::test]
async fn what_is_sent_is_handled_with_what_it_causes_when_the_call_returns() {
    let mut shop = Harness::start(shop()).await.unwrap();
    shop.send(&place("7", "book")).await.unwrap();
    let order = shop.state::<Order>("7").await.unwrap().unwrap();
    assert_eq!(order.items, ["book"]);
    shop.send(&PayOrder { order: "7".into() }).await.unwrap();
    assert_eq!(shop.published::<OrderEnded>().unwrap(), [ended("7", "paid")]);
    assert_eq!(shop.state::<Order>("7").await.unwrap(), None);
    // What it publishes it subscribes to itself.
    assert_eq!(shop.state::<Ends>("all").await.unwrap().unwrap().count, 1);
    assert!(shop.dead_letters().await.unwrap().is_empty());
}

#[tokio::test]
async fn time_passes_when_the_test_says_so() {
    let begun = std::time::Instant::now();
    let mut shop = Harness::start(shop()).await.unwrap();
    shop.send(&place("7", "book")).await.unwrap();
    shop.send(&place("8", "pen")).await.unwrap();
    shop.send(&PayOrder { order: "8".into() }).await.unwrap();
    let placed = shop.now();
    shop.advance(DAY - Duration::from_millis(1)).await.unwrap();
    assert_eq!(shop.published::<OrderEnded>().unwrap(), [ended("8", "paid")]);
    assert_eq!(shop.waiting().len(), 2);
    shop.advance(Duration::from_millis(1)).await.unwrap();
    assert_eq!(shop.now(), placed.after(DAY));
    // That of the paid order has come too, and is not live.
    assert_eq!(shop.published::<OrderEnded>().unwrap(), [ended("8", "paid"), ended("7", "lapsed")]);
    assert!(shop.waiting().is_empty());
    shop.advance(DAY * 365).await.unwrap();
    assert!(begun.elapsed() < DAY / 24, "virtual");
}

#[tokio::test]
async fn what_comes_again_has_no_effect() {
    let mut shop = Harness::start(shop()).await.unwrap();
    shop.send(&place("7", "book")).await.unwrap();
    shop.send(&PayOrder { order: "7".into() }).await.unwrap();
    let sent = shop.outgoing().len();
    for _ in 0..3 {
        shop.redeliver().await.unwrap();
    }
    assert_eq!(shop.outgoing().len(), sent);
    assert_eq!(shop.state::<Ends>("all").await.unwrap().unwrap().count, 1);
    assert!(shop.dead_letters().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_fails_is_tried_as_time_passes_and_then_set_aside() {
    let mut shop = Harness::start(shop()).await.unwrap();
    let id = shop.send(&place("7", "unsellable")).await.unwrap();
    for delay in [1, 2, 4, 8] {
        assert!(shop.dead_letters().await.unwrap().is_empty(), "before the delay of {delay} s");
        shop.advance(Duration::from_secs(delay)).await.unwrap();
    }
    let [letter] = &shop.dead_letters().await.unwrap()[..] else { panic!("one letter") };
    assert_eq!((&letter.envelope.message_id, letter.attempts, letter.time), (&id, 5, shop.now()));
    assert!(letter.reason.contains("nobody sells it"), "{}", letter.reason);
    assert!(shop.waiting().is_empty());

    shop.send(&place("8", "forbidden")).await.unwrap();
    assert_eq!(shop.dead_letters().await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_no_broker_takes_is_sent_by_the_sweeper() {
    let mut shop = Harness::start(shop()).await.unwrap();
    shop.refuse_sends(9); // As often as a pass tries by itself.
    shop.send(&place("7", "book")).await.unwrap();
    assert!(shop.outgoing().is_empty());
    assert_eq!(shop.state::<Order>("7").await.unwrap().unwrap().items, ["book"]);
    shop.advance(Settings::default().sweep_age).await.unwrap();
    assert_eq!(shop.sent::<Lapse>().unwrap().len(), 1);
}

/// Goal: however many entities could not be finished, no sweep is held back for it, and no send waits for its turn in time that is not the test's
/// own. Method: real time passes by the second while marks fail, since a circuit opens only after a second of it.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_marked_is_over_with_the_next_sweep() {
    let parts = Parts::default();
    parts.is_away(Some(Part::Insert));
    let shop = sagas(Endpoint::builder("shop").entities(parts.clone()).dedup(parts.clone()));
    let mut shop = Harness::start(shop).await.unwrap();
    let (second, begun) = (Duration::from_secs(1), tokio::time::Instant::now());
    for order in ["1", "2", "3", "4", "5"] {
        shop.send(&place(order, "book")).await.unwrap();
        tokio::time::sleep(second).await;
    }
    assert_eq!(begun.elapsed().as_secs(), 5, "no send has waited for the stores");
    let waiting = || parts.store.entities().iter().filter(|(_, entity)| !entity.outbox.is_empty()).count();
    assert_eq!(waiting(), 5);
    parts.is_away(None);
    shop.advance(Settings::default().sweep_age).await.unwrap();
    assert_eq!(waiting(), 0);
}

#[tokio::test]
async fn two_runs_are_the_same() {
    async fn run() -> Vec<String> {
        let mut shop = Harness::start(shop()).await.unwrap();
        for order in ["1", "2", "3"] {
            shop.send(&place(order, "book")).await.unwrap();
        }
        shop.advance(DAY).await.unwrap();
        shop.outgoing().iter().map(|sent| format!("{sent:?}")).collect()
    }
    assert_eq!(run().await, run().await);
}

#[tokio::test]
async fn an_envelope_of_ones_own_comes_as_it_is() {
    let mut shop = Harness::start(shop()).await.unwrap();
    let id = MessageId::parse("one of ours").unwrap();
    let envelope = Sender::envelope_with(Codec::Json, id, &place("7", "book")).unwrap();
    shop.send_envelope(envelope.clone()).await.unwrap();
    shop.send_envelope(Envelope { occurred_at: None, ..envelope }).await.unwrap();
    assert_eq!(shop.state::<Order>("7").await.unwrap().unwrap().items, ["book"], "once");
}

#[derive(Serialize, Deserialize)]
struct Ping;

impl Message for Ping {
    const TYPE: &'static str = "ping";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Echo;

impl Saga for Echo {
    const NAME: &'static str = "echo";
}

impl Handle<Ping> for Echo {
    fn correlate(_: &Ping) -> Correlation<'_> {
        "one".into()
    }
    async fn handle(&mut self, ping: Ping, cx: &mut Context) -> Result<(), HandlerError> {
        cx.publish(ping)?;
        Ok(())
    }
}

#[tokio::test]
async fn messages_that_cause_each_other_without_end_are_told() {
    let echo = Endpoint::builder("echo").store(Memory::default()).saga::<Echo>(|echo| echo.starts::<Ping>());
    let mut echo = Harness::start(echo).await.unwrap();
    let why = echo.send(&Ping).await.unwrap_err();
    assert!(matches!(&why, HarnessError::Restless(last) if last == "ping"), "{why}");
}

#[derive(Serialize, Deserialize)]
struct Ask;

impl Message for Ask {
    const TYPE: &'static str = "ask";
}

#[derive(Default, Serialize, Deserialize)]
struct Oracle {
    asked: u32,
}

impl Saga for Oracle {
    const NAME: &'static str = "oracle";
}

impl Handle<Ask> for Oracle {
    fn correlate(_: &Ask) -> Correlation<'_> {
        "one".into()
    }
    async fn handle(&mut self, _: Ask, cx: &mut Context) -> Result<(), HandlerError> {
        self.asked += 1;
        cx.reply(OrderEnded { order: self.asked.to_string(), how: "answered".into() })
    }
}

#[tokio::test]
async fn an_answer_that_a_copy_gets_again_is_told_once() {
    let oracle = Endpoint::builder("oracle").store(Memory::default()).saga::<Oracle>(|oracle| oracle.starts::<Ask>());
    let mut oracle = Harness::start(oracle).await.unwrap();
    let mut ask = Sender::envelope_with(Codec::Json, MessageId::parse("asked").unwrap(), &Ask).unwrap();
    ask.reply_to = Some(Destination::Endpoint("asker".parse().unwrap()));
    oracle.send_envelope(ask).await.unwrap();
    oracle.redeliver().await.unwrap();
    assert_eq!(oracle.sent::<OrderEnded>().unwrap(), [ended("1", "answered")]);
    assert!(oracle.published::<OrderEnded>().unwrap().is_empty(), "it went to one endpoint");
}

#[tokio::test]
async fn a_saga_that_is_not_there_and_a_key_that_is_none_are_told() {
    let shop = Harness::start(shop()).await.unwrap();
    let why = shop.state::<Echo>("one").await.unwrap_err().to_string();
    assert_eq!(why, "endpoint shop has no saga echo");
    assert!(matches!(shop.state::<Order>("").await, Err(HarnessError::State(_))));
    assert_eq!(shop.state::<Order>("never placed").await.unwrap(), None);
}
