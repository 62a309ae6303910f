//! The steps out of a world: a call is answered, a worker begins or stops, something happens by itself.

use hapax_core::{ids::AttemptId, ports::Granted};

use super::{
    answers::{Answer, again},
    calls::{Op, Reply},
    claims::Broken,
    space::Space,
    state::{State, Task, push_sorted},
    trie::Work,
};

/// Steps out of a world, and where each leads: to another world, or to something that must not be.
pub(super) type Steps = Vec<(Step, Result<State, Broken>)>;

/// What leads from one world to the next.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A call is answered: task, call, name of the answer, what has gone wrong.
    Call { task: usize, op: u32, reply: u32, fault: &'static str },
    /// A worker begins.
    Begin(Work),
    /// A worker stops for good; so many messages of its dispatch have left.
    Crash { task: usize, sent: usize },
    /// All workers stop.
    ProcessCrash,
    /// A lease runs out: task, message.
    Expire { task: usize, message: u8 },
    /// A producer sends a message again.
    Duplicate(u8),
    /// A write that was under way is done, or never will be.
    Land { op: u32, done: bool },
    /// A mark is forgotten.
    Evict(u32),
}

impl Space {
    /// Every step from `state`, and where it leads.
    pub(super) fn steps(&mut self, state: &State) -> Result<Steps, String> {
        let mut steps = Vec::new();
        for task in 0..state.tasks.len() {
            if task > 0 && state.tasks[task] == state.tasks[task - 1] {
                continue; // Two of a kind: what one may do, the other may.
            }
            self.calls(state, task, &mut steps)?;
            self.crashes(state, task, &mut steps);
        }
        self.begins(state, &mut steps)?;
        self.troubles(state, &mut steps);
        Ok(steps)
    }

    fn calls(&mut self, state: &State, task: usize, steps: &mut Steps) -> Result<(), String> {
        let node = state.tasks[task].node;
        for (call, op) in self.trie.nodes[node as usize].open.clone() {
            let asked = self.trie.ops.get(op).clone();
            let answers = match self.answers(state, task, &asked) {
                Ok(answers) => answers,
                Err(broken) => {
                    let reply = self.trie.replies.of(Reply::Done);
                    steps.push((Step::Call { task, op, reply, fault: "" }, Err(broken)));
                    continue;
                }
            };
            for Answer { reply, fault, mut state } in answers {
                let name = self.trie.replies.of(reply.clone());
                let child = self.trie.child(node, call, reply)?;
                let mut running = state.tasks.remove(task);
                running.node = self.go_on(&mut state, child)?;
                let child = running.node;
                if self.trie.nodes[child as usize].open.is_empty() {
                    self.let_go(&mut state, running);
                } else {
                    push_sorted(&mut state.tasks, running);
                }
                steps.push((Step::Call { task, op, reply: name, fault }, Ok(state)));
            }
        }
        Ok(())
    }

    /// Answers what depends on nobody else and concerns nobody else, at once: in which order such calls of several tasks
    /// come makes no difference to anything that is claimed. A crash between them is one before the first.
    fn go_on(&mut self, state: &mut State, mut node: u32) -> Result<u32, String> {
        loop {
            let [(call, op)] = self.trie.nodes[node as usize].open[..] else { return Ok(node) };
            let reply = match self.trie.ops.get(op) {
                Op::Now => Reply::Now,
                Op::Monotonic if state.left.late == 0 => Reply::InTime(true),
                Op::Pause { tries, .. } if *tries > self.scenario.tries => Reply::Granted(Granted::Stop),
                Op::Pause { .. } => Reply::Granted(Granted::Try),
                Op::Attempt => self.attempt(state, node),
                _ => return Ok(node),
            };
            node = self.trie.child(node, call, reply)?;
        }
    }

    /// Counted for each message, so that tasks for different messages do not depend on each other's order.
    fn attempt(&self, state: &mut State, node: u32) -> Reply {
        let message = self.messages_of(node).first().map_or(0, |(message, _)| *message);
        let count = &mut state.attempts[usize::from(message)];
        *count += 1;
        Reply::Attempt(AttemptId::from_bytes((u128::from(message) << 64 | u128::from(*count)).to_be_bytes()))
    }

    /// What a task that is gone has held comes again.
    fn let_go(&self, state: &mut State, task: Task) {
        for (at, (message, given)) in self.messages_of(task.node).into_iter().enumerate() {
            if task.holds & (1 << at) != 0 {
                push_sorted(&mut state.ready, (message, again(given)));
            }
        }
    }

    fn crashes(&mut self, state: &State, task: usize, steps: &mut Steps) {
        if state.left.crashes == 0 {
            return;
        }
        let open = self.trie.nodes[state.tasks[task].node as usize].open.clone();
        let dispatched = open.iter().find_map(|(_, op)| match self.trie.ops.get(*op) {
            Op::Dispatch(outgoing) => Some(outgoing.clone()),
            _ => None,
        });
        let outgoing = dispatched.unwrap_or_default();
        for sent in 0..outgoing.len().max(1) {
            let mut after = state.clone();
            after.left.crashes -= 1;
            let gone = after.tasks.remove(task);
            self.let_go(&mut after, gone);
            let landed = self.land(&mut after, &Op::Dispatch(outgoing[..sent].to_vec()));
            steps.push((Step::Crash { task, sent }, landed.map(|()| after)));
        }
    }

