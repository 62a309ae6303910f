//! Who is let in, and what a browser is told to forbid.

use crate::rig::{Served, Shop, TOKEN};
use hapax_page::Token;

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_forbids_scripts_and_frames_of_others() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page()).await;
    for (path, cache) in [
        ("/", "no-cache"),
        ("/page.css", "no-cache"),
        ("/page.js", "no-cache"),
        ("/life.js", "no-cache"),
        ("/icon.svg", "no-cache"),
        ("/api/page", "no-store"),
        ("/api/status", "no-store"),
        ("/api/message/none", "no-store"),
        ("/api/dead-letters?limit=x", "no-store"),
    ] {
        let told = page.get(path).await;
        let policy = told.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'), "{policy}");
        for (name, value) in [
            ("cache-control", cache),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(told.header(name), Some(value), "{path}: {name}");
        }
        assert!(told.header("access-control-allow-origin").is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_ours_is_not_answered_to() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page().host("Ops.Example.org")).await;
    for host in [
        "localhost",
        "localhost:7070",
        "127.0.0.1:1",
        "[::1]:7070",
        "10.0.0.1",
        "ops.example.org",
        "OPS.example.org:443",
    ] {
        assert_eq!(page.ask("GET", "/api/status", &[("Host", host)], "").await.status, 200, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "ops.example.org.evil",
        "[evil",
        "example.org",
    ] {
        for path in ["/", "/page.js", "/api/status", "/api/page"] {
            page.ask("GET", path, &[("Host", host)], "").await.is_wrong(421);
        }
    }
    page.raw("GET /api/status HTTP/1.1\r\nConnection: close\r\n\r\n").await.is_wrong(400);
    let twice = "GET /api/status HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    page.raw(twice).await.is_wrong(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_act_may_look_and_whoever_may_look_may_not_act() {
    let shop = Shop::quiet().await;
    let (page, _) = shop.acting_page();
    let reader = "fedcba9876543210fedcba9876543210";
    let page = Served::new(page.guarded(Token::parse(reader).unwrap())).await;
    let path = "/api/dead-letters/shop/bad-1/discard";
    page.ask("POST", path, &[("Authorization", &format!("Bearer {reader}"))], "{}").await.is_wrong(401);
    for token in [reader, TOKEN] {
        let look = page.ask("GET", "/api/status", &[("Authorization", &format!("Bearer {token}"))], "").await;
        assert_eq!(look.status, 200, "{look:?}");
    }
    page.ask("GET", "/api/status", &[("Authorization", "Bearer none")], "").await.is_wrong(401);
    assert_eq!(page.ask("POST", path, &[("Authorization", &format!("Bearer {TOKEN}"))], "{}").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_sites_page_cannot_act_though_it_knew_the_token() {
    let shop = Shop::quiet().await;
    let (page, _) = shop.acting_page();
    let page = Served::new(page).await;
    let (bearer, host) = (format!("Bearer {TOKEN}"), page.0.to_string());
    let own = format!("http://{host}");
    let path = "/api/dead-letters/shop/bad-1/discard";
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://localhost"),
        ("Origin", "http://127.0.0.1:1"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        page.ask("POST", path, &[("Authorization", &bearer), (name, value)], "{}").await.is_wrong(403);
    }
    // Nor is it told that it may.
    let preflight = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")];
    let preflight = page.ask("OPTIONS", path, &preflight, "").await;
    assert!(preflight.status >= 400 && preflight.header("access-control-allow-origin").is_none(), "{preflight:?}");
    assert_eq!(shop.letters().await, 2);
    let headers = [("Authorization", &*bearer), ("Origin", &own), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(page.ask("POST", path, &headers, "{}").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_page_is_guarded_reading_needs_the_token_too() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page().guarded(Token::parse(TOKEN).unwrap())).await;
    let bearer = format!("Bearer {TOKEN}");
    for path in [
        "/api/status",
        "/api/counts",
        "/api/dead-letters",
        "/api/dead-letters/shop/bad-1",
        "/api/message/bad-1",
        "/api/outbox",
    ] {
        page.get(path).await.is_wrong(401);
        assert_eq!(page.ask("GET", path, &[("Authorization", &bearer)], "").await.status, 200, "{path}");
    }
    // The page itself has nothing of the store in it.
    assert_eq!(page.get("/").await.status, 200);
    let about = page.get("/api/page").await.json();
    assert_eq!((&about["guarded"], &about["actions"], &about["bodies"]), (&true.into(), &false.into(), &false.into()));
}
