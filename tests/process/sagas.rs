//! The sagas of the crashed processes: they write down what they have handled, so that the books can be made from the file
//! alone.

use hapax::{Context, Correlation, Handle, HandlerError, Message, Saga};
use serde::{Deserialize, Serialize};

use crate::tally::Step;

/// What a tally sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) tally: String,
    pub(crate) note: String,
}

impl Message for Note {
    const TYPE: &'static str = "crash.note";
}

/// All steps, each time they were handled.
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
        for number in 0..step.notes {
            cx.send_local(Note { tally: step.tally.clone(), note: format!("{}/{number}", step.step) })?;
        }
        self.handled.push(step.step);
        if step.last {
            cx.complete();
        }
        Ok(())
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
