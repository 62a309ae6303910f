//! What a rule goes by when it chooses: the whole of one request, since nothing becomes of it before it is read.

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{HeaderName, HeaderValue},
    http::request::Parts,
};

/// One request, as the proxy read it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Asked {
    pub(super) fn new(parts: Parts, body: Bytes) -> Self {
        let path = parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        Self { method: parts.method, path, headers: parts.headers, body }
    }

    /// Sets a header; one that is none of HTTP's is said.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        match (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            (Ok(name), Ok(value)) => drop(self.headers.insert(name, value)),
            _ => eprintln!("http_faults: `{name}: {value}` is no header"),
        }
    }

    /// The method, say `PUT`.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// The path and, behind a question mark, the query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The header of that name, whatever its case; none if it is no text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// What AWS is asked to do, with its version: say `DynamoDB_20120810.PutItem`.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        self.header("x-amz-target")
    }

    /// The same without the version: say `PutItem`.
    #[must_use]
    pub fn operation(&self) -> Option<&str> {
        self.target()?.rsplit('.').next()
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}
