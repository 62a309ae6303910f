//! How long a check waits for what is promised sooner or later: a slow adapter is not called broken, and a broken one does not hang.

use std::{future::Future, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{Broken, Checked, Kept};
use crate::ports::{ErrorKind, StoreError};

/// How long "sooner or later" may take before a check says never. Only a broken adapter is waited for that long.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at something that takes a while.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Looks until there is something to see, or `never` is what was promised and did not come.
pub(super) async fn eventually<T, F>(never: impl FnOnce() -> Broken, mut look: impl FnMut() -> F) -> Result<T, Broken>
where
    F: Future<Output = Result<Option<T>, Broken>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await? {
            return Ok(seen);
        }
        if Instant::now() > deadline {
            return Err(never());
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Calls again while the store says that nothing was written and that it may work later, as stores do under contention.
pub(super) async fn insistently<T, F>(
    promise: &'static str,
    doing: &str,
    mut call: impl FnMut() -> F,
) -> Result<T, Broken>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(done) => return Ok(done),
            Err(e) if e.kind() == ErrorKind::Unavailable && Instant::now() < deadline => sleep(LOOK_AGAIN).await,
            Err(e) => return Err(Broken::failed(promise, doing, &e)),
        }
    }
}

/// Checks that run side by side; the first that fails ends them all.
#[derive(Default)]
pub(super) struct SideBySide(JoinSet<Result<(), Broken>>);

impl SideBySide {
    pub(super) fn add(&mut self, check: impl Future<Output = Result<(), Broken>> + Send + 'static) {
        self.0.spawn(check);
    }

    pub(super) async fn end(mut self) -> Checked {
        while let Some(ended) = self.0.join_next().await {
            match ended {
                Ok(checked) => checked?,
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            }
        }
        Ok(Kept::Shown)
    }
}

/// What all `calls` answer when they run side by side, in the order given.
pub(super) async fn together<T: Send + 'static>(
    calls: impl IntoIterator<Item = impl Future<Output = Result<T, Broken>> + Send + 'static>,
) -> Result<Vec<T>, Broken> {
    let tasks: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(answer) => answers.push(answer?),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
    Ok(answers)
}
