//! What may become of a request and of its answer. Of most of them a client sees the same, and a test has to know which it was.

use std::{fmt, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{Response, body::Bytes};
use tokio::sync::watch;

/// What makes another body of one.
pub type Rewrite = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// What becomes of a request.
#[derive(Clone)]
pub enum Fault {
    /// The connection is closed, and the server never sees it. Over HTTP/2 whatever else is under way on the connection
    /// is cut off with it.
    DropRequest,
    /// The server serves it; then the connection is closed without an answer.
    DropAnswer,
    /// It is answered, and the server never sees it.
    Answer(Canned),
    /// The server serves it, and the client is told something else.
    AnswerAfterServed(Canned),
    /// It reaches the server late, though the client has gone by then.
    Delay(Duration),
    /// It reaches the server when the gate is opened, though the client has gone by then.
    Hold(Gate),
    /// The server serves it; the answer comes when the gate is opened.
    HoldAnswer(Gate),
    /// The body of the server's answer is another one; see [`Fault::rewrite`].
    Rewrite(Rewrite),
    /// The server serves it; half of the answer's body arrives, then the connection is closed. An answer without a body
    /// does not arrive at all.
    CutAnswer,
    /// The server is asked with these headers too, say for small pages.
    AskWith(Vec<(String, String)>),
}

impl Fault {
    /// It is answered, say as throttled, and the server never sees it.
    #[must_use]
    pub fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        Self::Answer(Canned::new(status, headers, body))
    }

    /// The server serves it, and the client is told something else.
    #[must_use]
    pub fn answer_after_served(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        Self::AnswerAfterServed(Canned::new(status, headers, body))
    }

    /// The server is asked with these headers and their values too.
    #[must_use]
    pub fn ask_with(headers: &[(&str, &str)]) -> Self {
        Self::AskWith(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// The body of the server's answer goes through `rewrite`, whatever its status. A checksum in `x-amz-crc32` is left
    /// out then.
    #[must_use]
    pub fn rewrite(rewrite: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::Rewrite(Arc::new(rewrite))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropRequest => f.write_str("DropRequest"),
            Self::DropAnswer => f.write_str("DropAnswer"),
            Self::Answer(canned) => f.debug_tuple("Answer").field(canned).finish(),
            Self::AnswerAfterServed(canned) => f.debug_tuple("AnswerAfterServed").field(canned).finish(),
            Self::Delay(by) => f.debug_tuple("Delay").field(by).finish(),
            Self::Hold(_) => f.write_str("Hold"),
            Self::HoldAnswer(_) => f.write_str("HoldAnswer"),
            Self::Rewrite(_) => f.write_str("Rewrite"),
            Self::CutAnswer => f.write_str("CutAnswer"),
            Self::AskWith(headers) => f.debug_tuple("AskWith").field(headers).finish(),
        }
    }
}

/// An answer that no server gave.
#[derive(Debug, Clone)]
pub struct Canned {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Canned {
    /// An answer with these headers and their values; its length is added.
    #[must_use]
    pub fn new(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { status, headers, body: Bytes::from(body.into()) }
    }

    /// None if status or headers are none of HTTP's.
    pub(super) fn response(&self) -> Option<Response<Full<Bytes>>> {
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(name, value);
        }
        let response = response.body(Full::new(self.body.clone()));
        response.inspect_err(|error| eprintln!("http_faults: {self:?} is no answer: {error}")).ok()
    }
}

/// Holds requests until it is opened; its clones are one gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// A gate that is closed.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Lets through what is held, and whatever comes from now on.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn pass(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await; // The sender is this gate's own.
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}
