//! What is too much or makes no sense is refused; a store that does not answer is not asked more and more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{Answer, Count, Queue, QueueSurvey, QueuedMessage, TransportError},
};
use tokio::sync::Semaphore;

use crate::rig::{Served, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn an_odd_or_huge_question_is_400() {
    let shop = Shop::quiet().await;
    let page = Served::new(shop.page()).await;
    let long = "x".repeat(256);
    let huge = "x".repeat(5_000);
    for path in [
        "/api/status?limit=10001",
        "/api/status?limit=-1",
        "/api/status?limit=18446744073709551616",
        "/api/status?limit=",
        "/api/status?nothing=1",
        "/api/status?limit=1&limit=2",
        "/api/status?endpoint=a%00b",
        "/api/counts?x=1",
        "/api/dead-letters?limit=201",
        "/api/dead-letters?skip=10001",
        "/api/dead-letters?since=yesterday",
        "/api/dead-letters?type=a%0Ab",
        "/api/dead-letters/shop/%FF",
        "/api/dead-letters/shop/bad-1?bodies=true",
        "/api/dead-letters/sh%0Aop/bad-1",
        "/api/message/a%07b",
        "/api/message/none?limit=10001",
        "/api/outbox?limit=201",
        &format!("/api/message/{long}"),
        &format!("/api/status?endpoint={huge}"),
        &format!("/{huge}"),
    ] {
        page.get(path).await.is_wrong(400);
    }
}

/// Queues of a server that answers nothing until it is let.
#[derive(Debug, Clone)]
struct Silent {
    lets: Arc<Semaphore>,
    asked: Arc<AtomicU64>,
}

#[async_trait]
impl QueueSurvey for Silent {
    async fn queue(&self, _: &EndpointName, _: u64) -> Result<Queue, TransportError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let _permit = self.lets.acquire().await;
        Ok(Queue { messages: Count::exactly(0), leased: Answer::Is(Count::exactly(0)) })
    }
    async fn queued(
        &self,
        _: &EndpointName,
        _: &MessageId,
        _: u64,
    ) -> Result<Answer<Vec<QueuedMessage>>, TransportError> {
        Ok(Answer::Is(Vec::new()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_do_not_pile_up_before_a_store_that_does_not_answer() {
    let shop = Shop::quiet().await;
    let silent = Silent { lets: Arc::new(Semaphore::new(0)), asked: Arc::default() };
    let page = Arc::new(Served::new(hapax_page::Page::new(shop.operator().queues(silent.clone()))).await);
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let page = page.clone();
            tokio::spawn(async move { page.get("/api/status").await.status })
        })
        .collect();
    crate::rig::until("all places are taken", async || silent.asked.load(Ordering::Relaxed) == 8).await;
    // The ninth is refused at once, whatever it asks.
    page.get("/api/counts").await.is_wrong(503);
    let ninth = page.get("/api/status").await;
    ninth.is_wrong(503);
    assert_eq!(ninth.header("retry-after"), Some("1"));
    // The page itself is there meanwhile.
    assert_eq!(page.get("/").await.status, 200);
    silent.lets.add_permits(100);
    for status in asked {
        assert_eq!(tokio::time::timeout(Duration::from_secs(30), status).await.unwrap().unwrap(), 200);
    }
    assert_eq!(page.get("/api/status").await.status, 200);
}
