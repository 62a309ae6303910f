//! Where AWS's own tools find region and credentials, they are found here: nobody has to say them again for tests and examples.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{Credentials, ProvideCredentials, SharedCredentialsProvider, SharedHttpClient},
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use super::AWS;

/// Region, credentials and addresses, as the usual chain of AWS's own tools finds them.
#[derive(Debug, Clone)]
pub struct Aws {
    config: SdkConfig,
    region: Region,
    credentials: Credentials,
}

impl Aws {
    /// Looks for them, for which other services may be asked; the region is the one given, if one is.
    ///
    /// # Errors
    /// What is missing, and where it is looked for.
    pub async fn find(region: Option<&str>) -> Result<Self, String> {
        let mut config = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client());
        if let Some(region) = region {
            config = config.region(Region::new(region.to_owned()));
        }
        let config = config.load().await;
        let Some(region) = config.region().cloned() else {
            return Err(format!(
                "{AWS} asks for AWS itself, and there is no region: set AWS_REGION, or one in your profile"
            ));
        };
        let none = |why: &dyn std::fmt::Display| {
            format!(
                "{AWS} asks for AWS itself, and there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                 AWS_PROFILE, or run where a role is to be had: {why}"
            )
        };
        let provider = config.credentials_provider().ok_or_else(|| none(&"nowhere to look"))?;
        let credentials = provider.provide_credentials().await.map_err(|e| none(&e))?;
        let found = SharedCredentialsProvider::new(credentials.clone());
        let config = config.into_builder().credentials_provider(found).build();
        Ok(Self { config, region, credentials })
    }

    /// The same in another region.
    #[must_use]
    pub fn in_region(self, region: &str) -> Self {
        let region = Region::new(region.to_owned());
        let config = self.config.into_builder().region(region.clone()).build();
        Self { config, region, ..self }
    }

    /// For a client of any of its services.
    #[must_use]
    pub const fn config(&self) -> &SdkConfig {
        &self.config
    }

    /// Where its services are asked for.
    #[must_use]
    pub fn region(&self) -> &str {
        self.region.as_ref()
    }

    /// The credentials alone.
    #[must_use]
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
    }
}

/// A client of DynamoDB with connections of its own: those of another one end with its runtime.
#[must_use]
pub fn dynamodb_client(aws: &Aws) -> Client {
    Client::new(&aws.config.to_builder().http_client(http_client()).build())
}

/// A client of SQS, likewise.
#[must_use]
pub fn sqs_client(aws: &Aws) -> aws_sdk_sqs::Client {
    aws_sdk_sqs::Client::new(&aws.config.to_builder().http_client(http_client()).build())
}

fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}
