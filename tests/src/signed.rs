//! Certificates for tests of TLS, made anew by an authority of the test's own: none of them expires in the tree.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::Scratch;

/// An authority, and what it has signed: files in a folder.
#[derive(Debug)]
pub struct Signed(Scratch);

impl Signed {
    /// `None`, said aloud, where there is no `openssl`.
    ///
    /// # Panics
    /// When it does not work.
    #[must_use]
    pub fn new() -> Option<Self> {
        let scratch = Scratch::new("certificates");
        let signed = Self(scratch);
        let begun = signed.openssl(
            "req -x509 -newkey rsa:2048 -nodes -keyout authority.key -out authority.pem -days 2 -subj /CN=authority",
        );
        if begun.is_none() {
            eprintln!("SKIPPED: there is no openssl to make certificates with: `apt-get install openssl`");
            return None;
        }
        signed.sign("server", "subjectAltName=DNS:localhost");
        signed.sign("client", "extendedKeyUsage=clientAuth");
        Some(signed)
    }

    /// Signs one more, of which `NAME.pem` and `NAME.key` are read.
    ///
    /// # Panics
    /// When that does not work.
    pub fn sign(&self, name: &str, extension: &str) {
        std::fs::write(self.0.file("extension"), extension).expect("a folder that can be written to");
        let asked = format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}");
        self.openssl(&asked).expect("openssl was there a moment ago");
        let signed = format!(
            "x509 -req -in {name}.csr -CA authority.pem -CAkey authority.key -CAcreateserial -out {name}.pem -days 2 -extfile extension"
        );
        self.openssl(&signed).expect("openssl was there a moment ago");
    }

    fn openssl(&self, arguments: &str) -> Option<()> {
        let mut openssl = Command::new("openssl");
        let done = openssl.args(arguments.split(' ')).current_dir(self.0.folder()).output().ok()?;
        assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
        Some(())
    }

    /// Where a file of it is.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    /// A file of it.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.file(name)).expect("a file that was made")
    }

    /// For a server.
    ///
    /// # Panics
    /// When they cannot be written there.
    pub fn copy_to(&self, folder: &Path) {
        for (from, name) in
            [("server.pem", "certificate.pem"), ("server.key", "key.pem"), ("authority.pem", "authority.pem")]
        {
            // Readable for the server's user.
            std::fs::write(folder.join(name), self.read(from)).expect("a folder that can be written to");
        }
    }
}
