//! Where a shop's tables are: on a server of a test's own, or in a file of its own.
#![allow(dead_code)] // Each test program uses a part of it.

use hapax_tests::{MySqlServer, PostgresServer, Scratch};

use crate::shops::{InFile, OnMySql, OnPostgres, Shop};

/// A shop with a place of a test's own for its tables.
pub(crate) trait Site: Shop + 'static {
    /// A server, or the folder of a file. It goes with this.
    type Place;
    /// A schema there, or a prefix.
    const TABLES: &'static str;

    async fn place() -> Self::Place;

    /// A URL, or a file.
    fn url(place: &Self::Place) -> String;

    /// Kills the server (SIGKILL) and starts it again. A file has none.
    async fn kill(place: &mut Self::Place);
}

macro_rules! served {
    ($($shop:ident: $server:ident, $tables:literal;)*) => {$(
        impl Site for $shop {
            type Place = $server;
            const TABLES: &'static str = $tables;

            async fn place() -> $server {
                $server::start(&[]).await
            }

            fn url(place: &$server) -> String {
                place.url()
            }

            async fn kill(place: &mut $server) {
                place.kill();
                place.restart().await;
            }
        }
    )*};
}

served! {
    OnPostgres: PostgresServer, "hapax";
    OnMySql: MySqlServer, "hapax_";
}

impl Site for InFile {
    type Place = Scratch;
    const TABLES: &'static str = "";

    async fn place() -> Scratch {
        Scratch::new("shop")
    }

    fn url(place: &Scratch) -> String {
        place.file("shop.db").display().to_string()
    }

    async fn kill(_: &mut Scratch) {}
}
