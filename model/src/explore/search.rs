//! Breadth first through all worlds, so that the first break that is found has a shortest story.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use xxhash_rust::xxh3::xxh3_128;

use super::{
    claims::Broken,
    short::QuickMap,
    space::Space,
    state::{State, at_least},
    steps::{Step, Steps},
    story::{Story, Teller},
};

/// What an exploration has found.
#[derive(Debug)]
pub struct Report {
    /// Different worlds. One that differs from another only in that less may still go wrong is not gone through.
    pub states: usize,
    /// Steps between them.
    pub transitions: u64,
    /// Different histories of a task.
    pub histories: usize,
    /// How long it took.
    pub time: Duration,
    /// How often each event was met, over all histories.
    pub events: Vec<(&'static str, usize)>,
    /// The shortest way to something that must not be; `None`: there is none.
    pub story: Option<Story>,
    /// It ended because there were more than it was told to look at.
    pub cut_short: bool,
}

/// No world: the end of a list.
const NONE: u32 = u32::MAX;

/// How a world was first come to: from which one, by which of its steps.
#[derive(Debug, Clone, Copy)]
struct Way {
    from: u32,
    step: u32,
}

/// A world that is known.
#[derive(Debug, Clone, Copy)]
struct Known {
    way: Way,
    /// The next one that differs in budgets alone.
    next: u32,
    budgets: u64,
}

/// Worlds that have not been left yet, in the order of their numbers, packed.
#[derive(Debug, Default)]
struct Frontier {
    bytes: Vec<u8>,
    at: usize,
    coming: Vec<u8>,
}

impl Frontier {
    fn push(&mut self, world: &[u8]) {
        let length = u16::try_from(world.len()).expect("a world of a few messages is small");
        self.coming.extend(length.to_le_bytes());
        self.coming.extend_from_slice(world);
    }

    fn pop(&mut self) -> Option<&[u8]> {
        if self.at == self.bytes.len() {
            std::mem::swap(&mut self.bytes, &mut self.coming);
            self.coming.clear();
            self.at = 0;
        }
        let length: [u8; 2] = self.bytes.get(self.at..self.at + 2)?.try_into().ok()?;
        let begin = self.at + 2;
        self.at = begin + usize::from(u16::from_le_bytes(length));
        Some(&self.bytes[begin..self.at])
    }
}

/// All that is found of the graph.
pub(super) struct Search {
    space: Space,
    /// The newest world of each that differ in budgets alone.
    seen: QuickMap<u128, u32>,
    known: Vec<Known>,
    frontier: Frontier,
    /// Steps out of each world, for the proof that every run ends; and where those of each begin.
    edges: Vec<u32>,
    first_edge: Vec<u32>,
    buffer: Vec<u8>,
    transitions: u64,
}

/// Why a search has ended before its time.
enum Stop {
    /// After the world with this number, by its step with this number if there is one.
    Broken(Broken, u32, Option<u32>),
    Failed(String),
}

impl Search {
    pub(super) fn new(space: Space) -> Self {
        Self {
            space,
            seen: QuickMap::default(),
            known: Vec::new(),
            frontier: Frontier::default(),
            edges: Vec::new(),
            first_edge: Vec::new(),
            buffer: Vec::new(),
            transitions: 0,
        }
    }

