//! The server behind the proxy. It tells clients its own addresses, by which they would go round every fault: so those are made the proxy's.

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
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::Asked;

/// What belongs to one connection and not to the next.
const OF_THE_CONNECTION: [header::HeaderName; 5] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::TE, header::EXPECT];

/// The server behind the proxy.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Host and port.
    place: String,
    /// The host alone, where it is asked over TLS.
    over_tls: Option<String>,
    /// Its URLs in the answer to `GET /`, and what they become.
    replaced: Vec<String>,
    by: String,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Upstream {
    pub(super) fn new(url: &str, by: &str) -> io::Result<Self> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, format!("{url} {why}"));
        if let Some(place) = url.strip_prefix("https://") {
            if !cfg!(feature = "real") {
                return Err(invalid("is asked over TLS, which is not built in: add `--features real`"));
            }
            let place = place.trim_end_matches('/');
            let (host, port) = place.rsplit_once(':').unwrap_or((place, "443"));
            let (place, host) = (format!("{host}:{port}"), host.to_owned());
            return Ok(Self {
                place,
                over_tls: Some(host),
                replaced: Vec::new(),
                by: by.to_owned(),
                idle: Mutex::default(),
            });
        }
        let place = url.strip_prefix("http://").map(|place| place.trim_end_matches('/'));
        let place = place.filter(|place| place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()));
        let place = place.ok_or_else(|| invalid("is not http://HOST:PORT"))?.to_owned();
        let mut replaced = vec![format!("http://{place}")];
        if let Some(port) = place.strip_prefix("localhost:") {
            replaced.push(format!("http://127.0.0.1:{port}"));
        }
        Ok(Self { place, over_tls: None, replaced, by: by.to_owned(), idle: Mutex::default() })
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
        match &self.over_tls {
            None => begun(stream).await,
            #[cfg(feature = "real")]
            Some(host) => begun(crate::real::encrypted(host, stream).await.ok()?).await,
            #[cfg(not(feature = "real"))]
            Some(_) => None,
        }
    }

    fn disguised(&self, answer: Response<Bytes>, is_account: bool) -> Response<Bytes> {
        let (mut parts, mut body) = answer.into_parts();
        for name in OF_THE_CONNECTION {
            parts.headers.remove(name);
        }
        if is_account && let Ok(text) = std::str::from_utf8(&body) {
            let text = self.replaced.iter().fold(text.to_owned(), |text, url| text.replace(url, &self.by));
            let text = if self.over_tls.is_some() { kept_here(&text, &self.by).unwrap_or(text) } else { text };
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
        // HTTP/2 has it elsewhere; and a service that others share goes by it.
        if let Some(host) = &self.over_tls {
            headers.insert(header::HOST, host.parse().ok()?);
        } else if !headers.contains_key(header::HOST) {
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

/// A connection on which requests may be sent.
async fn begun(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Option<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection); // Its errors are those of its requests.
    Some(sender)
}

/// What an account of Cosmos DB says of itself, with this proxy as the address of each of its regions; none of those for another
/// protocol. None for what is no account.
fn kept_here(account: &str, by: &str) -> Option<String> {
    let mut account: Value = serde_json::from_str(account).ok()?;
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
        let account = r#"{"id":"a","thinClientReadableLocations":[],"writableLocations":[{"name":"West Europe",
            "databaseAccountEndpoint":"https://a-westeurope.documents.azure.com:443/"}],"readableLocations":[{"name":"West Europe",
            "databaseAccountEndpoint":"https://a-westeurope.documents.azure.com:443/"}]}"#;
        let here = kept_here(account, "http://127.0.0.1:1").unwrap();
        assert!(!here.contains("azure.com") && !here.contains("thinClient"), "{here}");
        assert_eq!(here.matches("http://127.0.0.1:1/").count(), 2, "{here}");
        assert_eq!(kept_here("[]", "http://127.0.0.1:1"), None);
    }

    #[test]
    fn a_service_over_tls_is_known_by_its_host() {
        let upstream = Upstream::new("https://a.documents.azure.com/", "http://127.0.0.1:1");
        match cfg!(feature = "real") {
            true => assert_eq!(upstream.unwrap().place, "a.documents.azure.com:443"),
            false => assert!(upstream.unwrap_err().to_string().contains("--features real")),
        }
    }
}
