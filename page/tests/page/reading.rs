//! What is shown, and that it is what the command `hapax` shows.

use async_trait::async_trait;
use axum::{Router, routing::get};
use hapax_core::{
    ids::{EndpointName, MessageId},
    operator::Selection,
    ports::{Answer, ErrorKind, Queue, QueueSurvey, QueuedMessage, TransportError},
};

use crate::rig::{HOSTILE, Served, Shop, encoded};

#[tokio::test(flavor = "multi_thread")]
async fn status_is_what_the_operator_tells() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page()).await;
    let told = page.get("/api/status").await;
    assert_eq!((told.status, told.header("content-type")), (200, Some("application/json")), "{told:?}");
    let mut status = told.json();
    let mut expected =
        serde_json::to_value(shop.operator().status(&Selection::default(), 10_000).await.unwrap()).unwrap();
    for value in [&mut status, &mut expected] {
        value["time"].take();
        value["dedup"]["oldest_at_most_ms"].take();
    }
    assert_eq!(status, expected);
    assert_eq!(status["endpoints"][0]["dead_letters"], serde_json::json!({"number": 2, "at_least": false}));
    let none = page.get("/api/status?endpoint=nobody").await.json();
    assert_eq!(none["endpoints"][0]["dead_letters"]["number"], 0);
    let bounded = page.get("/api/status?limit=1").await.json();
    assert_eq!(bounded["endpoints"][0]["dead_letters"], serde_json::json!({"number": 1, "at_least": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_paged_and_searched_without_their_bodies() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page()).await;
    let all = page.get("/api/dead-letters").await.json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    assert_eq!(all[0]["message"]["message_id"], "bad-1");
    assert!(all[0]["message"].get("body").is_none() && all[0]["message"]["body_bytes"].as_u64() > Some(0));
    for (words, many) in [
        ("limit=1", 1),
        ("skip=1", 1),
        ("skip=2", 0),
        ("limit=0", 0),
        ("reason=onerror", 1),
        ("reason=&type=&id=", 2),
        ("type=shop.add-item&saga=order&endpoint=shop", 2),
        ("type=other", 0),
        ("id=bad-1", 1),
        ("since=2000-01-01T00:00:00Z", 2),
        ("before=2000-01-01T00:00:00Z", 0),
    ] {
        let found = page.get(&format!("/api/dead-letters?{words}")).await;
        assert_eq!((found.status, found.json().as_array().map(Vec::len)), (200, Some(many)), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letters_body_is_shown_only_where_the_page_has_bodies() {
    let shop = Shop::quiet().await;
    let path = "/api/dead-letters/shop/bad-1";
    let without = Served::new(shop.page()).await.get(path).await.json();
    assert!(["body", "body_text", "body_hex"].iter().all(|name| without[0]["message"].get(name).is_none()));
    let with = Served::new(shop.page().bodies(true)).await.get(path).await.json();
    assert_eq!(with[0]["message"]["body"], serde_json::json!({"order": "7", "item": "bad"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_found_wherever_it_is() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page()).await;
    let good = page.get("/api/message/good-1").await.json();
    assert_eq!((&good["handled"][0]["remembered"], &good["handled"][0]["key"]), (&true.into(), &"7".into()));
    let bad = page.get("/api/message/bad-1?endpoint=shop&saga=order&key=7&limit=10").await.json();
    assert_eq!((&bad["dead_letters"][0]["saga"], &bad["entities_asked"]["number"]), (&"order".into(), &1.into()));
    let hostile = page.get(&format!("/api/message/{}", encoded(HOSTILE))).await.json();
    assert_eq!(hostile["message_id"], HOSTILE);
    let waiting = page.get("/api/outbox").await.json();
    assert_eq!((&waiting["entities"], &waiting["rows"]), (&serde_json::json!([]), &serde_json::json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_404_in_json() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page()).await;
    for path in [
        "/api/message/none",
        "/api/dead-letters/shop/none",
        "/api/dead-letters/none/bad-1",
        "/api/none",
        "/api/a/b/c/d",
    ] {
        page.get(path).await.is_wrong(404);
    }
    assert_eq!(page.get("/none").await.status, 404);
    assert!(page.get("/api/message/none").await.is_wrong(404).contains("message none"));
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_path_of_another_server_it_is_all_there_and_the_others_answers_are_left_alone() {
    let shop = Shop::quiet().await;
    let others = Router::new().route("/", get(async || "mine")).route("/api/status", get(async || "mine too"));
    let page = Served::router(others.merge(shop.page().below("/ops/hapax").unwrap().router())).await;
    let entrance = page.get("/ops/hapax").await;
    assert_eq!((entrance.status, entrance.header("location")), (308, Some("/ops/hapax/")));
    for path in ["", "page.css", "page.js", "life.js", "icon.svg", "api/page", "api/status", "api/message/good-1"] {
        assert_eq!(page.get(&format!("/ops/hapax/{path}")).await.status, 200, "{path}");
    }
    let mine = page.get("/").await;
    assert_eq!((&*mine.body, mine.header("content-security-policy")), ("mine", None));
    assert_eq!(page.get("/api/status").await.body, "mine too");
    for wrong in ["", "/", "ops", "/ops/", "//ops", "/{a}", "/a b", "/.."] {
        assert!(shop.page().below(wrong).is_err(), "{wrong}");
    }
}

/// Queues of a broker that is away, by a driver that says its address.
#[derive(Debug)]
struct Away;

impl Away {
    fn error() -> TransportError {
        let why = "amqp://shop:s3cret@broker:5672/%2f?password=s3cret is not reached, password='s3cret'";
        TransportError::new(ErrorKind::Unavailable, "looking at a queue", why)
    }
}

#[async_trait]
impl QueueSurvey for Away {
    async fn queue(&self, _: &EndpointName, _: u64) -> Result<Queue, TransportError> {
        Err(Self::error())
    }

    async fn queued(
        &self,
        _: &EndpointName,
        _: &MessageId,
        _: u64,
    ) -> Result<Answer<Vec<QueuedMessage>>, TransportError> {
        Err(Self::error())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_told_of_without_its_password() {
    let shop = Shop::quiet().await;
    let page = Served::new(hapax_page::Page::new(shop.operator().queues(Away))).await;
    for path in ["/api/status", "/api/message/bad-1"] {
        let told = page.get(path).await;
        assert!(told.status == 200 && told.body.contains("broker:5672"), "{told:?}");
        assert!(!told.body.contains("s3cret"), "{told:?}");
    }
}
