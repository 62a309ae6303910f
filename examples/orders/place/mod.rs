//! Where a run keeps what it has: in a file of its own, or in a schema of its own on a server, so that the books of one run
//! are all there is in it.

mod file;
mod pooler;
mod private;
mod reached;
mod server;
mod service;
mod tables;

use std::{
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use private::{Own, PrivateServer};
pub(crate) use server::{Schema, is_postgres, is_private, is_server, is_slip};
pub(crate) use service::{Kind as ServiceKind, Service, is_host_and_port, is_service};
pub(crate) use tables::Tables;
use uuid::Uuid;

use crate::{
    Options, Refusal,
    apart::Apart,
    broker::{self, Broker},
};

/// How long a server may be away, until a run gives up: far above what one needs that was killed and started again.
const AWAY_MAX: Duration = Duration::from_secs(30);

/// Where store and queue are.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    /// In an SQLite file.
    File(PathBuf),
    /// In a schema on a PostgreSQL server.
    Postgres(Schema),
    /// In tables on a MariaDB or MySQL server.
    MySql(Tables),
    /// With a service that has no queues.
    Service(Service),
}

/// All that a run leaves: what hapax keeps, and the card company's ledger.
#[derive(Debug, Clone)]
pub struct Database {
    pub(crate) kept: Kept,
    /// An SQLite file: the shop's own, or, where that is on a server, one that no server knows.
    pub(crate) ledger: PathBuf,
    /// Where the messages are, if not beside the rest.
    pub(crate) broker: Option<Broker>,
    /// Where the dedup entries are, if not beside the entities.
    pub(crate) dedup: Option<Apart>,
}

impl Database {
    /// A file that holds everything.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self { kept: Kept::File(path.to_owned()), ledger: path.to_owned(), broker: None, dedup: None }
    }

    /// A schema on a PostgreSQL server, and the card company's ledger in a file.
    #[must_use]
    pub fn postgres(url: &str, schema: &str, ledger: &Path) -> Self {
        Self { kept: Kept::Postgres(Schema::named(url, schema)), ledger: ledger.to_owned(), broker: None, dedup: None }
    }

    /// Tables with a prefix on a MariaDB or MySQL server, and the card company's ledger in a file.
    #[must_use]
    pub fn mysql(url: &str, prefix: &str, ledger: &Path) -> Self {
        Self { kept: Kept::MySql(Tables::named(url, prefix)), ledger: ledger.to_owned(), broker: None, dedup: None }
    }

    /// What a worker process was told.
    pub(crate) fn of_worker(options: &Options) -> Option<Self> {
        let place = options.worker_of.as_ref()?;
        let broker = options.transport.as_deref().zip(options.queues.as_deref());
        let broker = broker.map(|(url, prefix)| Broker::named(url, prefix));
        let database = match (place.to_str(), &options.schema, &options.ledger) {
            (Some(url), Some(prefix), Some(ledger)) if server::is_mysql(url) => {
                let tables = Tables::named(url, prefix).trusted(options.danger_unverified_tls);
                Self { kept: Kept::MySql(tables), ledger: ledger.clone(), broker: None, dedup: None }
            }
            (Some(url), Some(name), Some(ledger)) if is_service(url) => {
                let kept = Kept::Service(Service::named(url, name, ledger)?);
                Self { kept, ledger: ledger.clone(), broker: None, dedup: None }
            }
            (Some(url), Some(schema), Some(ledger)) => {
                let schema = Schema::named(url, schema).trusted(options.danger_unverified_tls);
                let schema = schema.behind(options.pooler.as_deref());
                Self { kept: Kept::Postgres(schema), ledger: ledger.clone(), broker: None, dedup: None }
            }
            _ => Self::file(place),
        };
        Some(Self { broker, dedup: options.dedup.as_deref().map(Apart::named), ..database })
    }

    /// How long what fails may be tried again: a server comes back.
    pub(crate) fn patience(&self) -> Duration {
        let apart = self.dedup.as_ref().is_some_and(|dedup| dedup.as_folder().is_none());
        match self.kept {
            Kept::File(_) if self.broker.is_none() && !apart => Duration::ZERO,
            _ => AWAY_MAX,
        }
    }

    /// The same, to tell a worker process.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = self.place_arguments();
        if let Some(broker) = &self.broker {
            arguments.extend(broker.arguments().map(OsString::from));
        }
        if let Some(dedup) = &self.dedup {
            arguments.extend(["--dedup".into(), dedup.argument()]);
        }
        arguments
    }

    fn place_arguments(&self) -> Vec<OsString> {
        let (url, name) = match &self.kept {
            Kept::File(path) => return vec!["--worker-of".into(), path.into()],
            Kept::Postgres(schema) => (schema.url().to_owned(), schema.name()),
            Kept::MySql(tables) => (tables.url().to_owned(), tables.prefix()),
            Kept::Service(service) => (service.store(), service.name()),
        };
        let mut arguments: Vec<OsString> = vec!["--worker-of".into(), url.into(), "--schema".into(), name.into()];
        arguments.extend(["--ledger".into(), self.ledger.clone().into()]);
        let is_trusted = match &self.kept {
            Kept::Postgres(schema) => schema.is_trusted(),
            Kept::MySql(tables) => tables.is_trusted(),
            Kept::File(_) | Kept::Service(_) => false,
        };
        arguments.extend(is_trusted.then(|| OsString::from("--danger-unverified-tls")));
        if let Kept::Postgres(schema) = &self.kept
            && let Some(pooler) = schema.pooler()
        {
            arguments.extend(["--pooler".into(), pooler.into()]);
        }
        arguments
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres(schema) => schema.fmt(f),
            Self::MySql(tables) => tables.fmt(f),
            Self::Service(service) => service.fmt(f),
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kept {
            Kept::File(_) => self.kept.fmt(f),
            Kept::Postgres(_) | Kept::MySql(_) | Kept::Service(_) => {
                write!(f, "{}, ledger {}", self.kept, self.ledger.display())
            }
        }
    }
}

