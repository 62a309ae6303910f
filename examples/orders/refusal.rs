//! How a run is refused, or ends before its end: in one line, with the remedy.

use std::{borrow::Cow, fmt, ops::Range, time::Duration};

use hapax::{SendError, ports::StoreError};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

/// Exit code of a run that was refused.
pub(crate) const EXIT_REFUSED: u8 = 2;
/// Exit code of a run that a signal has interrupted: this and the signal's number, as shells have it.
const EXIT_INTERRUPTED: u8 = 128;

/// Most characters of a word that is shown: a long path of a user's has room.
const WORD_MAX: usize = 400;
/// Most characters of a line that is shown.
const LINE_MAX: usize = 2000;

/// Between two tries of what fails while a server is away.
const AGAIN_EVERY: Duration = Duration::from_millis(50);

/// Does `what` until it goes well, cannot go well, or has failed for longer than `patience`.
pub(crate) async fn again<T>(
    patience: Duration,
    mut what: impl AsyncFnMut() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let begun = Instant::now();
    loop {
        match what().await {
            Err(Refusal { passing: true, .. }) if begun.elapsed() < patience => sleep(AGAIN_EVERY).await,
            done => return done,
        }
    }
}

/// `text` in one line that a person can read, whatever it quotes: of what is too long, beginning and end.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().map(|word| cut(word, WORD_MAX)).collect();
    cut(&words.join(" "), LINE_MAX).into_owned()
}

fn cut(text: &str, most: usize) -> Cow<'_, str> {
    let letters = text.chars().count();
    if letters <= most {
        return text.into();
    }
    let part = |range: Range<usize>| text.chars().skip(range.start).take(range.len()).collect::<String>();
    let (begin, end) = (part(0..most / 2), part(letters - most / 4..letters));
    format!("{begin}[..{letters} characters..]{end}").into()
}

/// Why there was no run, or none to its end: one line that names the thing and the remedy.
#[derive(Debug)]
pub struct Refusal {
    why: String,
    exit_code: u8,
    passing: bool,
}

impl Refusal {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        let why: String = why.into();
        // The library names its own setting.
        let why = why.replace("`danger_unverified_tls(true)`", "`--danger-unverified-tls`");
        // A cause may speak in several lines; a refusal has one.
        Self { why: one_line(&why), exit_code: EXIT_REFUSED, passing: false }
    }

    /// Tried again, it may go well.
    pub(crate) fn passing(self) -> Self {
        Self { passing: true, ..self }
    }

    pub(crate) const fn is_passing(&self) -> bool {
        self.passing
    }

    /// What a store says, with all that is behind it.
    pub(crate) fn of_store(what: &str, error: &StoreError) -> Self {
        let refusal = Self::caused(what, error);
        if error.is_transient() || error.is_unknown_outcome() { refusal.passing() } else { refusal }
    }

    /// What the card company says that could not begin in `place`. A ledger that is there already is of another run, which has begun since
    /// the file was looked at.
    pub(crate) fn of_ledger(place: impl fmt::Display, error: &sqlx::Error) -> Self {
        let is_taken = error.as_database_error().is_some_and(|e| e.message().ends_with("already exists"));
        Self::new(match is_taken {
            true => format!("{place} is used by another run, which has just begun; name another file"),
            false => format!("{place} cannot be used: {error}"),
        })
    }

    /// What a transport says to somebody who sends.
    pub(crate) fn of_send(error: &SendError) -> Self {
        let refusal = Self::caused("sending failed", error);
        if error.is_unknown_outcome() { refusal.passing() } else { refusal }
    }

    /// With what is behind `cause`, as far as its own words do not say it already.
    pub(crate) fn caused(what: &str, cause: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = format!("{what}: {cause}");
        let mut behind = cause.source();
        while let Some(cause) = behind {
            let words = cause.to_string();
            if !text.ends_with(&words) {
                text = format!("{text}: {words}");
            }
            behind = cause.source();
        }
        Self::new(text)
    }

    pub(crate) fn interrupted(by: Signal) -> Self {
        let why = "interrupted; the database is not checked".into();
        let number = u8::try_from(by.as_raw()).unwrap_or_default();
        Self { why, exit_code: EXIT_INTERRUPTED + number, passing: false }
    }

    /// What the program exits with.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sqlx::{Connection, Executor, SqliteConnection};

    use super::*;

    #[tokio::test]
    async fn a_ledger_of_another_run_is_told_with_what_to_do() {
        let mut file = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        file.execute("CREATE TABLE ledger (key)").await.unwrap();
        let taken = file.execute("CREATE TABLE ledger (key)").await.unwrap_err();
        let said = Refusal::of_ledger("two.db", &taken).to_string();
        assert!(said.contains("two.db is used by another run") && said.contains("name another file"), "{said}");
        let other = file.execute("CREATE").await.unwrap_err();
        let said = Refusal::of_ledger("two.db", &other).to_string();
        assert!(said.starts_with("two.db cannot be used: "), "{said}");
    }
}
