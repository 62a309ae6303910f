//! A database and a broker of a test's own, with a shop and somebody who is told of orders.

use hapax::{RabbitMq, ports::Transport};
use hapax_tests::{MySqlServer, PostgresServer, RabbitMqServer, Scratch};

use super::{
    audit::{Told, listen},
    shops::{AUDIT, OnMySql, OnPostgres, Sale, Shop},
    stored::name_server,
};

/// So many that each relay has some of them.
const KEYS: i32 = 61;

/// Where a shop's tables are.
pub(crate) trait Site: Shop + 'static {
    const TABLES: &'static str;
    type Server;

    async fn server() -> (Self::Server, String);
}

impl Site for OnPostgres {
    const TABLES: &'static str = "hapax";
    type Server = PostgresServer;

    async fn server() -> (PostgresServer, String) {
        let server = PostgresServer::start(&[]).await;
        let url = server.url();
        (server, url)
    }
}

impl Site for OnMySql {
    const TABLES: &'static str = "hapax_";
    type Server = MySqlServer;

    async fn server() -> (MySqlServer, String) {
        let server = MySqlServer::start(&[]).await;
        let url = server.url();
        (server, url)
    }
}

/// All of it.
pub(crate) struct Market<S: Site> {
    pub(crate) shop: S,
    pub(crate) outbox: S::Outbox,
    pub(crate) told: Told,
    pub(crate) broker: RabbitMqServer,
    pub(crate) url: String,
    pub(crate) scratch: Scratch,
    next: i32,
    _server: S::Server,
}

impl<S: Site> Market<S> {
    pub(crate) async fn open(ordered: bool) -> Self {
        let scratch = Scratch::new("outbox-faults");
        let ((server, url), broker) = (S::server().await, RabbitMqServer::start().await);
        name_server(scratch.folder(), &url, S::TABLES);
        std::fs::write(scratch.folder().join("broker"), broker.url()).unwrap();
        let outbox = S::outbox(&url, S::TABLES, ordered).await.unwrap();
        let mut shop = S::connect(&url, S::TABLES).await.unwrap();
        shop.make().await;
        let transport = RabbitMq::open(broker.url()).await.unwrap();
        let told = listen(transport.connect(&AUDIT.parse().unwrap(), &[]).await.unwrap());
        Self { shop, outbox, told, broker, url, scratch, next: 0, _server: server }
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