/// The database of a run. A temporary one is removed at the end, unless it is to be kept.
#[derive(Debug)]
pub(crate) struct Place {
    database: Database,
    /// The folder to remove.
    temporary: Option<PathBuf>,
    /// The run's own; it ends with the run.
    server: Option<PrivateServer>,
    /// The same for its messages, before its folder. What is left in it says nothing, and is not kept.
    broker: Option<(PrivateServer, Folder)>,
}

impl Place {
    /// Finds a place for what `--store` and `--transport` name, or for a temporary file, and refuses what would mix two runs or
    /// two programs.
    pub(crate) async fn find(options: &Options) -> Result<Self, Refusal> {
        let dedup = options.dedup.as_deref().map(Apart::new).transpose()?;
        if let Some(apart) = &dedup {
            apart.check().await?;
        }
        let mut place = Self::find_database(options).await?;
        if let Some(url) = &options.transport
            && let Err(refusal) = Box::pin(place.find_broker(url)).await
        {
            place.leave().await;
            return Err(refusal);
        }
        place.database.dedup = dedup;
        Ok(place)
    }

    async fn find_broker(&mut self, url: &str) -> Result<(), Refusal> {
        let Some(kind) = broker::Kind::of(url).filter(|_| broker::is_private(url)) else {
            let broker = Broker::new(url);
            broker.check().await?;
            self.database.broker = Some(broker);
            return Ok(());
        };
        let folder = Folder::new()?;
        let mut server = PrivateServer::of_transport(&folder.0, kind)?;
        server.restart().await?;
        self.database.broker = Some(Broker::new(&server.furnish().await?));
        self.broker = Some((server, folder));
        Ok(())
    }

