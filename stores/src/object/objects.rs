//! The calls of an object store that this store makes, each with its limit of time.

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream::BoxStream};
use object_store::{
    Error, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, path::Path,
};
use tokio::{task::spawn_blocking, time::timeout};

use super::error::Failure;

/// An object store, or the directory that stands for one.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Where the directory is, if it is one.
    pub(super) root: Option<PathBuf>,
    pub(super) read_limit: Duration,
    pub(super) write_limit: Duration,
}

/// How a create ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Created {
    New,
    /// The store says that there is one already; see [`Failure::is_already_there`].
    Refused,
}

/// What has become of several objects.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    pub(super) gone: HashSet<Path>,
    /// Why the first of the others is not.
    pub(super) failed: Option<Failure>,
}

type Answer<T> = Result<T, Failure>;

impl Objects {
    async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Answer<T> {
        timeout(limit, call).await.map_or(Err(Failure::TooLate), |answer| answer.map_err(Failure::Client))
    }

    /// Creates an object that is not there.
    pub(super) async fn create(&self, path: &Path, body: Vec<u8>) -> Answer<Created> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.store.put_opts(path, PutPayload::from(body), options);
        match Self::within(self.write_limit, put).await {
            Ok(_) => Ok(Created::New),
            Err(failure) if failure.is_already_there() => Ok(Created::Refused),
            Err(failure) => Err(failure),
        }
    }

    /// Writes an empty object, whether it is there or not.
    pub(super) async fn touch(&self, path: &Path) -> Answer<()> {
        Self::within(self.write_limit, self.store.put(path, PutPayload::default())).await.map(drop)
    }

    /// `None`: it is not there.
    pub(super) async fn get(&self, path: &Path) -> Answer<Option<Bytes>> {
        let read = Self::within(self.read_limit, async { self.store.get(path).await?.bytes().await }).await;
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            // A bucket that was deleted must not read as "never seen".
            Err(failure) if failure.is_not_found() && !failure.is_without_place() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The object of an entry, to act upon.
    pub(super) async fn get_entry(&self, path: &Path) -> Answer<Option<Bytes>> {
        let found = self.get(path).await?;
        match found {
            // Whoever finds it may remove what it was kept for, so it must be on disk; its writer may still be about that.
            Some(_) => self.sync_folder(path).await?,
            // Its folder is there since the directory was opened; not so if the disk is not mounted any more.
            None if !self.has_folder(path).await => return Err(Failure::NoFolder),
            None => {}
        }
        Ok(found)
    }

    /// `None`: it is not there.
    pub(super) async fn head(&self, path: &Path) -> Answer<Option<ObjectMeta>> {
        match Self::within(self.read_limit, self.store.head(path)).await {
            Ok(meta) => Ok(Some(meta)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// All that is below `path`, which is little.
    pub(super) async fn list(&self, path: &Path) -> Answer<Vec<ObjectMeta>> {
        Self::within(self.read_limit, async {
            let mut listed = Vec::new();
            let mut stream = self.store.list(Some(path));
            while let Some(meta) = stream.next().await {
                listed.push(meta?);
            }
            Ok(listed)
        })
        .await
    }

    /// What is below `path`, one by one: it may be much.
    pub(super) fn walk(&self, path: &Path) -> Walk {
        Walk { stream: self.store.list(Some(path)), limit: self.read_limit }
    }

    /// The folders below `path`.
    pub(super) async fn folders(&self, path: &Path) -> Answer<Vec<Path>> {
        match Self::within(self.read_limit, self.store.list_with_delimiter(Some(path))).await {
            Ok(ListResult { common_prefixes, .. }) => Ok(common_prefixes),
            Err(failure) if failure.is_not_found() => Ok(Vec::new()),
            Err(failure) => Err(failure),
        }
    }

    /// Removes `paths`; one that is not there is success. After an error any part of them may be gone.
    pub(super) async fn delete(&self, paths: Vec<Path>) -> Answer<()> {
        self.delete_each(paths).await?.failed.map_or(Ok(()), Err)
    }

    /// The same, where some may stay: one that is kept by force must not keep the others.
    pub(super) async fn delete_each(&self, paths: Vec<Path>) -> Answer<Deleted> {
        let paths = futures_util::stream::iter(paths.into_iter().map(Ok)).boxed();
        let (mut answers, mut deleted) = (self.store.delete_stream(paths), Deleted::default());
        loop {
            match timeout(self.write_limit, answers.next()).await {
                Err(_) => return Err(Failure::TooLate),
                Ok(None) => return Ok(deleted),
                Ok(Some(Ok(path))) => drop(deleted.gone.insert(path)),
                Ok(Some(Err(Error::NotFound { path, .. }))) => drop(deleted.gone.insert(path.into())),
                Ok(Some(Err(error))) => drop(deleted.failed.get_or_insert(Failure::Client(error))),
            }
        }
    }

    /// Whether the folder of `path` is there. On services folders are but names.
    async fn has_folder(&self, path: &Path) -> bool {
        let Some(folder) = self.folder(path) else { return true };
        spawn_blocking(move || folder.is_dir()).await.unwrap_or(false)
    }

    /// The folder of `path`, where objects are files.
    fn folder(&self, path: &Path) -> Option<PathBuf> {
        let root = self.root.as_ref()?;
        Some(
            path.prefix_match(&Path::default())?
                .fold(root.clone(), |file, part| file.join(part.as_ref()))
                .parent()?
                .into(),
        )
    }

    /// Waits until the folder of `path` is on disk, and with it what was linked into it.
    async fn sync_folder(&self, path: &Path) -> Answer<()> {
        let Some(folder) = self.folder(path) else { return Ok(()) };
        let synced = spawn_blocking(move || super::directory::sync(&folder)).await;
        let failed = |source| Failure::Client(Error::Generic { store: "directory", source });
        match synced {
            Ok(synced) => synced.map_err(|e| failed(e.into())),
            Err(stopped) => Err(failed(stopped.into())),
        }
    }

    /// Removes the folder `path`, if it is one and there is nothing in it. On services folders are but names.
    pub(super) async fn remove_folder(&self, path: &Path) {
        if let Some(folder) = self.folder(&path.clone().join("x")) {
            // One that is not empty stays for later.
            drop(spawn_blocking(move || super::directory::remove_empty(&folder)).await);
        }
    }
}

/// A list that is being read.
pub(super) struct Walk {
    stream: BoxStream<'static, Result<ObjectMeta, Error>>,
    limit: Duration,
}

impl Walk {
    /// The next object.
    pub(super) async fn next(&mut self) -> Answer<Option<ObjectMeta>> {
        match timeout(self.limit, self.stream.next()).await {
            Err(_) => Err(Failure::TooLate),
            Ok(None) => Ok(None),
            // Somebody else has emptied the folder.
            Ok(Some(Err(Error::NotFound { .. }))) => Ok(None),
            Ok(Some(meta)) => meta.map(Some).map_err(Failure::Client),
        }
    }
}
