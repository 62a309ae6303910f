//! Credentials are looked for once in a process, since other services may be asked for them; clients are made for each test, whose runtime their
//! connections end with.

use std::{future::Future, sync::OnceLock};

use aws_sdk_dynamodb::{Client, config::Credentials};
use hapax_servers::real::{self, Aws, SdkConfig};

/// Looked for once: it may ask other services.
fn found() -> &'static Aws {
    static FOUND: OnceLock<Aws> = OnceLock::new();
    FOUND.get_or_init(|| apart(Aws::find(None)).unwrap_or_else(|missing| panic!("{missing}")))
}

/// Region, credentials and addresses for a client of any of its services.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn config() -> &'static SdkConfig {
    found().config()
}

/// The credentials alone.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn credentials() -> &'static Credentials {
    found().credentials()
}

/// A client of DynamoDB with connections of its own: those of another test end with its runtime.
///
/// # Panics
/// When there are no region and credentials.
#[must_use]
pub fn dynamodb_client() -> Client {
    real::dynamodb_client(found())
}

/// A client of SQS, likewise.
///
/// # Panics
/// When there are no region and credentials.
#[cfg(feature = "sqs")]
#[must_use]
pub fn sqs_client() -> aws_sdk_sqs::Client {
    real::sqs_client(found())
}

/// On a runtime and a thread of its own, whatever runs on this one.
pub(super) fn apart<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(future)
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
