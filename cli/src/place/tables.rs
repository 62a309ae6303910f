//! Tables that are missing: made, or shown as SQL.

#[allow(unused_imports, reason = "as the features are")]
use hapax::ports::StoreError;

#[allow(unused_imports, reason = "as the features are")]
use super::{OUTBOX, Place, QUEUES, STORE, opening, told};
use crate::failure::Failure;

impl Place {
    /// Makes the tables that are missing. Another program's file is given any only where it `may_share`: its name may be a mistake. What is there
    /// then is `done`, also where something else has failed after it.
    pub(crate) async fn migrate(
        &self,
        (store, outbox, queues): (bool, bool, bool),
        #[cfg_attr(not(feature = "sqlite"), expect(unused_variables, reason = "only SQLite has files"))]
        may_share: bool,
        done: &mut Vec<&'static str>,
    ) -> Result<(), Failure> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => {
                let file = || hapax::Sqlite::options(path).create_if_missing(true).share_file(may_share);
                if store {
                    file().migrate(true).open().await.map_err(|e| opening(&e))?.close().await;
                    done.push(STORE);
                }
                if outbox {
                    if !store && !may_share {
                        is_ours(path).await?;
                    }
                    let made = hapax::SqliteOutbox::options().order_as_it_is(true).migrate(true).open(path);
                    made.await.map_err(|e| opening(&e))?;
                    done.push(OUTBOX);
                }
                if queues {
                    let made = hapax::SqliteQueue::options().open_database(file());
                    made.await.map_err(|e| opening(&e))?.close().await;
                    done.push(QUEUES);
                }
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => {
                if store {
                    hapax::Postgres::migrate(options.clone()).await.map_err(|e| opening(&e))?;
                    done.push(STORE);
                }
                if outbox {
                    let outbox = hapax::PostgresOutbox::options().order_as_it_is(true).migrate(true);
                    let made = outbox.open_database(options.clone());
                    made.await.map_err(|e| opening(&e))?;
                    done.push(OUTBOX);
                }
                if queues {
                    let made = hapax::PostgresQueue::options().migrate(true).open_database(options.clone());
                    made.await.map_err(|e| opening(&e))?.close().await;
                    done.push(QUEUES);
                }
            }
            #[cfg(feature = "mysql")]
            Self::MySql(options) => {
                if store {
                    options.clone().migrate(true).open().await.map_err(|e| opening(&e))?.close().await;
                    done.push(STORE);
                }
                if outbox {
                    let made = hapax::stores::mysql::outbox::MySqlOutbox::options()
                        .order_as_it_is(true)
                        .migrate(true)
                        .open_database(options.clone());
                    made.await.map_err(|e| opening(&e))?;
                    done.push(OUTBOX);
                }
                if queues {
                    let made = hapax::MySqlQueue::options().migrate(true).open_database(options.clone());
                    made.await.map_err(|e| opening(&e))?.close().await;
                    done.push(QUEUES);
                }
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb { host, table } => {
                only_store(outbox || queues || !store)?;
                let client = hapax::DynamoDb::local_client(&format!("http://{host}"));
                let made = hapax::DynamoDb::options(client, table).create_if_missing(true);
                made.open().await.map_err(|e| opening(&e))?;
                done.push(STORE);
            }
            #[cfg(feature = "cosmos")]
            Self::CosmosDb { host, database } => {
                only_store(outbox || queues || !store)?;
                super::cosmos::open(host, database, true).await?;
                done.push(STORE);
            }
        }
        Ok(())
    }

    /// The schema as SQL.
    pub(crate) fn sql(&self, (store, outbox, queues): (bool, bool, bool)) -> Result<String, Failure> {
        let mut texts = Vec::new();
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => {
                texts.extend(store.then(hapax::Sqlite::schema_sql));
                texts.extend(outbox.then(hapax::SqliteOutbox::schema_sql));
                texts.extend(queues.then(hapax::SqliteQueue::schema_sql));
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => {
                let sql = |of: Result<String, StoreError>| of.map_err(|e| opening(&e));
                if store {
                    texts.push(sql(hapax::Postgres::schema_sql(options))?);
                }
                if outbox {
                    texts.push(sql(hapax::PostgresOutbox::schema_sql(options))?);
                }
                if queues {
                    texts.push(sql(hapax::PostgresQueue::schema_sql(options))?);
                }
            }
            #[cfg(feature = "mysql")]
            Self::MySql(options) => {
                let sql = |of: Result<String, StoreError>| of.map_err(|e| opening(&e));
                if store {
                    texts.push(sql(hapax::MySql::schema_sql(options))?);
                }
                if outbox {
                    texts.push(sql(hapax::stores::mysql::outbox::MySqlOutbox::schema_sql(options))?);
                }
                if queues {
                    texts.push(sql(hapax::MySqlQueue::schema_sql(options))?);
                }
            }
            #[cfg(any(feature = "dynamodb", feature = "cosmos"))]
            _ => return Err(Failure::usage("this store has no SQL: leave --sql out")),
        }
        Ok(texts.join("\n"))
    }
}

/// An outbox is at home in an application's file, and is made in any: so it is looked at before whether there are tables of hapax, or none.
#[cfg(feature = "sqlite")]
async fn is_ours(path: &str) -> Result<(), Failure> {
    if hapax::SqliteOutbox::options().order_as_it_is(true).open(path).await.is_ok() {
        return Ok(()); // It was given one before.
    }
    if let Ok(store) = told(hapax::Sqlite::options(path).open().await)? {
        store.close().await;
    }
    Ok(())
}

#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
fn only_store(asked_more: bool) -> Result<(), Failure> {
    if asked_more {
        return Err(Failure::usage("this database has a store alone: leave --outbox, --queues and --no-store out"));
    }
    Ok(())
}
