use std::{net::TcpStream, path::Path, process::Command};

use crate::leash::{Leashed, Servant, free_port, made};

/// The program that moto is served by.
const EMULATOR: &str = include_str!("s3_emulator.py");
/// Where `cargo xtask test kafka` installs moto, below the target folder.
const PYTHON: &str = "xtask/moto-5.2.5/bin/python3";

/// A bucket in moto's S3, which outlives the server that keeps what it has there, and ends with this.
#[derive(Debug)]
pub(crate) struct Bucket {
    running: Leashed,
    port: u16,
}

impl Bucket {
    /// Its name.
    const NAME: &str = "kept";

    /// A new one, which is made before anybody is let in.
    ///
    /// # Errors
    /// It cannot be run: one line with the remedy.
    pub(crate) fn run(servant: &Servant, folder: &Path) -> Result<Self, String> {
        let python = made(PYTHON)
            .ok_or("there is no emulator of S3: `cargo xtask test kafka` installs it, with Python and pip")?;
        let port = free_port().map_err(|e| format!("there is no free port: {e}"))?;
        let mut server = Command::new(python);
        server.args(["-c", EMULATOR, &port.to_string(), Self::NAME]);
        let running = Leashed::run(&mut server, servant, folder);
        Ok(Self { running: running.map_err(|e| format!("the emulator of S3 cannot be run: {e}"))?, port })
    }

    /// Whether it takes connections.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn answers(&mut self) -> Result<bool, String> {
        if self.running.has_ended() {
            return Err("the emulator of S3 has ended".to_owned());
        }
        Ok(TcpStream::connect(("127.0.0.1", self.port)).is_ok())
    }

    /// Where Tansu finds it: what it is told on its command line, and in its environment.
    pub(crate) fn told(&self, server: &mut Command) -> String {
        let url = format!("http://127.0.0.1:{}", self.port);
        // Any key opens it.
        server.envs([("AWS_ACCESS_KEY_ID", "any"), ("AWS_SECRET_ACCESS_KEY", "any"), ("AWS_REGION", "us-east-1")]);
        server.envs([("AWS_DEFAULT_REGION", "us-east-1"), ("AWS_ALLOW_HTTP", "true")]);
        server.env("AWS_ENDPOINT", &url).env("AWS_ENDPOINT_URL", url);
        format!("s3://{}/", Self::NAME)
    }
}
