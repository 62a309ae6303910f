//! HTTP without TLS for the clients of emulators: the client libraries' own way brings TLS along. With the feature `real` this one does
//! too, for the services themselves.

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
        let authority = request.uri().authority().expect("a URL with a host").clone();
        let over_tls = request.uri().scheme_str() == Some("https");
        let place = (authority.host(), authority.port_u16().unwrap_or(if over_tls { 443 } else { 80 }));
        let unreached = |e| HttpError::new(HttpErrorKind::Connect, e);
        let stream = TcpStream::connect(place).await.map_err(unreached)?;
        let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
        request.headers_mut().insert(HOST, authority.as_str().parse().expect("a host is a header"));
        if !over_tls {
            return answered(stream, request).await;
        }
        #[cfg(feature = "real")]
        return answered(hapax_tests::real::encrypted(authority.host(), stream).await.map_err(unreached)?, request)
            .await;
        #[cfg(not(feature = "real"))]
        panic!("TLS is not built in: add `--features real`");
    }
}

async fn answered(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: HttpRequest,
) -> std::result::Result<HttpResponse, HttpError> {
    let cut = |e: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, e);
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(cut)?;
    tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await.map_err(cut)?.into_parts();
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(cut))))
}
