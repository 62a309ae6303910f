use std::{fmt, time::Duration};

/// What a check has found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checked {
    /// What was gone through, one after the other.
    pub explored: Vec<Explored>,
    /// In how many histories each rare path was taken.
    pub paths: Vec<(&'static str, usize)>,
    /// Why it may have shown less than it seems.
    pub warnings: Vec<String>,
    /// What is broken, with a shortest way to it; `None`: nothing.
    pub failure: Option<Failure>,
}

/// One exploration.
#[derive(Debug)]
#[non_exhaustive]
pub struct Explored {
    /// What might go wrong in it, as it is typed.
    pub what: String,
    /// Different worlds.
    pub worlds: usize,
    /// Different histories of a worker.
    pub histories: usize,
    /// How long it took.
    pub time: Duration,
}

/// Something that must not be, and how it comes to it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The sentence that is broken.
    pub claim: String,
    /// What was seen.
    pub seen: String,
    /// The messages under the names that they have in the steps.
    pub messages: Vec<String>,
    /// What happened, in order. No way is shorter.
    pub steps: Vec<String>,
    /// What to do.
    pub advice: String,
    /// What finds it again.
    pub replay: String,
    /// The same as a sequence diagram in the language of Mermaid.
    pub diagram: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "broken: {}", self.claim)?;
        writeln!(f, "  {}", self.seen)?;
        if !self.messages.is_empty() {
            writeln!(f, "messages:")?;
        }
        for (number, message) in self.messages.iter().enumerate() {
            writeln!(f, "  m{number} = {message}")?;
        }
        if !self.steps.is_empty() {
            writeln!(f, "how it comes to it:")?;
        }
        for (number, step) in (1..).zip(&self.steps) {
            writeln!(f, "{number:3}. {step}")?;
        }
        writeln!(f, "what to do: {}", self.advice)?;
        write!(f, "replay: {}", self.replay)?;
        if !self.diagram.is_empty() {
            write!(f, "\n```mermaid\n{}\n```", self.diagram)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Explored { what, worlds, histories, time } in &self.explored {
            writeln!(f, "{worlds} worlds, {histories} histories in {time:.1?} with {what}")?;
        }
        let paths: Vec<String> = self.paths.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if !paths.is_empty() {
            writeln!(f, "histories with rare paths: {}", paths.join(", "))?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        match &self.failure {
            Some(failure) => write!(f, "{failure}"),
            None => f.write_str("nothing is broken in any of them"),
        }
    }
}
