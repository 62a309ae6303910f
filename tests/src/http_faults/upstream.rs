use std::{
    io,
    sync::{Mutex, PoisonError},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Asked;

/// What belongs to one connection and not to the next.
const OF_THE_CONNECTION: [header::HeaderName; 5] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::TE, header::EXPECT];

/// The server behind the proxy.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Host and port.
    place: String,
    /// Its URLs in the answer to `GET /`, and what they become.
    replaced: Vec<String>,
    by: String,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Upstream {
    pub(super) fn new(url: &str, by: &str) -> io::Result<Self> {
        let place = url.strip_prefix("http://").map(|place| place.trim_end_matches('/'));
        let place = place.filter(|place| place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()));
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{url} is not http://HOST:PORT"));
        let place = place.ok_or_else(invalid)?.to_owned();
        let mut replaced = vec![format!("http://{place}")];
        if let Some(port) = place.strip_prefix("localhost:") {
            replaced.push(format!("http://127.0.0.1:{port}"));
        }
        Ok(Self { place, replaced, by: by.to_owned(), idle: Mutex::default() })
    }

    /// The server's answer, all of it. None if there was none.
    pub(super) async fn ask(&self, asked: Asked) -> Option<Response<Bytes>> {
        let is_account = asked.method == Method::GET && asked.path == "/";
        let mut request = self.request(asked)?;
        let answer = loop {
            let mut sender = self.connected().await?;
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    let (parts, body) = answer.into_parts();
                    let body = body.collect().await.ok()?.to_bytes();
                    self.idle().push(sender);
                    break Response::from_parts(parts, body);
                }
                // A connection that the server had closed already: nothing was sent.
                Err(mut error) => request = error.take_message()?,
            }
        };
        Some(self.disguised(answer, is_account))
    }

    /// A connection that is free, or a new one.
    async fn connected(&self) -> Option<SendRequest<Full<Bytes>>> {
        loop {
            let idle = self.idle().pop();
            let Some(mut idle) = idle else { break };
            if idle.ready().await.is_ok() {
                return Some(idle);
            }
        }
        let stream = TcpStream::connect(&self.place).await.ok()?;
        let _ = stream.set_nodelay(true); // Slower without it, no worse.
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection); // Its errors are those of its requests.
        Some(sender)
    }

    fn disguised(&self, answer: Response<Bytes>, is_account: bool) -> Response<Bytes> {
        let (mut parts, mut body) = answer.into_parts();
        for name in OF_THE_CONNECTION {
            parts.headers.remove(name);
        }
        if is_account && let Ok(text) = std::str::from_utf8(&body) {
            let text = self.replaced.iter().fold(text.to_owned(), |text, url| text.replace(url, &self.by));
            body = text.into();
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        Response::from_parts(parts, body)
    }

    fn request(&self, asked: Asked) -> Option<Request<Full<Bytes>>> {
        let Asked { method, path, mut headers, body } = asked;
        for name in OF_THE_CONNECTION {
            headers.remove(name);
        }
        // The body is sent as a whole, whatever it came as.
        headers.remove(header::CONTENT_LENGTH);
        // HTTP/2 has it elsewhere.
        if !headers.contains_key(header::HOST) {
            headers.insert(header::HOST, self.place.parse().ok()?);
        }
        let mut request = Request::builder().method(method).uri(path).body(Full::new(body)).ok()?;
        *request.headers_mut() = headers;
        Some(request)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SendRequest<Full<Bytes>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
