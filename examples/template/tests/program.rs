//! The program: what it refuses, and that nothing is made before.

use std::{
    error::Error,
    fs,
    path::Path,
    process::{Command, Output},
};

/// Runs the program in an empty folder: what it says, and how many files it leaves.
fn run(folder: &str, args: &[&str], variable: Option<&str>) -> Result<(Output, usize), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("my-shop-{folder}"));
    if folder.exists() {
        fs::remove_dir_all(&folder)?; // Of a run before.
    }
    fs::create_dir_all(&folder)?;
    let mut program = Command::new(env!("CARGO_BIN_EXE_my-shop"));
    program.current_dir(&folder).args(args).env_remove("DATABASE_URL").env_remove("BROKER_URL");
    program.envs(variable.map(|name| (name, "nowhere")));
    Ok((program.output()?, fs::read_dir(&folder)?.count()))
}

#[test]
fn what_makes_no_sense_ends_with_2_and_makes_no_file() -> Result<(), Box<dyn Error>> {
    for (args, variable, part) in [
        (&["order", "7", "ann", "many"][..], None, "`many` is no number of cups"),
        (&["order", "7"], None, "order ORDER CUSTOMER CUPS"),
        (&["pay", "a\tb"], None, "control character"),
        (&["retry", ""], None, "message id"),
        (&["open"], None, "handles messages until Ctrl-C"),
        (&["letters"], Some("DATABASE_URL"), "go together"),
        (&["letters"], Some("BROKER_URL"), "go together"),
    ] {
        let (output, files) = run("misuse", args, variable)?;
        assert_eq!((output.status.code(), files), (Some(2), 0), "{args:?}: {output:?}");
        assert!(String::from_utf8(output.stderr)?.contains(part), "{args:?} does not say `{part}`");
    }
    Ok(())
}

#[test]
fn a_letter_that_there_is_not_is_neither_retried_nor_given_up() -> Result<(), Box<dyn Error>> {
    for deed in ["retry", "discard"] {
        let (output, _) = run(deed, &[deed, "order-8"], None)?;
        assert_eq!(output.status.code(), Some(1), "{deed}: {output:?}");
        assert!(String::from_utf8(output.stderr)?.contains("there is no letter about message order-8"), "{deed}");
    }
    Ok(())
}
