//! Files of one test.

use std::{fs, path::PathBuf};

/// A folder of a test's own, removed at the end: what does not balance is kept as evidence.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// With `test` in its name, for whoever finds it.
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hapax-orders-{test}-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// As an argument.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
