//! What both emulators share: the command line, the port, and when they end.
//!
//! An emulator prints one line when it serves, `listening on http://127.0.0.1:PORT`, and nothing else on that output. It
//! ends when its input does, so that none outlives whoever holds the other end, or by SIGTERM or Ctrl-C.

use std::io::{Read, Write};
use std::process::ExitCode;

use tokio::net::TcpListener;

/// What the command line said.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The port to listen on; 0, which is the default, takes a free one.
    pub port: u16,
    /// Its input says nothing about when to end: for whoever starts it without one.
    pub ignores_stdin: bool,
    /// Everything else, as pairs of a flag without its dashes and its value.
    pub rest: Vec<(String, String)>,
}

impl Settings {
    /// Reads the arguments; `known` are the emulator's own flags, each with a value.
    ///
    /// # Errors
    /// One line that names the wrong argument.
    pub fn parse(args: impl IntoIterator<Item = String>, known: &[&str]) -> Result<Self, String> {
        let mut settings = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            if arg == "--ignore-stdin" {
                settings.ignores_stdin = true;
                continue;
            }
            let flag = arg.strip_prefix("--").filter(|flag| *flag == "port" || known.contains(flag));
            let flag = flag.ok_or_else(|| format!("`{arg}` is not known: {}", usage(known)))?;
            let value = args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
            if flag == "port" {
                settings.port = value.parse().map_err(|_| format!("`{value}` is no port: 0 to 65535"))?;
            } else {
                settings.rest.push((flag.to_owned(), value));
            }
        }
        Ok(settings)
    }

    /// The value of one of the emulator's own flags; the last one counts.
    #[must_use]
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.rest.iter().rev().find(|(name, _)| name == flag).map(|(_, value)| value.as_str())
    }

    /// Listens on the port, on this host only.
    ///
    /// # Errors
    /// The port is taken.
    pub async fn listen(&self) -> Result<(TcpListener, String), String> {
        let failed = |error: std::io::Error| format!("port {}: {error}", self.port);
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.map_err(failed)?;
        let url = format!("http://{}", listener.local_addr().map_err(failed)?);
        Ok((listener, url))
    }

    /// Says that it serves from now on.
    pub fn announce(&self, url: &str) {
        let mut out = std::io::stdout();
        // Whoever does not listen for the line knows the port.
        let _ = writeln!(out, "listening on {url}").and_then(|()| out.flush());
    }

    /// Returns when the emulator is to end.
    pub async fn end(&self) {
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        if !self.ignores_stdin {
            // A thread of its own: the runtime would wait for one of its own that reads.
            std::thread::spawn(move || {
                let (mut input, mut some) = (std::io::stdin().lock(), [0; 1024]);
                while !matches!(input.read(&mut some), Ok(0) | Err(_)) {}
                let _ = tell.blocking_send(()); // It ends already.
            });
            tokio::select! { _ = told.recv() => {}, () = signalled() => {} }
        } else {
            signalled().await;
        }
    }
}

fn usage(known: &[&str]) -> String {
    let own: String = known.iter().map(|flag| format!(" [--{flag} VALUE]")).collect();
    format!("[--port N] [--ignore-stdin]{own}")
}

/// Prints why there is no emulator, as one line on the error output.
#[must_use]
pub fn conclude(ended: Result<(), String>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(unix)]
async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        return std::future::pending().await; // It can still be killed.
    };
    tokio::select! { _ = terminated.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
}

#[cfg(not(unix))]
async fn signalled() {
    let _ = tokio::signal::ctrl_c().await; // Where it cannot be waited for, the process can still be ended.
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(line: &str) -> Result<Settings, String> {
        Settings::parse(line.split_whitespace().map(str::to_owned), &["file"])
    }

    #[test]
    fn the_last_value_counts_and_nothing_need_be_said() {
        assert_eq!(parsed("").unwrap(), Settings::default());
        let settings = parsed("--file a --port 8000 --ignore-stdin --file b").unwrap();
        assert_eq!((settings.port, settings.ignores_stdin, settings.value("file")), (8000, true, Some("b")));
    }

    #[test]
    fn a_wrong_argument_is_named() {
        for (line, named) in [("--port", "--port"), ("--port x", "`x`"), ("--data x", "`--data`"), ("file", "`file`")] {
            assert!(parsed(line).unwrap_err().contains(named), "{line}");
        }
    }
}
