//! Reads the lines of a test runner: what passed, what failed, and under which name.

/// Sums over all test runs of a command.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// What the runners have said so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) totals: Totals,
    /// Full names of the tests that passed, with the program they are in.
    pub(crate) passed: Vec<String>,
    /// The test program whose results come now; cargo test names it once, above them.
    program: String,
}

/// Who prints the lines. nextest shows what a failed test printed, a whole run of the standard runner; so one must not be
/// read as the other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Runner {
    Nextest,
    CargoTest,
}

impl Seen {
    /// Takes note of one line, free of colours.
    pub(crate) fn line(&mut self, runner: Runner, line: &str) {
        match runner {
            Runner::Nextest => self.nextest(line.trim_start()),
            Runner::CargoTest => self.cargo_test(line),
        }
    }

    fn nextest(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("PASS [") {
            self.passed.push(test.to_owned());
        } else if let Some((_, counts)) = line.strip_prefix("Summary [").and_then(|rest| rest.split_once(" run: ")) {
            self.count(counts);
        }
    }

    fn cargo_test(&mut self, line: &str) {
        let headings = ["Running ", "Doc-tests "];
        if let Some(program) = headings.iter().find_map(|heading| line.trim_start().strip_prefix(heading)) {
            self.program = program.to_owned();
        } else if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... ok")) {
            self.passed.push(format!("{} {test}", self.program));
        } else if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) {
            self.count(counts);
        }
    }

    /// Adds the counts of a closing line: `3 passed; 0 failed; ...` or `3 passed (1 slow), 1 timed out, ...`.
    fn count(&mut self, counts: &str) {
        for (count, word) in counts.split([',', ';']).filter_map(|part| part.trim().split_once(' ')) {
            let Ok(count) = count.parse::<u64>() else { continue };
            match word.split(" (").next().unwrap_or_default() {
                "passed" => self.totals.passed += count,
                // nextest counts what ran out of time or could not start apart from what failed.
                "failed" | "timed out" | "exec failed" => self.totals.failed += count,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(runner: Runner, output: &str) -> Seen {
        let mut seen = Seen::default();
        output.lines().for_each(|line| seen.line(runner, line));
        seen
    }

    #[test]
    fn nextest_is_understood() {
        let output = "\
        PASS [   0.004s] ( 1/14) hapax-stores memory::tests::a_late_twin_is_not_handled_again
        FAIL [   0.010s] ( 2/14) hapax-stores memory::tests::whole
     Summary [   0.1s] 14 tests run: 11 passed (1 slow, 2 flaky), 2 failed, 1 timed out, 3 skipped
        FAIL [   0.010s] ( 2/14) hapax-stores memory::tests::whole";
        let seen = seen(Runner::Nextest, output);
        assert_eq!(seen.totals, Totals { passed: 11, failed: 3 });
        assert_eq!(seen.passed.len(), 1);
        assert!(seen.passed[0].contains("memory::tests::a_late_twin"));
    }

    #[test]
    fn a_single_test_is_understood() {
        let output = "     Summary [   0.0s] 1 test run: 1 passed, 0 skipped";
        assert_eq!(seen(Runner::Nextest, output).totals, Totals { passed: 1, failed: 0 });
    }

    #[test]
    fn a_failed_test_that_nextest_shows_is_counted_once() {
        let output = "\
  stdout ───
    test whole ... FAILED
    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 17 filtered out; finished in 0.29s
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 17 filtered out; finished in 0.29s
     Summary [   0.3s] 1 test run: 0 passed, 1 failed, 0 skipped";
        assert_eq!(seen(Runner::Nextest, output).totals, Totals { passed: 0, failed: 1 });
    }

    #[test]
    fn cargo_test_is_understood() {
        let output = "\
     Running tests/sqlite.rs (target/debug/deps/sqlite-0123456789abcdef)
test whole ... ok
test guarded ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests hapax_core
test core/src/lib.rs - (line 9) ... ok
test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.40s";
        let seen = seen(Runner::CargoTest, output);
        assert_eq!(seen.totals, Totals { passed: 2, failed: 1 });
        assert!(seen.passed[0].starts_with("tests/sqlite.rs") && seen.passed[0].ends_with("whole"));
        assert!(seen.passed[1].starts_with("hapax_core"));
    }

    #[test]
    fn a_line_of_the_tested_program_is_no_result() {
        let output = "test result of the tea: good\nSummary [of a day\ntest of tea ... fine\n  12 passed, 3 failed";
        for runner in [Runner::Nextest, Runner::CargoTest] {
            assert_eq!(seen(runner, output).totals, Totals::default(), "{runner:?}");
        }
    }
}
