//! The sagas of the crashed processes: they write down what they have handled, so that the books can be made from the file
//! alone.

use std::time::Duration;

use hapax::{Context, Correlation, Handle, HandlerError, Message, Saga};
use serde::{Deserialize, Serialize};

use crate::tally::{ENDPOINT, Step};

/// What a tally sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) tally: String,
    pub(crate) note: String,
}

impl Message for Note {
    const TYPE: &'static str = "crash.note";
}

/// A timeout of a tally.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ring {
    pub(crate) tally: String,
    pub(crate) ring: String,
}

impl Message for Ring {
    const TYPE: &'static str = "crash.ring";
}

/// All steps and timeouts, each time they were handled.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) handled: Vec<String>,
}

impl Saga for Tally {
    const NAME: &'static str = "tally";
}

impl Handle<Step> for Tally {
    fn correlate(step: &Step) -> Correlation<'_> {
        (&step.tally).into()
    }

    async fn handle(&mut self, step: Step, cx: &mut Context) -> Result<(), HandlerError> {
        let delay = Duration::from_millis(step.delay_ms);
        for note in step.noted() {
            if delay.is_zero() {
                cx.send_local(note)?;
            } else {
                cx.send_after(delay, ENDPOINT, note)?;
            }
        }
        if !delay.is_zero() {
            cx.timeout(delay, Ring { tally: step.tally.clone(), ring: step.ring() })?;
        }
        self.handled.push(step.step);
        if step.last {
            cx.complete();
        }
        Ok(())
    }
}

impl Handle<Ring> for Tally {
    fn correlate(ring: &Ring) -> Correlation<'_> {
        (&ring.tally).into()
    }

    async fn handle(&mut self, ring: Ring, _: &mut Context) -> Result<(), HandlerError> {
        self.handled.push(ring.ring);
        Ok(())
    }
}

impl Step {
    /// What is to be sent.
    pub(crate) fn noted(&self) -> Vec<Note> {
        self.notes().into_iter().map(|note| Note { tally: self.tally.clone(), note }).collect()
    }
}

/// All notes, each time they were handled.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Notes {
    pub(crate) handled: Vec<String>,
}

impl Saga for Notes {
    const NAME: &'static str = "notes";
}

impl Handle<Note> for Notes {
    fn correlate(note: &Note) -> Correlation<'_> {
        (&note.tally).into()
    }

    async fn handle(&mut self, note: Note, _: &mut Context) -> Result<(), HandlerError> {
        self.handled.push(note.note);
        Ok(())
    }
}
