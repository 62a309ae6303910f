//! One call to the service: its time limit, its repetitions, and what its errors mean.
//!
//! The SDK's own repetitions are off, since it does not tell what became of the tries before the last: a write that is
//! throttled after a try that got no answer may have taken effect all the same.

use std::{error::Error, future::Future, time::Duration};

use aws_sdk_dynamodb::{
    config::http::HttpResponse,
    error::{DisplayErrorContext, ProvideErrorMetadata, SdkError},
    operation::{transact_get_items::TransactGetItemsError, transact_write_items::TransactWriteItemsError},
    types::CancellationReason,
};
use hapax_core::ports::{ErrorKind, StoreError};
use tokio::time::{Instant, sleep, timeout_at};

/// How often a call is tried: enough for a throttled partition to be split, and for one lost answer.
pub(super) const TRIES_MAX: u32 = 5;
/// Before the second try, on average half of it; doubled for each further.
const BACKOFF: Duration = Duration::from_millis(50);
/// Longest wait between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How many bytes a second a slow line takes: a request or an answer of megabytes is given that much more time.
const SLOW_BYTES_PER_SECOND: usize = 500_000;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// A call with all its tries.
    pub(super) call: Duration,
    /// One try.
    pub(super) attempt: Duration,
}

/// What is being done, for messages and for the meaning of a lost answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doing {
    pub(super) operation: &'static str,
    pub(super) writes: bool,
    /// What a try may take beyond the limits.
    more: Duration,
}

impl Doing {
    pub(super) const fn reading(operation: &'static str) -> Self {
        Self { operation, writes: false, more: Duration::ZERO }
    }

    pub(super) const fn writing(operation: &'static str) -> Self {
        Self { operation, writes: true, more: Duration::ZERO }
    }

    /// The same with so many bytes to be sent or received.
    pub(super) fn of_bytes(self, bytes: usize) -> Self {
        Self { more: Duration::from_secs((bytes / SLOW_BYTES_PER_SECOND) as u64), ..self }
    }

    pub(super) fn error(self, kind: ErrorKind, why: impl Into<String>) -> StoreError {
        StoreError::new(kind, self.operation, why)
    }
}

/// What a call has come to.
#[derive(Debug)]
pub(super) enum Failed<E> {
    /// The service has refused for a reason that the caller may know; nothing was written by the last try.
    Refused(E),
    /// Anything else.
    Error(StoreError),
}

/// What the service says with an error.
pub(super) trait Answer: ProvideErrorMetadata + Error + Send + Sync + 'static {
    /// Nothing was written, and the same may go well in a moment.
    fn is_busy(&self) -> bool {
        matches!(
            self.code().unwrap_or_default(),
            "ProvisionedThroughputExceededException"
                | "RequestLimitExceeded"
                | "ThrottlingException"
                | "Throttling"
                | "TransactionConflictException"
                | "ReplicatedWriteConflictException"
                | "LimitExceededException"
        )
    }

    /// Whether anything was written is not known.
    fn is_unclear(&self) -> bool {
        matches!(
            self.code().unwrap_or_default(),
            "InternalServerError"
                | "InternalFailure"
                | "ServiceUnavailable"
                | "TransactionInProgressException"
                | "IdempotentParameterMismatchException"
                | "RequestTimeoutException"
        )
    }
}

macro_rules! answers {
    ($($module:ident $error:ident),*) => {
        $(impl Answer for aws_sdk_dynamodb::operation::$module::$error {})*
    };
}

answers!(
    get_item GetItemError,
    batch_get_item BatchGetItemError,
    put_item PutItemError,
    update_item UpdateItemError,
    delete_item DeleteItemError,
    query QueryError,
    create_table CreateTableError,
    describe_table DescribeTableError,
    update_time_to_live UpdateTimeToLiveError,
    describe_time_to_live DescribeTimeToLiveError
);

/// Reasons of a cancelled transaction that are nobody's fault and pass.
const PASSING: [&str; 3] = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
/// The reason of an action whose condition did not hold.
pub(super) const CONDITION_FAILED: &str = "ConditionalCheckFailed";

/// Nobody's condition has failed, and what kept the transaction from being done passes.
fn passes(reasons: &[CancellationReason]) -> bool {
    let codes = || reasons.iter().filter_map(|reason| reason.code());
    !codes().any(|code| code == CONDITION_FAILED) && codes().any(|code| PASSING.contains(&code))
}

macro_rules! transactions {
    ($($error:ident),*) => {
        $(impl Answer for $error {
            fn is_busy(&self) -> bool {
                match self {
                    Self::TransactionCanceledException(cancelled) => passes(cancelled.cancellation_reasons()),
                    Self::ProvisionedThroughputExceededException(_)
                    | Self::RequestLimitExceeded(_)
                    | Self::ThrottlingException(_) => true,
                    _ => false,
                }
            }
        })*
    };
}

transactions!(TransactGetItemsError, TransactWriteItemsError);

/// What one try has come to.
enum Tried<T, E> {
    Done(T),
    Busy(E),
    Refused(E),
    /// The request was not made.
    Unsent(String),
    /// Whether the service has done it is not known.
    Unclear(String),
}

