//! All ways in which one port call may go: each an answer and the world after it.

use smallvec::SmallVec;

use super::{
    calls::{Failure, Op},
    claims::Broken,
    replies::{answered, owed},
    scenario::{Reads, Refusal},
    short::{Ask, Marks, Settling, Short},
    space::Space,
    state::{State, push_sorted},
    writes::set_aside,
};

/// An answer, what has gone wrong for it, and the world after it.
pub(super) struct Answer {
    pub(super) reply: Short,
    pub(super) how: How,
    pub(super) state: State,
}

/// What has gone wrong, and for which of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct How {
    pub(super) fault: &'static str,
    pub(super) at: u8,
}

pub(super) const WELL: How = fault("");

pub(super) const fn fault(fault: &'static str) -> How {
    How { fault, at: 0 }
}

pub(super) const DONE: &str = "done, but not confirmed";
pub(super) const LEFT: &str = "left to the next save";
pub(super) const TOLD_LOST: &str = "it won, and was told that it lost";
const UNKNOWN: How = fault(DONE);
const UNDER_WAY: How = fault("not confirmed, under way");
const REFUSED: How = fault("refused");
const NEVER: How = fault("can never be sent");

/// Beside the number of times that a message was given: it has failed, and rests.
pub(super) const RESTS: u8 = 1 << 7;

pub(super) type Answers = SmallVec<[Answer; 4]>;

fn well(reply: Short, state: State) -> Answer {
    Answer { reply, how: WELL, state }
}

impl Space {
    /// How the call `op` of a task at `state` may go; `task` is its place in the list.
    pub(super) fn answers(&mut self, state: &State, task: usize, op: u32) -> Result<Answers, Broken> {
        let ask = self.trie.ask(op);
        match &*ask {
            Ask::Monotonic => Ok(deadline(state)),
            Ask::Now | Ask::Attempt | Ask::Pause(..) => unreachable!("{ask:?} is answered at once"),
            Ask::Load { row, keys } => Ok(self.loads(state, task, *row, *keys)),
            Ask::Contains(keys) => {
                let looks = self.looks(state, task, *keys).into_iter();
                let mut answers: Answers = looks
                    .map(|look| Answer {
                        reply: Short::Known(look.known),
                        how: look.how,
                        state: saw(state, task, look.seen),
                    })
                    .collect();
                self.refused_read(state, &mut answers);
                Ok(answers)
            }
            Ask::Recall(keys) => {
                let mut answers: Answers = SmallVec::new();
                answers.push(well(Short::Recalled(state.folded & keys), state.clone()));
                self.refused_read(state, &mut answers);
                Ok(answers)
            }
            Ask::Version(row) => {
                let mut answers: Answers = SmallVec::new();
                answers.push(well(Short::Version(state.row(*row).version), state.clone()));
                self.refused_read(state, &mut answers);
                Ok(answers)
            }
            Ask::Save(save) => {
                let mut answers = self.write(state, op, &|space, state| {
                    let version = space.save(state, save)?;
                    if version > 0 && !save.processed.is_empty() {
                        space.own_writes(state, task);
                    }
                    Ok(Short::Saved(version))
                })?;
                own_conflict(&mut answers);
                self.too_large(state, &mut answers);
                Ok(answers)
            }
            Ask::Finish { row, done, clean_up } => {
                let mut answers = self.write(state, op, &|space, state| {
                    let finished = space.finish(state, *row, done, *clean_up)?;
                    space.own_writes(state, task);
                    Ok(Short::Finished(finished))
                })?;
                own_conflict(&mut answers);
                self.marks_partly(state, task, done, clean_up.is_some(), &mut answers)?;
                if self.scenario.rides && state.tasks.len() > 1 && clean_up.is_some() {
                    let mut after = state.clone();
                    self.mark(&mut after, done)?;
                    self.own_writes(&mut after, task);
                    answers.push(Answer { reply: Short::Finished(None), how: fault(LEFT), state: after });
                }
                Ok(answers)
            }
            Ask::Insert(done) => {
                let mut answers = self.write(state, op, &|space, state| {
                    space.mark(state, done)?;
                    space.own_writes(state, task);
                    Ok(Short::Done)
                })?;
                self.marks_partly(state, task, done, false, &mut answers)?;
                Ok(answers)
            }
            Ask::Dispatch(outgoing) => self.dispatches(state, op, outgoing),
            Ask::SetAside(message) => {
                self.judge_letter(state, task, *message)?;
                self.judge_content(state.tasks[task].node, op)?;
                let mut answers = self.write(state, op, &|_, state| {
                    set_aside(state, *message);
                    Ok(Short::Done)
                })?;
                self.too_large(state, &mut answers);
                Ok(answers)
            }
            Ask::Park(outgoing) => {
                self.judge_content(state.tasks[task].node, op)?;
                let mut answers = self.write(state, op, &|space, state| {
                    space.park(state, *outgoing)?;
                    Ok(Short::Done)
                })?;
                self.too_large(state, &mut answers);
                Ok(answers)
            }
            Ask::Settle(place, how) => self.settles(state, task, *place, *how),
        }
    }

