//! What changes something asks first, and says afterwards who has done it.

use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::{self, BufRead, IsTerminal, Write},
    path::{Path, PathBuf},
};

use hapax::{
    operator::{LogLine, masked, masked_url, with_causes},
    time::Timestamp,
};

use serde::Serialize;

use crate::{
    args::{Changing, Common},
    failure::Failure,
    print::Out,
};

/// Who does something, whether he was asked, and where it is written down.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) by: String,
    yes: bool,
    pub(crate) dry_run: bool,
    json: bool,
    log: Option<PathBuf>,
    store: String,
}

/// What `--dry-run` answers under `--json`.
#[derive(Debug, Serialize)]
struct DryRun<'a> {
    dry_run: bool,
    /// Completes "this would ..".
    would: &'a str,
}

impl Hand {
    pub(crate) fn new(changing: &Changing, common: &Common) -> Self {
        Self {
            by: user(changing.by.as_deref()),
            yes: changing.yes,
            dry_run: changing.dry_run,
            json: common.json,
            log: changing.log.clone(),
            store: masked_url(&common.store().unwrap_or_default()),
        }
    }

    /// Whether it is to be done. `what` completes "this will ..".
    pub(crate) fn asks(&self, what: &str, out: &mut Out) -> Result<bool, Failure> {
        if self.dry_run {
            if self.json {
                out.json(&DryRun { dry_run: true, would: what })?;
            }
            let _ = writeln!(io::stderr(), "hapax: this would {what}; nothing was done"); // There is nowhere else to say it.
            return Ok(false);
        }
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failure::usage(format!(
                "this will {what}, and nobody can be asked here: add --yes, or see it with --dry-run"
            )));
        }
        let _ = write!(io::stderr(), "This will {what}. Go on? [y/N] ");
        let _ = io::stderr().flush();
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" if read.is_ok() => Ok(true),
            _ => Err(Failure::new("nothing was done")),
        }
    }

    /// Writes down what was done: to the standard error, and where `--log` says.
    pub(crate) fn writes_down(&self, deed: &str, of: &str, count: u64) -> Result<(), Failure> {
        self.writes(deed, of, Some(count), None)
    }

    /// The same of what has failed on the way, when some of it may be done. `left` says where what is left is seen.
    pub(crate) fn broke_off(&self, deed: &str, of: &str, count: Option<u64>, error: &dyn Error, left: &str) -> Failure {
        let why = masked(&with_causes(error));
        let _ = self.writes(deed, of, count, Some(&why)); // Why is the failure that is told.
        Failure::new(format!(
            "{why}; some of it may be done already: {left} shows what is left, and it may be asked for again"
        ))
    }

    fn writes(&self, deed: &str, of: &str, count: Option<u64>, failed: Option<&str>) -> Result<(), Failure> {
        let (by, store) = (&self.by, &self.store);
        let line = LogLine { time: Timestamp::now(), by, deed, of, count, store, failed }.json();
        let _ = writeln!(io::stderr(), "{line}");
        let Some(path) = &self.log else { return Ok(()) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).map_err(|error| {
            Failure::new(format!(
                "it is done, and could not be written to {}: {error}; keep the line above",
                path.display()
            ))
        })
    }

    /// That the log can be written is found out before anything is done.
    pub(crate) fn opens_log(&self) -> Result<(), Failure> {
        let Some(path) = &self.log else { return Ok(()) };
        opened_log(path).map(drop)
    }
}

/// Who does something: who was named, else the user, by the number where there is no name, as in a container.
pub(crate) fn user(by: Option<&str>) -> String {
    let known = |name: &str| std::env::var(name).ok().filter(|name| !name.is_empty());
    let by = by.map(str::to_owned).or_else(|| known("USER")).or_else(|| known("LOGNAME"));
    by.or_else(number).unwrap_or_else(|| "unknown".to_owned())
}

/// The number of the user whose process this is, where the system has it in a file.
fn number() -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").ok().map(|process| format!("uid {}", process.uid()))
    }
    #[cfg(not(unix))]
    {
        None
    }
}

/// The log, to be written at its end.
pub(crate) fn opened_log(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().create(true).append(true).open(path).map_err(|error| {
        Failure::new(format!(
            "the log {} cannot be written: {error}; name another file, nothing was done",
            path.display()
        ))
    })
}
