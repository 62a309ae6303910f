//! The saga that is watched: it writes down every run that is kept, so that what happened can be read from its state.
//!
//! Each message says what is to be done with it, so that a list of messages is the whole workload. Each run has a number
//! of its own, which goes into the state and into everything sent: two runs of one message never say the same, so an
//! output of a run that was not kept cannot pass for one that was.

use std::{cell::RefCell, collections::BTreeMap};

use hapax_core::{
    Context, Correlation, Handle, HandlerError, Message, Registry, Saga,
    codec::FRAME_BYTES,
    entity::Entity,
    envelope::{Destination, Envelope},
    ids::MessageId,
};
use serde::{Deserialize, Serialize};

/// The endpoint whose ledgers are posted to.
pub const UPPER: &str = "upper";
/// The endpoint that keeps books of what the upper one sends.
pub const LOWER: &str = "lower";
/// Where replies go.
pub const ASKER: &str = "asker";

/// A line for a ledger, and what else is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// Which ledger.
    pub ledger: String,
    /// What is posted: the identity of the message in every check.
    pub cause: String,
    /// Messages to send on.
    pub outputs: u8,
    /// What else to do.
    pub act: Act,
    /// What goes wrong in the handler.
    pub trouble: Trouble,
}

/// What else a posting does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Nothing.
    Nothing,
    /// Answers.
    Reply,
    /// Sends one more message, which the transport can never send although it said it could.
    SendUnsendable,
    /// Sends one more message, which the transport says it can never send.
    SendUnroutable,
    /// Sets a timeout and remembers it in place of any other.
    SetAlarm,
    /// Cancels the timeout that is remembered.
    CancelAlarm,
    /// Completes the ledger.
    Close,
}

/// What goes wrong in the handler, always after it has changed its state and its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// Nothing.
    None,
    /// The first so many runs fail.
    Fails(u8),
    /// The first so many runs panic.
    Panics(u8),
    /// Every run fails for good.
    Refuses,
}

impl Message for Post {
    const TYPE: &'static str = "ledger.post";
}

/// What a ledger sends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posted {
    /// Which ledger.
    pub ledger: String,
    /// What was posted.
    pub cause: String,
    /// In which run.
    pub run: u64,
    /// At which place of the ledger.
    pub number: usize,
    /// Which of the messages it is.
    pub index: u8,
}

impl Message for Posted {
    const TYPE: &'static str = "ledger.posted";
}

/// A message that the sink can never send, although its `check` accepts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsendable(pub Posted);

impl Message for Unsendable {
    const TYPE: &'static str = "ledger.unsendable";
}

/// A message that the sink's `check` refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unroutable(pub Posted);

impl Message for Unroutable {
    const TYPE: &'static str = "ledger.unroutable";
}

/// The timeout of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm(pub Posted);

impl Message for Alarm {
    const TYPE: &'static str = "ledger.alarm";
}

/// The answer of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer(pub Posted);

impl Message for Answer {
    const TYPE: &'static str = "ledger.answer";
}

/// A list of what was posted, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// One for each message handled.
    pub lines: Vec<Line>,
    /// The timeout that is waited for.
    pub alarm: Option<String>,
}

/// One run that was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What was posted.
    pub cause: String,
    /// Its place.
    pub number: usize,
    /// The run.
    pub run: u64,
    /// The timeout that it cancelled.
    pub cancelled: Option<String>,
}

impl Saga for Ledger {
    const NAME: &'static str = "ledger";
}

impl Ledger {
    /// A registry with everything a ledger knows.
    #[must_use]
    pub fn registry() -> Registry<Self> {
        Registry::new().starts::<Post>().starts::<Posted>().handles::<Alarm>()
    }

    /// The ledger of an entity; `None` when its state is gone or was never there.
    ///
    /// # Errors
    /// A text that says what is wrong with the state.
    pub fn of(entity: &Entity) -> Result<Option<Self>, String> {
        let Some(json) = entity.state.get(FRAME_BYTES..) else { return Ok(None) };
        serde_json::from_slice(json).map(Some).map_err(|e| format!("the state of a ledger cannot be read: {e}"))
    }

    fn line(&mut self, cause: &str) -> Posted {
        let (number, run) = (self.lines.len(), begin_run(cause));
        self.lines.push(Line { cause: cause.to_owned(), number, run, cancelled: None });
        Posted { ledger: String::new(), cause: cause.to_owned(), run, number, index: 0 }
    }

