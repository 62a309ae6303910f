//! Another library's program: it makes what it needs, says `ready`, begins when it is told `go`, and says in one line of JSON
//! what it has done.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use serde::de::DeserializeOwned;

use crate::AnyError;

/// So long may it say nothing: one that hangs is not to hold up the others.
const SILENT_MAX: Duration = Duration::from_mins(10);

/// One that runs; it ends with the guard.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<std::io::Result<String>>,
    pub(crate) input: ChildStdin,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Result<Self, AnyError> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("{} cannot be run: {e}", command.get_program().to_string_lossy()))?;
        let (Some(input), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a program without input and output".into());
        };
        let (said, lines) = channel();
        std::thread::spawn(move || BufReader::new(out).lines().try_for_each(|line| said.send(line)));
        Ok(Self { child, lines, input })
    }

    /// Waits until it has all that it needs to begin.
    pub(crate) fn ready(&mut self) -> Result<(), AnyError> {
        match self.line()?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("it said `{other}` instead of `ready`").into()),
        }
    }

    /// Lets it run, and reads what it has done.
    pub(crate) fn measured<R: DeserializeOwned>(mut self) -> Result<R, AnyError> {
        self.input.write_all(b"go\n")?;
        let line = self.line()?;
        Ok(serde_json::from_str(&line).map_err(|e| format!("it said `{line}` instead of its report: {e}"))?)
    }

    fn line(&mut self) -> Result<String, AnyError> {
        match self.lines.recv_timeout(SILENT_MAX) {
            Ok(line) => Ok(line?.trim_end().to_owned()),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("it said nothing for {} s and was ended", SILENT_MAX.as_secs()).into())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("it ended with {} before it was done; what it said is above", self.child.wait()?).into())
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shell(text: &str) -> Program {
        Program::start(Command::new("sh").args(["-c", text])).unwrap()
    }

    #[test]
    fn a_program_is_ready_and_then_reports() {
        let mut program = shell("echo ready; read go; echo \"[\\\"$go\\\"]\"");
        program.ready().unwrap();
        assert_eq!(program.measured::<Vec<String>>().unwrap(), ["go"]);
    }

    #[test]
    fn a_program_that_ends_early_or_says_something_else_is_told_of() {
        assert!(shell("exit 3").ready().unwrap_err().to_string().contains('3'));
        assert!(shell("echo hello").ready().unwrap_err().to_string().contains("hello"));
        let missing = Program::start(&mut Command::new("no-such-program-of-hapax")).err().unwrap().to_string();
        assert!(missing.contains("no-such-program-of-hapax"), "{missing}");
    }
}
