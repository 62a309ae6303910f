//! A bucket of S3 or a container of Azure Blob, in an emulator.

use std::fmt;

use futures_util::TryStreamExt;
use hapax::{
    ObjectDedup,
    ports::{ErrorKind, StoreError},
};
use hapax_servers::{Cloud, objects};
use object_store::path::Path;
use uuid::Uuid;

use crate::{Refusal, look::from_hex};

/// What one run has there.
#[derive(Debug, Clone)]
pub(crate) struct Bucket(objects::Bucket);

impl Bucket {
    pub(super) fn new(cloud: Cloud, at: &str) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        Self::named(cloud, at, &format!("orders-{}", &id[..12]))
    }

    pub(super) fn named(cloud: Cloud, at: &str, name: &str) -> Self {
        Self(objects::Bucket::new(cloud, &format!("http://{at}"), name))
    }

    pub(super) async fn open(&self, new: bool) -> Result<ObjectDedup, StoreError> {
        let cannot = |why: String| StoreError::new(ErrorKind::Misconfigured, "reaching object storage", why);
        if new {
            self.0.make().await.map_err(|e| {
                let scheme = self.0.cloud().scheme();
                cannot(format!("{self}: {e}; start an emulator (`cargo xtask emulator {scheme}`) or name another"))
            })?;
        }
        let client = || self.0.client().map_err(|e| cannot(format!("{self}: {e}")));
        ObjectDedup::options(client()?, "").second(client()?).open().await
    }

    pub(super) async fn keys(&self) -> Result<Vec<Vec<u8>>, Refusal> {
        let listed = async {
            let found = self.0.client()?.list(Some(&Path::from("d"))).try_collect::<Vec<_>>().await?;
            Ok::<_, object_store::Error>(
                found.iter().filter_map(|object| from_hex(object.location.filename()?)).collect(),
            )
        };
        listed.await.map_err(|e| Refusal::new(format!("{self}: {e}; see whether it is still there")))
    }

    pub(super) async fn remove(&self) -> Result<(), String> {
        self.0.remove().await.map_err(|e| e.to_string())
    }
}

impl fmt::Display for Bucket {
    /// As `--dedup` has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, at) = (self.0.cloud().scheme(), self.0.url().trim_start_matches("http://"));
        write!(f, "{scheme}://{at}/{}", self.0.name())
    }
}
