//! The shipped manager, gone through exhaustively within small budgets.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use hapax_core::{
    Context, Correlation, Handle, HandlerError, Message, Registry, Saga, SagaManager,
    codec::{Codec, FRAME_BYTES},
    entity::Entity,
    envelope::Envelope,
    ids::MessageId,
    manager::Passes,
};
use hapax_model::explore::{Budgets, Reads, Report, Scenario, explore};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    book: String,
    number: u8,
    outputs: u8,
    last: bool,
}

impl Message for Note {
    const TYPE: &'static str = "book.note";
}

#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    number: u8,
    place: usize,
    index: u8,
}

impl Message for Noted {
    const TYPE: &'static str = "book.noted";
}

/// Writes every message down, and says at which place.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Book {
    lines: Vec<u8>,
}

impl Saga for Book {
    const NAME: &'static str = "book";
}

impl Handle<Note> for Book {
    fn correlate(note: &Note) -> Correlation<'_> {
        Correlation::of("book", &note.book)
    }

    async fn handle(&mut self, note: Note, cx: &mut Context) -> Result<(), HandlerError> {
        for index in 0..note.outputs {
            cx.send("lower", Noted { number: note.number, place: self.lines.len(), index })?;
        }
        self.lines.push(note.number);
        if note.last {
            cx.complete();
        }
        Ok(())
    }
}

fn lines(entity: &Entity) -> Option<Vec<u8>> {
    let json = entity.state.get(FRAME_BYTES..)?;
    Some(serde_json::from_slice::<Book>(json).unwrap().lines)
}

fn note(book: &str, number: u8, outputs: u8) -> Arc<Envelope> {
    let body = serde_json::to_vec(&Note { book: book.into(), number, outputs, last: false }).unwrap();
    Arc::new(Envelope::new(MessageId::parse(&format!("m{number}")).unwrap(), Note::TYPE.parse().unwrap(), body))
}

fn scenario(messages: Vec<Arc<Envelope>>, tasks: usize, budgets: Budgets) -> Scenario {
    Scenario {
        manager: Arc::new(|ports, limits| {
            let registry = Registry::<Book>::new().starts::<Note>();
            let manager = SagaManager::new(&"upper".parse().unwrap(), registry, ports, limits, Codec::Json);
            Arc::new(manager.unwrap()) as Arc<dyn Passes>
        }),
        messages,
        lines,
        may_drop: Vec::new(),
        tasks,
        pass_max: 1,
        tries: 1,
        together: true,
        reads: Reads::Linearizable,
        budgets,
    }
}

fn report(name: &str, scenario: Scenario) -> Report {
    let report = explore(scenario).unwrap();
    println!(
        "{name}: {} worlds, {} steps, {} histories, {:?}, {:.0} worlds a second",
        report.states,
        report.transitions,
        report.histories,
        report.time,
        report.states as f64 / report.time.as_secs_f64()
    );
    println!("    {:?}", report.events);
    if let Some(story) = &report.story {
        println!("{story}");
    }
    report
}

fn holds(name: &str, scenario: Scenario) -> Report {
    let report = report(name, scenario);
    assert!(report.story.is_none() && !report.cut_short, "{name}");
    report
}

#[test]
fn nothing_goes_wrong() {
    holds("one message", scenario(vec![note("b", 0, 1)], 1, Budgets::default()));
    holds("two messages, two workers", scenario(vec![note("b", 0, 1), note("b", 1, 1)], 2, Budgets::default()));
}

#[test]
fn one_message_with_faults() {
    let budgets = Budgets { crashes: 1, unknown: 1, duplicates: 1, ..Budgets::default() };
    holds("one message, faults", scenario(vec![note("b", 0, 1)], 2, budgets));
    let apart = Scenario { together: false, ..scenario(vec![note("b", 0, 1)], 2, budgets) };
    holds("one message, faults, two stores", apart);
}
#[test]
fn two_messages_of_one_entity_survive_a_crash_a_lost_answer_or_a_copy() {
    let two = || vec![note("b", 0, 1), note("b", 1, 1)];
    let budgets = Budgets::default();
    holds("a crash", scenario(two(), 2, Budgets { crashes: 1, ..budgets }));
    holds("an unknown outcome", scenario(two(), 2, Budgets { unknown: 1, ..budgets }));
    holds("a copy", scenario(two(), 2, Budgets { duplicates: 1, ..budgets }));
}

/// The controls: what breaks the promise is found, and its story is short.
#[test]
fn marks_that_are_not_seen_at_once_break_the_promise() {
    let budgets = Budgets { duplicates: 1, ..Budgets::default() };
    let stale = Scenario { reads: Reads::Lagging(1), ..scenario(vec![note("b", 0, 1)], 1, budgets) };
    let story = report("lagging reads", stale).story.unwrap();
    assert_eq!(story.broken.claim, "effect_at_most_once", "{story}");
    assert!(story.steps.len() < 15, "{story}");
}

#[test]
fn marks_that_are_forgotten_too_early_break_the_promise() {
    let budgets = Budgets { duplicates: 1, evictions: 1, ..Budgets::default() };
    let story = report("eviction", scenario(vec![note("b", 0, 1)], 1, budgets)).story.unwrap();
    assert_eq!(story.broken.claim, "effect_at_most_once", "{story}");
}
