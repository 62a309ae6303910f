//! The services themselves, in place of their emulators: `HAPAX_AWS=1` asks for DynamoDB, S3 and SQS, `HAPAX_AZURE=1` for Cosmos DB,
//! Azure's blobs and Service Bus. They take TLS and credentials, and so the feature `real`; what tests make there has names that begin with
//! `hapax-t-` and is removed when the test is over.

use std::process::Command;

#[cfg(feature = "real")]
mod aws;
#[cfg(feature = "real")]
mod leftovers;

#[cfg(all(feature = "real", feature = "sqs"))]
pub use aws::sqs_client;
#[cfg(feature = "real")]
pub use aws::{config, credentials, dynamodb_client};
#[cfg(feature = "real")]
pub use hapax_servers::real::encrypted;
pub use hapax_servers::real::{AWS, AZURE};
#[cfg(feature = "real")]
pub use leftovers::remove_later;

/// Whether the variable asks for the services themselves.
///
/// # Panics
/// When it does, and the tests were built without what that takes.
#[must_use]
pub fn is_asked(variable: &str) -> bool {
    let asked = hapax_servers::real::asked(variable);
    let built = cfg!(feature = "real");
    assert!(!asked || built, "{variable} asks for the service itself, and TLS is not built in: add `--features real`");
    asked
}

/// What one of the other variables says, which a service takes.
///
/// # Panics
/// When it says nothing.
#[must_use]
pub fn needed(asked_by: &str, variable: &str, what: &str) -> String {
    let value = hapax_servers::real::value(variable);
    value.unwrap_or_else(|| panic!("{asked_by} asks for the service itself: set {variable} to {what}"))
}

/// What this test program says where it runs one of its tests, which is to fail, with these variables and with none of those that
/// say where services are and who asks.
///
/// # Panics
/// When the test passes.
#[must_use]
pub fn refusal(test: &str, variables: &[(&str, &str)]) -> String {
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", test, "--nocapture"]);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("AWS_") || name.starts_with("HAPAX_A")) {
            program.env_remove(name);
        }
    }
    // Neither a machine of theirs nor a user's own files.
    program.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_CONFIG_FILE", "/dev/null");
    program.env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null").envs(variables.iter().copied());
    let output = program.output().expect("this program, once more");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(said.contains("running 1 test") && !output.status.success(), "{test} {variables:?}: {said}");
    said
}

/// Runs the test with one more of the variables each time, and expects each time to be told of the next thing that is missing.
///
/// # Panics
/// When it is not told.
pub fn expect_refusals(test: &str, variables: &[(&str, &str)], missing: &[&str]) {
    for (given, missing) in (1..).zip(missing) {
        let said = refusal(test, &variables[..given]);
        let missing = if cfg!(feature = "real") { missing } else { "add `--features real`" };
        assert!(said.contains(missing), "{:?}: {said}", &variables[..given]);
    }
}
