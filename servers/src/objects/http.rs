//! HTTP for client libraries, whose own way to it brings another library for TLS along. One connection for each request.

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::{Uri, client::conn::http1::handshake, header::HOST, http::uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use object_store::{
    ClientOptions, Result,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// Over TLS where the URL says `https`, which takes the feature `real`; else without.
#[derive(Debug, Clone, Copy)]
pub struct Http;

impl HttpConnector for Http {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(*self))
    }
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        if request.uri().scheme_str() != Some("https") {
            return Plain.call(request).await;
        }
        #[cfg(feature = "real")]
        {
            let stream = connected(&request, 443).await?;
            let host = request.uri().host().unwrap_or_default();
            answered(crate::real::encrypted(host, stream).await.map_err(unreached)?, request).await
        }
        #[cfg(not(feature = "real"))]
        Err(unreached(std::io::Error::other("TLS is not built in: add `--features real`")))
    }
}

/// Without TLS, whatever the URL says.
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
        answered(connected(&request, 80).await?, request).await
    }
}

async fn connected(request: &HttpRequest, port: u16) -> std::result::Result<TcpStream, HttpError> {
    let place = request.uri().authority().map(|authority| (authority.host(), authority.port_u16().unwrap_or(port)));
    let place = place.ok_or_else(|| unreached(std::io::Error::other("a URL without a host")))?;
    TcpStream::connect(place).await.map_err(unreached)
}

fn unreached(error: std::io::Error) -> HttpError {
    HttpError::new(HttpErrorKind::Connect, error)
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
