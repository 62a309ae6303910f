//! Calls of several parts of which a part is done: their ports promise each part, and not that all are done together.

use smallvec::SmallVec;

use super::{
    answers::{Answer, Answers, How, fault},
    calls::Failure,
    claims::Broken,
    short::{Marks, Short},
    space::Space,
    state::State,
};

pub(super) const PART: &str = "a part is marked, not confirmed:";
pub(super) const NOT_CLEANED_UP: &str = "marked and not cleaned up, not confirmed";

impl Space {
    /// Of `done` any part is written, then the call fails with an unknown outcome; if something was to be cleaned up after
    /// them, all of them, too.
    pub(super) fn marks_partly(
        &self,
        state: &State,
        task: usize,
        done: &Marks,
        cleans_up: bool,
        answers: &mut Answers,
    ) -> Result<(), Broken> {
        if state.left.unknown == 0 {
            return Ok(());
        }
        let all = (1_u32 << done.len()) - 1;
        for part in 1..=all {
            if part == all && !cleans_up {
                continue; // That is the whole call.
            }
            let some: Marks = (0..).zip(done).filter(|(at, _)| part >> at & 1 == 1).map(|(_, mark)| *mark).collect();
            let mut after = state.clone();
            after.left.unknown -= 1;
            self.mark(&mut after, &some)?;
            self.own_writes(&mut after, task);
            let how = if part == all {
                fault(NOT_CLEANED_UP)
            } else {
                How { fault: PART, at: u8::try_from(part).unwrap_or(u8::MAX) }
            };
            answers.push(Answer { reply: Short::Failed(Failure::Unknown), how, state: after });
        }
        Ok(())
    }

    /// All from one of `outgoing` on are refused, those before it have left; or all are refused but one, which can never be
    /// sent.
    pub(super) fn several_refused(&self, state: &State, outgoing: &[u32], answers: &mut Answers) -> Result<(), Broken> {
        if state.left.refused == 0 || outgoing.len() < 2 {
            return Ok(());
        }
        let mut before = state.clone();
        before.left.refused -= 1;
        let none = before.clone();
        let reply = |result: &dyn Fn(usize) -> Option<Failure>| {
            Short::Dispatched((0..outgoing.len()).map(result).collect::<SmallVec<_>>())
        };
        let at = |at: usize| u8::try_from(at).unwrap_or(u8::MAX);
        for (first, one) in outgoing[..outgoing.len() - 1].iter().enumerate() {
            let how = How { fault: "refused, and all after it", at: at(first) };
            let reply = reply(&|other| (other >= first).then_some(Failure::Refused));
            answers.push(Answer { reply, how, state: before.clone() });
            self.send(&mut before, *one)?;
        }
        if state.left.unroutable > 0 {
            for never in 0..outgoing.len() {
                let mut after = none.clone();
                after.left.unroutable -= 1;
                let how = How { fault: "can never be sent, and all others refused", at: at(never) };
                let reply = reply(&|other| Some(if other == never { Failure::Never } else { Failure::Refused }));
                answers.push(Answer { reply, how, state: after });
            }
        }
        Ok(())
    }
}
