//! What changes something: only where that was asked for, only by who knows the token, and written down.

use crate::rig::{HOSTILE, Served, Shop, TOKEN, encoded};

const RETRY: &str = "/api/dead-letters/shop/bad-1/retry";
const DISCARD: &str = "/api/dead-letters/shop/bad-1/discard";

#[tokio::test(flavor = "multi_thread")]
async fn without_actions_there_is_no_route_that_changes_anything() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page()).await;
    for path in [RETRY, DISCARD] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let refused = page.ask(method, path, &[("Authorization", &format!("Bearer {TOKEN}"))], "{}").await;
            assert!([404, 405].contains(&refused.status), "{method} {path}: {refused:?}");
        }
    }
    // Nor by any other route that there is.
    for path in
        ["/", "/api/status", "/api/dead-letters", "/api/dead-letters/shop/bad-1", "/api/message/bad-1", "/api/outbox"]
    {
        assert_eq!(page.post(path, "{}").await.status, 405, "{path}");
    }
    assert_eq!((shop.letters().await, shop.backlog().await), (2, 0));
    assert_eq!(page.get("/api/page").await.json()["actions"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_token_nothing_is_done() {
    let shop = Shop::quiet().await;
    let (page, lines) = shop.acting_page();
    let page = Served::new(page).await;
    for token in ["", "Bearer ", "Bearer 0123456789abcdef0123456789abcdee", TOKEN, &format!("Basic {TOKEN}")] {
        for path in [RETRY, DISCARD] {
            let refused = page.ask("POST", path, &[("Authorization", token)], "{}").await;
            refused.is_wrong(401);
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        }
    }
    page.ask("POST", RETRY, &[], "{}").await.is_wrong(401);
    // In the address it would stand in logs.
    page.ask("POST", &format!("{RETRY}?token={TOKEN}"), &[], "{}").await.is_wrong(401);
    // A look is none.
    assert_eq!(page.ask("GET", RETRY, &[("Authorization", &format!("Bearer {TOKEN}"))], "").await.status, 405);
    assert_eq!((shop.letters().await, shop.backlog().await), (2, 0));
    assert!(lines.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_retried_and_that_is_written_down() {
    let shop = Shop::quiet().await;
    let (page, lines) = shop.acting_page();
    let page = Served::new(page).await;
    let done = page.post(RETRY, r#"{"saga": "order", "by": "alice"}"#).await;
    assert_eq!(done.json(), serde_json::json!({"endpoint": "shop", "done": 1, "left": 0, "reasons": []}), "{done:?}");
    assert_eq!((shop.letters().await, shop.backlog().await), (1, 1));
    let mut line = lines.lock().unwrap()[0].clone();
    assert!(line["time"].take().is_string());
    let expected = serde_json::json!({"time": null, "by": "alice", "deed": "retried dead letters", "of": "shop", "count": 1, "store": "shop.db"});
    assert_eq!(line, expected);
    let office = shop.operator().dead_letter_office(&"shop".parse().unwrap(), "", std::time::Duration::ZERO);
    let actions = office.actions().await.unwrap();
    assert_eq!((actions.len(), &*actions[0].by), (1, "alice"));
    // There is nothing left to do.
    page.post(RETRY, "{}").await.is_wrong(404);
    assert_eq!(lines.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_given_up_and_no_other_is() {
    let shop = Shop::quiet().await;
    let (page, lines) = shop.acting_page();
    let page = Served::new(page).await;
    page.post(DISCARD, r#"{"saga": "another"}"#).await.is_wrong(404);
    let path = format!("/api/dead-letters/shop/{}/discard", encoded(HOSTILE));
    let done = page.post(&path, "{}").await;
    assert_eq!(done.json(), serde_json::json!({"endpoint": "shop", "discarded": 1}), "{done:?}");
    let left = page.get("/api/dead-letters").await.json();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["message"]["message_id"]), (1, &"bad-1".into()));
    assert_eq!(lines.lock().unwrap()[0]["by"], "page");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_letters_about_a_message_the_one_that_is_meant_is_done_with() {
    let shop = Shop::quiet().await;
    let other = shop.copy_of("bad-1").await;
    let (page, _) = shop.acting_page();
    let page = Served::new(page).await;
    for path in [RETRY, DISCARD] {
        page.post(path, r#"{"saga": "order"}"#).await.is_wrong(409);
        page.post(path, r#"{"saga": "order", "fingerprint": "00000000000000000000000000000000"}"#).await.is_wrong(404);
        page.post(path, r#"{"saga": "order", "fingerprint": "none"}"#).await.is_wrong(400);
        page.post(path, r#"{"destination": "elsewhere"}"#).await.is_wrong(404);
        page.post(path, r#"{"saga": ""}"#).await.is_wrong(404);
    }
    assert_eq!((shop.letters().await, shop.backlog().await), (3, 0));
    let meant = format!(r#"{{"saga": "order", "destination": "", "fingerprint": "{other}"}}"#);
    let done = page.post(DISCARD, &meant).await;
    assert_eq!(done.json(), serde_json::json!({"endpoint": "shop", "discarded": 1}), "{done:?}");
    let left = page.get("/api/dead-letters/shop/bad-1").await.json();
    assert!(left.as_array().unwrap().len() == 1 && left[0]["fingerprint"] != other.as_str(), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_makes_no_sense_is_refused_before_anything_is_done() {
    let shop = Shop::quiet().await;
    let (page, _) = shop.acting_page();
    let page = Served::new(page).await;
    let long = format!(r#"{{"by": "{}"}}"#, "x".repeat(101));
    let huge = format!(r#"{{"by": "{}"}}"#, "x".repeat(5_000));
    for (body, status) in [
        ("", 400),
        ("nothing", 400),
        ("[1]", 422),
        (r#"{"all": true}"#, 422),
        (r#"{"saga": 7}"#, 422),
        (r#"{"by": "a\u0007"}"#, 400),
        (r#"{"saga": "a\u0000b"}"#, 400),
        (&*long, 400),
        (&*huge, 413),
    ] {
        page.post(DISCARD, body).await.is_wrong(status);
    }
    let bearer = format!("Bearer {TOKEN}");
    let form = format!(
        "POST {DISCARD} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {bearer}\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    page.raw(&form).await.is_wrong(415);
    assert_eq!(shop.letters().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_without_a_way_out_leaves_the_letter_and_says_why() {
    let shop = Shop::quiet().await;
    let operator = hapax_core::operator::Operator::on(shop.store.clone());
    let token = hapax_page::Token::parse(TOKEN).unwrap();
    let page = Served::new(hapax_page::Page::new(operator).actions(hapax_page::Actions::new(token))).await;
    let done = page.post(RETRY, "{}").await.json();
    assert_eq!((&done["done"], &done["left"]), (&0.into(), &1.into()));
    assert!(done["reasons"][0]["reason"].as_str().unwrap().contains("no transport"), "{done}");
    assert_eq!(shop.letters().await, 2);
}
