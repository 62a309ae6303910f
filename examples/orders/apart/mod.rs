//! Dedup entries apart from the entities: in a folder, or in a bucket or container of a run's own in object storage.

#[cfg(feature = "objects")]
mod bucket;

use std::{
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
};

#[cfg(feature = "objects")]
use bucket::Bucket;
use hapax::{ObjectDedup, ports::StoreError};
use hapax_servers::Cloud;

use crate::{Refusal, itself::Vendor, look::from_hex, place::is_host_and_port};

/// The cloud that `place` names, and what is behind the scheme.
fn cloud_of(place: &Path) -> Option<(Cloud, &str)> {
    let place = place.to_str()?;
    Cloud::ALL.into_iter().find_map(|cloud| Some((cloud, place.strip_prefix(cloud.scheme())?.strip_prefix("://")?)))
}

/// Where the dedup entries of one run are.
#[derive(Debug, Clone)]
pub(crate) enum Apart {
    Folder(PathBuf),
    #[cfg(feature = "objects")]
    Bucket(Bucket),
}

impl Apart {
    /// A place for a new run; nothing is made yet.
    pub(crate) fn new(place: &Path) -> Result<Self, Refusal> {
        let Some((cloud, at)) = cloud_of(place) else { return Self::folder(place) };
        let (at, scheme) = (at.trim_end_matches('/'), cloud.scheme());
        if !cfg!(feature = "objects") {
            let why = format!("--dedup {scheme}: this program was built without it; build it with --features objects");
            return Err(Refusal::new(why));
        }
        if !is_host_and_port(at) {
            let vendor = if cloud == Cloud::S3 { Vendor::Aws } else { Vendor::Azure };
            vendor.check("--dedup", scheme, at)?;
        }
        #[cfg(feature = "objects")]
        return Ok(Self::Bucket(Bucket::new(cloud, at)));
        #[cfg(not(feature = "objects"))]
        Self::folder(place)
    }

    fn folder(folder: &Path) -> Result<Self, Refusal> {
        if fs::read_dir(folder).is_ok_and(|mut holds| holds.next().is_some()) {
            let folder = folder.display();
            return Err(Refusal::new(format!("--dedup: {folder} is not empty; name a folder of the run's own")));
        }
        Ok(Self::Folder(folder.to_owned()))
    }

    /// The one that another process has made and told of in its [`argument`](Self::argument).
    pub(crate) fn named(place: &Path) -> Self {
        #[cfg(feature = "objects")]
        if let Some((cloud, at)) = cloud_of(place)
            && let Some((at, name)) = at.split_once('/')
        {
            return Self::Bucket(Bucket::named(cloud, at, name));
        }
        Self::Folder(place.to_owned())
    }

    pub(crate) fn argument(&self) -> OsString {
        match self {
            Self::Folder(folder) => folder.into(),
            #[cfg(feature = "objects")]
            Self::Bucket(bucket) => bucket.to_string().into(),
        }
    }

    /// Refuses a service whose credentials are missing, before anything is made that would be left behind.
    pub(crate) async fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Folder(_) => Ok(()),
            #[cfg(feature = "objects")]
            Self::Bucket(bucket) => bucket.check().await,
        }
    }

    /// Only where it is new it is made: a worker that made another one would know nothing of what was handled.
    pub(crate) async fn open(&self, new: bool) -> Result<ObjectDedup, StoreError> {
        match self {
            Self::Folder(folder) => ObjectDedup::directory(folder).create_if_missing(new).open().await,
            #[cfg(feature = "objects")]
            Self::Bucket(bucket) => bucket.open(new).await,
        }
    }

    /// The folder, if it is one.
    pub(crate) fn as_folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder),
            #[cfg(feature = "objects")]
            Self::Bucket(_) => None,
        }
    }

    /// Keys of the entries: each has its key as its name, in one of 256 folders.
    pub(crate) async fn keys(&self) -> Result<Vec<Vec<u8>>, Refusal> {
        match self {
            Self::Folder(folder) => keys_in(folder)
                .map_err(|e| Refusal::new(format!("{}: {e}; see whether it is still there", folder.display()))),
            #[cfg(feature = "objects")]
            Self::Bucket(bucket) => bucket.keys().await,
        }
    }

    /// Removes what is the run's own. A folder is the user's.
    pub(crate) async fn remove(&self) {
        #[cfg(feature = "objects")]
        if let Self::Bucket(bucket) = self
            && let Err(why) = bucket.remove().await
        {
            crate::say(format_args!("{bucket} is still there: {why}; remove it"));
        }
    }
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            #[cfg(feature = "objects")]
            Self::Bucket(bucket) => bucket.fmt(f),
        }
    }
}

fn keys_in(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    for some in fs::read_dir(folder.join("d"))? {
        for entry in fs::read_dir(some?.path())? {
            keys.extend(entry?.file_name().to_str().and_then(from_hex));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_no_place_of_object_storage_is_refused_with_what_to_write() {
        for cloud in Cloud::ALL {
            let scheme = cloud.scheme();
            let find = |rest: &str| Apart::new(Path::new(&format!("{scheme}://{rest}")));
            if !cfg!(feature = "objects") {
                let said = find("127.0.0.1:1").unwrap_err().to_string();
                assert!(said.contains("build it with --features objects"), "{said}");
                continue;
            }
            for rest in ["", "HOST", ":80", "host:0", "a:b@host:80", "host:80/bucket"] {
                let said = find(rest).unwrap_err().to_string();
                assert!(said.contains(&format!("write {scheme}://HOST:PORT")), "{rest}: {said}");
            }
            let apart = find("127.0.0.1:9000/").unwrap();
            let same = Apart::named(Path::new(&apart.argument()));
            assert_eq!(same.to_string(), apart.to_string());
            assert!(same.to_string().starts_with(&format!("{scheme}://127.0.0.1:9000/orders-")), "{same}");
            let there = Apart::named(Path::new(&format!("{scheme}://eu-central-1/orders-1")));
            assert_eq!(there.to_string(), format!("{scheme}://eu-central-1/orders-1"));
        }
    }
}
