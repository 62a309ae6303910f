use std::{future::Future, sync::OnceLock};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{Credentials, ProvideCredentials, SharedCredentialsProvider, SharedHttpClient},
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use super::AWS;

/// Region and credentials, as the usual chain of AWS's own tools finds them.
struct Found {
    config: SdkConfig,
    credentials: Credentials,
}

/// Looked for once: it may ask other services.
fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| apart(find()))
}

async fn find() -> Found {
    let config = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client()).load().await;
    let region = config.region();
    assert!(
        region.is_some(),
        "{AWS} asks for AWS itself, and there is no region: set AWS_REGION, or one in your profile"
    );
    let provider = config.credentials_provider().expect("a chain of providers");
    let credentials = provider.provide_credentials().await.unwrap_or_else(|error| {
        panic!(
            "{AWS} asks for AWS itself, and there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
             AWS_PROFILE, or run where a role is to be had: {error}"
        )
    });
    let config =
        config.into_builder().credentials_provider(SharedCredentialsProvider::new(credentials.clone())).build();
    Found { config, credentials }
}

/// Region, credentials and addresses for a client of any of its services.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn config() -> &'static SdkConfig {
    &found().config
}

/// The credentials alone.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn credentials() -> &'static Credentials {
    &found().credentials
}

/// A client of DynamoDB with connections of its own: those of another test end with its runtime.
///
/// # Panics
/// When there are no region and credentials.
#[must_use]
pub fn dynamodb_client() -> Client {
    Client::new(&config().to_builder().http_client(http_client()).build())
}

fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}

/// On a runtime and a thread of its own, whatever runs on this one.
pub(super) fn apart<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(future)
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
