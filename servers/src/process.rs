//! What the servers have in common: a folder that outlives the process, so that one that was killed finds its data when it is run again.

use std::{
    fmt::Display,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::leash::{Leashed, Servant};

/// A server's process and its folder, which stays when the process is killed, for the next one. It ends with this.
#[derive(Debug)]
pub(crate) struct Process {
    running: Option<Leashed>,
    folder: PathBuf,
}

impl Process {
    /// None yet, in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { running: None, folder: folder.to_owned() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the file `name` of its folder is.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file of its folder, such as its settings.
    ///
    /// # Errors
    /// It cannot be written: one line.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let file = self.file(name);
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Leaves the file `name` of its folder to be read by the first of `servants` that there is, and by nobody else: a server refuses
    /// a key that others may read.
    ///
    /// # Errors
    /// It is not there, or cannot be given away: one line.
    pub(crate) fn keep_secret(&self, name: &str, servants: &[&str]) -> Result<(), String> {
        let file = self.file(name);
        Servant::of(&file, servants)?;
        let only_its_owner = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&file, only_its_owner).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Runs `command`, which is to be called `name`, as the first of `servants` that there is, who owns the folder from now on.
    /// For one that is not up: it comes in its place.
    ///
    /// # Errors
    /// It cannot be run, or there is none who may: one line.
    pub(crate) fn run(&mut self, command: &mut Command, servants: &[&str], name: impl Display) -> Result<(), String> {
        let servant = Servant::of(&self.folder, servants)?;
        let running = Leashed::run(command, &servant, &self.folder);
        self.running = Some(running.map_err(|e| format!("{name} cannot be run: {e}"))?);
        Ok(())
    }

    /// Whether it has been run and has neither been killed nor ended by itself. What it serves may not be there yet.
    pub(crate) fn is_up(&mut self) -> bool {
        self.running.is_some() && !self.has_ended()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_some_and(Leashed::has_ended)
    }

    /// Kills it, as a crash would: SIGKILL, nothing is written any more.
    pub(crate) fn kill(&mut self) {
        drop(self.running.take());
    }

    /// What all that ran in its folder have said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }
}
