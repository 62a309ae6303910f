//! A local directory in place of a service.

use std::{
    error::Error,
    fmt,
    fs::{self, File},
    io, iter,
    path::{Path, PathBuf},
};

/// Why a directory cannot be used.
#[derive(Debug)]
pub(super) enum Unprepared {
    /// There is no such folder, and none may be created.
    Missing(PathBuf),
    Failed(io::Error),
}

impl fmt::Display for Unprepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(folder) => write!(f, "there is no folder {}", folder.display()),
            Self::Failed(e) => e.fmt(f),
        }
    }
}

impl Error for Unprepared {}

impl From<io::Error> for Unprepared {
    fn from(e: io::Error) -> Self {
        Self::Failed(e)
    }
}

/// Makes durable the names of `root` and of `folders` in it, all of which have to be there unless they may be created. An empty
/// directory is what stands for a disk that is not mounted, and entries in it would be those of another one.
pub(super) fn prepare(root: &Path, folders: impl Iterator<Item = PathBuf>, create: bool) -> Result<(), Unprepared> {
    let folders = folders.chain(["d", "t", "r", "e"].map(|folder| root.join(folder)));
    for folder in iter::once(root.to_owned()).chain(folders) {
        if create {
            fs::create_dir_all(&folder)?;
        } else if !folder.try_exists()? {
            return Err(Unprepared::Missing(folder));
        }
        sync(&folder)?;
    }
    // All that may have been made on the way to it.
    for above in fs::canonicalize(root)?.ancestors() {
        // Those that this user may not open were not made by it.
        match sync(above) {
            Err(e) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Waits until what is named in `folder` is on disk. Only on Unix a folder can be asked for it.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Removes `folder` if no object is in it. What a process that died has left half written goes with it; one that is still
/// writing there, into a bucket long over, gets an error and writes again elsewhere.
pub(super) fn remove_empty(folder: &Path) -> io::Result<()> {
    for file in fs::read_dir(folder)? {
        let file = file?;
        let is_staged = file.file_name().to_str().is_some_and(|name| name.contains('#'));
        if !is_staged {
            return Ok(());
        }
        fs::remove_file(file.path())?;
    }
    fs::remove_dir(folder)
}
