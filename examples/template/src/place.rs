//! Where state and messages are kept: the only file that names a store or a broker.

use std::error::Error;

use hapax::{Sender, Sqlite, SqliteQueue, endpoint::EndpointBuilder};

/// Which store and which broker.
pub enum Place {
    /// The file `shop.db`.
    File,
    /// PostgreSQL and RabbitMQ, by their URLs.
    #[cfg(feature = "servers")]
    Servers { database: String, broker: String },
}

impl Place {
    /// PostgreSQL and RabbitMQ where `DATABASE_URL` and `BROKER_URL` name them, else a file. Nothing is opened.
    ///
    /// # Errors
    /// What is missing.
    pub fn of_environment() -> Result<Self, &'static str> {
        match (std::env::var("DATABASE_URL"), std::env::var("BROKER_URL")) {
            #[cfg(feature = "servers")]
            (Ok(database), Ok(broker)) => Ok(Self::Servers { database, broker }),
            #[cfg(not(feature = "servers"))]
            (Ok(_), Ok(_)) => Err("PostgreSQL and RabbitMQ are not compiled in: build with --features servers"),
            (Err(_), Err(_)) => Ok(Self::File),
            _ => Err("DATABASE_URL and BROKER_URL go together: give both, or none"),
        }
    }

    /// The endpoint with its store and its transport, and who sends to it from outside.
    ///
    /// # Errors
    /// What store and broker say.
    pub async fn keep(self, shop: EndpointBuilder) -> Result<(EndpointBuilder, Sender), Box<dyn Error>> {
        match self {
            Self::File => in_a_file(shop).await,
            #[cfg(feature = "servers")]
            Self::Servers { database, broker } => on_servers(shop, &database, &broker).await,
        }
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