    /// Goes through everything, or until something is broken or there are more than `states_max` worlds.
    ///
    /// # Errors
    /// When the code under test cannot be explored: it waits for something that is no port, or does not do the same twice.
    pub(super) fn run(mut self, states_max: usize) -> Result<Report, String> {
        let begun = Instant::now();
        let initial = self.space.initial();
        self.reach(&initial, Way { from: NONE, step: 0 });
        let (mut story, mut steps, mut cut_short) = (None, Steps::new(), false);
        for number in 0.. {
            let Some(world) = self.frontier.pop() else { break };
            let state = State::unpack(world, self.known[number as usize].budgets);
            match self.leave(number, &state, &mut steps) {
                Ok(()) => {}
                Err(Stop::Failed(why)) => return Err(why),
                Err(Stop::Broken(broken, number, step)) => {
                    story = Some(self.tell(broken, number, step)?);
                    break;
                }
            }
            cut_short = self.known.len() > states_max;
            if cut_short {
                break;
            }
        }
        if story.is_none() && !cut_short {
            story = self.circle()?;
        }
        let mut events: HashMap<&'static str, usize> = HashMap::new();
        for event in self.space.trie.nodes.iter().flat_map(|node| &node.events) {
            *events.entry(event).or_default() += 1;
        }
        let mut events: Vec<_> = events.into_iter().collect();
        events.sort_unstable();
        Ok(Report {
            states: self.known.len(),
            transitions: self.transitions,
            histories: self.space.trie.nodes.len(),
            time: begun.elapsed(),
            events,
            story,
            cut_short,
        })
    }

    /// Notes a world; answers its number, if it is this very world that is known now and not one in which more may still
    /// go wrong: whatever can happen here can happen there.
    fn reach(&mut self, state: &State, way: Way) -> Option<u32> {
        self.buffer.clear();
        state.pack(&mut self.buffer);
        let fingerprint = xxh3_128(&self.buffer);
        let budgets = state.left.packed();
        let next = u32::try_from(self.known.len()).expect("fewer than four billion worlds");
        let newest = self.seen.entry(fingerprint).or_insert(NONE);
        let mut at = *newest;
        while at != NONE {
            let known = self.known[at as usize];
            if known.budgets == budgets || self.space.scenario.reduced && at_least(known.budgets, budgets) {
                return (known.budgets == budgets).then_some(at);
            }
            at = known.next;
        }
        self.known.push(Known { way, next: *newest, budgets });
        *newest = next;
        self.frontier.push(&self.buffer);
        Some(next)
    }

    /// Takes every step out of a world.
    fn leave(&mut self, number: u32, state: &State, steps: &mut Steps) -> Result<(), Stop> {
        self.first_edge.push(u32::try_from(self.edges.len()).expect("fewer than four billion steps"));
        self.space.steps(state, steps).map_err(Stop::Failed)?;
        self.space.judge_end(state, steps).map_err(|broken| Stop::Broken(broken, number, None))?;
        for (at, (_, after)) in steps.drain(..).enumerate() {
            let step = u32::try_from(at).expect("few steps");
            self.transitions += 1;
            let after = after.and_then(|after| self.space.judge_always(&after).map(|()| after));
            let after = after.map_err(|broken| Stop::Broken(broken, number, Some(step)))?;
            if let Some(to) = self.reach(&after, Way { from: number, step }) {
                self.edges.push(to);
            }
        }
        Ok(())
    }

    fn edges_of(&self, world: u32) -> &[u32] {
        let end = self.first_edge.get(world as usize + 1).map_or(self.edges.len(), |end| *end as usize);
        &self.edges[self.first_edge[world as usize] as usize..end]
    }

