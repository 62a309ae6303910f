//! A handler that takes longer than the server waits for a settlement (`consumer_timeout`).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Message, RabbitMq, Saga, Sender, Sqlite,
    ids::{EntityKey, Scope},
    ports::{EntityStore, ErrorKind, Transport},
};
use hapax_tests::{LogLines, RabbitMqServer, Scratch};
use serde::{Deserialize, Serialize};

use super::{cut::is_late, rig::*};

/// In milliseconds. Half an hour unless configured.
const CONSUMER_TIMEOUT: u64 = 2000;
/// How often the server looks, in milliseconds. A minute unless configured.
const LOOKS_EVERY: u64 = 500;
/// Longer than both.
const TOO_LONG: Duration = Duration::from_secs(5);

async fn server() -> RabbitMqServer {
    let settings = [("consumer_timeout", CONSUMER_TIMEOUT), ("channel_tick_interval", LOOKS_EVERY)];
    RabbitMqServer::start_with(&settings).await
}

#[derive(Serialize, Deserialize)]
struct Compute {
    number: usize,
}
impl Message for Compute {
    const TYPE: &'static str = "test.compute";
}

#[derive(Default, Serialize, Deserialize)]
struct Sum {
    numbers: Vec<usize>,
}
impl Saga for Sum {
    const NAME: &'static str = "sum";
}
impl Handle<Compute> for Sum {
    fn correlate(_: &Compute) -> Correlation<'_> {
        "all".into()
    }
    async fn handle(&mut self, compute: Compute, cx: &mut Context) -> Result<(), HandlerError> {
        self.numbers.push(compute.number);
        if compute.number == 0 && cx.get::<Arc<AtomicUsize>>()?.fetch_add(1, Ordering::SeqCst) == 0 {
            tokio::time::sleep(TOO_LONG).await;
        }
        Ok(())
    }
}

/// At the transport, and then with a handler: the message of that handler and what waits behind it are given again, and take effect once.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_longer_than_the_server_waits_is_told_of_and_takes_effect_once() {
    let (logged, server) = (LogLines::everywhere(), server().await);
    let (queue, here) = (RabbitMq::open(server.url()).await.unwrap(), endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("held"))]).await;
    let held = next(&ends).await;
    let ended = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("the server waits for ever");
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("raise consumer_timeout"), "{error:?}");
    is_late(&ends, &held).await;
    let again = next(&ends).await;
    assert_eq!((body(&again).as_str(), again.attempts), ("held", 2));
    ack(&ends, &again).await;

    let scratch = Scratch::new("rabbitmq-consumer-timeout");
    let store = Sqlite::open(scratch.file("shop.db")).await.unwrap();
    let here = endpoint();
    let runs = Arc::new(AtomicUsize::new(0));
    let computing = Endpoint::builder(here.as_str()).store(store.clone()).transport(queue.clone());
    let computing = computing.with(runs.clone()).saga::<Sum>(|sum| sum.starts::<Compute>());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(computing.start().await.unwrap().run_until(stopped));
    let sender = Sender::new(Arc::new(queue.clone()));
    for number in 0..5 {
        let id = format!("compute {number}").parse().unwrap();
        sender.send_as(id, here.as_str(), &Compute { number }).await.unwrap();
    }
    let scope = Arc::new(Scope { endpoint: here.as_str().parse().unwrap(), saga: Sum::NAME.parse().unwrap() });
    let key = EntityKey::new(scope, "all".parse().unwrap());
    let numbers = async || {
        let stored = store.load(&key, &[]).await.unwrap().stored;
        let sum = stored.map(|stored| serde_json::from_slice::<Sum>(&stored.entity.state[2..]).unwrap());
        sum.unwrap_or_default().numbers
    };
    let all = async {
        while numbers().await.len() < 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("some are never handled");
    drop(stop);
    running.await.unwrap().unwrap();
    let mut numbers = numbers().await;
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    assert!(!logged.with("consumer_timeout").is_empty(), "nobody is told");
    // What came again has been settled, or is in nobody's hands.
    let ends = queue.connect(&here, &[]).await.unwrap();
    while let Ok(given) = tokio::time::timeout(Duration::from_secs(1), ends.receiver.receive(10)).await {
        for delivery in given.unwrap() {
            assert!(delivery.attempts > 1, "{:?} was never given", delivery.envelope.message_id);
            ack(&ends, &delivery).await;
        }
    }
}
