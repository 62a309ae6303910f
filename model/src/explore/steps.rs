//! The steps out of a world: a call is answered, a worker begins or stops, something happens by itself.

use hapax_core::ids::AttemptId;
use smallvec::SmallVec;

use super::{
    answers::{Answer, How, RESTS, WELL},
    claims::Broken,
    short::{Ask, Short},
    space::Space,
    state::{Ready, State, Task, push_sorted},
    tables::fresh_attempt,
    trie::Work,
};

/// Steps out of a world, and where each leads: to another world, or to something that must not be.
pub(super) type Steps = Vec<(Step, Result<State, Broken>)>;
/// Answers that are given at once, after another.
pub(super) type Told = SmallVec<[u32; 4]>;

/// What leads from one world to the next.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A call is answered: task, call, name of the answer, what has gone wrong.
    Call { task: usize, op: u32, reply: u32, how: How, told: Told },
    /// A worker begins; which of its messages are given once more, as bits.
    Begin { work: Work, once_more: u8, told: Told },
    /// A worker stops for good; so many messages of its dispatch have left.
    Crash { task: usize, sent: usize },
    /// All workers stop.
    ProcessCrash,
    /// A lease runs out: task, place in its pass.
    Expire { task: usize, place: usize },
    /// A write that was under way is done, or never will be.
    Land { op: u32, done: bool },
    /// A mark is forgotten.
    Evict(u32),
    /// A message comes once more, and waits in its queue: where nothing is reduced.
    Come(Ready),
}

/// How a task goes on until it waits for somebody else.
#[derive(Debug, Clone)]
struct Way {
    state: State,
    node: u32,
    told: Told,
}

type Ways = SmallVec<[Way; 1]>;

/// What a worker may take, and which of it is given once more.
type Pass = (SmallVec<[Ready; 2]>, u8);

impl Space {
    /// Every step from `state`, and where it leads; `steps` is cleared first.
    pub(super) fn steps(&mut self, state: &State, steps: &mut Steps) -> Result<(), String> {
        steps.clear();
        // The end of a delivery concerns its own message alone, which nobody else has: whatever others do first, they may
        // do after it as well. Unless a lease may run out before it, or a process may stop.
        if self.scenario.reduced
            && state.left.expiries == 0
            && state.left.process_crashes == 0
            && let Some(task) = (0..state.tasks.len()).find(|task| self.is_settling(state, *task))
        {
            self.calls(state, task, steps)?;
            self.crashes(state, task, steps);
            return Ok(());
        }
        for task in 0..state.tasks.len() {
            if task > 0 && state.tasks[task] == state.tasks[task - 1] {
                continue; // Two of a kind: what one may do, the other may.
            }
            self.calls(state, task, steps)?;
            self.crashes(state, task, steps);
        }
        self.begins(state, steps)?;
        self.sweeps(state, steps)?;
        self.troubles(state, steps);
        Ok(())
    }

    fn is_settling(&self, state: &State, task: usize) -> bool {
        match self.trie.nodes[state.tasks[task].node as usize].open[..] {
            [(_, op)] => matches!(*self.trie.ask(op), Ask::Settle(..)),
            _ => false,
        }
    }

    fn calls(&mut self, state: &State, task: usize, steps: &mut Steps) -> Result<(), String> {
        let node = state.tasks[task].node;
        for (call, op) in self.trie.nodes[node as usize].open.clone() {
            let answers = match self.answers(state, task, op) {
                Ok(answers) => answers,
                Err(broken) => {
                    let reply = self.trie.replies.of(Short::Done);
                    steps.push((Step::Call { task, op, reply, how: WELL, told: Told::new() }, Err(broken)));
                    continue;
                }
            };
            for Answer { reply, how, mut state } in answers {
                self.look(&mut state, task, op, &reply);
                self.owe(&mut state, task, op, &reply);
                let reply = self.trie.replies.of(reply);
                let child = self.trie.child(&mut self.tables, node, call, reply)?;
                let running = state.tasks.remove(task);
                self.go_outside(&mut state, child);
                let mut ways: Ways = SmallVec::new();
                ways.push(Way { state, node: child, told: Told::new() });
                while let Some(mut way) = ways.pop() {
                    self.go_on(&mut way, &mut ways)?;
                    let Way { mut state, node, told } = way;
                    let running = Task { node, ..running };
                    if self.trie.nodes[node as usize].open.is_empty() {
                        self.let_go(&mut state, running);
                    } else {
                        push_sorted(&mut state.tasks, running);
                    }
                    steps.push((Step::Call { task, op, reply, how, told }, Ok(state)));
                }
            }
        }
        Ok(())
    }

