//! A database and a broker of a test's own, with a shop and somebody who is told of orders.

use std::path::Path;

use hapax::{RabbitMq, ports::Transport};
use hapax_tests::{RabbitMqServer, Scratch};

use super::{
    audit::{Told, listen},
    shops::{AUDIT, Sale},
    sites::Site,
    stored::name_server,
};

/// So many that each relay has some of them.
const KEYS: i32 = 61;

/// All of it.
pub(crate) struct Market<S: Site> {
    pub(crate) shop: S,
    pub(crate) outbox: S::Outbox,
    pub(crate) told: Told,
    pub(crate) broker: RabbitMqServer,
    pub(crate) url: String,
    pub(crate) scratch: Scratch,
    next: i32,
    _place: S::Place,
}

impl<S: Site> Market<S> {
    pub(crate) async fn open(ordered: bool) -> Self {
        Self::open_behind(ordered, async |_| {}).await
    }

    /// The same where somebody else has been there before: `first` gets the folder in which the servers are named.
    pub(crate) async fn open_behind(ordered: bool, first: impl AsyncFnOnce(&Path)) -> Self {
        let scratch = Scratch::new("outbox-faults");
        let (place, broker) = (S::place().await, RabbitMqServer::start().await);
        let url = S::url(&place);
        name_server(scratch.folder(), &url, S::TABLES);
        std::fs::write(scratch.folder().join("broker"), broker.url()).unwrap();
        first(scratch.folder()).await;
        let outbox = S::outbox(&url, S::TABLES, ordered).await.unwrap();
        let mut shop = S::connect(&url, S::TABLES).await.unwrap();
        shop.make().await;
        let transport = RabbitMq::open(broker.url()).await.unwrap();
        let told = listen(transport.connect(&AUDIT.parse().unwrap(), &[]).await.unwrap());
        Self { shop, outbox, told, broker, url, scratch, next: 0, _place: place }
    }

    /// Orders of some keys, each in a transaction of its own; nobody relays in this process.
    pub(crate) async fn sell(&mut self, orders: i32) {
        for _ in 0..orders {
            let sale = Sale { order: self.next, key: self.next % KEYS, ..Sale::default() };
            self.shop.sell(&self.outbox, sale).await.unwrap();
            self.next += 1;
        }
    }
}
