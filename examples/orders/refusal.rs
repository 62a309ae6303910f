use std::fmt;

/// Exit code of a run that was refused.
pub(crate) const EXIT_REFUSED: u8 = 2;
/// Exit code of a run that was interrupted, as shells have it.
const EXIT_INTERRUPTED: u8 = 130;

/// Why there was no run, or none to its end: one line that names the thing and the remedy.
#[derive(Debug)]
pub struct Refusal {
    why: String,
    exit_code: u8,
}

impl Refusal {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        // A cause may speak in several lines; a refusal has one.
        let why = why.into().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { why, exit_code: EXIT_REFUSED }
    }

    pub(crate) fn interrupted() -> Self {
        Self { why: "interrupted; the database is not checked".into(), exit_code: EXIT_INTERRUPTED }
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