    /// A write goes well, is refused, is done and not confirmed, or is still under way when it fails.
    fn write(
        &self,
        state: &State,
        op: u32,
        apply: &dyn Fn(&Self, &mut State) -> Result<Short, Broken>,
    ) -> Result<Answers, Broken> {
        let mut done = state.clone();
        let reply = apply(self, &mut done)?;
        let mut answers: Answers = SmallVec::new();
        if state.left.unknown > 0 {
            let mut state = done.clone();
            state.left.unknown -= 1;
            answers.push(Answer { reply: Short::Failed(Failure::Unknown), how: UNKNOWN, state });
        }
        if state.left.delayed > 0 {
            let mut state = state.clone();
            state.left.delayed -= 1;
            push_sorted(&mut state.limbo, op);
            answers.push(Answer { reply: Short::Failed(Failure::Unknown), how: UNDER_WAY, state });
        }
        answers.extend(refused(state));
        answers.push(well(reply, done));
        Ok(answers)
    }

    fn loads(&self, state: &State, task: usize, row: u8, keys: u64) -> Answers {
        let stored = state.row(row);
        let mut answers: Answers = SmallVec::new();
        let mut read = |version: u8, entity: u32, how: How, state: State| {
            let entity = if version > 0 { entity } else { 0 };
            if !self.scenario.together {
                answers.push(Answer { reply: Short::Loaded(version, entity, None), how, state });
                return;
            }
            let entries = if version > 0 { self.tables.facts(entity).keys } else { 0 };
            for look in self.looks(&state, task, keys | entries) {
                let how = if how == WELL { look.how } else { how };
                let reply = Short::Loaded(version, entity, Some(look.known));
                answers.push(Answer { reply, how, state: saw(&state, task, look.seen) });
            }
        };
        read(stored.version, stored.entity, WELL, state.clone());
        if state.left.stale_loads > 0 && stored.version > 0 {
            let mut state = state.clone();
            state.left.stale_loads -= 1;
            read(stored.before.0, stored.before.1, fault("as it was before the last save"), state);
        }
        self.refused_read(state, &mut answers);
        answers
    }

    /// A read is refused, also for good.
    fn refused_read(&self, state: &State, answers: &mut Answers) {
        answers.extend(refused(state));
        if self.scenario.refused_as.contains(&Refusal::Malformed) {
            answers.extend(refused_as(state, Failure::Malformed, fault("cannot be read")));
        }
    }

    /// What a reader may be told of `keys`, and how many entries it has seen then.
    fn looks(&self, state: &State, task: usize, keys: u64) -> SmallVec<[Look; 2]> {
        let of_first = |seen: usize| -> Marks {
            let known = |mark: &&u32| keys >> self.tables.mark_facts(**mark).key & 1 == 1;
            let mut known: Marks = state.marks[..seen].iter().filter(known).copied().collect();
            known.sort_unstable();
            known
        };
        let all = state.marks.len();
        let session = self.scenario.reads == Reads::Session;
        let oldest = match self.scenario.reads {
            Reads::Linearizable => all,
            Reads::Lagging(marks) => all.saturating_sub(marks.into()),
            Reads::Session => usize::from(state.tasks[task].seen).min(all),
            Reads::Eventual => 0,
        };
        let mut looks: SmallVec<[Look; 2]> = SmallVec::new();
        for seen in (oldest..=all).rev() {
            let (known, missing) = (of_first(seen), u8::try_from(all - seen).unwrap_or(u8::MAX));
            let how =
                if missing == 0 { WELL } else { How { fault: "not seen yet, of the newest entries:", at: missing } };
            let number = if session { u8::try_from(seen).unwrap_or(u8::MAX) } else { 0 };
            match looks.iter_mut().find(|look| look.known == known) {
                Some(look) => look.seen = number, // Who has seen less may see anything that one who has seen more may.
                None => looks.push(Look { known, seen: number, how }),
            }
        }
        looks
    }

    /// What is written is over a limit.
    fn too_large(&self, state: &State, answers: &mut Answers) {
        if self.scenario.refused_as.contains(&Refusal::TooLarge) {
            answers.extend(refused_as(state, Failure::TooLarge, fault("too large")));
        }
    }

