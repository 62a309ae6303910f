//! The saga of most scenarios: writes every message down, and says at which place.

use std::sync::Arc;

use hapax_core::{
    Context, Correlation, Handle, HandlerError, Message, Registry, Saga, SagaManager,
    codec::{Codec, FRAME_BYTES},
    entity::Entity,
    envelope::{Destination, Envelope},
    ids::{MessageId, SequenceId, SequenceNumber},
    manager::{Limits, Passes},
};
use serde::{Deserialize, Serialize};

use crate::explore::{MakeManager, Scenario};

/// A message to be written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    /// Which book: the entity.
    pub book: String,
    /// Its number among the messages of the scenario.
    pub number: u8,
    /// How many messages its handler sends.
    pub outputs: u8,
    /// It completes the saga.
    pub last: bool,
    /// What else is special about it.
    #[serde(default)]
    pub does: Does,
}

/// What is special about a note.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Does {
    /// Nothing.
    #[default]
    Plain,
    /// Its handler changes nothing.
    Nothing,
    /// Its handler always fails.
    Fails,
    /// Its handler fails for good.
    FailsForGood,
    /// Its handler panics.
    Panics,
    /// Its handler fails until the note with this number is written.
    After(u8),
    /// The same, but it is written down before the handler fails.
    WrittenAfter(u8),
    /// It sends another note to its own book, with a number of 100 more.
    SendsItself,
}

impl Message for Note {
    const TYPE: &'static str = "book.note";
}

/// What the handler sends.
#[derive(Debug, Serialize, Deserialize)]
pub struct Noted {
    /// The number of the note.
    pub number: u8,
    /// The line that it became.
    pub place: usize,
    /// Which of the messages it sends.
    pub index: u8,
}

impl Message for Noted {
    const TYPE: &'static str = "book.noted";
}

/// Its state: the messages in the order of their effects.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Book {
    /// Numbers of the notes.
    pub lines: Vec<u8>,
}

impl Saga for Book {
    const NAME: &'static str = "book";
}

/// What a note that a note sends adds to its number.
const OWN: u8 = 100;

impl Handle<Note> for Book {
    fn correlate(note: &Note) -> Correlation<'_> {
        Correlation::of("book", &note.book)
    }

    async fn handle(&mut self, note: Note, cx: &mut Context) -> Result<(), HandlerError> {
        let noted = |index, place| Noted { number: note.number, place, index };
        for index in 0..note.outputs {
            cx.send("lower", noted(index, self.lines.len()))?;
        }
        if cx.incoming().reply_to.is_some() {
            cx.reply(noted(note.outputs, self.lines.len()))?;
        }
        match note.does {
            Does::Plain | Does::WrittenAfter(_) => {}
            Does::Nothing => return Ok(()),
            Does::Fails => return Err(HandlerError::transient("it always fails")),
            Does::FailsForGood => return Err(HandlerError::permanent("it can never be written down")),
            // As a panic that nobody reports: it would be reported for each world.
            Does::Panics => std::panic::resume_unwind(Box::new("it panics")),
            Does::After(number) if self.lines.contains(&number) => {}
            Does::After(_) => return Err(HandlerError::transient("it is too early")),
            Does::SendsItself => {
                let (book, number) = (note.book.clone(), note.number + OWN);
                cx.send_local(Note { book, number, outputs: 0, last: false, does: Does::Plain })?;
            }
        }
        self.lines.push(note.number);
        if let Does::WrittenAfter(number) = note.does
            && !self.lines.contains(&number)
        {
            return Err(HandlerError::transient("it was too early to write it down"));
        }
        if note.last {
            cx.complete();
        }
        Ok(())
    }
}

/// Makes the shipped manager over [`Book`].
///
/// # Panics
/// Never: its names are well formed.
#[must_use]
pub fn manager() -> MakeManager {
    at("upper", || Registry::<Book>::new().starts::<Note>(), |limits| limits)
}

/// As [`manager`], at the endpoint `lower`.
#[must_use]
pub fn lower() -> MakeManager {
    at("lower", || Registry::<Book>::new().starts::<Note>(), |limits| limits)
}