impl Limits {
    /// Calls `send` until it is answered, a limited number of times.
    pub(super) async fn call<T, E, F>(&self, doing: Doing, send: impl Fn() -> F) -> Result<T, Failed<E>>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: Answer,
    {
        self.call_whole(doing, |_| true, send).await
    }

    /// The same where what is not `whole` is no answer, as for a write that was asked to tell what it cost: the client library
    /// reads an empty body as a write that went well, and behind it may be a refusal.
    pub(super) async fn call_whole<T, E, F>(
        &self,
        doing: Doing,
        whole: impl Fn(&T) -> bool,
        send: impl Fn() -> F,
    ) -> Result<T, Failed<E>>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: Answer,
    {
        let deadline = Instant::now() + self.call + 2 * doing.more;
        let mut unclear = None;
        let mut tries = 0;
        loop {
            tries += 1;
            let why = match self.attempt(deadline, self.attempt + doing.more, &send).await {
                Tried::Done(done) if whole(&done) => return Ok(done),
                Tried::Done(_) => {
                    let why = "the answer does not tell what it cost, so it is not whole".to_owned();
                    unclear = Some(why.clone());
                    why
                }
                Tried::Refused(refused) => {
                    // A refusal that says what is stored is for the caller to judge; any other says nothing of earlier tries.
                    let judged = matches!(
                        refused.code(),
                        Some("ConditionalCheckFailedException" | "TransactionCanceledException")
                    );
                    return Err(match unclear {
                        Some(why) if !judged && doing.writes => {
                            Failed::Error(doing.error(ErrorKind::UnknownOutcome, why))
                        }
                        _ => Failed::Refused(refused),
                    });
                }
                Tried::Unsent(why) => why,
                Tried::Busy(busy) => format!("the table is busy or throttled: {}", DisplayErrorContext(&busy)),
                Tried::Unclear(why) => {
                    unclear = Some(why.clone());
                    why
                }
            };
            let wait = backoff(tries);
            if tries >= TRIES_MAX || Instant::now() + wait >= deadline {
                let kind =
                    if doing.writes && unclear.is_some() { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable };
                return Err(Failed::Error(doing.error(kind, format!("tried {tries} times; the last time {why}"))));
            }
            sleep(wait).await;
        }
    }

    async fn attempt<T, E, F>(&self, deadline: Instant, limit: Duration, send: &impl Fn() -> F) -> Tried<T, E>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: Answer,
    {
        let end = deadline.min(Instant::now() + limit);
        let Ok(answer) = timeout_at(end, send()).await else {
            return Tried::Unclear(format!("there was no answer within {limit:?}"));
        };
        match answer {
            Ok(done) => Tried::Done(done),
            Err(SdkError::ConstructionFailure(e)) => Tried::Unsent(format!("the request could not be made: {e:?}")),
            Err(SdkError::ServiceError(e)) => {
                // What says that it went well and cannot be read went well, for all that is known.
                let broken = e.raw().status().is_server_error() || e.raw().status().is_success();
                let answer = e.into_err();
                if answer.is_busy() {
                    Tried::Busy(answer)
                } else if broken || answer.is_unclear() {
                    Tried::Unclear(DisplayErrorContext(&answer).to_string())
                } else {
                    Tried::Refused(answer)
                }
            }
            Err(e) => Tried::Unclear(DisplayErrorContext(&e).to_string()),
        }
    }

    /// The same where no refusal has a meaning of its own.
    pub(super) async fn plainly<T, E, F>(&self, doing: Doing, send: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: Answer,
    {
        self.call(doing, send).await.map_err(|failed| failed.into_error(doing))
    }
}

/// Anything up to the doubled last, so that those who met do not meet again.
pub(super) fn backoff(tries: u32) -> Duration {
    let most = BACKOFF.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(BACKOFF_MAX);
    most.mul_f64(fastrand::f64())
}

impl<E: Answer> Failed<E> {
    /// As an error of the port.
    pub(super) fn into_error(self, doing: Doing) -> StoreError {
        match self {
            Self::Error(error) => error,
            Self::Refused(refused) => {
                let (kind, remedy) = meaning(&refused);
                let said = refused.message().unwrap_or_else(|| refused.code().unwrap_or("an unknown error"));
                doing.error(kind, format!("{said}{remedy}")).caused_by(refused)
            }
        }
    }
}

/// What a refusal means that no caller looks for.
fn meaning(refused: &impl Answer) -> (ErrorKind, &'static str) {
    match refused.code().unwrap_or_default() {
        "AccessDeniedException" => (ErrorKind::Denied, "; give the client's role what `DynamoDb::policy_json` names"),
        "UnrecognizedClientException"
        | "IncompleteSignatureException"
        | "InvalidSignatureException"
        | "ExpiredTokenException"
        | "MissingAuthenticationTokenException" => {
            (ErrorKind::Denied, "; look at the client's credentials, and at this host's clock")
        }
        "ResourceNotFoundException" => {
            (ErrorKind::Misconfigured, "; create the table, or open the store with `create_if_missing`")
        }
        // Of an item and of a transaction it is said in other words each.
        "ValidationException" if says(refused, "size") && says(refused, "exceed") => (ErrorKind::TooLarge, ""),
        _ => (ErrorKind::Misconfigured, ""),
    }
}

fn says(refused: &impl Answer, what: &str) -> bool {
    refused.message().is_some_and(|message| message.contains(what))
}
