//! Opening: a folder or a bucket that keeps what it says is let in, and no other.

use std::{path::PathBuf, sync::Arc};

use hapax_core::ports::{ErrorKind, StoreError};
use object_store::{ObjectStore, local::LocalFileSystem, path::Path};
use tokio::task::spawn_blocking;

use super::{
    ObjectDedup, ObjectDedupOptions, Shared,
    clock::{Clock, millis},
    directory::{self, Unprepared},
    names::Names,
    objects::Objects,
    options::Place,
    probe::probe,
};

pub(super) const OPENING: &str = "opening dedup entries in object storage";

pub(super) async fn open(options: ObjectDedupOptions) -> Result<ObjectDedup, StoreError> {
    let (place, prefix, root, stores) = match options.place {
        Place::Store(store, prefix) => {
            let parsed = Path::parse(&prefix).map_err(|e| {
                let why = format!("the prefix `{prefix}` is none: write names with `/` between them");
                StoreError::new(ErrorKind::Misconfigured, OPENING, why).caused_by(e)
            })?;
            let second = options.second.unwrap_or_else(|| Arc::clone(&store));
            (format!("the object store {store}, below `{prefix}`,"), parsed, None, [store, second])
        }
        Place::Directory(path) => {
            let opened = directory_at(path.clone(), options.create_if_missing).await;
            let (root, stores) = opened.map_err(|e| without_directory(&path, e))?;
            (format!("the directory {}", path.display()), Path::default(), Some(root), stores)
        }
    };
    let [objects, second] = stores.map(|store| Objects {
        store,
        root: root.clone(),
        read_limit: options.read_limit,
        write_limit: options.write_limit,
    });
    let names = Names::new(prefix);
    probe(&place, &names, [&objects, &second], options.clock_margin).await?;
    let shared = Shared {
        place,
        objects,
        names,
        clock: Clock::new(0),
        parallel: options.parallel,
        bucket: millis(options.bucket),
        clock_margin: millis(options.clock_margin),
        durable: options.durable,
    };
    shared.ask_time().await.map_err(|failure| failure.of_read(&shared.place, OPENING))?;
    Ok(ObjectDedup(Arc::new(shared)))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn without_directory(path: &std::path::Path, e: BoxError) -> StoreError {
    let shown = path.display();
    let why = match e.downcast_ref() {
        Some(Unprepared::Missing(_)) => format!(
            "the directory {shown} holds no dedup entries of hapax: is its disk mounted? If it is to be a new one, open it once \
             with `create_if_missing(true)`"
        ),
        _ => format!("the directory {shown} cannot be used: look at its path and rights"),
    };
    StoreError::new(ErrorKind::Misconfigured, OPENING, why).caused_by(e)
}

/// A directory that is ready, and two clients of it.
async fn directory_at(path: PathBuf, create: bool) -> Result<(PathBuf, [Arc<dyn ObjectStore>; 2]), BoxError> {
    spawn_blocking(move || {
        let names = Names::new(Path::default());
        directory::prepare(&path, names.folders().map(|folder| path.join(folder.as_ref())), create)?;
        let client = || -> Result<Arc<dyn ObjectStore>, object_store::Error> {
            // Without it a power cut may take back what was confirmed.
            Ok(Arc::new(LocalFileSystem::new_with_prefix(&path)?.with_fsync(true)))
        };
        let clients = [client()?, client()?];
        Ok((std::fs::canonicalize(&path)?, clients))
    })
    .await?
}
