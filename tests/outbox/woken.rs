//! What is stored while the table is being asked.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    Relay,
    ports::{Care, Cared, Instance, OutboxState, OutboxTable, StoreError, Tick, Ticked},
    relay::PushLine,
};
use tokio::sync::{mpsc, oneshot};

use super::{
    rig::{Outbox, Place},
    sink::{PATIENCE, Sink, patient},
};

/// Answers what the table has said once it is let, where that was nothing.
#[derive(Debug)]
struct Late {
    inner: Outbox,
    asked: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

#[async_trait]
impl OutboxTable for Late {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_ordered(&self) -> bool {
        self.inner.is_ordered()
    }

    fn is_told(&self) -> bool {
        self.inner.is_told()
    }

    fn attach(&self, line: &Arc<PushLine>) -> bool {
        self.inner.attach(line)
    }

    fn detach(&self, line: &Arc<PushLine>) {
        self.inner.detach(line);
    }

    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        let ticked = self.inner.tick(tick).await?;
        let (let_go, go) = oneshot::channel();
        if tick.claiming.is_some() && ticked.claimed.is_empty() && !ticked.more && self.asked.send(let_go).is_ok() {
            let _ = go.await;
        }
        Ok(ticked)
    }

    async fn care(&self, care: &Care) -> Result<Cared, StoreError> {
        self.inner.care(care).await
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        self.inner.state().await
    }

    async fn leave(&self, instance: &Instance) -> Result<(), StoreError> {
        self.inner.leave(instance).await
    }
}

#[tokio::test]
async fn what_is_stored_while_the_table_answers_is_looked_for_at_once() {
    let place = Place::ordered().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let (asked, mut answers) = mpsc::unbounded_channel();
    let late = Late { inner: outbox.clone(), asked };
    let relay = Relay::to(sink.clone()).table_with(late, patient()).start().unwrap();
    let go = tokio::time::timeout(PATIENCE, answers.recv()).await.expect("it looks").unwrap();
    // It has looked, and does not know yet that there was nothing. Then it is told, and next it would look in two minutes.
    place.orders(&outbox, 0..1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await; // The relay, on this thread, hears of it before its answer comes.
    }
    drop(answers); // From now on it is answered as ever.
    go.send(()).unwrap();
    sink.until_all(0..1).await;
    relay.stop().await.unwrap();
}
