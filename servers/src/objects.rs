//! A bucket or container of object storage in an emulator: Azurite for Azure Blob, moto for S3, over HTTP without TLS.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::{TryStreamExt, stream};
use http_body_util::BodyExt;
use hyper::{Uri, client::conn::http1::handshake, header::HOST, http::uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use object_store::{
    ClientOptions, ObjectStore, Result,
    aws::AmazonS3Builder,
    azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, MicrosoftAzureBuilder},
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::Cloud;

/// The account that every Azurite has, and its key.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// One bucket or container.
#[derive(Debug, Clone)]
pub struct Bucket {
    cloud: Cloud,
    url: String,
    name: String,
}

impl Bucket {
    /// The one of this name in the emulator at `url` (`http://HOST:PORT`). It needs not be there.
    #[must_use]
    pub fn new(cloud: Cloud, url: &str, name: &str) -> Self {
        Self { cloud, url: url.trim_end_matches('/').to_owned(), name: name.to_owned() }
    }

    /// Who keeps it.
    #[must_use]
    pub const fn cloud(&self) -> Cloud {
        self.cloud
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the emulator is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client with connections of its own, and the credentials that the emulator takes.
    ///
    /// # Errors
    /// The URL or the name is none.
    pub fn client(&self) -> Result<Arc<dyn ObjectStore>> {
        Ok(match self.cloud {
            Cloud::S3 => {
                let client = AmazonS3Builder::new().with_endpoint(self.root()).with_allow_http(true);
                let client = client.with_region("us-east-1").with_access_key_id("any").with_secret_access_key("any");
                Arc::new(client.with_bucket_name(&self.name).with_http_connector(Plain).build()?)
            }
            Cloud::AzureBlob => {
                let client = MicrosoftAzureBuilder::new().with_endpoint(self.root()).with_allow_http(true);
                let client = client.with_account(ACCOUNT).with_access_key(KEY);
                Arc::new(client.with_container_name(&self.name).with_http_connector(Plain).build()?)
            }
        })
    }

    /// Makes it, which the clients cannot.
    ///
    /// # Errors
    /// The emulator does not answer, or refuses.
    pub async fn make(&self) -> std::result::Result<(), AnyError> {
        self.ask("PUT").await
    }

    /// Removes it with its objects, if it is there.
    ///
    /// # Errors
    /// The emulator does not answer, or refuses.
    pub async fn remove(&self) -> std::result::Result<(), AnyError> {
        let client = self.client()?;
        let found = match client.list(None).map_ok(|object| object.location).try_collect::<Vec<_>>().await {
            Err(object_store::Error::NotFound { .. }) => return Ok(()),
            found => found?,
        };
        client.delete_stream(Box::pin(stream::iter(found.into_iter().map(Ok)))).try_collect::<Vec<_>>().await?;
        self.ask("DELETE").await
    }

    fn root(&self) -> String {
        match self.cloud {
            Cloud::S3 => self.url.clone(),
            Cloud::AzureBlob => format!("{}/{ACCOUNT}", self.url),
        }
    }

    async fn ask(&self, method: &str) -> std::result::Result<(), AnyError> {
        let query = if self.cloud == Cloud::AzureBlob { "?restype=container" } else { "" };
        let url = format!("{}/{}{query}", self.root(), self.name).parse()?;
        let mut request = HttpRequest::new(String::new().into());
        (*request.method_mut(), *request.uri_mut()) = (method.parse()?, url);
        request.headers_mut().insert("content-length", "0".parse()?);
        if self.cloud == Cloud::AzureBlob {
            let key = AzureCredential::AccessKey(AzureAccessKey::try_new(KEY)?);
            AzureAuthorizer::new(&key, ACCOUNT).try_authorize(&mut request)?;
        }
        let status = Plain.call(request).await?.status();
        if status.is_success() { Ok(()) } else { Err(format!("{method} was answered {status}").into()) }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.url)
    }
}

/// HTTP without TLS for the client libraries, whose own way brings TLS along. One connection for each request.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl HttpConnector for Plain {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(*self))
    }
}

#[async_trait]
impl HttpService for Plain {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let place = request.uri().authority().map(|authority| (authority.host(), authority.port_u16().unwrap_or(80)));
        let unreached = |e| HttpError::new(HttpErrorKind::Connect, e);
        let place = place.ok_or_else(|| unreached(std::io::Error::other("a URL without a host")))?;
        let stream = TcpStream::connect(place).await.map_err(unreached)?;
        answered(stream, request).await
    }
}

/// What whoever is at the other end of `stream` answers to `request`.
///
/// # Errors
/// The connection ends.
pub async fn answered(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    mut request: HttpRequest,
) -> std::result::Result<HttpResponse, HttpError> {
    let cut = |e: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, e);
    let host = request.uri().authority().and_then(|authority| authority.as_str().parse().ok());
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
    let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(cut)?;
    tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await.map_err(cut)?.into_parts();
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(cut))))
}
