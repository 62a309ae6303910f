//! Emulator and service differ in addresses, regions and keys, and in nothing that is done with buckets: that difference is kept here.

use std::{fmt, sync::Arc};

use object_store::{
    ObjectStore, Result, StaticCredentialProvider,
    aws::{AmazonS3Builder, AwsAuthorizer, AwsCredential},
    azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, MicrosoftAzureBuilder},
    client::HttpRequest,
};

use super::Http;
use crate::Cloud;

/// The account that every Azurite has, and its key.
const AZURITE: &str = "devstoreaccount1";
const AZURITE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// The one region that is not named where a bucket is made.
const UNNAMED_REGION: &str = "us-east-1";

/// Whose buckets or containers they are, where those are asked for, and with what.
#[derive(Debug, Clone)]
pub struct Account {
    /// As a person has named the place.
    pub(super) url: String,
    /// What names of buckets are appended to.
    pub(super) root: String,
    keys: Keys,
}

#[derive(Clone)]
enum Keys {
    S3 { region: String, credential: Arc<AwsCredential> },
    AzureBlob { account: String, key: String },
}

impl Account {
    /// The one that everybody has in the emulator at `url` (`http://HOST:PORT`).
    #[must_use]
    pub fn emulator(cloud: Cloud, url: &str) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let any = || "any".to_owned();
        match cloud {
            Cloud::S3 => {
                let credential = Arc::new(AwsCredential { key_id: any(), secret_key: any(), token: None });
                Self { root: url.clone(), url, keys: Keys::S3 { region: UNNAMED_REGION.into(), credential } }
            }
            Cloud::AzureBlob => {
                let keys = Keys::AzureBlob { account: AZURITE.into(), key: AZURITE_KEY.into() };
                Self { root: format!("{url}/{AZURITE}"), url, keys }
            }
        }
    }

    /// In S3 itself, or where `AWS_ENDPOINT_URL_S3` says it is.
    #[cfg(feature = "real")]
    #[must_use]
    pub fn s3(aws: &crate::real::Aws) -> Self {
        let region = aws.region().to_owned();
        let url = crate::real::value("AWS_ENDPOINT_URL_S3");
        let url = url.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let found = aws.credentials();
        let credential = AwsCredential {
            key_id: found.access_key_id().to_owned(),
            secret_key: found.secret_access_key().to_owned(),
            token: found.session_token().map(str::to_owned),
        };
        Self::at(&url, Keys::S3 { region, credential: Arc::new(credential) })
    }

    /// In Azure Blob itself, or at `endpoint`, with a key of the account.
    #[cfg(feature = "real")]
    #[must_use]
    pub fn azure_blob(account: &str, key: &str, endpoint: Option<&str>) -> Self {
        let usual = || format!("https://{account}.blob.core.windows.net");
        let url = endpoint.map_or_else(usual, str::to_owned);
        Self::at(&url, Keys::AzureBlob { account: account.to_owned(), key: key.to_owned() })
    }

    #[cfg(feature = "real")]
    fn at(url: &str, keys: Keys) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        Self { root: url.clone(), url, keys }
    }

    /// Who keeps them.
    #[must_use]
    pub const fn cloud(&self) -> Cloud {
        match self.keys {
            Keys::S3 { .. } => Cloud::S3,
            Keys::AzureBlob { .. } => Cloud::AzureBlob,
        }
    }

    /// A client of the bucket or container of this name, with connections of its own.
    pub(super) fn client(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        let plain = self.root.starts_with("http://");
        Ok(match &self.keys {
            Keys::S3 { region, credential } => {
                let client = AmazonS3Builder::new().with_endpoint(&self.root).with_allow_http(plain);
                // Not the keys alone: what is temporary has a token too.
                let found = AwsCredential {
                    key_id: credential.key_id.clone(),
                    secret_key: credential.secret_key.clone(),
                    token: credential.token.clone(),
                };
                let client =
                    client.with_region(region).with_credentials(Arc::new(StaticCredentialProvider::new(found)));
                Arc::new(client.with_bucket_name(name).with_http_connector(Http).build()?)
            }
            Keys::AzureBlob { account, key } => {
                let client = MicrosoftAzureBuilder::new().with_endpoint(self.root.clone()).with_allow_http(plain);
                let client = client.with_account(account).with_access_key(key);
                Arc::new(client.with_container_name(name).with_http_connector(Http).build()?)
            }
        })
    }

    /// Adds to `request` what shows that it may be asked.
    pub(super) fn sign(&self, request: &mut HttpRequest) -> Result<()> {
        match &self.keys {
            Keys::S3 { region, credential } => {
                AwsAuthorizer::new(credential, "s3", region).try_authorize(request, None)
            }
            Keys::AzureBlob { account, key } => {
                let key = AzureCredential::AccessKey(AzureAccessKey::try_new(key)?);
                AzureAuthorizer::new(&key, account).try_authorize(request)
            }
        }
    }

    /// What a request says that makes a bucket or container.
    pub(super) fn location(&self) -> String {
        match &self.keys {
            Keys::S3 { region, .. } if region != UNNAMED_REGION => {
                let region = format!("<LocationConstraint>{region}</LocationConstraint>");
                format!("<CreateBucketConfiguration>{region}</CreateBucketConfiguration>")
            }
            _ => String::new(),
        }
    }
}

impl fmt::Debug for Keys {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { region, .. } => f.debug_struct("S3").field("region", region).finish_non_exhaustive(),
            Self::AzureBlob { account, .. } => {
                f.debug_struct("AzureBlob").field("account", account).finish_non_exhaustive()
            }
        }
    }
}
