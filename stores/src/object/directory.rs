//! A local directory in place of a service.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Makes `root`, `folders` in it, and their names durable. What is there stays.
pub(super) fn prepare(root: &Path, folders: impl Iterator<Item = std::path::PathBuf>) -> io::Result<()> {
    fs::create_dir_all(root)?;
    for folder in folders {
        fs::create_dir_all(&folder)?;
        sync(&folder)?;
    }
    for folder in ["d", "t", "r", "e"] {
        fs::create_dir_all(root.join(folder))?;
        sync(&root.join(folder))?;
    }
    // All that may have been made on the way to it.
    for above in fs::canonicalize(root)?.ancestors() {
        // Those that this user may not open were not made by it.
        match sync(above) {
            Err(e) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e),
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
