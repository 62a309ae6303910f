//! What the machine has: programs, variables, a user who may run servers, a place for their files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process;

/// Where server programs are beside `PATH`, which seldom has them.
const SERVER_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/usr/libexec"];

/// Folders with one folder for each version of PostgreSQL that is installed, its programs in `bin` below.
const VERSIONED: [&str; 1] = ["/usr/lib/postgresql"];

/// One machine; tests put another one together, of stub programs.
#[derive(Debug)]
pub(super) struct Machine {
    /// Where programs are looked for; the first one found is taken.
    pub(super) path: Vec<PathBuf>,
    /// The environment.
    pub(super) variables: BTreeMap<String, String>,
    /// Where servers may keep their files; the first one that they can reach is taken.
    pub(super) places: Vec<PathBuf>,
    /// Where servers are built or installed that are made for the tests.
    pub(super) target: PathBuf,
}

/// A user without rights of his own, as servers want it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

impl Machine {
    /// The one this program runs on.
    pub(super) fn here() -> Self {
        let mut path: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
        path.extend(SERVER_FOLDERS.map(PathBuf::from));
        path.extend(VERSIONED.iter().flat_map(|folder| versions(Path::new(folder))));
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?)) // What is no text is none of ours.
        });
        // Servers run in a folder of their own, so that a relative path would mean another one to them.
        let target = process::root().join("target");
        let target = std::path::absolute(&target).unwrap_or(target);
        let places = vec![target.join("xtask/servers"), std::env::temp_dir()];
        Self { path, variables: variables.collect(), places, target }
    }

    /// The variable's value, unless it is empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The first of the programs that is installed.
    pub(super) fn program(&self, names: &[&str]) -> Option<PathBuf> {
        names.iter().find_map(|name| self.path.iter().map(|folder| folder.join(name)).find(|file| is_program(file)))
    }

    /// Whether this program may do anything here. Where there is no `id`, it may not.
    pub(super) fn is_root(&self) -> bool {
        let id = self.program(&["id"]);
        id.is_some_and(|id| process::output(Command::new(id).arg("-u")).is_ok_and(|uid| uid.trim() == "0"))
    }

    /// Whom servers run as: the first of the names that the machine knows. None if they may run as whoever calls, as may
    /// one that asks for nobody.
    ///
    /// # Errors
    /// The machine knows none of them.
    pub(super) fn servant(&self, names: &[&str]) -> Result<Option<User>, String> {
        if names.is_empty() || !self.is_root() {
            return Ok(None);
        }
        let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = names.iter().find_map(|name| user(&known, name));
        user.map(Some).ok_or_else(|| format!("root may not run it, and there is no user {}", names.join(" or ")))
    }

    /// A new, empty folder that the user can write to.
    ///
    /// # Errors
    /// There is no such place.
    pub(super) fn folder(&self, name: &str, servant: Option<User>) -> Result<PathBuf, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hapax-{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut why = Vec::new();
        for place in &self.places {
            let folder = place.join(&name);
            match std::fs::create_dir_all(&folder).and_then(|()| hand_over(&folder, servant)) {
                // A folder below another user's is out of reach whoever owns it, so it is tried.
                Ok(()) if is_reached(&folder, servant) => return Ok(folder),
                Ok(()) => why.push(format!("{} is out of reach for an unprivileged user", folder.display())),
                Err(error) => why.push(format!("{}: {error}", folder.display())),
            }
            let _ = std::fs::remove_dir_all(&folder); // Empty if it is there at all.
        }
        Err(format!("no place for its files: {}", why.join("; ")))
    }
}

/// The programs of each version, the newest first.
fn versions(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>();
    let mut found: Vec<(Vec<u32>, PathBuf)> =
        entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path().join("bin")))).collect();
    found.sort_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, bin)| bin).collect()
}

/// The user of that name in a list as `/etc/passwd` is.
fn user(known: &str, name: &str) -> Option<User> {
    let line = known.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
    Some(User { uid: fields.next()??, gid: fields.next()?? })
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file()
}

#[cfg(unix)]
fn hand_over(folder: &Path, servant: Option<User>) -> std::io::Result<()> {
    servant.map_or(Ok(()), |User { uid, gid }| std::os::unix::fs::chown(folder, Some(uid), Some(gid)))
}

#[cfg(not(unix))]
fn hand_over(_: &Path, _: Option<User>) -> std::io::Result<()> {
    Ok(())
}

fn is_reached(folder: &Path, servant: Option<User>) -> bool {
    let mut sh = Command::new("sh");
    sh.args(["-c", "cd \"$1\" && test -w .", "sh"]).arg(folder).current_dir("/");
    serve_as(&mut sh, servant).output().is_ok_and(|output| output.status.success())
}

/// Lets the command run as the user, with his groups alone.
#[cfg(unix)]
pub(super) fn serve_as(command: &mut Command, servant: Option<User>) -> &mut Command {
    use std::os::unix::process::CommandExt;
    match servant {
        Some(User { uid, gid }) => command.uid(uid).gid(gid),
        None => command,
    }
}

/// Lets the command run as whoever calls.
#[cfg(not(unix))]
pub(super) fn serve_as(command: &mut Command, _: Option<User>) -> &mut Command {
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_user_is_read_from_the_list() {
        let known = "root:x:0:0:root:/:/bin/sh\nbroken:x:one:1\nguest:x:65534:65533::/:/bin/false";
        assert_eq!(user(known, "guest"), Some(User { uid: 65534, gid: 65533 }));
        assert_eq!((user(known, "broken"), user(known, "gues")), (None, None));
    }

    #[test]
    fn the_newest_version_comes_first() {
        let folder = std::env::temp_dir().join(format!("hapax-versions-{}", std::process::id()));
        for version in ["9.6", "16", "15", "common"] {
            std::fs::create_dir_all(folder.join(version)).unwrap();
        }
        let found = versions(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, ["16", "15", "9.6"].map(|version| folder.join(version).join("bin")));
    }
}
