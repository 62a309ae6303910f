//! Where state and messages are kept: the only file that names a store or a broker.

use std::error::Error;

use hapax::{Sender, Sqlite, SqliteQueue, endpoint::EndpointBuilder};

/// The endpoint with a store and a transport, and who sends to it from outside: on PostgreSQL and RabbitMQ where
/// `DATABASE_URL` and `BROKER_URL` name them, else in the file `shop.db`.
///
/// # Errors
/// What store and broker say, and what is missing.
pub async fn keep(shop: EndpointBuilder) -> Result<(EndpointBuilder, Sender), Box<dyn Error>> {
    match (std::env::var("DATABASE_URL"), std::env::var("BROKER_URL")) {
        (Ok(database), Ok(broker)) => on_servers(shop, &database, &broker).await,
        (Err(_), Err(_)) => in_a_file(shop).await,
        _ => Err("DATABASE_URL and BROKER_URL go together: give both, or none".into()),
    }
}

async fn in_a_file(shop: EndpointBuilder) -> Result<(EndpointBuilder, Sender), Box<dyn Error>> {
    let store = Sqlite::open("shop.db").await?;
    let queue = SqliteQueue::on(&store).await?;
    let sender = queue.sender();
    Ok((shop.store(store).transport(queue), sender))
}

#[cfg(feature = "servers")]
async fn on_servers(
    shop: EndpointBuilder,
    database: &str,
    broker: &str,
) -> Result<(EndpointBuilder, Sender), Box<dyn Error>> {
    let store = hapax::Postgres::open(database).await?;
    let queue = hapax::RabbitMq::open(broker).await?;
    let sender = queue.sender();
    Ok((shop.store(store).transport(queue), sender))
}

#[cfg(not(feature = "servers"))]
async fn on_servers(_: EndpointBuilder, _: &str, _: &str) -> Result<(EndpointBuilder, Sender), Box<dyn Error>> {
    Err("PostgreSQL and RabbitMQ are not compiled in: build with --features servers".into())
}
