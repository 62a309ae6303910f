//! What a suite has found, promise by promise: one that was not tried is told apart from one that is kept.

use std::{error::Error, fmt, future::Future};

/// A promise that was shown not to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Port, number and name of the promise, as its documentation has it: `entity store 2, guarded`.
    pub promise: &'static str,
    /// What was seen, and what was to be seen instead.
    pub what: String,
}

impl Broken {
    /// `promise` does not hold, because of `what`.
    #[must_use]
    pub fn new(promise: &'static str, what: impl Into<String>) -> Self {
        Self { promise, what: what.into() }
    }

    /// A call failed that has no reason to fail while the backend is well.
    pub(super) fn failed(promise: &'static str, doing: &str, error: &dyn Error) -> Self {
        let mut what = format!("{doing} failed: {error}");
        let mut source = error.source();
        while let Some(error) = source {
            what = format!("{what}: {error}");
            source = error.source();
        }
        Self { promise, what }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

impl Error for Broken {}

/// A promise that nothing spoke against. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It was tried.
    Shown,
    /// It was not tried, since the adapter does not claim it or the builder cannot show it.
    NotClaimed(&'static str),
}

/// How the check of one promise ended.
pub type Checked = Result<Kept, Broken>;

/// How a suite went, promise by promise. Printed as a table.
#[derive(Debug, Clone, Default)]
#[must_use = "a report that nobody reads shows nothing: call `assert`"]
pub struct Report(Vec<(&'static str, Checked)>);

impl Report {
    pub(super) async fn check(&mut self, promise: &'static str, check: impl Future<Output = Checked>) {
        let checked = check.await;
        self.0.push((promise, checked));
    }

    /// The promises that do not hold, in the order in which they were tried.
    pub fn broken(&self) -> impl Iterator<Item = &Broken> {
        self.0.iter().filter_map(|(_, checked)| checked.as_ref().err())
    }

    /// How many promises were tried.
    #[must_use]
    pub fn shown(&self) -> usize {
        self.0.iter().filter(|(_, checked)| matches!(checked, Ok(Kept::Shown))).count()
    }

    /// Lets a test fail that rests on it.
    ///
    /// # Panics
    /// When a promise is broken, with the whole table.
    #[track_caller]
    pub fn assert(self) {
        assert!(self.broken().next().is_none(), "promises are broken\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(promise, _)| promise.len()).max().unwrap_or_default();
        for (promise, checked) in &self.0 {
            match checked {
                Ok(Kept::Shown) => writeln!(f, "{promise:width$}  kept")?,
                Ok(Kept::NotClaimed(why)) => writeln!(f, "{promise:width$}  not tried: {why}")?,
                Err(broken) if broken.promise == *promise => writeln!(f, "{promise:width$}  BROKEN: {}", broken.what)?,
                Err(broken) => writeln!(f, "{promise:width$}  BROKEN: {broken}")?,
            }
        }
        Ok(())
    }
}

/// Ends one test of a suite: what the suite macros expand to.
///
/// # Panics
/// When the promise is broken.
#[track_caller]
pub fn assert_kept(checked: Checked) {
    match checked {
        Ok(Kept::Shown) => {}
        Ok(Kept::NotClaimed(why)) => eprintln!("not tried: {why}"),
        Err(broken) => panic!("{broken}"),
    }
}

/// Ends one test of a suite whose adapter is held to what it claims: what was not tried has to be among `unclaimed`. Not for
/// use by name; see the suite macros.
///
/// # Panics
/// When the promise is broken, or was not tried without being expected to be.
#[doc(hidden)]
#[track_caller]
pub fn assert_claimed(promise: &str, unclaimed: &[&str], checked: Checked) {
    if let Ok(Kept::NotClaimed(why)) = &checked {
        let expected = unclaimed.contains(&promise);
        assert!(expected, "`{promise}` was not tried, and is not among what may be unclaimed: {why}");
    }
    assert_kept(checked);
}

/// Runs the checks of a suite: all, or up to the first that fails.
macro_rules! run {
    ([$builder:ident all] $($name:ident $check:ident)+) => {{
        let mut report = $crate::testing::Report::default();
        $(report.check($name, $check($builder)).await;)+
        report
    }};
    ([$builder:ident first_broken] $($name:ident $check:ident)+) => {{
        $(if let Err(broken) = $check($builder).await { return Some(broken); })+
        None
    }};
}
pub(super) use run;

/// Turns a list of promises into one test each. Not for use by name; see the suite macros.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    ([$module:ident $builder:expr] $($name:ident $check:ident)+) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                $crate::testing::assert_kept($crate::testing::$module::$check(&$builder).await);
            }
        )+
    };
    ([$module:ident $builder:expr, $unclaimed:expr] $($name:ident $check:ident)+) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let checked = $crate::testing::$module::$check(&$builder).await;
                $crate::testing::assert_claimed(stringify!($check), &$unclaimed, checked);
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCLAIMED: Kept = Kept::NotClaimed("it keeps no order");

    #[test]
    fn what_may_be_unclaimed_need_not_be_tried() {
        assert_claimed("in_order", &["in_order"], Ok(UNCLAIMED));
        assert_claimed("in_order", &["in_order"], Ok(Kept::Shown));
        assert_claimed("in_order", &[], Ok(Kept::Shown));
    }

    #[test]
    #[should_panic(expected = "`in_order` was not tried, and is not among what may be unclaimed: it keeps no order")]
    fn what_is_claimed_no_longer_turns_its_test_red() {
        assert_claimed("in_order", &["counted"], Ok(UNCLAIMED));
    }

    #[test]
    #[should_panic(expected = "in order: it was not")]
    fn what_may_be_unclaimed_and_is_broken_is_broken() {
        assert_claimed("in_order", &["in_order"], Err(Broken::new("in order", "it was not")));
    }
}
