//! What happens by itself: processes stop, leases run out, writes land late, copies come, marks are forgotten.

use super::{
    scenario::Evicts,
    space::Space,
    state::{State, Task, push_sorted},
    steps::{Step, Steps},
    trie::Work,
};

impl Space {
    /// What happens by itself.
    pub(super) fn troubles(&self, state: &State, steps: &mut Steps) {
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
                let Work::Deliver(messages) = self.trie.work(state.tasks[task].node) else { continue };
                for (place, (copy, given)) in messages.iter().enumerate() {
                    if state.tasks[task].holds & (1 << place) != 0 {
                        let mut after = state.clone();
                        after.left.expiries -= 1;
                        after.tasks[task].holds &= !(1 << place);
                        after.tasks.sort_unstable();
                        push_sorted(&mut after.ready, (*copy, self.again(*given)));
                        steps.push((Step::Expire { task, place }, Ok(after)));
                    }
                }
            }
        }
        for at in 0..state.limbo.len() {
            let op = state.limbo[at];
            for done in [true, false] {
                let mut after = state.clone();
                after.limbo.remove(at);
                let landed = if done { self.land(&mut after, &self.trie.ask(op)) } else { Ok(()) };
                steps.push((Step::Land { op, done }, landed.map(|()| after)));
            }
        }
        if state.left.duplicates > 0 && !self.scenario.reduced {
            for copy in self.once_more(state) {
                let mut after = state.clone();
                after.left.duplicates -= 1;
                push_sorted(&mut after.ready, copy);
                steps.push((Step::Come(copy), Ok(after)));
            }
        }
        if state.left.evictions > 0 {
            for at in (0..state.marks.len()).filter(|at| self.may_go(state, state.marks[*at])) {
                let mut after = state.clone();
                after.left.evictions -= 1;
                let mark = after.marks.remove(at);
                if self.scenario.evicts == Evicts::Folded {
                    after.folded |= 1 << self.tables.mark_facts(mark).key;
                }
                for task in after.tasks.iter_mut().filter(|task| usize::from(task.seen) > at) {
                    task.seen -= 1;
                }
                after.tasks.sort_unstable();
                steps.push((Step::Evict(mark), Ok(after)));
            }
        }
    }

    /// Whether what is promised to whoever evicts allows it.
    fn may_go(&self, state: &State, mark: u32) -> bool {
        if self.scenario.evicts != Evicts::Gone {
            return true;
        }
        let message = self.tables.mark_facts(mark).message;
        let is_its = |copy: u8| self.tables.copies[usize::from(copy)].identity == message;
        let works = |task: &Task| match self.trie.work(task.node) {
            Work::Deliver(messages) => messages.iter().any(|(copy, _)| is_its(*copy)),
            Work::Sweep(..) => false,
        };
        !state.ready.iter().any(|(copy, _)| is_its(*copy)) && !state.tasks.iter().any(works)
    }
}
