//! Random runs with all tasks alive together, sharing one manager as in a process, and after each step the question
//! whether they ask what the histories say: whoever keeps something between two deliveries is found out.

use std::sync::{Arc, Mutex};

use hapax_core::manager::Passes;

use super::{
    calls::Op,
    scenario::Scenario,
    space::{Space, begin, managers},
    state::Task,
    steps::{Step, Steps, Told},
    trie::{Running, poll},
    wire::{Line, Wire, lock},
};

/// What a cross-check has looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrossCheck {
    /// Runs from the beginning to the end.
    pub runs: usize,
    /// Steps of these.
    pub steps: usize,
}

/// Steps of one run at most; all end long before.
const STEPS_MAX: usize = 10_000;

/// A task that is not where any task of the world was.
const MOVED: Task = Task { node: u32::MAX, holds: 0, seen: 0, looked: 0 };

struct Live {
    task: Task,
    running: Running,
    line: Arc<Mutex<Line>>,
}

/// Takes random steps until all is over, `runs` times; the same `seed` takes the same ones. What is claimed is not judged
/// here.
///
/// # Errors
/// When tasks that live together do something else than a task that lives alone.
pub fn cross_check(scenario: &Scenario, seed: u64, runs: usize) -> Result<CrossCheck, String> {
    let mut space = Space::new(scenario.clone())?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut check = CrossCheck::default();
    for run in 0..runs {
        check.runs += 1;
        check.steps +=
            walk(&mut space, scenario, &mut random).map_err(|why| format!("seed {seed}, run {run}: {why}"))?;
    }
    Ok(check)
}

fn walk(space: &mut Space, scenario: &Scenario, random: &mut fastrand::Rng) -> Result<usize, String> {
    let wire = Wire::of(scenario);
    let managers = managers(scenario, &wire);
    let (mut state, mut lives, mut steps) = (space.initial(), Vec::<Live>::new(), Steps::new());
    for taken in 0..STEPS_MAX {
        space.steps(&state, &mut steps)?;
        if steps.is_empty() {
            return Ok(taken);
        }
        let (step, after) = steps.swap_remove(random.usize(..steps.len()));
        let Ok(after) = after else { return Ok(taken) };
        match &step {
            Step::Call { task, op, reply, told, .. } => {
                let task = state.tasks[*task];
                let at = lives.iter().position(|live| live.task == task).ok_or("a task is missing")?;
                let mut replies = Told::from_slice(&[*reply]);
                replies.extend_from_slice(told);
                go(space, &wire, &mut lives[at], *op, &replies)?;
                lives[at].task = MOVED;
            }
            Step::Begin { work, told, .. } => {
                let mut live = start(space, scenario, &managers, &wire, work)?;
                let first = space.trie.root(&mut space.tables, work)?;
                if let [(_, op)] = space.trie.nodes[first as usize].open[..] {
                    same(space, first, &live)?;
                    go(space, &wire, &mut live, op, told)?;
                }
                lives.push(live);
            }
            _ => {}
        }
        follow(space, &mut lives, &after.tasks)?;
        state = after;
    }
    Err(format!("a run has not ended after {STEPS_MAX} steps"))
}

fn start(
    space: &Space,
    scenario: &Scenario,
    managers: &[Arc<dyn Passes>],
    wire: &Wire,
    work: &super::trie::Work,
) -> Result<Live, String> {
    let line = Arc::default();
    wire.switch(&line);
    let mut running = begin(scenario, managers, &space.tables, work, wire.clone());
    poll(&mut running, wire)?;
    Ok(Live { task: MOVED, running, line })
}

/// Answers the call `op` and those that are answered at once after it.
fn go(space: &Space, wire: &Wire, live: &mut Live, op: u32, replies: &[u32]) -> Result<(), String> {
    wire.switch(&live.line);
    let mut asked = Some(space.trie.ops.get(op));
    for reply in replies {
        let open: Vec<(usize, Op)> = lock(&live.line).open().map(|(at, op)| (at, op.clone())).collect();
        let found = open.iter().find(|(_, open)| asked.is_none_or(|asked| asked == open));
        let Some((at, _)) = found else { return Err(format!("{asked:?} was to be answered, but {open:?} was asked")) };
        lock(&live.line).answer(*at, space.trie.replies.get(*reply).expand(&space.tables));
        poll(&mut live.running, wire)?;
        asked = None;
    }
    Ok(())
}

/// Finds each task of the world among those that live, ends the others, and compares what they ask.
fn follow(space: &Space, lives: &mut Vec<Live>, tasks: &[Task]) -> Result<(), String> {
    let mut waiting: Vec<Live> = std::mem::take(lives);
    let mut tasks = tasks.to_vec();
    for at in (0..tasks.len()).rev() {
        if let Some(same) = waiting.iter().position(|live| live.task == tasks[at]) {
            lives.push(waiting.swap_remove(same));
            tasks.swap_remove(at);
        }
    }
    for task in tasks {
        let mut why = "a task has ended that goes on in the histories".to_owned();
        let found = waiting.iter().position(|live| match same(space, task.node, live) {
            Ok(()) => true,
            Err(other) => {
                why = other;
                false
            }
        });
        let Some(found) = found else { return Err(why) };
        let mut live = waiting.swap_remove(found);
        live.task = task;
        lives.push(live);
    }
    Ok(())
}

/// Tasks that live together must ask what one that lives alone asks.
fn same(space: &Space, node: u32, live: &Live) -> Result<(), String> {
    let line = lock(&live.line);
    let alone = space.trie.nodes[node as usize].open.iter().map(|(_, op)| space.trie.ops.get(*op));
    if alone.clone().eq(line.open().map(|(_, op)| op)) {
        return Ok(());
    }
    let (alone, together): (Vec<_>, Vec<_>) = (alone.collect(), line.open().map(|(_, op)| op).collect());
    Err(format!("a task that shares its manager with others asks {together:?}; alone it asks {alone:?}"))
}
