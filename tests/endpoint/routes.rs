//! Where handlers may send.

use hapax::{Context, Correlation, Endpoint, Handle, HandlerError, Memory, Message, Routes, Saga, testing::Harness};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    order: String,
    to: String,
}

impl Message for Place {
    const TYPE: &'static str = "routes.place";
}

#[derive(Debug, Serialize, Deserialize)]
struct TakePayment {
    order: String,
}

impl Message for TakePayment {
    const TYPE: &'static str = "routes.take-payment";
}

#[derive(Debug, Serialize, Deserialize)]
struct Placed {
    order: String,
}

impl Message for Placed {
    const TYPE: &'static str = "routes.placed";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Order;

impl Saga for Order {
    const NAME: &'static str = "order";
}

impl Handle<Place> for Order {
    fn correlate(place: &Place) -> Correlation<'_> {
        (&place.order).into()
    }

    async fn handle(&mut self, place: Place, cx: &mut Context) -> Result<(), HandlerError> {
        let order = place.order;
        cx.publish(Placed { order: order.clone() })?;
        match place.to.as_str() {
            "routed" => cx.send_routed(TakePayment { order }),
            "local" => cx.send_local(TakePayment { order }),
            to => cx.send(to, TakePayment { order }),
        }
    }
}

fn routes() -> Routes {
    Routes::new().sends::<TakePayment>("payments").publishes::<Placed>()
}

/// Its destinations, or the reason of its letter.
async fn of(routes: Option<Routes>, to: &str) -> Result<Vec<String>, String> {
    let builder = Endpoint::builder("shop").store(Memory::new()).saga::<Order>(|order| order.starts::<Place>());
    let builder = match routes {
        Some(routes) => builder.routes(routes),
        None => builder,
    };
    let mut shop = Harness::start(builder).await.unwrap();
    shop.send(&Place { order: "o-1".into(), to: to.into() }).await.unwrap();
    match shop.dead_letters().await.unwrap().first() {
        Some(letter) => {
            assert!(shop.outgoing().is_empty(), "nothing of it is sent");
            assert!(shop.state::<Order>("o-1").await.unwrap().is_none(), "nothing of it is saved");
            Err(letter.reason.clone())
        }
        None => Ok(shop.outgoing().iter().map(|sent| sent.destination.to_string()).collect()),
    }
}

#[tokio::test]
async fn what_is_declared_goes_where_it_is_declared() {
    let published = "topic:routes.placed";
    for to in ["payments", "routed"] {
        assert_eq!(of(Some(routes()), to).await.unwrap(), [published, "endpoint:payments"], "{to}");
    }
    assert_eq!(of(None, "anywhere").await.unwrap(), [published, "endpoint:anywhere"]);
}

#[tokio::test]
async fn what_is_not_declared_is_refused_before_anything_is_saved() {
    let why = of(Some(routes()), "paymnets").await.unwrap_err();
    assert!(why.contains("routes.take-payment goes to payments by the declared routes, not to paymnets"), "{why}");
    let unpublished = Routes::new().sends::<TakePayment>("payments");
    let why = of(Some(unpublished), "payments").await.unwrap_err();
    assert!(why.contains("routes.placed has no route; declare one in the endpoint's .routes(..)"), "{why}");
    let wrong = Routes::new().sends::<Placed>("audit").sends::<TakePayment>("payments");
    let why = of(Some(wrong), "payments").await.unwrap_err();
    assert!(why.contains("routes.placed goes to audit by the declared routes, and is not published"), "{why}");
    let why = of(None, "routed").await.unwrap_err();
    assert!(why.contains("routes.take-payment has no route"), "{why}");
}
