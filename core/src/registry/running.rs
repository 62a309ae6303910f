//! How a handler runs: within what stands around it, and no longer than its limit.

use std::{any::TypeId, sync::Arc, task::Poll, time::Duration};

use futures_util::{future::BoxFuture, poll};
use tokio::time::timeout;

use super::{Decoded, HandleFn, Stateless};
use crate::{
    around::{self, Last, Layer},
    context::Context,
    handler_error::HandlerError,
};

/// `handle` with `layers` around it; as it is where there are none.
pub(super) fn within<T: Send + 'static>(layers: Arc<[Layer]>, handle: HandleFn<T>) -> HandleFn<T> {
    if layers.is_empty() {
        return handle;
    }
    let stateless = TypeId::of::<T>() == TypeId::of::<Stateless>();
    Arc::new(move |saga: &mut T, message, cx| {
        let (layers, handle) = (layers.clone(), handle.clone());
        Box::pin(async move {
            around::run(&layers, message, cx, &mut OfSaga { saga, handle }).await?;
            // A timeout that was set around the handler finds nobody either.
            if stateless { cx.complete_stateless() } else { Ok(()) }
        })
    })
}

/// `handle`, ended at `limit` where it has not ended before: what it was doing is dropped, and nothing of it is kept.
pub(super) fn ending<T: Send + 'static>(limit: Duration, handle: HandleFn<T>) -> HandleFn<T> {
    Arc::new(move |saga: &mut T, message, cx| {
        let mut handling = handle(saga, message, cx);
        Box::pin(async move {
            // Most handlers await nothing: they need no timer, and no room for one.
            if let Poll::Ready(handled) = poll!(&mut handling) {
                return handled;
            }
            Box::pin(timeout(limit, handling)).await.unwrap_or_else(|_| Err(took_too_long(limit)))
        })
    })
}

pub(crate) fn took_too_long(limit: Duration) -> HandlerError {
    HandlerError::transient(format!("the handler took longer than its deadline, {limit:?}"))
}

struct OfSaga<'a, T> {
    saga: &'a mut T,
    handle: HandleFn<T>,
}

impl<T> Last for OfSaga<'_, T>
where
    T: Send,
{
    fn run<'c>(&'c mut self, message: Decoded, cx: &'c mut Context) -> BoxFuture<'c, Result<(), HandlerError>> {
        (self.handle)(self.saga, message, cx)
    }
}
