//! A connection that is cut, or on which nothing moves any more, by a proxy of the test's own.

use std::{collections::BTreeMap, time::Duration};

use hapax::{
    RabbitMq,
    ids::EndpointName,
    ports::{
        Connected, DeadLetters, Delivery, DispatchError, Dispatcher, Page, Receiver, Settled, Settlement, Transport,
    },
};
use tokio::time::timeout;

use super::{endpoints::broker, proxy::Proxy, rig::*};

const LOOK: Duration = Duration::from_millis(5);
/// Seconds after which either side takes a silent connection for lost.
const HEARTBEAT: &str = "/%2f?heartbeat=1";

/// The next messages, through what is told of the connection meanwhile.
pub(crate) async fn received(receiver: &dyn Receiver, max: usize) -> Vec<Delivery> {
    let received = async {
        loop {
            if let Ok(given) = receiver.receive(max).await {
                return given;
            }
        }
    };
    timeout(PATIENCE, received).await.expect("nothing comes")
}

async fn until_backlog(queue: &RabbitMq, here: &EndpointName, messages: u64) {
    let looking = async {
        while queue.backlog(here).await.unwrap() != messages {
            tokio::time::sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("there are never {messages} messages"));
}

async fn sent_until_confirmed(queue: &RabbitMq, outgoing: &[hapax::envelope::Outgoing]) {
    let mut left = outgoing.to_vec();
    let sending = async {
        while !left.is_empty() {
            let mut results = queue.dispatch(&left).await.into_iter();
            left.retain(|_| results.next().unwrap().is_err());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, sending).await.expect("they are never confirmed");
}

/// Whoever had it says that it is over, whatever it says.
pub(crate) async fn is_late(ends: &Connected, late: &Delivery) {
    let settlements = [
        Settlement::Ack,
        Settlement::Retry { delay: Duration::ZERO, counts: true },
        Settlement::Retry { delay: Duration::from_secs(3600), counts: false },
        Settlement::DeadLetter { reason: "late".into() },
    ];
    for settlement in settlements {
        let settled = ends.receiver.settle(&late.receipt, settlement.clone()).await;
        assert!(!matches!(settled, Ok(Settled::Done)), "{settlement:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_confirmed_when_the_connection_was_cut_is_unknown_and_sent_again_under_its_id() {
    const MESSAGES: usize = 50;
    let proxy = Proxy::to(&url()).await;
    let (queue, direct, here) = (options().open(proxy.url()).await.unwrap(), open().await, endpoint());
    direct.connect(&here, &[]).await.unwrap();
    let outgoing: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&format!("m {number}")))).collect();
    send(&queue, &[to(&here, envelope("first"))]).await; // Its connection and a channel are there.
    proxy.deafen();
    let sending = {
        let (queue, outgoing) = (queue.clone(), outgoing.clone());
        tokio::spawn(async move { queue.dispatch(&outgoing).await })
    };
    // The server has all of them, and nobody here knows.
    until_backlog(&direct, &here, 1 + MESSAGES as u64).await;
    assert!(!sending.is_finished(), "they count as sent, unconfirmed");
    proxy.cut();
    let results = timeout(Duration::from_secs(5), sending).await.expect("a cut is not noticed").unwrap();
    assert_eq!(results.len(), MESSAGES);
    for result in results {
        let Err(DispatchError::Transient(error)) = result else { panic!("{result:?}") };
        assert!(error.is_unknown_outcome(), "{error:?}");
    }
    sent_until_confirmed(&queue, &outgoing).await;
    let ends = direct.connect(&here, &[]).await.unwrap();
    let mut came: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..=2 * MESSAGES {
        let delivery = next(&ends).await;
        *came.entry(delivery.envelope.message_id.to_string()).or_default() += 1;
        ack(&ends, &delivery).await;
    }
    for outgoing in &outgoing {
        let id = outgoing.envelope.message_id.to_string();
        assert_eq!(came.get(&id), Some(&2), "one before the cut, one after it, under one id");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_and_not_settled_when_the_connection_was_cut_comes_again_and_its_receipt_is_worth_nothing() {
    let proxy = Proxy::to(&url()).await;
    let (queue, direct, here) = (options().open(proxy.url()).await.unwrap(), open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent: Vec<_> = (0..10).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&direct, &sent).await;
    let mut held = Vec::new();
    while held.len() < sent.len() {
        held.extend(received(&*ends.receiver, sent.len()).await);
    }
    ack(&ends, &held[0]).await;
    // One is being put off while the line is cut: it is there once at least, whatever came of that.
    let postponing = {
        let (receiver, receipt) = (ends.receiver.clone(), held[1].receipt.clone());
        let later = Settlement::Retry { delay: Duration::from_millis(1), counts: true };
        proxy.deafen();
        tokio::spawn(async move { receiver.settle(&receipt, later).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!postponing.is_finished(), "it counts as put off, unconfirmed");
    proxy.cut();
    let postponed = timeout(PATIENCE, postponing).await.expect("it is never answered").unwrap();
    assert!(!matches!(postponed, Ok(Settled::Done)), "{postponed:?}");
    let mut came: BTreeMap<String, u32> = BTreeMap::new();
    while (1..10).any(|number| !came.contains_key(&number.to_string())) {
        for delivery in received(&*ends.receiver, 10).await {
            came.insert(body(&delivery), delivery.attempts);
            ack(&ends, &delivery).await;
        }
    }
    assert!((2..10).all(|number| came[&number.to_string()] == 2), "{came:?}");
    for late in &held[1..] {
        is_late(&ends, late).await;
    }
    assert_eq!(direct.list(&here, &Page::first(1)).await.unwrap(), []);
    // A second copy of what was being put off.
    while let Ok(given) = timeout(Duration::from_millis(500), ends.receiver.receive(10)).await {
        for delivery in given.unwrap() {
            assert_eq!(body(&delivery), "1");
            ack(&ends, &delivery).await;
        }
    }
    drop(ends);
    assert_eq!(direct.backlog(&here).await.unwrap(), 0);
}

/// Lines that are cut again and again are to endpoints what a broker is that is killed.
struct Cut {
    proxy: Proxy,
    prefix: String,
}

impl broker::Server for Cut {
    type Queue = RabbitMq;

    async fn open(&self, ordered: bool) -> RabbitMq {
        let options = options().prefix(&self.prefix).patience(Duration::from_secs(5)).ordered_keys(ordered);
        options.open(self.proxy.url()).await.unwrap()
    }

    async fn is_killed(&mut self) {
        for _ in 0..5 {
            // Long enough that something is sent and not confirmed.
            self.proxy.deafen();
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.proxy.cut();
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_connections_are_cut() {
    let prefix = unique("")[1..31].to_owned();
    let cut = Cut { proxy: Proxy::to(&url()).await, prefix: prefix.clone() };
    broker::each_is_handled_once(cut, false, 600).await;
    let queue = options().prefix(&prefix).open(url()).await.unwrap();
    queue.remove(&["front", "back"].map(|name| EndpointName::parse(name).unwrap())).await.unwrap();
}

/// The order is the queue's: what the first had and did not settle goes before what it was never given.
#[tokio::test(flavor = "multi_thread")]
async fn where_order_is_kept_another_goes_on_where_one_that_dies_or_stands_still_has_stopped() {
    for dies in [true, false] {
        let proxy = Proxy::to(&url()).await;
        let ordered = || options().ordered_keys(true);
        let queue = ordered().prefetch(10).open(format!("{}{HEARTBEAT}", proxy.url())).await.unwrap();
        let (direct, here) = (ordered().open(url()).await.unwrap(), endpoint());
        let first = queue.connect(&here, &[]).await.unwrap();
        const MESSAGES: usize = 40;
        let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
        send(&direct, &sent).await;
        let mut held = Vec::new();
        while held.len() < 10 {
            held.extend(received(&*first.receiver, 10).await);
        }
        let second = direct.connect(&here, &[]).await.unwrap();
        let waits = timeout(Duration::from_millis(500), second.receiver.receive(1)).await;
        assert!(waits.is_err(), "two receive at a time: {waits:?}");
        for settled in &held[..3] {
            ack(&first, settled).await;
        }
        let first = if dies {
            drop(first);
            None
        } else {
            proxy.stand_still(true);
            Some(first)
        };
        let mut came = Vec::new();
        while came.last().is_none_or(|last| *last < MESSAGES - 1) {
            for delivery in received(&*second.receiver, 7).await {
                came.push(body(&delivery).parse::<usize>().unwrap());
                ack(&second, &delivery).await;
            }
        }
        // What was acknowledged may have been lost with the connection.
        assert!(came[0] <= 3 && came.iter().copied().eq(came[0]..MESSAGES), "dies: {dies}, {came:?}");
        proxy.stand_still(false);
        if let Some(first) = first {
            // It hears of it, as an endpoint does; before that it may have more of what was handed out ahead.
            let hears = async { while first.receiver.receive(10).await.is_ok() {} };
            timeout(PATIENCE, hears).await.expect("it never hears of it");
            for late in &held[3..] {
                is_late(&first, late).await;
            }
        }
        assert_eq!(direct.list(&here, &Page::first(1)).await.unwrap(), []);
    }
}
