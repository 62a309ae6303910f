//! What a task does beside its ports: calls of services outside, as the object tells that stands in for them, and what
//! somebody who watches the task wants to be counted.
//!
//! A handler runs without an end between two port calls, and so do its calls outside: they belong to the answer after
//! which they were made. So they are part of a history, and are counted for each world in which that history occurs, not
//! for each time that it was run here.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex},
};

use super::{
    claims::Broken,
    space::Space,
    state::{State, insert_sorted, push_sorted},
    wire::{Line, Wire, lock},
};

thread_local! {
    /// The line of the task that is being run.
    static CURRENT: RefCell<Option<Arc<Mutex<Line>>>> = const { RefCell::new(None) };
}

/// A call of a service outside: its name, and the key by which it knows a repeat.
pub(super) type Called = (String, Option<String>);

/// A call of a service outside, in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outside {
    /// While this message was handled: of several in one pass the first.
    pub(super) message: u8,
    /// Which service.
    pub(super) name: String,
    /// Its place among the calls of this service by one run of the handler.
    pub(super) place: usize,
    /// By which the service knows a repeat.
    pub(super) key: Option<String>,
}

/// While it lives, calls on this thread are the task's.
#[derive(Debug)]
pub(super) struct Listening;

pub(super) fn listen(wire: &Wire) -> Listening {
    CURRENT.with_borrow_mut(|current| *current = Some(wire.line()));
    Listening
}

impl Drop for Listening {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| *current = None);
    }
}

/// The task that is being run calls a service outside; without one nothing is noted.
pub(crate) fn call(name: &str, key: Option<&str>) {
    with_line(|line| line.outside.push((name.to_owned(), key.map(str::to_owned))));
}

/// Something to be counted with what the task does.
pub(crate) fn note(event: &'static str) {
    with_line(|line| line.events.push(event));
}

fn with_line(then: impl FnOnce(&mut Line)) {
    CURRENT.with_borrow(|current| {
        if let Some(line) = current {
            then(&mut lock(line));
        }
    });
}

/// Gives each call its place.
pub(super) fn placed(message: u8, calls: &[Called]) -> Vec<Outside> {
    let mut placed: Vec<Outside> = Vec::with_capacity(calls.len());
    for (name, key) in calls {
        let place = placed.iter().filter(|call| call.name == *name).count();
        placed.push(Outside { message, name: name.clone(), place, key: key.clone() });
    }
    placed
}

fn broken(seen: String) -> Result<(), Broken> {
    Err(Broken { claim: "called_outside_once", seen })
}

impl Space {
    /// What was called outside on the way to `node` has happened in this world: without a key each time anew.
    pub(super) fn go_outside(&self, state: &mut State, node: u32) {
        for name in &self.trie.nodes[node as usize].outside {
            match self.trie.outside.get(*name).key {
                Some(_) => insert_sorted(&mut state.outside, *name),
                None => push_sorted(&mut state.outside, *name),
            }
        }
    }

    /// A call outside is made once, or always under one key.
    pub(super) fn judge_outside(&self, state: &State) -> Result<(), Broken> {
        for (at, one) in state.outside.iter().enumerate() {
            let Outside { message, name, place, key } = self.trie.outside.get(*one);
            for other in &state.outside[at + 1..] {
                let again = self.trie.outside.get(*other);
                if (message, place, name) != (&again.message, &again.place, &again.name) {
                    continue;
                }
                let message = self.tables.name_of(*message);
                return match (key, &again.key) {
                    (None, None) => broken(format!("`{name}` was called twice for {message}, without a key")),
                    (key, other) => {
                        broken(format!("`{name}` was called for {message} under two keys: {key:?} and {other:?}"))
                    }
                };
            }
        }
        Ok(())
    }

    /// What was called outside between two worlds, for people.
    pub(super) fn called_outside(&self, before: &State, after: &State) -> Vec<String> {
        let count = |state: &State, name| state.outside.iter().filter(|other| **other == name).count();
        let mut names = after.outside.to_vec();
        names.dedup();
        let new = names.into_iter().filter(|name| count(after, *name) > count(before, *name));
        new.map(|name| {
            let Outside { name: service, key, .. } = self.trie.outside.get(name);
            let key = key.as_ref().map_or_else(|| "without a key".to_owned(), |key| format!("under the key {key}"));
            let again = if count(before, name) > 0 { ", AGAIN" } else { "" };
            format!("{BETWEEN}`{service}` outside, {key}{again}")
        })
        .collect()
    }
}

/// Stands before a call outside in the step after whose answer it is made.
pub(super) const BETWEEN: &str = "; then calls ";
