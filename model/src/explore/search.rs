//! Breadth first through all worlds, so that the first break that is found has a shortest story.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{BuildHasherDefault, Hasher},
    time::{Duration, Instant},
};

use super::{claims::Broken, space::Space, state::State, story::Story};

/// What an exploration has found.
#[derive(Debug)]
pub struct Report {
    /// Different worlds.
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

/// Takes a fingerprint for its hash, which it is.
#[derive(Default)]
struct Taken(u64);

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are numbers");
    }

    fn write_u128(&mut self, fingerprint: u128) {
        #[allow(clippy::cast_possible_truncation)] // Half of it is enough.
        let half = fingerprint as u64;
        self.0 = half;
    }
}

/// How a world was first come to: from which one, by which of its steps.
#[derive(Debug, Clone, Copy)]
struct Way {
    from: u32,
    step: u32,
}

/// All that is found of the graph.
pub(super) struct Search {
    space: Space,
    seen: HashMap<u128, u32, BuildHasherDefault<Taken>>,
    ways: Vec<Way>,
    frontier: VecDeque<(u32, State)>,
    /// Steps out of each world, for the proof that every run ends.
    edges: Vec<(u32, u32)>,
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
        let (seen, ways, frontier) = (HashMap::default(), Vec::new(), VecDeque::new());
        Self { space, seen, ways, frontier, edges: Vec::new(), buffer: Vec::new(), transitions: 0 }
    }

    /// Goes through everything, or until something is broken or there are more than `states_max` worlds.
    ///
    /// # Errors
    /// When the code under test cannot be explored: it waits for something that is no port, or does not do the same twice.
    pub(super) fn run(mut self, states_max: usize) -> Result<Report, String> {
        let begun = Instant::now();
        let initial = self.space.initial();
        let root = Way { from: 0, step: 0 };
        self.reach(initial, root);
        let mut story = None;
        while let Some((number, state)) = self.frontier.pop_front() {
            match self.leave(number, &state) {
                Ok(()) => {}
                Err(Stop::Failed(why)) => return Err(why),
                Err(Stop::Broken(broken, number, step)) => {
                    story = Some(self.tell(broken, number, step)?);
                    break;
                }
            }
            if self.ways.len() > states_max {
                break;
            }
        }
        let cut_short = story.is_none() && !self.frontier.is_empty();
        if story.is_none()
            && !cut_short
            && let Some(number) = self.on_a_cycle()
        {
            let seen = "the worlds go round in a circle: a run may never end".into();
            story = Some(self.tell(Broken { claim: "every_run_ends", seen }, number, None)?);
        }
        let mut events: HashMap<&'static str, usize> = HashMap::new();
        for event in self.space.trie.nodes.iter().flat_map(|node| &node.events) {
            *events.entry(event).or_default() += 1;
        }
        let mut events: Vec<_> = events.into_iter().collect();
        events.sort_unstable();
        Ok(Report {
            states: self.ways.len(),
            transitions: self.transitions,
            histories: self.space.trie.nodes.len(),
            time: begun.elapsed(),
            events,
            story,
            cut_short,
        })
    }

    /// Notes a world; answers its number.
    fn reach(&mut self, state: State, way: Way) -> u32 {
        let fingerprint = state.fingerprint(&mut self.buffer);
        let next = u32::try_from(self.ways.len()).expect("fewer than four billion worlds");
        match self.seen.entry(fingerprint) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                place.insert(next);
                self.ways.push(way);
                self.frontier.push_back((next, state));
                next
            }
        }
    }

    /// Takes every step out of a world.
    fn leave(&mut self, number: u32, state: &State) -> Result<(), Stop> {
        let steps = self.space.steps(state).map_err(Stop::Failed)?;
        self.space.claim_end(state, &steps).map_err(|broken| Stop::Broken(broken, number, None))?;
        for (at, (_, after)) in steps.into_iter().enumerate() {
            let step = u32::try_from(at).expect("few steps");
            self.transitions += 1;
            let after = after.and_then(|after| self.space.claim_always(&after).map(|()| after));
            let after = after.map_err(|broken| Stop::Broken(broken, number, Some(step)))?;
            let to = self.reach(after, Way { from: number, step });
            self.edges.push((number, to));
        }
        Ok(())
    }

    /// A world on a circle, if there is one: takes away again and again what no step leads to.
    fn on_a_cycle(&self) -> Option<u32> {
        let count = self.ways.len();
        let (mut into, mut first) = (vec![0_u32; count], vec![0_u32; count + 1]);
        for (from, to) in &self.edges {
            into[*to as usize] += 1;
            first[*from as usize + 1] += 1;
        }
        for at in 0..count {
            first[at + 1] += first[at];
        }
        // Edges were found in the order of the worlds that they leave.
        let mut free: Vec<u32> = (0..u32::try_from(count).ok()?).filter(|at| into[*at as usize] == 0).collect();
        let mut taken = 0;
        while let Some(at) = free.pop() {
            taken += 1;
            for (_, to) in &self.edges[first[at as usize] as usize..first[at as usize + 1] as usize] {
                into[*to as usize] -= 1;
                if into[*to as usize] == 0 {
                    free.push(*to);
                }
            }
        }
        if taken == count { None } else { into.iter().position(|into| *into > 0).and_then(|at| u32::try_from(at).ok()) }
    }

    /// Goes the shortest way to a world once more, and tells it.
    fn tell(&mut self, broken: Broken, number: u32, last: Option<u32>) -> Result<Story, String> {
        let mut steps: Vec<u32> = last.into_iter().collect();
        let mut at = number;
        while at != 0 {
            let way = self.ways[at as usize];
            steps.push(way.step);
            at = way.from;
        }
        steps.reverse();
        let mut story = Story::new(broken);
        let mut state = self.space.initial();
        for number in steps {
            let (step, after) = self.space.steps(&state)?.swap_remove(number as usize);
            story.add(&self.space, &state, &step);
            match after {
                Ok(after) => state = after,
                Err(_) => break,
            }
        }
        Ok(story)
    }
}
