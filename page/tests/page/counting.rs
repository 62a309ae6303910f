//! Numbers that no store keeps.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use hapax_core::metrics::{Event, Metrics};
use hapax_page::{Both, PageMetrics};

use crate::rig::{Served, Shop};

/// Another observer of the same endpoint.
#[derive(Debug, Clone, Default)]
struct Other(Arc<AtomicU64>);

impl Metrics for Other {
    fn observe(&self, event: Event<'_>) {
        self.0.fetch_add(u64::from(matches!(event, Event::DeadLettered(_))), Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoints_own_page_counts_what_was_handled_dropped_and_set_aside() {
    let (metrics, other) = (PageMetrics::default(), Other::default());
    let shop = Shop::that_ran(Arc::new(Both(metrics.clone(), other.clone()))).await;
    let page = Served::new(shop.page().counts(metrics)).await;
    let counts = page.get("/api/counts").await.json();
    let order = &counts["sagas"][0];
    let expected = serde_json::json!({"endpoint": "shop", "saga": "order", "handled": 1, "duplicates": 1, "dropped": 0, "dead_letters": 2});
    assert_eq!(order, &expected, "{counts}");
    assert_eq!(other.0.load(Ordering::Relaxed), 2);
    assert!(counts["steps"].is_array() && counts["step_ms"] == 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_counts_that_is_said_and_no_zero() {
    let shop = Shop::quiet().await;
    let counts = Served::new(shop.page()).await.get("/api/counts").await.json();
    assert!(counts["unknown"].as_str().unwrap().contains("--metrics"), "{counts}");
    assert!(counts.get("sagas").is_none());
}

#[test]
fn the_names_that_are_read_are_those_that_are_recorded() {
    let recorded: Vec<String> = hapax_otel::INSTRUMENTS.iter().map(hapax_otel::Instrument::prometheus).collect();
    for name in ["hapax_handled_total", "hapax_duplicates_total", "hapax_dropped_total", "hapax_dead_letters_total"] {
        assert!(recorded.iter().any(|other| other == name), "{name}");
    }
}

#[cfg(feature = "serve")]
mod from_other_processes {
    use axum::{Router, http::StatusCode, routing::get};
    use hapax_page::{Counts, Page, Scraped};

    use crate::rig::{Served, Shop, until};

    const TEXT: &str = "# TYPE hapax_handled_total counter\n\
        hapax_handled_total{hapax_endpoint=\"shop\",hapax_saga=\"order\"} 40\n\
        hapax_duplicates_total{hapax_endpoint=\"shop\",hapax_saga=\"order\"} 2\n";

    async fn page(shop: &Shop, urls: &[String]) -> Served {
        let page: Page = shop.page().counts(Counts::from(Scraped::start(urls).unwrap()));
        Served::new(page).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn numbers_of_processes_are_added_and_who_is_silent_is_named() {
        let told = Router::new()
            .route("/a", get(async || TEXT))
            .route("/b", get(async || TEXT))
            .route("/away", get(async || StatusCode::INTERNAL_SERVER_ERROR));
        let told = Served::router(told).await;
        let shop = Shop::quiet().await;
        let urls = ["a", "b", "away"].map(|name| format!("http://{}/{name}", told.0));
        let page = page(&shop, &urls).await;
        until("all were asked", async || page.get("/api/counts").await.json()["sagas"].is_array()).await;
        let counts = page.get("/api/counts").await.json();
        assert_eq!((&counts["sagas"][0]["handled"], &counts["sagas"][0]["duplicates"]), (&80.into(), &4.into()));
        let silent: Vec<bool> =
            counts["processes"].as_array().unwrap().iter().map(|process| process["error"].is_string()).collect();
        assert_eq!(silent, [false, false, true], "{counts}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_too_much_or_nothing_of_hapax_is_not_zero() {
        let told = Router::new()
            .route("/huge", get(async || "x".repeat(5 << 20)))
            .route("/other", get(async || "up 1\n"))
            .route("/odd", get(async || vec![0xff_u8, 0xfe]));
        let told = Served::router(told).await;
        let shop = Shop::quiet().await;
        for (name, why) in
            [("huge", "cannot be read"), ("other", "nothing of hapax"), ("odd", "no text"), ("none", "404")]
        {
            let page = page(&shop, &[format!("http://{}/{name}", told.0)]).await;
            until("it was asked", async || {
                page.get("/api/counts").await.json()["unknown"].as_str().is_some_and(|said| said.contains(why))
            })
            .await;
        }
    }
}
