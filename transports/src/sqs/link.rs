//! Calls of the service: their time limits, their repetitions, and what their errors mean.
//!
//! The SDK's own repetitions are off, since it does not tell what became of the tries before the last: a message that is refused
//! after a try that got no answer may have been sent all the same.

use std::{error::Error, future::Future, time::Duration};

use aws_sdk_sqs::{
    Client,
    config::{http::HttpResponse, retry::RetryConfig, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
};
use hapax_core::ports::{ErrorKind, TransportError};
use tokio::time::{Instant, sleep, timeout_at};

use super::errors::{cut_off, is_busy, is_connection_refused, is_unclear, late, refusal};

/// How often a call is tried that was not made, that is throttled, or that may be made twice: enough for one lost answer, and for a
/// moment of too much; what lasts longer is for whoever calls.
const TRIES_MAX: u32 = 4;
/// Before the second try, on average half of it; doubled for each further.
const BACKOFF: Duration = Duration::from_millis(100);

/// What is asked, for messages and for the meaning of a lost answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    pub(super) operation: &'static str,
    /// It changes something.
    written: bool,
    /// Asking twice is the same as asking once.
    repeatable: bool,
    /// How long the service itself waits before it answers.
    wait: Duration,
}

impl Asking {
    /// What changes nothing.
    pub(super) const fn reading(operation: &'static str) -> Self {
        Self { operation, written: false, repeatable: true, wait: Duration::ZERO }
    }

    /// What changes something, and nothing more if it is asked again.
    pub(super) const fn repeatable(operation: &'static str) -> Self {
        Self { operation, written: true, repeatable: true, wait: Duration::ZERO }
    }

    /// What is sent twice if it is asked twice.
    pub(super) const fn once(operation: &'static str) -> Self {
        Self { operation, written: true, repeatable: false, wait: Duration::ZERO }
    }

    /// What takes messages: whose answer is lost, those come again, and the next call takes others.
    pub(super) const fn receiving(operation: &'static str, wait: Duration) -> Self {
        Self { operation, written: false, repeatable: false, wait }
    }
}

/// What a call has come to.
#[derive(Debug)]
pub(super) enum Failed<E> {
    /// The service refuses, and nothing was done.
    Refused(E),
    /// Anything else.
    Error(TransportError),
}

/// The service, as it is reached.
pub(super) struct Link {
    pub(super) client: Client,
    place: String,
    pub(super) patience: Duration,
}

impl Link {
    pub(super) fn new(client: &Client, patience: Duration) -> Self {
        let region = client.config().region().map_or_else(|| "no region".to_owned(), ToString::to_string);
        let config = client.config().to_builder();
        let config = config.retry_config(RetryConfig::disabled()).timeout_config(TimeoutConfig::disabled()).build();
        Self { client: Client::from_conf(config), place: format!("SQS in {region}"), patience }
    }

    /// The service, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Calls `send` until it is answered, a limited number of times.
    pub(super) async fn ask<T, E, F>(&self, asking: Asking, send: impl Fn() -> F) -> Result<T, Failed<E>>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let begun = Instant::now();
        let deadline = begun + self.patience + asking.wait;
        // A try that hangs leaves time for another, where there may be one.
        let most = if asking.repeatable { self.patience / 2 } else { self.patience } + asking.wait;
        let (mut tries, mut was_unclear) = (0, false);
        loop {
            tries += 1;
            let end = deadline.min(Instant::now() + most);
            let tried = match timeout_at(end, send()).await {
                Ok(answer) => self.judge(asking, answer),
                Err(_) => Tried::Unclear(late(asking.operation, &self.place, most, asking.written)),
            };
            let (error, may_repeat) = match tried {
                Tried::Done(done) => return Ok(done),
                // It says nothing of an earlier try.
                Tried::Refused(refused) if was_unclear && asking.written && !asking.repeatable => {
                    return Err(Failed::Error(self.error(cut_off(true), asking, &refused)));
                }
                Tried::Refused(refused) => return Err(Failed::Refused(refused)),
                Tried::Unmade(error) => (error, true),
                Tried::Unclear(error) => {
                    was_unclear = true;
                    (error, asking.repeatable)
                }
            };
            let wait = backoff(tries);
            if !may_repeat || tries >= TRIES_MAX || Instant::now() + wait >= deadline {
                return Err(Failed::Error(match (was_unclear, asking.written, error.kind()) {
                    (true, true, ErrorKind::Unavailable) => {
                        TransportError::new(ErrorKind::UnknownOutcome, asking.operation, format!("{error:?}"))
                    }
                    _ => error,
                }));
            }
            sleep(wait).await;
        }
    }

    /// The same where no refusal has a meaning of its own.
    pub(super) async fn plainly<T, E, F>(&self, asking: Asking, send: impl Fn() -> F) -> Result<T, TransportError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        self.ask(asking, send).await.map_err(|failed| self.failed(asking.operation, failed))
    }

    /// As an error of the port.
    pub(super) fn failed<E>(&self, operation: &'static str, failed: Failed<E>) -> TransportError
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        match failed {
            Failed::Error(error) => error,
            Failed::Refused(refused) => refusal(operation, &self.place, refused),
        }
    }

    fn judge<T, E>(&self, asking: Asking, answer: Result<T, SdkError<E, HttpResponse>>) -> Tried<T, E>
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let error = match answer {
            Ok(done) => return Tried::Done(done),
            Err(error) => error,
        };
        match error {
            SdkError::ConstructionFailure(_) => Tried::Unmade(self.error(ErrorKind::Unavailable, asking, &error)),
            SdkError::DispatchFailure(_) if is_connection_refused(&error) => {
                Tried::Unmade(self.error(ErrorKind::Unavailable, asking, &error))
            }
            SdkError::ServiceError(said) => {
                // What says that it went well and cannot be read went well, for all that is known.
                let status = said.raw().status();
                let is_broken = status.is_server_error() || status.is_success();
                let refused = said.into_err();
                let code = refused.code().unwrap_or_default();
                if is_busy(code) {
                    Tried::Unmade(self.error(ErrorKind::Unavailable, asking, &refused))
                } else if is_broken || is_unclear(code) {
                    Tried::Unclear(self.error(cut_off(asking.written), asking, &refused))
                } else {
                    Tried::Refused(refused)
                }
            }
            error => Tried::Unclear(self.error(cut_off(asking.written), asking, &error)),
        }
    }

    fn error(&self, kind: ErrorKind, asking: Asking, error: &(impl Error + 'static)) -> TransportError {
        // By its texts alone: what the SDK shows of an answer that it could not read holds messages.
        let mut said = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            said = format!("{said}: {error}");
            cause = error.source();
        }
        TransportError::new(kind, asking.operation, format!("{} cannot be asked now: {said}", self.place))
    }
}

/// What one try has come to.
enum Tried<T, E> {
    Done(T),
    Refused(E),
    /// The request was not made, or nothing was done.
    Unmade(TransportError),
    /// Whether the service has done it is not known.
    Unclear(TransportError),
}

/// Anything up to the doubled last, so that those who met do not meet again.
fn backoff(tries: u32) -> Duration {
    BACKOFF.saturating_mul(1 << tries.saturating_sub(1).min(10)).mul_f64(fastrand::f64())
}
