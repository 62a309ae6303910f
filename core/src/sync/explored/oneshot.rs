//! [`tokio::sync::oneshot`].

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use super::step;

#[derive(Debug)]
pub(crate) struct Sender<T>(oneshot::Sender<T>);

#[derive(Debug)]
pub(crate) struct Receiver<T>(oneshot::Receiver<T>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (Sender(sender), Receiver(receiver))
}

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) -> Result<(), T> {
        step();
        self.0.send(value)
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        step();
        Pin::new(&mut self.0).poll(cx)
    }
}
