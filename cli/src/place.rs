//! Where a store is, and how it is opened: never migrated, unless that is the command.

#[cfg(feature = "cosmos")]
mod cosmos;
mod stood;
mod tables;

use hapax::{
    operator::{Operator, masked_url, with_causes},
    ports::{ErrorKind, StoreError},
};

pub(crate) use self::stood::Stood;
use crate::{args::Common, failure::Failure};

/// What to do where nothing of hapax is.
const ABSENT: &str = "; name the place that the endpoint has (on a server, its schema or prefix, too: --schema, \
                      --table-prefix), or `hapax migrate` makes one";

/// What tables are for, as it is told.
pub(crate) const STORE: &str = "a store";
pub(crate) const OUTBOX: &str = "an outbox";
pub(crate) const QUEUES: &str = "queues";

/// Which database, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    #[cfg(feature = "sqlite")]
    Sqlite(String),
    #[cfg(feature = "postgres")]
    Postgres(hapax::stores::postgres::PostgresOptions),
    #[cfg(feature = "mysql")]
    MySql(hapax::stores::mysql::MySqlOptions),
    #[cfg(feature = "dynamodb")]
    DynamoDb { host: String, table: String },
    #[cfg(feature = "cosmos")]
    CosmosDb { host: String, database: String },
}

/// What was found there.
#[derive(Debug)]
pub(crate) struct Opened {
    /// All that can be looked at.
    pub(crate) operator: Operator,
    /// Queues were found in the same database.
    pub(crate) has_queues: bool,
    /// What could not be opened, and why, though it seems to be there.
    pub(crate) left_out: Vec<String>,
    /// There is a store, and not outbox tables alone.
    pub(crate) has_store: bool,
    /// Debezium sends what is in the outbox: its rows wait for no relay, and stay as they are.
    pub(crate) is_debeziums: bool,
}

impl Place {
    /// From what was said.
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        let store = common.store().ok_or_else(|| {
            Failure::usage(
                "it needs to know where the store is: --store URL, or the variable HAPAX_STORE; run `hapax --help`",
            )
        })?;
        Self::parse(&store, common)
    }

    pub(crate) fn parse(store: &str, common: &Common) -> Result<Self, Failure> {
        let scheme = store.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let is_server = matches!(scheme.as_deref(), Some("postgres" | "postgresql"));
        if common.schema.is_some() && !is_server {
            return Err(Failure::usage("--schema is for PostgreSQL alone: leave it out"));
        }
        if common.table_prefix.is_some() && !is_server && !matches!(scheme.as_deref(), Some("mysql" | "mariadb")) {
            return Err(Failure::usage("--table-prefix is for PostgreSQL and MariaDB alone: leave it out"));
        }
        match scheme.as_deref() {
            #[cfg(feature = "postgres")]
            Some("postgres" | "postgresql") => {
                let mut options = hapax::Postgres::options(store).writers(1).readers(1);
                options = common.schema.iter().fold(options, hapax::stores::postgres::PostgresOptions::schema);
                options =
                    common.table_prefix.iter().fold(options, hapax::stores::postgres::PostgresOptions::table_prefix);
                Ok(Self::Postgres(options.danger_unverified_tls(common.danger_unverified_tls)))
            }
            #[cfg(feature = "mysql")]
            Some("mysql" | "mariadb") => {
                let url = store.split_once("://").map_or(store, |(_, rest)| rest);
                let mut options = hapax::MySql::options(format!("mysql://{url}")).writers(1);
                options = common.table_prefix.iter().fold(options, hapax::stores::mysql::MySqlOptions::table_prefix);
                Ok(Self::MySql(options.danger_unverified_tls(common.danger_unverified_tls)))
            }
            #[cfg(feature = "dynamodb")]
            Some("dynamodb") => {
                let (host, table) = host_and(store, "dynamodb://HOST:PORT/TABLE")?;
                Ok(Self::DynamoDb { host, table })
            }
            #[cfg(feature = "cosmos")]
            Some("cosmos") => {
                let (host, database) = host_and(store, "cosmos://HOST:PORT/DATABASE")?;
                Ok(Self::CosmosDb { host, database })
            }
            #[cfg(feature = "sqlite")]
            // What is no URL would be shown as the name of a file, and its password with it.
            None if is_meant_for_a_server(store) => Err(Failure::usage(
                "what was given for a database looks as if a server was meant, and is no URL: write postgres://USER:PASSWORD@HOST/DATABASE",
            )),
            #[cfg(feature = "sqlite")]
            None | Some("sqlite") => Ok(Self::Sqlite(store.to_owned())),
            _ => Err(Failure::usage(format!(
                "`{}` is no store that this program was built with; run `hapax --help`",
                masked_url(store)
            ))),
        }
    }

    /// Opens what is there.
    pub(crate) async fn open(&self, common: &Common) -> Result<Opened, Failure> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => {
                let store = told(hapax::Sqlite::options(path).open().await)?;
                let mut opened =
                    Opened::of(store.as_ref().ok().map(|store| Operator::on(store.clone()).schedule(store.clone())));
                opened.outbox(hapax::SqliteOutbox::options().order_as_it_is(true).open(path).await);
                if let Ok(store) = &store {
                    let queues = hapax::SqliteQueue::options().ordered_keys(common.ordered_keys).migrate(false);
                    opened.queues(queues.on(store).await);
                }
                opened.checked(store.err())
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => {
                let store = told(options.clone().open().await)?;
                let mut opened =
                    Opened::of(store.as_ref().ok().map(|store| Operator::on(store.clone()).schedule(store.clone())));
                let outbox = hapax::PostgresOutbox::options().listen(false).order_as_it_is(true);
                let outbox = outbox.open_database(options.clone()).await;
                opened.is_debeziums = outbox.as_ref().is_ok_and(hapax::PostgresOutbox::is_debeziums);
                opened.outbox(outbox);
                if let Ok(store) = &store {
                    let queues = hapax::PostgresQueue::options().ordered_keys(common.ordered_keys).migrate(false);
                    opened.queues(queues.on(store).await);
                }
                opened.checked(store.err())
            }
            #[cfg(feature = "mysql")]
            Self::MySql(options) => {
                let store = told(options.clone().open().await)?;
                let outbox = hapax::stores::mysql::outbox::MySqlOutbox::options().order_as_it_is(true);
                let mut opened =
                    Opened::of(store.as_ref().ok().map(|store| Operator::on(store.clone()).schedule(store.clone())));
                opened.outbox(outbox.open_database(options.clone()).await);
                if let Ok(store) = &store {
                    let queues = hapax::MySqlQueue::options().ordered_keys(common.ordered_keys).migrate(false);
                    opened.queues(queues.on(store).await);
                }
                opened.checked(store.err())
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb { host, table } => {
                let client = hapax::DynamoDb::local_client(&format!("http://{host}"));
                let store = hapax::DynamoDb::options(client, table).open().await.map_err(|e| opening(&e))?;
                Opened::of(Some(Operator::on(store))).checked(None)
            }
            #[cfg(feature = "cosmos")]
            Self::CosmosDb { host, database } => {
                let store = cosmos::open(host, database, false).await?;
                Opened::of(Some(Operator::on(store))).checked(None)
            }
        }
    }
}