    /// Answers what depends on nobody else and concerns nobody else, at once: in which order such calls of several tasks
    /// come makes no difference to anything that is claimed. A crash between them is one before the first. Where there may
    /// be no other try though one could be granted, that is another of `ways`.
    fn go_on(&mut self, way: &mut Way, ways: &mut Ways) -> Result<(), String> {
        loop {
            let [(call, op)] = self.trie.nodes[way.node as usize].open[..] else { return Ok(()) };
            let reply = match *self.trie.ask(op) {
                // What is sent once more is what was stored: whoever works out something anew then, shows.
                Ask::Now if matches!(self.trie.work(way.node), Work::Sweep(..)) => Short::Later,
                Ask::Now => Short::Now,
                Ask::Monotonic if way.state.left.late == 0 => Short::InTime(true),
                Ask::Pause(_, tries) => {
                    let granted = tries <= self.scenario.tries;
                    if granted {
                        let mut other = way.clone();
                        self.tell(&mut other, call, Short::StopsEarly)?;
                        ways.push(other);
                    }
                    Short::Granted(granted)
                }
                Ask::Attempt => self.attempt(&mut way.state, way.node)?,
                _ => return Ok(()),
            };
            self.tell(way, call, reply)?;
        }
    }

    fn tell(&mut self, way: &mut Way, call: u32, reply: Short) -> Result<(), String> {
        let reply = self.trie.replies.of(reply);
        way.told.push(reply);
        way.node = self.trie.child(&mut self.tables, way.node, call, reply)?;
        self.go_outside(&mut way.state, way.node);
        Ok(())
    }

    /// An attempt that nobody remembers.
    fn attempt(&self, state: &mut State, node: u32) -> Result<Short, String> {
        let message = match self.trie.work(node) {
            Work::Deliver(messages) => {
                messages.first().map_or(0, |(copy, _)| self.tables.copies[usize::from(*copy)].identity)
            }
            Work::Sweep(..) => 0,
        };
        if let Some(drawn) = state.drawn.get_mut(usize::from(message)) {
            *drawn += 1;
            return Ok(Short::Attempt(message, *drawn - 1));
        }
        let mut used = self.trie.nodes[node as usize].attempts;
        for row in &state.rows {
            for (version, entity) in [(row.version, row.entity), row.before] {
                used |= if version > 0 { self.tables.facts(entity).attempts } else { 0 };
            }
        }
        used |= state.tasks.iter().fold(0, |used, task| used | self.trie.nodes[task.node as usize].attempts);
        used |= state.marks.iter().fold(0, |used, mark| used | self.tables.mark_facts(*mark).attempts);
        used |= state.limbo.iter().fold(0, |used, op| used | self.trie.made_of(*op).1);
        let number = fresh_attempt(message, used).ok_or("more attempts at one message at a time than fit a mask")?;
        Ok(Short::Attempt(message, number))
    }

    /// What a task that is gone has held comes again.
    pub(super) fn let_go(&self, state: &mut State, task: Task) {
        if let Work::Deliver(messages) = self.trie.work(task.node) {
            for (place, (copy, given)) in messages.iter().enumerate() {
                if task.holds & (1 << place) != 0 {
                    push_sorted(&mut state.ready, (*copy, self.again(*given)));
                }
            }
        }
    }

    fn crashes(&self, state: &State, task: usize, steps: &mut Steps) {
        if state.left.crashes == 0 {
            return;
        }
        let open = &self.trie.nodes[state.tasks[task].node as usize].open;
        let outgoing = open.iter().find_map(|(_, op)| match &*self.trie.ask(*op) {
            Ask::Dispatch(outgoing) => Some(outgoing.clone()),
            _ => None,
        });
        let outgoing = outgoing.unwrap_or_default();
        for sent in 0..outgoing.len().max(1) {
            let mut after = state.clone();
            after.left.crashes -= 1;
            let gone = after.tasks.remove(task);
            self.let_go(&mut after, gone);
            let landed = self.land(&mut after, &Ask::Dispatch(outgoing[..sent].into()));
            steps.push((Step::Crash { task, sent }, landed.map(|()| after)));
        }
    }

    fn begins(&mut self, state: &State, steps: &mut Steps) -> Result<(), String> {
        if state.tasks.len() >= self.scenario.tasks {
            return Ok(());
        }
        for (messages, once_more) in self.passes(state) {
            let mut after = state.clone();
            for (place, message) in messages.iter().enumerate() {
                if once_more & (1 << place) == 0 {
                    let at = after.ready.iter().position(|copy| copy == message).expect("it is ready");
                    after.ready.remove(at);
                } else {
                    after.left.duplicates -= 1;
                }
            }
            let holds = u8::try_from((1_u32 << messages.len()) - 1).expect("few messages in a pass");
            let messages = messages.into_iter().map(|(copy, given)| (copy, given & !RESTS)).collect();
            self.begin(after, Work::Deliver(messages), once_more, holds, steps)?;
        }
        Ok(())
    }

