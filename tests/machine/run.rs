//! Draws lists of steps, and shortens the one that fails.

use std::{fmt, ops::Range, sync::atomic::Ordering};

use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner,
};
use proptest_state_machine::ReferenceStateMachine;

/// How many lists, and which.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    pub(crate) cases: u32,
    pub(crate) steps: Range<usize>,
    /// New ones each time, and the seeds of those that fail are kept under this name; otherwise always the same.
    pub(crate) kept_as: Option<String>,
}

/// A list of steps that fails, and why.
#[derive(Debug, Clone)]
pub(crate) struct Failure<M: ReferenceStateMachine> {
    pub(crate) why: String,
    pub(crate) begin: M::State,
    pub(crate) steps: Vec<M::Transition>,
}

impl<M: ReferenceStateMachine> fmt::Display for Failure<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n   begins with {:?}", self.why, self.begin)?;
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:3}. {step:?}", index + 1)?;
        }
        Ok(())
    }
}

impl<M: ReferenceStateMachine> Failure<M> {
    /// Without the steps that it does not need, alone or with the next one: proptest tries to leave out each of them once,
    /// and simplifies them later.
    fn shortened(mut self, run: &impl Fn(M::State, &[M::Transition], &dyn Fn()) -> Result<(), String>) -> Self {
        let mut index = 0;
        while index < self.steps.len() {
            let without = |count: usize| {
                let mut steps = self.steps.clone();
                steps.drain(index..steps.len().min(index + count));
                let is_possible = Self::is_possible(self.begin.clone(), &steps);
                let result = if is_possible { run(self.begin.clone(), &steps, &|| {}) } else { Ok(()) };
                result.err().map(|why| (why, steps))
            };
            match without(1).or_else(|| without(2)) {
                Some((why, steps)) => (self.why, self.steps, index) = (why, steps, 0),
                None => index += 1,
            }
        }
        self
    }

    fn is_possible(mut state: M::State, steps: &[M::Transition]) -> bool {
        for step in steps {
            if !M::preconditions(&state, step) {
                return false;
            }
            state = M::apply(state, step);
        }
        true
    }
}

impl Search {
    /// So many, and many more with `HAPAX_THOROUGH`: some minutes of them.
    pub(crate) fn fresh(name: String, few: u32, steps: Range<usize>) -> Self {
        const MANY: u32 = 25;
        let cases = if std::env::var_os("HAPAX_THOROUGH").is_some() { few * MANY } else { few };
        Self { cases, steps, kept_as: Some(name) }
    }

    /// For a control, which must not depend on luck.
    pub(crate) const fn fixed(cases: u32, steps: Range<usize>) -> Self {
        Self { cases, steps, kept_as: None }
    }

    /// Runs them. `run` says at each step that it has begun it, and gives what is broken.
    pub(crate) fn run<M: ReferenceStateMachine>(
        &self,
        run: impl Fn(M::State, &[M::Transition], &dyn Fn()) -> Result<(), String>,
    ) -> Result<(), Failure<M>> {
        const SHRINKS_MAX: u32 = 4000;
        let config =
            Config { cases: self.cases, max_shrink_iters: SHRINKS_MAX, failure_persistence: None, ..Config::default() };
        let mut runner = match &self.kept_as {
            Some(name) => {
                let file: &'static str = Box::leak(format!("proptest-regressions/{name}.txt").into_boxed_str());
                let kept = FileFailurePersistence::Direct(file);
                TestRunner::new(Config { failure_persistence: Some(Box::new(kept)), ..config })
            }
            None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
        };
        let result = runner.run(&M::sequential_strategy(self.steps.clone()), |(begin, steps, begun)| {
            let begin_step = || {
                if let Some(begun) = &begun {
                    begun.fetch_add(1, Ordering::SeqCst);
                }
            };
            run(begin, &steps, &begin_step).map_err(TestCaseError::fail)
        });
        match result {
            Ok(()) => Ok(()),
            Err(TestError::Fail(why, (begin, steps, _))) => {
                Err(Failure { why: why.to_string(), begin, steps }.shortened(&run))
            }
            Err(TestError::Abort(why)) => panic!("void: {why}"),
        }
    }
}
