//! Files that take long to fill: made once for a case, copied for each round.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use crate::AnyError;

/// What belongs to a database file, besides itself.
const LOG: &str = "-wal";
const FILES: [&str; 3] = ["", LOG, "-shm"];

/// Runs on a file that is not there yet, or else is a copy of `template`, and removes what is left of it.
pub(crate) fn with_file<T>(
    dir: &Path,
    template: Option<&Path>,
    run: impl FnOnce(&Path) -> Result<T, AnyError>,
) -> Result<T, AnyError> {
    let path = dir.join("bench.db");
    let done = template.map_or(Ok(()), |template| copy(template, &path)).and_then(|()| run(&path));
    for suffix in FILES {
        drop(fs::remove_file(beside(&path, suffix)));
    }
    done
}

/// The file `name`, made by `make` if it is not there yet.
pub(crate) fn template(
    dir: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> Result<(), AnyError>,
) -> Result<PathBuf, AnyError> {
    let path = dir.join(format!("{name}.template"));
    if !path.exists() {
        make(&path)?;
    }
    Ok(path)
}

/// The copy is at the disk before this returns: else the window would pay for writing it back.
fn copy(template: &Path, path: &Path) -> Result<(), AnyError> {
    let log = fs::metadata(beside(template, LOG)).map_or(0, |log| log.len());
    if log > 0 {
        return Err(format!("{}: it was not closed", template.display()).into());
    }
    fs::copy(template, path).map_err(|e| format!("{}: {e}", path.display()))?;
    File::open(path)?.sync_all()?;
    Ok(())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Scratch;

    fn scratch(test: &str) -> Scratch {
        let name = format!("hapax-bench-template-{test}-{}", std::process::id());
        Scratch::create(std::env::temp_dir().join(name)).unwrap()
    }

    fn write(path: &Path, text: &str) -> Result<(), AnyError> {
        Ok(fs::write(path, text)?)
    }

    #[test]
    fn a_template_is_made_once_and_every_run_has_a_copy_of_its_own() {
        let dir = scratch("copy");
        for text in ["first", "second"] {
            let template = template(&dir.0, "t", |path| write(path, text)).unwrap();
            let found = with_file(&dir.0, Some(&template), |path| {
                let found = fs::read_to_string(path)?;
                write(path, "changed")?;
                Ok(found)
            });
            assert_eq!(found.unwrap(), "first");
        }
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 1, "the copies are gone");
    }

    #[test]
    fn a_template_whose_log_was_not_written_back_is_refused() {
        let dir = scratch("log");
        let template = template(&dir.0, "t", |path| write(path, "file")).unwrap();
        write(&beside(&template, LOG), "log").unwrap();
        assert!(with_file(&dir.0, Some(&template), |_| Ok(())).is_err());
    }
}