/// As [`manager`], where a message that is given a second time is poison.
#[must_use]
pub fn given_once() -> MakeManager {
    at("upper", || Registry::<Book>::new().starts::<Note>(), |limits| Limits { poison_above: 1, ..limits })
}

/// As [`manager`], with room for one entry in each outbox.
#[must_use]
pub fn narrow() -> MakeManager {
    at("upper", || Registry::<Book>::new().starts::<Note>(), |limits| Limits { entries_max: 1, ..limits })
}

/// As [`manager`], of a saga that promises ordered outputs.
#[must_use]
pub fn ordered() -> MakeManager {
    at("upper", || Registry::<Book>::new().starts::<Note>().ordered_outputs(), |limits| limits)
}

fn at(endpoint: &'static str, registry: fn() -> Registry<Book>, limited: fn(Limits) -> Limits) -> MakeManager {
    Arc::new(move |ports, limits| {
        let registry = registry();
        let endpoint = endpoint.parse().expect("a name");
        let manager = SagaManager::new(&endpoint, registry, ports, limited(limits), Codec::Json).expect("a registry");
        Arc::new(manager) as Arc<dyn Passes>
    })
}

/// The lines of a book; `None` for a tombstone.
#[must_use]
pub fn lines(entity: &Entity) -> Option<Vec<u8>> {
    let json = entity.state.get(FRAME_BYTES..)?;
    serde_json::from_slice::<Book>(json).ok().map(|book| book.lines)
}

/// `note` as it travels.
///
/// # Panics
/// Never: a note has a JSON form.
#[must_use]
pub fn envelope(note: &Note) -> Arc<Envelope> {
    let body = serde_json::to_vec(note).expect("a note is JSON");
    let id = MessageId::parse(&format!("m{}", note.number)).expect("an id");
    Arc::new(Envelope::new(id, Note::TYPE.parse().expect("a type"), body))
}

/// A note for `book` that sends `outputs` messages.
#[must_use]
pub fn note(book: &str, number: u8, outputs: u8) -> Arc<Envelope> {
    envelope(&Note { book: book.into(), number, outputs, last: false, does: Does::Plain })
}

/// A note for the book `b` that sends a message and is special.
#[must_use]
pub fn special(number: u8, outputs: u8, does: Does) -> Arc<Envelope> {
    envelope(&Note { book: "b".into(), number, outputs, last: false, does })
}

/// A copy of `message` that wants an answer at the endpoint `to`.
///
/// # Panics
/// When `to` is no endpoint's name.
#[must_use]
pub fn asking(message: &Arc<Envelope>, to: &str) -> Arc<Envelope> {
    let to = Destination::Endpoint(to.parse().expect("a name"));
    Arc::new(Envelope { reply_to: Some(to), ..Envelope::clone(message) })
}

/// `message` under the id of `other`.
#[must_use]
pub fn under_id_of(other: &Arc<Envelope>, message: &Arc<Envelope>) -> Arc<Envelope> {
    Arc::new(Envelope { message_id: other.message_id.clone(), ..Envelope::clone(message) })
}

/// `message` as a sender that numbers what it sends would send it.
#[must_use]
pub fn numbered(message: &Arc<Envelope>, number: u64) -> Arc<Envelope> {
    let sequence = SequenceId::from_bytes([7; SequenceId::BYTES]);
    Arc::new(Envelope { sequence: Some(SequenceNumber { sequence, number }), ..Envelope::clone(message) })
}

/// A note that completes `book`.
#[must_use]
pub fn last(book: &str, number: u8, outputs: u8) -> Arc<Envelope> {
    envelope(&Note { book: book.into(), number, outputs, last: true, does: Does::Plain })
}

/// `messages` for [`Book`], with `tasks` workers at most.
#[must_use]
pub fn scenario(messages: Vec<Arc<Envelope>>, tasks: usize) -> Scenario {
    Scenario {
        tasks,
        lines: Some(lines),
        attempts_max: 1,
        may_set_aside: Some(Vec::new()),
        ..Scenario::new(manager(), messages)
    }
}