    fn begins(&mut self, state: &State, steps: &mut Steps) -> Result<(), String> {
        if state.tasks.len() < self.scenario.tasks {
            for messages in self.passes(state) {
                let mut after = state.clone();
                for message in &messages {
                    let at = after.ready.iter().position(|copy| copy == message).expect("it is ready");
                    after.ready.remove(at);
                }
                let work = Work::Deliver(messages.clone());
                let node = self.trie.root(work.clone())?;
                let node = self.go_on(&mut after, node)?;
                let holds = u8::try_from((1_u32 << messages.len()) - 1).expect("few messages in a pass");
                push_sorted(&mut after.tasks, Task { node, holds });
                steps.push((Step::Begin(work), Ok(after)));
            }
        }
        // At rest the sweeper passes as often as it is needed.
        let quiet = state.is_quiet();
        for row in 0..state.rows.len() {
            let entries: Vec<AttemptId> = match state.rows[row].version {
                0 => Vec::new(),
                _ => self.facts(state.rows[row].entity).outbox.iter().map(|entry| entry.attempt).collect(),
            };
            if entries.is_empty() || !(quiet || state.left.sweeps > 0 && state.tasks.len() < self.scenario.tasks) {
                continue;
            }
            let mut after = state.clone();
            if !quiet {
                after.left.sweeps -= 1;
            }
            let work = Work::Sweep(u8::try_from(row).expect("few entities"), entries);
            let node = self.trie.root(work.clone())?;
            let node = self.go_on(&mut after, node)?;
            push_sorted(&mut after.tasks, Task { node, holds: 0 });
            steps.push((Step::Begin(work), Ok(after)));
        }
        Ok(())
    }

    /// What one worker may take: any copy, or several of one entity in any order.
    fn passes(&self, state: &State) -> Vec<Vec<(u8, u8)>> {
        let mut distinct = state.ready.clone();
        distinct.dedup();
        let mut passes: Vec<Vec<(u8, u8)>> = distinct.into_iter().map(|copy| vec![copy]).collect();
        if self.scenario.pass_max > 1 {
            let row = |copy: (u8, u8)| self.keys[usize::from(copy.0)].1;
            let mut pairs = Vec::new();
            for (at, first) in state.ready.iter().enumerate() {
                for (other, second) in state.ready.iter().enumerate() {
                    // A copy is told by its receipt, which here is its message.
                    if at != other && first.0 != second.0 && row(*first) == row(*second) {
                        pairs.push(vec![*first, *second]);
                    }
                }
            }
            pairs.sort();
            pairs.dedup();
            passes.extend(pairs);
        }
        passes
    }

    /// What happens by itself.
    fn troubles(&mut self, state: &State, steps: &mut Steps) {
        if state.left.process_crashes > 0 && state.tasks.len() > 1 {
            let mut after = state.clone();
            after.left.process_crashes -= 1;
            for task in std::mem::take(&mut after.tasks) {
                self.let_go(&mut after, task);
            }
            steps.push((Step::ProcessCrash, Ok(after)));
        }
        if state.left.expiries > 0 {
            for task in 0..state.tasks.len() {
                for (at, (message, given)) in self.messages_of(state.tasks[task].node).into_iter().enumerate() {
                    if state.tasks[task].holds & (1 << at) != 0 {
                        let mut after = state.clone();
                        after.left.expiries -= 1;
                        after.tasks[task].holds &= !(1 << at);
                        after.tasks.sort_unstable();
                        push_sorted(&mut after.ready, (message, again(given)));
                        steps.push((Step::Expire { task, message }, Ok(after)));
                    }
                }
            }
        }
        if state.left.duplicates > 0 {
            for message in 0..u8::try_from(self.scenario.messages.len()).expect("few messages") {
                let mut after = state.clone();
                after.left.duplicates -= 1;
                push_sorted(&mut after.ready, (message, 1));
                steps.push((Step::Duplicate(message), Ok(after)));
            }
        }
        for at in 0..state.limbo.len() {
            let op = state.limbo[at];
            let asked = self.trie.ops.get(op).clone();
            for done in [true, false] {
                let mut after = state.clone();
                after.limbo.remove(at);
                let landed = if done { self.land(&mut after, &asked) } else { Ok(()) };
                steps.push((Step::Land { op, done }, landed.map(|()| after)));
            }
        }
        if state.left.evictions > 0 {
            for at in 0..state.marks.len() {
                let mut after = state.clone();
                after.left.evictions -= 1;
                let mark = after.marks.remove(at);
                steps.push((Step::Evict(mark), Ok(after)));
            }
        }
    }
}
