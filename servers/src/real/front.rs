//! Cosmos DB's client library is built without TLS, since its own would bring another library along. So TLS to the service is spoken here.

use std::{convert::Infallible, io};

use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, Version,
    body::{Bytes, Incoming},
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, TE, TRANSFER_ENCODING, UPGRADE},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use object_store::client::{HttpRequest, HttpService};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::objects::Http;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// What belongs to one connection and not to the next.
const OF_THE_CONNECTION: [HeaderName; 7] = [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE];

/// What stands before an account of Cosmos DB and speaks TLS to it, until the process ends. The client library takes plain HTTP on this
/// host, signs neither host nor port, and with TLS of its own it would bring another library along. The account's regions all have this
/// address then, so that one of several is what the account's own address leads to.
#[derive(Debug, Clone)]
pub struct Front {
    url: String,
    account: String,
}

impl Front {
    /// Begins to listen, before the account at `account` (`https://ACCOUNT.documents.azure.com/`, or an emulator's address).
    ///
    /// # Errors
    /// There is no port or thread to be had.
    pub fn start(account: &str) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let front = Self { url, account: account.trim_end_matches('/').to_owned() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = front.clone();
        std::thread::Builder::new().name("front".into()).spawn(move || {
            // Without a listener every request fails, and says so.
            runtime
                .block_on(async move { TcpListener::from_std(listener).map(|listener| serving.serve(listener))?.await })
        })?;
        Ok(front)
    }

    /// Where the client library finds it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether anybody answers behind it, whatever the answer.
    ///
    /// # Errors
    /// There is no such host, or it does not prove to be itself.
    pub async fn reach(&self) -> Result<(), AnyError> {
        let mut request = HttpRequest::new(Bytes::new().into());
        *request.uri_mut() = format!("{}/", self.account).parse()?;
        Ok(Http.call(request).await.map(drop)?)
    }

    async fn serve(self, listener: TcpListener) -> io::Result<Infallible> {
        loop {
            let (stream, _) = listener.accept().await?;
            let front = self.clone();
            tokio::spawn(async move {
                let forward = service_fn(|request| front.clone().forward(request));
                // What fails ends the connection: whether the service has done it nobody here knows.
                let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), forward).await;
            });
        }
    }

    async fn forward(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, AnyError> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let is_account = parts.method == Method::GET && path == "/";
        parts.uri = format!("{}{path}", self.account).parse()?;
        parts.version = Version::HTTP_11;
        for name in OF_THE_CONNECTION {
            parts.headers.remove(name);
        }
        parts.headers.insert(CONTENT_LENGTH, body.len().into());
        let answer = Http.call(HttpRequest::from_parts(parts, body.into())).await?;
        let (mut parts, body) = answer.into_parts();
        let mut body = body.collect().await?.to_bytes();
        for name in OF_THE_CONNECTION {
            parts.headers.remove(name);
        }
        if is_account && let Some(here) = kept_here(&body, &self.url) {
            body = here.into();
        }
        Ok(Response::from_parts(parts, Full::new(body)))
    }
}

/// What an account says of itself, with `by` as the address of each of its regions, and of none for another protocol. None for what is no
/// account.
fn kept_here(account: &[u8], by: &str) -> Option<String> {
    let mut account: Value = serde_json::from_slice(account).ok()?;
    for locations in ["writableLocations", "readableLocations"] {
        for location in account.get_mut(locations)?.as_array_mut()? {
            location["databaseAccountEndpoint"] = format!("{by}/").into();
        }
    }
    account.as_object_mut()?.retain(|name, _| !name.starts_with("thinClient"));
    Some(account.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_regions_of_an_account_are_all_here() {
        let account = br#"{"id":"a","thinClientReadableLocations":[],"writableLocations":[{"name":"West Europe",
            "databaseAccountEndpoint":"https://a-westeurope.documents.azure.com:443/"}],"readableLocations":[{"name":"West Europe",
            "databaseAccountEndpoint":"https://a-westeurope.documents.azure.com:443/"}]}"#;
        let here = kept_here(account, "http://127.0.0.1:1").unwrap();
        assert!(!here.contains("azure.com") && !here.contains("thinClient"), "{here}");
        assert_eq!(here.matches("http://127.0.0.1:1/").count(), 2, "{here}");
        assert_eq!(kept_here(b"[]", "http://127.0.0.1:1"), None);
    }
}
