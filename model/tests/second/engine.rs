//! The explorer's graph as a model of stateright's, an engine that shares no line with ours.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use hapax_model::explore::{Broken, Graph, Move, Scenario, Snapshot, Vertex};
use stateright::{Model, Property};

/// No claim is broken anywhere.
pub(crate) const HOLDS: &str = "every claim holds";
/// Every run comes to rest at least once.
pub(crate) const RESTS: &str = "every run comes to rest";
/// Some run does: without it nothing would have been seen.
pub(crate) const CAN_REST: &str = "a run comes to rest";

/// A scenario for stateright.
#[derive(Debug)]
pub(crate) struct Second {
    graph: Graph,
    /// Steps whose labels have this in them are left out: a control.
    leave_out: Option<&'static str>,
}

/// Where a run may be.
#[derive(Clone)]
pub(crate) enum Place {
    /// In a world; its snapshot is for people.
    World(Box<(Vertex, Snapshot)>),
    /// Beyond a broken claim.
    Broken(Broken),
}

impl Second {
    /// `scenario`, whole.
    pub(crate) fn new(scenario: Scenario) -> Self {
        Self::without(None, scenario)
    }

    pub(crate) fn without(leave_out: Option<&'static str>, scenario: Scenario) -> Self {
        Self { graph: Graph::new(scenario).expect("its messages have handlers"), leave_out }
    }

    fn place(&self, to: Result<Vertex, Broken>) -> Place {
        match to {
            Ok(vertex) => {
                let snapshot = self.graph.snapshot(&vertex);
                Place::World(Box::new((vertex, snapshot)))
            }
            Err(broken) => Place::Broken(broken),
        }
    }

    fn is_at_rest(&self, place: &Place) -> bool {
        matches!(place, Place::World(world) if self.graph.is_at_rest(&world.0))
    }
}

impl Model for Second {
    type State = Place;
    type Action = Move;

    fn init_states(&self) -> Vec<Place> {
        vec![self.place(Ok(self.graph.initial()))]
    }

    fn actions(&self, place: &Place, actions: &mut Vec<Move>) {
        if let Place::World(world) = place {
            let steps = self.graph.steps(&world.0).expect("it can be explored");
            actions
                .extend(steps.into_iter().filter(|step| !self.leave_out.is_some_and(|out| step.label.contains(out))));
        }
    }

    fn next_state(&self, _: &Place, step: Move) -> Option<Place> {
        Some(self.place(step.to))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(HOLDS, |_, place| matches!(place, Place::World(..))),
            Property::eventually(RESTS, |model: &Self, place| model.is_at_rest(place)),
            Property::sometimes(CAN_REST, |model: &Self, place| model.is_at_rest(place)),
        ]
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::World(this), Self::World(that)) => this.0 == that.0,
            (Self::Broken(this), Self::Broken(that)) => this == that,
            _ => false,
        }
    }
}

impl Hash for Place {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            Self::World(world) => world.0.hash(hasher),
            Self::Broken(broken) => (broken.claim, &broken.seen).hash(hasher),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World(world) => world.1.fmt(f),
            Self::Broken(broken) => broken.fmt(f),
        }
    }
}
