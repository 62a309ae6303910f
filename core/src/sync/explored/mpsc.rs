//! [`tokio::sync::mpsc`], where a message has a place before it is in it, as within tokio.

use tokio::sync::mpsc;
pub(crate) use tokio::sync::mpsc::error;

use super::step;

#[derive(Debug)]
pub(crate) struct Sender<T>(mpsc::Sender<T>);

#[derive(Debug)]
pub(crate) struct Receiver<T>(mpsc::Receiver<T>);

/// A place.
#[derive(Debug)]
pub(crate) struct Permit<'s, T>(mpsc::Permit<'s, T>);

pub(crate) fn channel<T>(places: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel(places);
    (Sender(sender), Receiver(receiver))
}

impl<T> Sender<T> {
    pub(crate) fn try_send(&self, message: T) -> Result<(), error::TrySendError<T>> {
        step();
        match self.0.try_reserve() {
            Ok(place) => {
                Permit(place).send(message);
                Ok(())
            }
            Err(error::TrySendError::Full(())) => Err(error::TrySendError::Full(message)),
            Err(error::TrySendError::Closed(())) => Err(error::TrySendError::Closed(message)),
        }
    }

    pub(crate) async fn reserve(&self) -> Result<Permit<'_, T>, error::SendError<()>> {
        step();
        self.0.reserve().await.map(Permit)
    }

    pub(crate) fn is_closed(&self) -> bool {
        step();
        self.0.is_closed()
    }
}

impl<T> Permit<'_, T> {
    pub(crate) fn send(self, message: T) {
        step();
        self.0.send(message);
    }
}

impl<T> Receiver<T> {
    pub(crate) async fn recv(&mut self) -> Option<T> {
        step();
        self.0.recv().await
    }

    pub(crate) async fn recv_many(&mut self, into: &mut Vec<T>, most: usize) -> usize {
        step();
        self.0.recv_many(into, most).await
    }

    pub(crate) fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
        step();
        self.0.try_recv()
    }

    pub(crate) fn close(&mut self) {
        step();
        self.0.close();
    }
}
