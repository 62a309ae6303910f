//! A program that brings over what is in the shop's own table, as if that were another library's outbox, and ends.

use std::path::Path;

use hapax::stores::postgres::outbox::{Import, Source};
use sqlx::{MySqlPool, PgPool, SqlitePool};

use crate::{
    shops::{InFile, OnMySql, OnPostgres, Shop, Sold},
    stored::server_of,
};

/// Few, so that there are many transactions to be killed in.
const BATCH: u32 = 5;

pub(crate) async fn run(folder: &Path) {
    let (url, tables) = server_of(folder).unwrap();
    match url.as_str() {
        of if of.starts_with("postgres") => {
            let (outbox, pool) = (OnPostgres::outbox(of, &tables, false).await, PgPool::connect(of).await.unwrap());
            outbox.unwrap().import(&pool, &import(format!("{tables}.orders"))).await.unwrap();
        }
        of if of.starts_with("mysql") => {
            let (outbox, pool) = (OnMySql::outbox(of, &tables, false).await, MySqlPool::connect(of).await.unwrap());
            outbox.unwrap().import(&pool, &import(format!("{tables}orders"))).await.unwrap();
        }
        file => {
            let (outbox, pool) = (InFile::outbox(file, &tables, false).await, SqlitePool::connect(file).await.unwrap());
            outbox.unwrap().import(&pool, &import("hapax_orders".to_owned())).await.unwrap();
        }
    }
}

fn import(table: String) -> Import {
    let body = Source::sql("concat('{\"order\":', t.id, '}')");
    Import::new(table, Source::column("id"), Source::text(<Sold as hapax::Message>::TYPE), body).batch(BATCH)
}
