//! What a broker has delivered to whoever is told of orders, compared with what was committed.
#![allow(dead_code)] // Each test program uses a part of it.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use hapax::{
    MessageId, RabbitMq,
    ports::{Connected, Settlement},
};
use hapax_tests::RabbitMqServer;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::shops::{AUDIT, Shop, Sold};

/// Nothing comes any more.
const QUIET: Duration = Duration::from_secs(5);
/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// No order.
pub(crate) const PROBE: i32 = -1;

pub(crate) type Told = UnboundedReceiver<(i32, MessageId)>;

/// Takes what the broker delivers, in its order; it may be away.
pub(crate) fn listen(ends: Connected) -> Told {
    let (tell, told) = unbounded_channel();
    tokio::spawn(async move {
        while !tell.is_closed() {
            let Ok(deliveries) = ends.receiver.receive(100).await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            for delivery in deliveries {
                let body: serde_json::Value = serde_json::from_slice(&delivery.envelope.body).unwrap();
                let order = i32::try_from(body["order"].as_i64().unwrap()).unwrap();
                let _ = tell.send((order, delivery.envelope.message_id.clone()));
                let _ = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await;
            }
        }
    });
    told
}

/// What the broker has delivered.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) ids: HashMap<i32, MessageId>,
    /// In the order of their first copies.
    pub(crate) orders: Vec<i32>,
    pub(crate) copies: usize,
}

impl Seen {
    pub(crate) async fn receive_some(&mut self, told: &mut Told) {
        let (order, id) = told.recv().await.unwrap();
        if order == PROBE {
            return;
        }
        self.copies += 1;
        match self.ids.get(&order) {
            Some(before) => assert_eq!(*before, id, "order {order} comes under two ids"),
            None => {
                self.ids.insert(order, id);
                self.orders.push(order);
            }
        }
    }

    /// Until the outbox is empty and nothing comes any more.
    pub(crate) async fn receive_all(&mut self, told: &mut Told, shop: &mut impl Shop) {
        let emptying = async {
            while shop.waiting().await > 0 {
                let _ = tokio::time::timeout(Duration::from_millis(200), self.receive_some(told)).await;
            }
            while tokio::time::timeout(QUIET, self.receive_some(told)).await.is_ok() {}
        };
        tokio::time::timeout(PATIENCE, emptying).await.expect("the outbox is emptied");
    }

    pub(crate) fn check(&self, committed: Vec<(i32, i32)>, mode: &str) {
        println!("{} orders, {} copies", committed.len(), self.copies);
        let all: HashSet<i32> = committed.iter().map(|(order, _)| *order).collect();
        let seen: HashSet<i32> = self.orders.iter().copied().collect();
        let lost: Vec<&i32> = all.difference(&seen).collect();
        let ghosts: Vec<&i32> = seen.difference(&all).collect();
        assert!(lost.is_empty() && ghosts.is_empty(), "lost {lost:?}, ghosts {ghosts:?}");
        if mode == "ordered" {
            let keys: HashMap<i32, i32> = committed.iter().copied().collect();
            for key in keys.values().copied().collect::<HashSet<i32>>() {
                let sold: Vec<i32> = committed.iter().filter(|(_, of)| *of == key).map(|(order, _)| *order).collect();
                let told: Vec<i32> = self.orders.iter().copied().filter(|order| keys[order] == key).collect();
                assert_eq!(told, sold, "key {key}");
            }
        }
    }
}

/// Whether it takes a message for the audit from a program that has just come.
pub(crate) async fn takes_messages(broker: &RabbitMqServer) -> bool {
    let sending = async {
        let broker = RabbitMq::options().patience(PATIENCE / 9).open(broker.url()).await.ok()?;
        broker.sender().send(AUDIT, &Sold { order: PROBE }).await.ok()
    };
    tokio::time::timeout(PATIENCE / 3, sending).await.ok().flatten().is_some()
}
