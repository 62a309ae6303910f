//! A bucket of S3 or a container of Azure Blob: in an emulator, or in the service itself.

use std::fmt;

use futures_util::TryStreamExt;
use hapax::{
    ObjectDedup,
    ports::{ErrorKind, StoreError},
};
use hapax_servers::{
    Cloud,
    objects::{self, Account},
};
use object_store::path::Path;
use uuid::Uuid;

use crate::{Refusal, look::from_hex, place::is_host_and_port};

/// What one run has there.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    cloud: Cloud,
    /// Host and port of an emulator, or the region or account of the service itself.
    at: String,
    name: String,
}

impl Bucket {
    pub(super) fn new(cloud: Cloud, at: &str) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        Self::named(cloud, at, &format!("orders-{}", &id[..12]))
    }

    pub(super) fn named(cloud: Cloud, at: &str, name: &str) -> Self {
        Self { cloud, at: at.to_owned(), name: name.to_owned() }
    }

    /// Refuses what does not answer, and a name that is taken.
    pub(super) async fn check(&self) -> Result<(), Refusal> {
        let (scheme, at) = (self.cloud.scheme(), &self.at);
        let refused = |why: String| Refusal::new(format!("--dedup {scheme}://{at}: {why}"));
        match self.found().await.map_err(refused)?.is_there().await {
            Ok(false) => Ok(()),
            Ok(true) => Err(refused(format!("there is a {} already; run it again", self.name))),
            Err(e) => Err(refused(format!("{e}; {}", self.remedy()))),
        }
    }

    pub(super) async fn open(&self, new: bool) -> Result<ObjectDedup, StoreError> {
        let cannot = |why: String| StoreError::new(ErrorKind::Misconfigured, "reaching object storage", why);
        let bucket = self.found().await.map_err(cannot)?;
        if new {
            bucket.make().await.map_err(|e| cannot(format!("{self}: {e}; {}", self.remedy())))?;
        }
        let client = || bucket.client().map_err(|e| cannot(format!("{self}: {e}")));
        ObjectDedup::options(client()?, "").second(client()?).open().await
    }

    pub(super) async fn keys(&self) -> Result<Vec<Vec<u8>>, Refusal> {
        let unreadable = |e: &dyn fmt::Display| Refusal::new(format!("{self}: {e}; see whether it is still there"));
        let client = self.found().await.map_err(|e| unreadable(&e))?.client().map_err(|e| unreadable(&e))?;
        let found: Vec<_> = client.list(Some(&Path::from("d"))).try_collect().await.map_err(|e| unreadable(&e))?;
        Ok(found.iter().filter_map(|object| from_hex(object.location.filename()?)).collect())
    }

    pub(super) async fn remove(&self) -> Result<(), String> {
        self.found().await?.remove().await.map_err(|e| e.to_string())
    }

    async fn found(&self) -> Result<objects::Bucket, String> {
        Ok(objects::Bucket::of(self.account().await?, &self.name))
    }

    async fn account(&self) -> Result<Account, String> {
        if is_host_and_port(&self.at) {
            return Ok(Account::emulator(self.cloud, &format!("http://{}", self.at)));
        }
        #[cfg(feature = "real")]
        return match self.cloud {
            Cloud::S3 => Ok(Account::s3(&crate::itself::aws(&self.at).await?)),
            Cloud::AzureBlob => crate::itself::blobs(&self.at),
        };
        #[cfg(not(feature = "real"))]
        Err("this program was built without TLS; build it with --features real".into())
    }

    fn remedy(&self) -> String {
        if is_host_and_port(&self.at) {
            return format!("start an emulator (`cargo xtask emulator {}`) or name another", self.cloud.scheme());
        }
        format!("see whether {} is right and its credentials may make and delete what is named orders-..", self.at)
    }
}

impl fmt::Display for Bucket {
    /// As `--dedup` has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.cloud.scheme(), self.at, self.name)
    }
}