    fn begin(&mut self, after: State, work: Work, once_more: u8, holds: u8, steps: &mut Steps) -> Result<(), String> {
        let node = self.trie.root(&mut self.tables, &work)?;
        let mut ways: Ways = SmallVec::new();
        ways.push(Way { state: after, node, told: Told::new() });
        while let Some(mut way) = ways.pop() {
            self.go_on(&mut way, &mut ways)?;
            let Way { state: mut after, node, told } = way;
            let task = Task { node, holds, ..Task::default() };
            if self.trie.nodes[node as usize].open.is_empty() {
                self.let_go(&mut after, task);
            } else {
                push_sorted(&mut after.tasks, task);
            }
            steps.push((Step::Begin { work: work.clone(), once_more, told }, Ok(after)));
        }
        Ok(())
    }

    /// The sweeper passes at rest as often as it is needed, and now and then while others work.
    fn sweeps(&mut self, state: &State, steps: &mut Steps) -> Result<(), String> {
        let all_rest = self.scenario.sweeper_first && state.ready.iter().all(|(_, given)| given & RESTS != 0);
        let quiet = state.is_quiet() || all_rest && state.tasks.is_empty() && state.limbo.is_empty();
        if !quiet && (state.left.sweeps == 0 || state.tasks.len() >= self.scenario.tasks) {
            return Ok(());
        }
        for row in 0..state.rows.len() {
            if state.rows[row].version == 0 {
                continue;
            }
            let outbox = &self.tables.facts(state.rows[row].entity).outbox;
            let entries: SmallVec<[AttemptId; 2]> = outbox.iter().map(|entry| entry.attempt).collect();
            if entries.is_empty() {
                continue;
            }
            let mut after = state.clone();
            if !quiet {
                after.left.sweeps -= 1;
            }
            self.begin(after, Work::Sweep(u8::try_from(row).expect("few entities"), entries), 0, 0, steps)?;
        }
        Ok(())
    }

    /// What one worker may take: any copy, or several of one entity in any order. A message that is given once more
    /// could as well have waited in its queue since it was there for the first time.
    fn passes(&self, state: &State) -> Vec<Pass> {
        let mut distinct = state.ready.clone();
        distinct.dedup();
        distinct.retain(|(copy, given)| *given & RESTS == 0 || self.is_rested(state, *copy));
        let mut more: SmallVec<[Ready; 4]> = SmallVec::new();
        if state.left.duplicates > 0 && self.scenario.reduced {
            more = self.once_more(state);
        }
        let one = |copy: Ready, once_more: u8| (SmallVec::from_slice(&[copy]), once_more);
        let mut passes: Vec<Pass> = distinct.iter().map(|copy| one(*copy, 0)).collect();
        passes.extend(more.iter().map(|copy| one(*copy, 1)));
        if self.scenario.pass_max > 1 {
            let row = |copy: Ready| self.tables.copies[usize::from(copy.0)].row;
            let there = |copy: Ready| state.ready.iter().filter(|other| **other == copy).count();
            let all: Vec<(Ready, u8)> =
                distinct.iter().map(|copy| (*copy, 0)).chain(more.iter().map(|copy| (*copy, 1))).collect();
            for (first, first_more) in &all {
                for (second, second_more) in &all {
                    let twice = first == second && first_more + second_more == 0 && there(*first) < 2;
                    let dear = first_more + second_more > state.left.duplicates;
                    if row(*first) == row(*second) && !twice && !dear {
                        passes.push((SmallVec::from_slice(&[*first, *second]), first_more | second_more << 1));
                    }
                }
            }
        }
        passes
    }

    /// What may be given once more: what was there, or has been sent.
    pub(super) fn once_more(&self, state: &State) -> SmallVec<[Ready; 4]> {
        let first = u8::try_from(self.tables.first_copies).expect("few messages");
        let sent = state.sent.iter().filter_map(|name| self.tables.outgoing_facts(*name).copy);
        (0..first).filter(|copy| self.is_queued(state, *copy)).chain(sent).map(|copy| (copy, 1)).collect()
    }

    /// Nothing else is left to do for the entity of a message that has failed, or that found its outbox full.
    fn is_rested(&self, state: &State, copy: u8) -> bool {
        let row = |copy: u8| self.tables.copies[usize::from(copy)].row;
        let works = |task: &Task| match self.trie.work(task.node) {
            Work::Deliver(messages) => messages.iter().any(|(other, _)| row(*other) == row(copy)),
            Work::Sweep(of, _) => *of == row(copy),
        };
        let waits = |(other, given): &Ready| given & RESTS == 0 && row(*other) == row(copy);
        let stored = state.row(row(copy));
        let swept =
            !self.scenario.sweeper_first || stored.version == 0 || self.tables.facts(stored.entity).outbox.is_empty();
        swept && !state.tasks.iter().any(works) && !state.ready.iter().any(waits)
    }
}
