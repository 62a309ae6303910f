//! HTTP for clients of the services themselves, with TLS; to emulators without it.

use async_trait::async_trait;
use hapax_servers::objects::{self, answered};
use object_store::{
    ClientOptions, Result,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
};
use tokio::net::TcpStream;

/// One connection for each request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encrypted;

impl HttpConnector for Encrypted {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(*self))
    }
}

#[async_trait]
impl HttpService for Encrypted {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        if request.uri().scheme_str() != Some("https") {
            return objects::Plain.call(request).await;
        }
        let authority = request.uri().authority().expect("a URL with a host").clone();
        let unreached = |e| HttpError::new(HttpErrorKind::Connect, e);
        let place = (authority.host(), authority.port_u16().unwrap_or(443));
        let stream = TcpStream::connect(place).await.map_err(unreached)?;
        answered(hapax_tests::real::encrypted(authority.host(), stream).await.map_err(unreached)?, request).await
    }
}
