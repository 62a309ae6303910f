//! An answer that breaks off in its middle: only a body that fails while it is sent makes a server do that.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::body::{Body, Bytes, Frame};

/// The first half of a body, and then an error, at which the connection is closed.
#[derive(Debug)]
pub(super) struct Cut {
    half: Option<Bytes>,
    is_sent: bool,
}

impl Cut {
    pub(super) fn half_of(body: &Bytes) -> Self {
        Self { half: Some(body.slice(..body.len() / 2)), is_sent: false }
    }
}

impl Body for Cut {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(half) = self.half.take() {
            return Poll::Ready(Some(Ok(Frame::data(half))));
        }
        if !self.is_sent {
            // What was given so far is sent before more is asked for.
            self.is_sent = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::ConnectionReset))))
    }
}