    async fn find_database(options: &Options) -> Result<Self, Refusal> {
        let Some(store) = options.store.as_deref() else {
            let folder = Folder::new()?;
            let database = Database::file(&folder.0.join("orders.db"));
            return Ok(Self { database, temporary: Some(folder.keep()), server: None, broker: None });
        };
        if is_service(store) {
            let folder = Folder::new()?;
            let service = Service::new(store, &folder.0)?;
            service.check().await?;
            let kept = Kept::Service(service);
            let database = Database { kept, ledger: folder.0.join("cards.db"), broker: None, dedup: None };
            return Ok(Self { database, temporary: Some(folder.keep()), server: None, broker: None });
        }
        if !is_server(store) {
            let database = Database::file(&file::find(store).await?);
            return Ok(Self { database, temporary: None, server: None, broker: None });
        }
        let folder = Folder::new()?;
        let (url, server) = if is_private(store) {
            let mut server = PrivateServer::of_store(&folder.0, store)?;
            server.restart().await?;
            (server.furnish().await?, Some(server))
        } else {
            (store.to_owned(), None)
        };
        let kept = if server::is_mysql(store) {
            Kept::MySql(Tables::new(&url, options.danger_unverified_tls).await?)
        } else {
            let schema = Schema::new(&url, options.danger_unverified_tls).await?;
            if let Some(pooler) = &options.pooler
                && let Err(refusal) = pooler::check(&schema, pooler).await
            {
                schema.remove().await;
                return Err(refusal);
            }
            Kept::Postgres(schema.behind(options.pooler.as_deref()))
        };
        let database = Database { kept, ledger: folder.0.join("cards.db"), broker: None, dedup: None };
        Ok(Self { database, temporary: Some(folder.keep()), server, broker: None })
    }

    pub(crate) const fn database(&self) -> &Database {
        &self.database
    }

    /// What it has of its own, and kills.
    pub(crate) fn own(&mut self) -> Own<'_> {
        Own { database: self.server.as_mut(), broker: self.broker.as_mut().map(|(server, _)| server) }
    }

    /// Keeps what is temporary.
    pub(crate) fn keep(&mut self) {
        self.temporary = None;
    }

    /// Where everything is when the program has ended, if it is still there.
    pub(crate) fn kept(&self) -> Option<String> {
        let kept = || match &self.server {
            Some(server) => format!("{}, {}", self.database, server.how_to_start()),
            None => self.database.to_string(),
        };
        let kept = || match &self.database.dedup {
            Some(apart) => format!("{}, dedup entries in {apart}", kept()),
            None => kept(),
        };
        self.temporary.is_none().then(kept)
    }

    /// Removes what is temporary from a server that is not the run's own.
    pub(crate) async fn leave(&self) {
        if let (Some(broker), None) = (&self.database.broker, &self.broker) {
            broker.remove().await; // What is left in them says nothing: the books are in the database.
        }
        if let (Some(apart), Some(_)) = (&self.database.dedup, &self.temporary) {
            apart.remove().await;
        }
        match (&self.database.kept, &self.temporary, &self.server) {
            (Kept::Postgres(schema), Some(_), None) => schema.remove().await,
            (Kept::MySql(tables), Some(_), None) => tables.remove().await,
            (Kept::Service(service), Some(_), None) => service.remove().await,
            _ => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.server.take()); // Before its folder.
        drop(self.temporary.take().map(Folder));
    }
}

/// A temporary folder, since databases put files of their own beside them. It goes with this.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Refusal> {
        let folder = std::env::temp_dir().join(format!("hapax-orders-{}", Uuid::new_v4().simple()));
        let cannot = |e| {
            Refusal::new(format!(
                "cannot create {}: {e}; set TMPDIR to a folder that can be written, or name a file with --store",
                folder.display()
            ))
        };
        fs::create_dir(&folder).map_err(cannot)?;
        Ok(Self(folder))
    }

    fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // Nobody is left to be told, and the system cleans its temporary files too.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