    fn act(&mut self, act: Act, posted: Posted, cx: &mut Context) -> Result<(), HandlerError> {
        match act {
            Act::Nothing => {}
            Act::Reply => cx.reply(Answer(posted))?,
            Act::SendUnsendable => cx.send(LOWER, Unsendable(posted))?,
            Act::SendUnroutable => cx.send(LOWER, Unroutable(posted))?,
            Act::SetAlarm => {
                let id = cx.timeout(std::time::Duration::from_millis(1), Alarm(posted))?;
                self.alarm = Some(id.to_string());
            }
            Act::CancelAlarm => {
                if let Some(id) = self.alarm.take() {
                    cx.cancel_timeout(&MessageId::parse(&id)?);
                    if let Some(line) = self.lines.last_mut() {
                        line.cancelled = Some(id);
                    }
                }
            }
            Act::Close => cx.complete(),
        }
        Ok(())
    }
}

impl Handle<Post> for Ledger {
    fn correlate(post: &Post) -> Correlation<'_> {
        Correlation::of("ledger", &post.ledger)
    }

    async fn handle(&mut self, post: Post, cx: &mut Context) -> Result<(), HandlerError> {
        let before = runs_of(&post.cause);
        let mut posted = self.line(&post.cause);
        posted.ledger.clone_from(&post.ledger);
        for index in 0..post.outputs {
            cx.send(LOWER, Posted { index, ..posted.clone() })?;
        }
        crate::yield_once().await;
        self.act(post.act, Posted { index: post.outputs, ..posted }, cx)?;
        match post.trouble {
            Trouble::Fails(runs) if before < u64::from(runs) => Err(HandlerError::transient("told to fail")),
            Trouble::Panics(runs) if before < u64::from(runs) => {
                // Past the panic hook: a thousand reports of planned panics would hide a real one.
                std::panic::resume_unwind(Box::new("told to panic"))
            }
            Trouble::Refuses => Err(HandlerError::permanent("told to refuse")),
            _ => Ok(()),
        }
    }
}

impl Handle<Posted> for Ledger {
    fn correlate(posted: &Posted) -> Correlation<'_> {
        Correlation::of("ledger", &posted.ledger)
    }

    async fn handle(&mut self, posted: Posted, _: &mut Context) -> Result<(), HandlerError> {
        self.line(&format!("{}#{}", posted.cause, posted.index));
        Ok(())
    }
}

impl Handle<Alarm> for Ledger {
    fn correlate(alarm: &Alarm) -> Correlation<'_> {
        Correlation::of("ledger", &alarm.0.ledger)
    }

    async fn handle(&mut self, alarm: Alarm, cx: &mut Context) -> Result<(), HandlerError> {
        let id = cx.incoming().message_id.to_string();
        if self.alarm.as_ref() == Some(&id) {
            self.alarm = None;
        }
        self.line(&alarm_cause(&alarm.0.cause));
        Ok(())
    }
}

/// The cause under which the timeout that `cause` has set is written down.
#[must_use]
pub fn alarm_cause(cause: &str) -> String {
    format!("{cause}!")
}

/// What an outgoing message of a ledger says; `None` for one that is not of a ledger.
///
/// # Errors
/// A text that says what is wrong with its body.
pub fn posted_of(envelope: &Envelope) -> Result<Option<Posted>, String> {
    let types = [Posted::TYPE, Unsendable::TYPE, Unroutable::TYPE, Alarm::TYPE, Answer::TYPE];
    if !types.contains(&envelope.message_type.as_str()) {
        return Ok(None);
    }
    let posted = serde_json::from_slice(&envelope.body);
    posted.map(Some).map_err(|e| format!("the body of {} cannot be read: {e}", envelope.message_id))
}

/// An envelope around a posting, with an address for replies.
///
/// # Panics
/// Never: a posting can be written as JSON, and the names are valid.
#[must_use]
pub fn envelope_of<M: Message>(id: MessageId, message: &M) -> Envelope {
    let body = serde_json::to_vec(message).expect("plain data");
    let mut envelope = Envelope::new(id, M::TYPE.parse().expect("a valid name"), body);
    envelope.reply_to = Some(Destination::Endpoint(ASKER.parse().expect("a valid name")));
    envelope
}

thread_local! {
    /// How often each cause was run, since [`forget_runs`]; and the number of the last run of all.
    static RUNS: RefCell<(u64, BTreeMap<String, u64>)> = RefCell::default();
}

/// Forgets what was run on this thread: at the beginning of a case.
pub fn forget_runs() {
    RUNS.with_borrow_mut(|runs| *runs = Default::default());
}

/// How often the handler was run for `cause` on this thread since [`forget_runs`], kept or not.
#[must_use]
pub fn runs_of(cause: &str) -> u64 {
    RUNS.with_borrow(|(_, runs)| runs.get(cause).copied().unwrap_or_default())
}

/// Counts a run, and gives it a number.
fn begin_run(cause: &str) -> u64 {
    RUNS.with_borrow_mut(|(last, runs)| {
        *last += 1;
        *runs.entry(cause.to_owned()).or_default() += 1;
        *last
    })
}