#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
fn host_and(store: &str, shape: &str) -> Result<(String, String), Failure> {
    let rest = store.split_once("://").map_or(store, |(_, rest)| rest);
    match rest.split_once('/') {
        Some((host, name)) if !host.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((host.to_owned(), name.to_owned()))
        }
        _ => Err(Failure::usage(format!("write {shape}"))),
    }
}

/// Whether it is a URL that lacks its slashes, or settings as other programs take them.
#[cfg(feature = "sqlite")]
fn is_meant_for_a_server(store: &str) -> bool {
    const SCHEMES: [&str; 9] =
        ["postgres", "postgresql", "mysql", "mariadb", "amqp", "amqps", "nats", "redis", "rediss"];
    let store = store.to_ascii_lowercase();
    let scheme = store.split([':', '/']).next().filter(|scheme| scheme.len() < store.len());
    let is_scheme = scheme.is_some_and(|scheme| SCHEMES.contains(&scheme));
    let has_password = store.split_once('@').is_some_and(|(user, _)| user.contains(':'));
    (is_scheme && store.contains('@')) || has_password || store.contains("password=")
}

impl Opened {
    fn of(operator: Option<Operator>) -> Self {
        let has_store = operator.is_some();
        let operator = operator.unwrap_or_else(Operator::without_store);
        Self { operator, has_queues: false, left_out: Vec::new(), has_store, is_debeziums: false }
    }

    fn outbox<O: hapax::ports::OutboxRows + 'static>(&mut self, outbox: Result<O, StoreError>) {
        match told(outbox) {
            Ok(Ok(outbox)) => self.operator = self.operator.clone().outbox(outbox),
            Ok(Err(_)) => {}
            Err(failure) => self.left_out.push(format!("the outbox is not looked at: {}", failure_text(&failure))),
        }
    }

    fn queues<Q>(&mut self, queues: Result<Q, StoreError>)
    where
        Q: hapax::ports::QueueSurvey + hapax::ports::Dispatcher + Clone + 'static,
    {
        match told(queues) {
            Ok(Ok(queues)) => {
                self.operator = self.operator.clone().queues(queues.clone()).sends_by(queues);
                self.has_queues = true;
            }
            Ok(Err(_)) => {}
            Err(failure) => self.left_out.push(format!("the queues are not looked at: {}", failure_text(&failure))),
        }
    }

    /// Something has to be there; `absent` tells of the store that is not.
    fn checked(self, absent: Option<StoreError>) -> Result<Self, Failure> {
        match absent {
            Some(absent) if self.operator.outboxes().is_empty() => Err(opening(&absent)),
            _ => Ok(self),
        }
    }
}

fn failure_text(failure: &Failure) -> String {
    match failure {
        Failure::Usage(why) | Failure::Failed(why) => why.clone(),
        Failure::Found => String::new(),
    }
}

/// What was opened, or what is said where there is none; anything else has failed.
fn told<T>(opened: Result<T, StoreError>) -> Result<Result<T, StoreError>, Failure> {
    match opened {
        Err(error) if error.kind() != ErrorKind::Absent => Err(opening(&error)),
        opened => Ok(opened),
    }
}

/// Why a store could not be opened, with what this program does about it.
fn opening(error: &StoreError) -> Failure {
    let text = with_causes(error);
    let remedy = match error.kind() {
        ErrorKind::Absent => ABSENT,
        ErrorKind::Misconfigured if text.contains("`share_file(true)`") => "; `hapax migrate --share-file` does that",
        _ if is_older(error) => "; `hapax migrate` does it",
        _ => "",
    };
    let text = text.replace(": set `create_if_missing(true)`", "");
    Failure::new(format!("{text}{remedy}"))
}

/// Whether the tables are there, and are those of an older hapax.
fn is_older(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Misconfigured && with_causes(error).contains("has schema")
}