    /// A way round in a circle, if there is one: takes away again and again what no step leads to, then follows what is
    /// left. A circle never spends a budget, so steps to worlds in which less may go wrong need not be looked at.
    fn circle(&mut self) -> Result<Option<Story>, String> {
        if ["every_run_ends", "no_garbage_at_rest"].iter().all(|claim| self.space.scenario.without.contains(claim)) {
            return Ok(None);
        }
        let count = self.known.len();
        let mut into = vec![0_u32; count];
        self.edges.iter().for_each(|to| into[*to as usize] += 1);
        let all = u32::try_from(count).expect("fewer than four billion worlds");
        let mut free: Vec<u32> = (0..all).filter(|at| into[*at as usize] == 0).collect();
        while let Some(at) = free.pop() {
            for to in self.edges_of(at) {
                into[*to as usize] -= 1;
                if into[*to as usize] == 0 {
                    free.push(*to);
                }
            }
        }
        // What is left is on a circle or comes after one. Depth first: a step back to the path closes a circle.
        let (mut done, mut path) = (vec![false; count], Vec::<(u32, usize)>::new());
        for begin in (0..all).filter(|at| into[*at as usize] > 0) {
            path.push((begin, 0));
            while let Some((at, edge)) = path.last_mut() {
                let Some(to) = self.edges_of(*at).get(*edge).copied() else {
                    done[*at as usize] = true;
                    path.pop();
                    continue;
                };
                *edge += 1;
                if let Some(first) = path.iter().position(|(on, _)| *on == to) {
                    let circle: Vec<u32> = path[first..].iter().map(|(on, _)| *on).chain([to]).collect();
                    if let Some(story) = self.tell_circle(&circle)? {
                        return Ok(Some(story));
                    }
                    continue;
                }
                if !done[to as usize] {
                    path.push((to, 0));
                }
            }
        }
        Ok(None)
    }

    /// The steps of the shortest way to a world.
    fn way_to(&self, mut world: u32) -> Vec<u32> {
        let mut steps = Vec::new();
        while self.known[world as usize].way.from != NONE {
            let way = self.known[world as usize].way;
            steps.push(way.step);
            world = way.from;
        }
        steps.reverse();
        steps
    }

    /// Goes the shortest way to a world once more, and tells it.
    fn tell(&mut self, broken: Broken, number: u32, last: Option<u32>) -> Result<Story, String> {
        let mut teller = Teller::default();
        let mut state = self.space.initial();
        for number in self.way_to(number).into_iter().chain(last) {
            let mut steps = Steps::new();
            self.space.steps(&state, &mut steps)?;
            let (step, after) = steps.swap_remove(number as usize);
            let after = after.ok();
            teller.add(&self.space, &state, &step, after.as_ref());
            let Some(after) = after else { break };
            state = after;
        }
        Ok(teller.story(broken))
    }

    /// `None`: what is wrong with it is not judged.
    fn tell_circle(&mut self, circle: &[u32]) -> Result<Option<Story>, String> {
        let mut teller = Teller::default();
        let mut state = self.space.initial();
        for number in self.way_to(circle[0]) {
            let mut steps = Steps::new();
            self.space.steps(&state, &mut steps)?;
            let (step, after) = steps.swap_remove(number as usize);
            let after = after.map_err(|broken| broken.to_string())?;
            teller.add(&self.space, &state, &step, Some(&after));
            state = after;
        }
        let Err(broken) = self.space.judge_circle(&state) else { return Ok(None) };
        for to in &circle[1..] {
            let mut steps = Steps::new();
            self.space.steps(&state, &mut steps)?;
            let from = Way { from: NONE, step: 0 };
            let leads = |search: &mut Self, after: &Result<State, Broken>| {
                after.as_ref().is_ok_and(|after| search.reach(after, from) == Some(*to))
            };
            let Some((step, Ok(after))) = steps.into_iter().find(|(_, after)| leads(self, after)) else { break };
            teller.add(&self.space, &state, &step, Some(&after));
            state = after;
        }
        Ok(Some(teller.story(broken)))
    }
}

impl Space {
    /// When nothing is to be done any more, all must be done.
    pub(super) fn judge_end(&self, state: &State, steps: &Steps) -> Result<(), Broken> {
        if !state.is_quiet() {
            if steps.is_empty() {
                self.broken("no_deadlock", || "nothing can be done any more, and not all is done".into())?;
            }
            return Ok(());
        }
        let sweeps = |step: &Step| matches!(step, Step::Begin { work: super::trie::Work::Sweep(..), .. });
        if steps.iter().any(|(step, _)| sweeps(step)) {
            return Ok(());
        }
        self.judge_rest(state)
    }
}
