//! HTTP without TLS for the clients of emulators: the client libraries' own way brings TLS along.

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
use tokio::net::TcpStream;

/// One connection for each request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain;

impl HttpConnector for Plain {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(*self))
    }
}

#[async_trait]
impl HttpService for Plain {
    async fn call(&self, mut request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let host = request.uri().authority().expect("a URL with a host").to_string();
        let stream = TcpStream::connect(&host).await.map_err(|e| HttpError::new(HttpErrorKind::Connect, e))?;
        let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
        request.headers_mut().insert(HOST, host.parse().expect("a host is a header"));
        let cut = |e: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, e);
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(cut)?;
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.map_err(cut)?.into_parts();
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(cut))))
    }
}
