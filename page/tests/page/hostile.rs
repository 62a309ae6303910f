//! What others have written is text, wherever it stands.

use crate::rig::{HOSTILE, Served, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_hostile_comes_as_json_and_never_in_the_page() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page().bodies(true)).await;
    let letters = page.get(&format!("/api/dead-letters/shop/{}", crate::rig::encoded(HOSTILE))).await;
    assert_eq!(letters.header("content-type"), Some("application/json"));
    let letter = &letters.json()[0];
    assert!(letter["reason"].as_str().unwrap().contains(HOSTILE));
    assert!(letter["message"]["body"]["item"].as_str().unwrap().contains(HOSTILE));
    let wrong = page.get(&format!("/api/message/{}", crate::rig::encoded("<script>"))).await;
    assert!(wrong.is_wrong(404).contains("<script>"));
    assert_eq!(wrong.header("content-type"), Some("application/json"));
    // The page is the same whatever is in the store.
    assert!(!page.get("/").await.body.contains("onerror"));
}

/// Goal: no text is ever made into elements or run. Method: what would do that is not in the scripts at all; the policy forbids the rest.
#[tokio::test(flavor = "multi_thread")]
async fn the_scripts_make_no_elements_of_texts() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page()).await;
    for path in ["/page.js", "/life.js"] {
        let script = page.get(path).await.body;
        for door in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "srcdoc",
            "DOMParser",
            "setHTML",
            "createContextualFragment",
            "javascript:",
            "localStorage",
            "sessionStorage",
            "document.cookie",
        ] {
            assert!(!script.contains(door), "{path}: {door}");
        }
        assert!(script.contains("textContent"), "{path}");
    }
    let html = page.get("/").await.body;
    assert!(
        !html.contains("<style") && !html.contains("style=") && !html.contains(" on"),
        "inline, which the policy forbids"
    );
    assert!(!html.contains("//"), "something from elsewhere");
}
