//! Another saga: at another endpoint, to which books send what they have noted, or beside the books.

use std::sync::Arc;

use hapax_core::{
    Context, Correlation, Handle, HandlerError, Registry, Saga, SagaManager, codec::Codec, manager::Passes,
};
use serde::{Deserialize, Serialize};

use super::book::{Note, Noted};
use crate::explore::MakeManager;

/// Its state: what has arrived, in the order of its effects.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Shelf {
    /// Number of the note, and which of its messages.
    pub noted: Vec<(u8, u8)>,
}

impl Saga for Shelf {
    const NAME: &'static str = "shelf";
}

impl Handle<Noted> for Shelf {
    fn correlate(_: &Noted) -> Correlation<'_> {
        Correlation::of("shelf", "s")
    }

    async fn handle(&mut self, noted: Noted, _: &mut Context) -> Result<(), HandlerError> {
        self.noted.push((noted.number, noted.index));
        Ok(())
    }
}

/// Beside a book: the same note, to the same key, and another saga.
impl Handle<Note> for Shelf {
    fn correlate(note: &Note) -> Correlation<'_> {
        Correlation::of("book", &note.book)
    }

    async fn handle(&mut self, note: Note, _: &mut Context) -> Result<(), HandlerError> {
        self.noted.push((note.number, 0));
        Ok(())
    }
}

/// Makes the shipped manager over [`Shelf`], at the endpoint `lower`.
#[must_use]
pub fn manager() -> MakeManager {
    at("lower", || Registry::<Shelf>::new().starts::<Noted>())
}

/// Makes the shipped manager over [`Shelf`], at the endpoint of the books and for the same notes.
#[must_use]
pub fn beside() -> MakeManager {
    at("upper", || Registry::<Shelf>::new().starts::<Note>())
}

fn at(endpoint: &'static str, registry: fn() -> Registry<Shelf>) -> MakeManager {
    Arc::new(move |ports, limits| {
        let registry = registry();
        let endpoint = endpoint.parse().expect("a name");
        let manager = SagaManager::new(&endpoint, registry, ports, limits, Codec::Json).expect("a registry");
        Arc::new(manager) as Arc<dyn Passes>
    })
}
