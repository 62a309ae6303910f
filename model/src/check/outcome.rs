//! What a check tells people: what was seen, what is broken and a shortest way to it; and never that all was seen when it was not.

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
#[derive(Debug, Clone)]
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
    /// It ended at the limit of worlds, and has not seen all.
    pub cut_short: bool,
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

/// Longer than people wait for one test among many.
const SLOW: Duration = Duration::from_secs(1);
/// What makes it faster, in a build that has debug assertions and so, in most cases, no optimisation.
const FASTER: &str = "slow? Without optimisation a check takes three to four times as long. In your Cargo.toml, if not there yet:\n  \
                      [profile.dev.package.hapax-model]\n  opt-level = 3";

impl Checked {
    /// Ends the test if something is broken.
    ///
    /// # Panics
    /// With the story.
    #[track_caller]
    pub fn holds(&self) {
        assert!(self.failure.is_none(), "{self}");
    }

    /// Whether it took long and, as far as can be seen from within, was not optimised.
    fn is_slow(&self) -> bool {
        cfg!(debug_assertions) && self.explored.iter().map(|explored| explored.time).sum::<Duration>() > SLOW
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Explored { what, worlds, histories, time, cut_short } in &self.explored {
            let cut = if *cut_short { "CUT SHORT after " } else { "" };
            writeln!(f, "{cut}{worlds} worlds, {histories} histories in {time:.1?} with {what}")?;
        }
        let paths: Vec<String> = self.paths.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if !paths.is_empty() {
            writeln!(f, "histories with rare paths: {}", paths.join(", "))?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        if self.is_slow() {
            writeln!(f, "{FASTER}")?;
        }
        match &self.failure {
            Some(failure) => write!(f, "{failure}"),
            None if self.explored.iter().any(|explored| explored.cut_short) => {
                f.write_str("nothing is broken in what was seen, which is NOT all")
            }
            None => f.write_str("nothing is broken in any of them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(time: Duration) -> String {
        let explored = Explored { what: "one".into(), worlds: 1, histories: 1, time, cut_short: false };
        let explored = vec![explored.clone(), explored];
        Checked { explored, paths: Vec::new(), warnings: Vec::new(), failure: None }.to_string()
    }

    #[test]
    fn a_slow_check_says_what_makes_it_faster() {
        let told = took(Duration::from_millis(501)).contains("[profile.dev.package.hapax-model]\n  opt-level = 3");
        assert_eq!(told, cfg!(debug_assertions));
        assert!(!took(Duration::from_millis(500)).contains("opt-level"));
    }
}
