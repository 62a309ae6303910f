//! A bucket or container of object storage: in an emulator (Azurite for Azure Blob, moto for S3), over HTTP without TLS; or in the service
//! itself.

mod account;
mod http;

use std::{fmt, sync::Arc};

pub use account::Account;
use futures_util::{TryStreamExt, stream};
pub use http::{Http, Plain, answered};
use http_body_util::BodyExt;
use object_store::{
    ObjectStore, Result,
    client::{HttpRequest, HttpService},
};

use crate::Cloud;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// How services say that there is none: the clients have no kind of error for it.
const NO_PLACE: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// One bucket or container.
#[derive(Debug, Clone)]
pub struct Bucket {
    account: Account,
    name: String,
}

impl Bucket {
    /// The one of this name in the emulator at `url` (`http://HOST:PORT`). It needs not be there.
    #[must_use]
    pub fn new(cloud: Cloud, url: &str, name: &str) -> Self {
        Self::of(Account::emulator(cloud, url), name)
    }

    /// The one of this name that belongs to `account`. It needs not be there.
    #[must_use]
    pub fn of(account: Account, name: &str) -> Self {
        Self { account, name: name.to_owned() }
    }

    /// Who keeps it.
    #[must_use]
    pub const fn cloud(&self) -> Cloud {
        self.account.cloud()
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the emulator is, or the service.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.account.url
    }

    /// A client with connections of its own, and credentials.
    ///
    /// # Errors
    /// The URL or the name is none.
    pub fn client(&self) -> Result<Arc<dyn ObjectStore>> {
        self.account.client(&self.name)
    }

    /// Makes it, which the clients cannot.
    ///
    /// # Errors
    /// Nobody answers, or it is refused.
    pub async fn make(&self) -> std::result::Result<(), AnyError> {
        self.ask("PUT", self.account.location()).await
    }

    /// Whether it is there.
    ///
    /// # Errors
    /// Nobody answers, or it is refused.
    pub async fn is_there(&self) -> Result<bool> {
        found(self.client()?.list(None).try_next().await).map(|found| found.is_some())
    }

    /// Removes it with its objects, if it is there.
    ///
    /// # Errors
    /// Nobody answers, or it is refused.
    pub async fn remove(&self) -> std::result::Result<(), AnyError> {
        let client = self.client()?;
        let listed = client.list(None).map_ok(|object| object.location).try_collect::<Vec<_>>().await;
        let Some(objects) = found(listed)? else { return Ok(()) };
        client.delete_stream(Box::pin(stream::iter(objects.into_iter().map(Ok)))).try_collect::<Vec<_>>().await?;
        self.ask("DELETE", String::new()).await
    }

    async fn ask(&self, method: &str, body: String) -> std::result::Result<(), AnyError> {
        let query = if self.cloud() == Cloud::AzureBlob { "?restype=container" } else { "" };
        let url = format!("{}/{}{query}", self.account.root, self.name).parse()?;
        let length = body.len();
        let mut request = HttpRequest::new(body.into());
        (*request.method_mut(), *request.uri_mut()) = (method.parse()?, url);
        request.headers_mut().insert("content-length", length.into());
        self.account.sign(&mut request)?;
        let answer = Http.call(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let said = answer.into_body().collect().await?.to_bytes();
        Err(format!("{method} was answered {status}: {}", String::from_utf8_lossy(&said)).into())
    }
}

/// What was listed, if there is a bucket or container.
fn found<T>(listed: Result<T>) -> Result<Option<T>> {
    match listed {
        Err(e) if NO_PLACE.iter().any(|words| e.to_string().contains(words)) => Ok(None),
        listed => listed.map(Some),
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.account.url)
    }
}
