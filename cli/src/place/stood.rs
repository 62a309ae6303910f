//! How tables stood before it was made sure of them, as far as a store tells it.

use hapax::ports::{ErrorKind, StoreError};
use serde::Serialize;

use super::{OUTBOX, Place, STORE, is_older, opening};
use crate::failure::Failure;

/// What is told where a table is made.
const MAKES: &str = "CREATE TABLE IF NOT EXISTS ";

/// What had to be done. Others may do it at the same time: then each of them says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stood {
    /// There were none.
    Made,
    /// They were those of an older hapax.
    Updated,
    /// Nothing: they were there, as they have to be.
    Found,
}

impl Stood {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Updated => "updated",
            Self::Found => "found",
        }
    }
}

impl Place {
    /// How the tables of `parts` stand, of each that could be looked at. Nothing is made or changed. A server that is away is told of at the first
    /// part: whoever makes tables would wait for it once more, to be told the same.
    pub(crate) async fn stand(&self, parts: &[&str], may_share: bool) -> Result<Vec<Option<Stood>>, Failure> {
        let mut all = Vec::new();
        for part in parts {
            let looked = self.look_at(part, may_share).await;
            // What holds up this one, such as another program's lock, would hold up the others for as long; when tables are made it may be over.
            let is_held_up = matches!(&looked, Err(Some(error)) if error.kind() == ErrorKind::Unavailable);
            all.push(match looked {
                Ok(()) => Some(Stood::Found),
                Err(Some(error)) if error.kind() == ErrorKind::Absent => Some(Stood::Made),
                Err(Some(error)) if is_older(&error) => Some(Stood::Updated),
                Err(Some(error)) if is_away(&error) => return Err(opening(&error)),
                // When they are made it is said what is wrong, if it is.
                Err(_) => None,
            });
            if is_held_up {
                break;
            }
        }
        Ok(all)
    }

    /// Opens what is there, and closes it again.
    async fn look_at(
        &self,
        #[cfg_attr(
            not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
            expect(unused_variables, reason = "the others have stores alone")
        )]
        part: &str,
        #[cfg_attr(not(feature = "sqlite"), expect(unused_variables, reason = "only SQLite has files"))]
        may_share: bool,
    ) -> Result<(), Option<StoreError>> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => {
                let file = hapax::Sqlite::options(path).share_file(may_share);
                match part {
                    STORE => file.open().await?.close().await,
                    OUTBOX => drop(hapax::SqliteOutbox::options().order_as_it_is(true).open(path).await?),
                    _ => hapax::SqliteQueue::options().migrate(false).open_database(file).await?.close().await,
                }
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => {
                let database = options.clone();
                match part {
                    STORE => database.open().await?.close().await,
                    OUTBOX => {
                        let outbox = hapax::PostgresOutbox::options().listen(false).order_as_it_is(true);
                        drop(outbox.open_database(database).await?);
                    }
                    _ => hapax::PostgresQueue::options().migrate(false).open_database(database).await?.close().await,
                }
            }
            #[cfg(feature = "mysql")]
            Self::MySql(options) => {
                let database = options.clone();
                match part {
                    STORE => database.open().await?.close().await,
                    OUTBOX => {
                        let outbox = hapax::stores::mysql::outbox::MySqlOutbox::options().order_as_it_is(true);
                        drop(outbox.open_database(database).await?);
                    }
                    _ => hapax::MySqlQueue::options().migrate(false).open_database(database).await?.close().await,
                }
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb { host, table } => {
                let client = hapax::DynamoDb::local_client(&format!("http://{host}"));
                drop(hapax::DynamoDb::options(client, table).open().await?);
            }
            #[cfg(feature = "cosmos")]
            Self::CosmosDb { host, database } => {
                let store = super::cosmos::options(host, database).await.map_err(|_| None::<StoreError>)?;
                drop(store.open().await?);
            }
        }
        Ok(())
    }

    /// What the tables of a part are called; none where there is no SQL.
    pub(crate) fn names_of(&self, part: &str) -> Vec<String> {
        let sql = self.sql((part == STORE, part == OUTBOX, part != STORE && part != OUTBOX));
        sql.map(|sql| names(&sql)).unwrap_or_default()
    }
}

/// Whether there is no server that answers. What else is of this kind may pass when tables are made: that waits for who makes them already, and
/// for a lock.
fn is_away(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Unavailable && error.to_string().contains("the server cannot be reached")
}

/// Tables that `sql` makes.
fn names(sql: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for made in sql.lines().filter_map(|line| line.strip_prefix(MAKES)) {
        let name = made.split([' ', '(', ';']).next().unwrap_or_default().replace(['"', '`'], "");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn tables_are_told_by_the_names_that_they_have_in_a_database() {
        let sql = [
            "-- CREATE TABLE IF NOT EXISTS no (",
            "CREATE TABLE IF NOT EXISTS \"own\".p_meta (",
            "CREATE TABLE IF NOT EXISTS `p_dedup_1` LIKE `p_dedup_0`;",
            "CREATE TABLE IF NOT EXISTS \"own\".p_meta (x TEXT);",
        ];
        assert_eq!(names(&sql.join("\n")), ["own.p_meta", "p_dedup_1"]);
    }
}
