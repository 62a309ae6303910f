//! What a worker knows of a message that it sets aside.
//!
//! A letter and a save are kept by two systems. So between a worker's last look at the entity and its letter another copy
//! may be saved, and nothing but a refusal that the store keeps for ever could forbid it. What is claimed is what the order
//! of a worker's own calls can bring about: that it sets aside no message whose effects were saved when it last looked.

use hapax_core::envelope::Envelope;

use super::{
    calls::Op,
    judge::Judged,
    short::{Ask, Short},
    space::Space,
    state::State,
    trie::Work,
};

impl Space {
    /// Takes down which of the task's messages have taken effect now that it looks: when it loads the entity for them, reads
    /// its version or wins a save. What counts is how it is in truth, also if the task is told of an older time.
    pub(super) fn look(&self, state: &mut State, task: usize, op: u32, reply: &Short) {
        let asked = match (&*self.trie.ask(op), reply) {
            (Ask::Load { keys, .. }, Short::Loaded(..)) => *keys,
            (Ask::Version(_), Short::Version(_)) | (Ask::Save(_), Short::Saved(1..)) => u64::MAX,
            _ => return,
        };
        let Work::Deliver(messages) = self.trie.work(state.tasks[task].node) else { return };
        for (place, (copy, _)) in messages.iter().enumerate() {
            let message = self.tables.copies[usize::from(*copy)].identity;
            if asked >> self.tables.identities[usize::from(message)].known_by & 1 == 1 {
                let bit = 1 << place;
                let effect = if state.has_effect(message) { bit } else { 0 };
                state.tasks[task].looked = state.tasks[task].looked & !bit | effect;
            }
        }
    }

    /// A letter is the message as it came, or as it was to go, with a reason.
    pub(super) fn judge_content(&self, node: u32, op: u32) -> Judged {
        let Op::SetAside(letter) = self.trie.ops.get(op) else { return Ok(()) };
        let came = match self.trie.work(node) {
            Work::Deliver(messages) => messages.as_slice(),
            Work::Sweep(..) => &[],
        };
        let mut came = came.iter().map(|(copy, _)| &self.tables.copies[usize::from(*copy)].envelope);
        // One that could not be sent stood in an outbox, which is judged where it goes.
        let whole = letter.destination.is_some() || came.any(|envelope| **envelope == *letter.envelope);
        if whole && !letter.reason.is_empty() {
            return Ok(());
        }
        self.broken("letter_is_whole", || {
            let Envelope { message_id, body, .. } = &*letter.envelope;
            format!("{message_id} is set aside with {} bytes, since {:?}: not as it was", body.len(), letter.reason)
        })
    }

    /// What had taken effect when the task last looked is not set aside.
    pub(super) fn judge_letter(&self, state: &State, task: usize, message: Option<u8>) -> Judged {
        let Work::Deliver(messages) = self.trie.work(state.tasks[task].node) else { return Ok(()) };
        let of = |copy: &u8| message == Some(self.tables.copies[usize::from(*copy)].identity);
        let mut places = messages.iter().enumerate().filter(|(_, (copy, _))| of(copy));
        let looked = |place: usize| state.tasks[task].looked >> place & 1 == 1;
        match (message, places.any(|(place, _)| looked(place))) {
            (Some(message), true) => self.broken("no_letter_after_effect", || {
                format!("{} is set aside, and had taken effect when the worker last looked", self.name(message))
            }),
            _ => Ok(()),
        }
    }
}