    /// All go well, or one of them fails in some way, or several are refused.
    fn dispatches(&mut self, state: &State, op: u32, outgoing: &[u32]) -> Result<Answers, Broken> {
        let mut all = state.clone();
        outgoing.iter().try_for_each(|one| self.send(&mut all, *one))?;
        let mut answers: Answers = SmallVec::new();
        for at in 0..outgoing.len() {
            let reply = |failure| {
                Short::Dispatched((0..outgoing.len()).map(|other| (other == at).then_some(failure)).collect())
            };
            let how = |how: How| How { at: u8::try_from(at).unwrap_or(u8::MAX), ..how };
            if state.left.unknown > 0 {
                let mut state = all.clone();
                state.left.unknown -= 1;
                answers.push(Answer { reply: reply(Failure::Unknown), how: how(UNKNOWN), state });
            }
            if state.left.delayed == 0 && state.left.refused == 0 && state.left.unroutable == 0 {
                continue;
            }
            let mut others = state.clone();
            for (other, one) in outgoing.iter().enumerate() {
                if other != at {
                    self.send(&mut others, *one)?;
                }
            }
            if state.left.delayed > 0 {
                let mut state = others.clone();
                state.left.delayed -= 1;
                let one = self.dispatch_of(op, at);
                push_sorted(&mut state.limbo, one);
                answers.push(Answer { reply: reply(Failure::Unknown), how: how(UNDER_WAY), state });
            }
            if state.left.unroutable > 0 {
                let mut state = others.clone();
                state.left.unroutable -= 1;
                answers.push(Answer { reply: reply(Failure::Never), how: how(NEVER), state });
            }
            if state.left.refused > 0 {
                others.left.refused -= 1;
                answers.push(Answer { reply: reply(Failure::Refused), how: how(REFUSED), state: others });
            }
        }
        self.several_refused(state, outgoing, &mut answers)?;
        let results = outgoing.iter().map(|_| None).collect();
        answers.push(well(Short::Dispatched(results), all));
        Ok(answers)
    }

    /// The call that dispatches only one of those of `op`.
    fn dispatch_of(&mut self, op: u32, at: usize) -> u32 {
        let Op::Dispatch(outgoing) = self.trie.ops.get(op) else { return op };
        let one = Op::Dispatch(vec![outgoing[at].clone()]);
        self.trie.op(&mut self.tables, 0, one)
    }

    fn settles(&self, state: &State, task: usize, place: u8, how: Settling) -> Result<Answers, Broken> {
        let super::trie::Work::Deliver(messages) = self.trie.work(state.tasks[task].node) else {
            return Ok(SmallVec::new());
        };
        let Some((copy, given)) = messages.get(usize::from(place)).copied() else { return Ok(SmallVec::new()) };
        let mut answers: Answers = SmallVec::new();
        let bit = 1 << place;
        if state.tasks[task].holds & bit == 0 {
            answers.push(well(Short::Settled(false), state.clone()));
            return Ok(answers);
        }
        let mut done = state.clone();
        done.tasks[task].holds &= !bit;
        let owed = owed(place);
        done.tasks[task].looked &= !(bit | owed | answered(place));
        match how {
            Settling::Ack => self.judge_acked(&done, copy, self.answer_to(state, task, place))?,
            Settling::Retry { counts } => {
                let rests = if counts { self.scenario.rests } else { self.scenario.sweeper_first };
                let rests = if rests { RESTS } else { 0 };
                let given = if counts { self.again(given) } else { given };
                push_sorted(&mut done.ready, (copy, given | rests));
            }
            Settling::DeadLetter => {
                let message = Some(self.tables.copies[usize::from(copy)].identity);
                self.judge_letter(state, task, message)?;
                set_aside(&mut done, message);
            }
        }
        if state.left.unknown > 0 {
            let mut state = done.clone();
            state.left.unknown -= 1;
            answers.push(Answer { reply: Short::Failed(Failure::Unknown), how: UNKNOWN, state });
        }
        answers.extend(refused(state));
        answers.push(well(Short::Settled(true), done));
        Ok(answers)
    }
}

/// What a reader may be told.
struct Look {
    known: Marks,
    /// How many entries it has seen then, where that matters.
    seen: u8,
    how: How,
}

fn saw(state: &State, task: usize, seen: u8) -> State {
    let mut state = state.clone();
    state.tasks[task].seen = state.tasks[task].seen.max(seen);
    state
}

fn deadline(state: &State) -> Answers {
    let mut answers: Answers = SmallVec::new();
    answers.push(well(Short::InTime(true), state.clone()));
    if state.left.late > 0 {
        let mut state = state.clone();
        state.left.late -= 1;
        answers.push(Answer { reply: Short::InTime(false), how: fault("the deadline has passed"), state });
    }
    answers
}

fn refused(state: &State) -> Option<Answer> {
    refused_as(state, Failure::Refused, REFUSED)
}

fn refused_as(state: &State, failure: Failure, how: How) -> Option<Answer> {
    let mut after = state.clone();
    after.left.refused = state.left.refused.checked_sub(1)?;
    Some(Answer { reply: Short::Failed(failure), how, state: after })
}

/// What won, which is the last of `answers`, may be told that it lost.
fn own_conflict(answers: &mut Answers) {
    let Some(won) = answers.last() else { return };
    let reply = match won.reply {
        Short::Saved(1..) => Short::Saved(0),
        Short::Finished(Some(1..)) => Short::Finished(None),
        _ => return,
    };
    if won.state.left.own_conflicts > 0 {
        let mut state = won.state.clone();
        state.left.own_conflicts -= 1;
        answers.push(Answer { reply, how: fault(TOLD_LOST), state });
    }
}
