//! The saga of another endpoint, to which books send what they have noted.

use std::sync::Arc;

use hapax_core::{
    Context, Correlation, Handle, HandlerError, Registry, Saga, SagaManager, codec::Codec, manager::Passes,
};
use serde::{Deserialize, Serialize};

use super::book::Noted;
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

/// Makes the shipped manager over [`Shelf`], at the endpoint `lower`.
///
/// # Panics
/// Never: its names are well formed.
#[must_use]
pub fn manager() -> MakeManager {
    Arc::new(|ports, limits| {
        let registry = Registry::<Shelf>::new().starts::<Noted>();
        let endpoint = "lower".parse().expect("a name");
        let manager = SagaManager::new(&endpoint, registry, ports, limits, Codec::Json).expect("a registry");
        Arc::new(manager) as Arc<dyn Passes>
    })
}
