//! Where a run keeps what it has: in a file of its own, or in a schema of its own on a server, so that the books of one run
//! are all there is in it.

mod file;
mod server;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use server::{PrivateServer, Schema, is_private, is_server};
use uuid::Uuid;

use crate::{Options, Refusal};

/// How long a server may be away, until a run gives up: far above what one needs that was killed and started again.
const AWAY_MAX: Duration = Duration::from_secs(30);

/// Where store and queue are.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    /// In an SQLite file.
    File(PathBuf),
    /// In a schema on a PostgreSQL server.
    Postgres(Schema),
}

impl Kept {
    /// How long what fails may be tried again: a server comes back.
    pub(crate) const fn patience(&self) -> Duration {
        match self {
            Self::File(_) => Duration::ZERO,
            Self::Postgres(_) => AWAY_MAX,
        }
    }
}

/// All that a run leaves: what hapax keeps, and the card company's ledger.
#[derive(Debug, Clone)]
pub struct Database {
    pub(crate) kept: Kept,
    /// An SQLite file: the shop's own, or, where that is on a server, one that no server knows.
    pub(crate) ledger: PathBuf,
}

impl Database {
    /// A file that holds everything.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self { kept: Kept::File(path.to_owned()), ledger: path.to_owned() }
    }

    /// A schema on a PostgreSQL server, and the card company's ledger in a file.
    #[must_use]
    pub fn postgres(url: &str, schema: &str, ledger: &Path) -> Self {
        Self { kept: Kept::Postgres(Schema::named(url, schema)), ledger: ledger.to_owned() }
    }

    /// What a worker process was told.
    pub(crate) fn of_worker(options: &Options) -> Option<Self> {
        let place = options.worker_of.as_ref()?;
        Some(match (place.to_str(), &options.schema, &options.ledger) {
            (Some(url), Some(schema), Some(ledger)) => Self::postgres(url, schema, ledger),
            _ => Self::file(place),
        })
    }

    /// The same, to tell a worker process.
    pub(crate) fn arguments(&self) -> Vec<&std::ffi::OsStr> {
        match &self.kept {
            Kept::File(path) => vec!["--worker-of".as_ref(), path.as_ref()],
            Kept::Postgres(schema) => vec![
                "--worker-of".as_ref(),
                schema.url().as_ref(),
                "--schema".as_ref(),
                schema.name().as_ref(),
                "--ledger".as_ref(),
                self.ledger.as_ref(),
            ],
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kept {
            Kept::File(path) => path.display().fmt(f),
            Kept::Postgres(schema) => write!(f, "{schema}, ledger {}", self.ledger.display()),
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
    pub(crate) server: Option<PrivateServer>,
}

impl Place {
    /// Finds a place for `store`, or for a temporary file, and refuses what would mix two runs or two programs.
    pub(crate) async fn find(store: Option<&str>) -> Result<Self, Refusal> {
        let Some(store) = store else {
            let folder = Folder::new()?;
            let database = Database::file(&folder.0.join("orders.db"));
            return Ok(Self { database, temporary: Some(folder.keep()), server: None });
        };
        if !is_server(store) {
            return Ok(Self { database: Database::file(&file::find(store).await?), temporary: None, server: None });
        }
        let folder = Folder::new()?;
        let (schema, server) = if is_private(store) {
            let mut server = PrivateServer::create(&folder.0)?;
            server.restart().await?;
            (Schema::new(&server.url()).await?, Some(server))
        } else {
            (Schema::new(store).await?, None)
        };
        let database = Database { kept: Kept::Postgres(schema), ledger: folder.0.join("cards.db") };
        Ok(Self { database, temporary: Some(folder.keep()), server })
    }

    pub(crate) const fn database(&self) -> &Database {
        &self.database
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
        self.temporary.is_none().then(kept)
    }

    /// Removes what is temporary from a server that is not the run's own.
    pub(crate) async fn leave(&self) {
        if let (Kept::Postgres(schema), Some(_), None) = (&self.database.kept, &self.temporary, &self.server) {
            schema.remove().await;
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
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Refusal> {
        let folder = std::env::temp_dir().join(format!("hapax-orders-{}", Uuid::new_v4().simple()));
        let cannot = |e| Refusal::new(format!("cannot create {}: {e}; name a file with --store", folder.display()));
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
