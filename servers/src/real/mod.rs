//! The services themselves, in place of their emulators: `HAPAX_AWS=1` asks for DynamoDB, S3 and SQS, `HAPAX_AZURE=1` for Cosmos DB and
//! Azure Blob. They take TLS and credentials, and so the feature `real`.

#[cfg(feature = "real")]
mod aws;
#[cfg(feature = "real")]
mod front;
#[cfg(feature = "real")]
mod tls;

#[cfg(feature = "real")]
pub use aws::{Aws, dynamodb_client, sqs_client};
#[cfg(feature = "real")]
pub use aws_config::SdkConfig;
#[cfg(feature = "real")]
pub use front::Front;
#[cfg(feature = "real")]
pub use tls::encrypted;

/// Asks for the services of AWS.
pub const AWS: &str = "HAPAX_AWS";
/// Asks for the services of Azure.
pub const AZURE: &str = "HAPAX_AZURE";

/// Whether the variable asks for the services themselves.
#[must_use]
pub fn asked(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !matches!(value.trim(), "" | "0"))
}

/// What the variable says, unless it is empty.
#[must_use]
pub fn value(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}
