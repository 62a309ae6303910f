//! Buckets and containers of the services themselves: made for one test, and removed when its thread ends.

use std::sync::Arc;

use futures_util::TryStreamExt;
use hapax_tests::real::{self, AZURE};
use http_body_util::BodyExt;
use hyper::http::Request;
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, StaticCredentialProvider,
    aws::{AmazonS3Builder, AwsAuthorizer, AwsCredential},
    azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, MicrosoftAzureBuilder},
    client::{HttpRequest, HttpService},
};

use crate::encrypted::Encrypted;

/// Whose objects they are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Service {
    S3,
    AzureBlob,
}

impl Service {
    /// Makes a place of this name, which the clients cannot, and has it removed later.
    pub(crate) async fn make(self, name: &str) {
        let body = match self {
            // The one region that is not to be named.
            Self::S3 if region() != "us-east-1" => {
                let region = format!("<LocationConstraint>{}</LocationConstraint>", region());
                format!("<CreateBucketConfiguration>{region}</CreateBucketConfiguration>")
            }
            _ => String::new(),
        };
        self.ask("PUT", name, body).await.unwrap_or_else(|why| panic!("making {name}: {why}"));
        let name = name.to_owned();
        real::remove_later(format!("{name} in {self:?}"), move || async move {
            let failed = |error: object_store::Error| error.to_string();
            let objects = self.client(&name);
            let left: Vec<ObjectMeta> = objects.list(None).try_collect().await.map_err(failed)?;
            for object in left {
                objects.delete(&object.location).await.map_err(failed)?;
            }
            self.ask("DELETE", &name, String::new()).await
        });
    }

    /// A client with connections of its own.
    pub(crate) fn client(self, name: &str) -> Arc<dyn ObjectStore> {
        let url = self.url();
        let plain = url.starts_with("http://");
        match self {
            Self::S3 => {
                let client = AmazonS3Builder::new().with_endpoint(url).with_allow_http(plain).with_region(region());
                let client = client.with_credentials(Arc::new(StaticCredentialProvider::new(aws())));
                Arc::new(client.with_bucket_name(name).with_http_connector(Encrypted).build().unwrap())
            }
            Self::AzureBlob => {
                let client = MicrosoftAzureBuilder::new().with_endpoint(url).with_allow_http(plain);
                let client = client.with_account(account()).with_access_key(account_key());
                Arc::new(client.with_container_name(name).with_http_connector(Encrypted).build().unwrap())
            }
        }
    }

    fn url(self) -> String {
        let of = |variable: &str| std::env::var(variable).ok().filter(|url| !url.is_empty());
        let url = match self {
            Self::S3 => of("AWS_ENDPOINT_URL_S3").unwrap_or_else(|| format!("https://s3.{}.amazonaws.com", region())),
            Self::AzureBlob => of("HAPAX_AZURE_BLOB_ENDPOINT")
                .unwrap_or_else(|| format!("https://{}.blob.core.windows.net", account())),
        };
        url.trim_end_matches('/').to_owned()
    }

    /// Asks for a bucket or container itself.
    async fn ask(self, method: &str, name: &str, body: String) -> Result<(), String> {
        let query = if matches!(self, Self::AzureBlob) { "?restype=container" } else { "" };
        let request = Request::builder().method(method).uri(format!("{}/{name}{query}", self.url()));
        let request = request.header("content-length", body.len());
        let mut request: HttpRequest = request.body(body.into()).map_err(|e| e.to_string())?;
        match self {
            Self::S3 => AwsAuthorizer::new(&aws(), "s3", &region()).try_authorize(&mut request, None),
            Self::AzureBlob => {
                let key = AzureAccessKey::try_new(&account_key()).map_err(|e| e.to_string())?;
                AzureAuthorizer::new(&AzureCredential::AccessKey(key), &account()).try_authorize(&mut request)
            }
        }
        .map_err(|e| e.to_string())?;
        let answer = Encrypted.call(request).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let said = answer.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
        let said = String::from_utf8_lossy(&said).into_owned();
        if status.is_success() { Ok(()) } else { Err(format!("{status}: {said}")) }
    }
}

fn region() -> String {
    real::config().region().expect("looked for").to_string()
}

fn aws() -> AwsCredential {
    let found = real::credentials();
    AwsCredential {
        key_id: found.access_key_id().to_owned(),
        secret_key: found.secret_access_key().to_owned(),
        token: found.session_token().map(str::to_owned),
    }
}

fn account() -> String {
    real::needed(AZURE, "HAPAX_AZURE_BLOB_ACCOUNT", "the name of a storage account")
}

fn account_key() -> String {
    real::needed(AZURE, "HAPAX_AZURE_BLOB_KEY", "a key of the storage account")
}
