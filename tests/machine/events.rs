//! What may happen to an endpoint, step by step.

use hapax_model::ledger::{Act, Trouble};
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

use crate::lossy::Loss;

/// Managers of each endpoint, as in several processes.
pub(crate) const WORKERS: usize = 2;

/// One thing that happens. Numbers of what there may not be so many of begin anew: of the deliveries that stand somewhere,
/// and of the leases.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A new message is queued.
    Queue { ledger: u8, outputs: u8, act: Act, trouble: Trouble },
    /// One more copy of a message, whatever has become of the others.
    Duplicate { message: usize },
    /// Somebody takes some of what waits.
    Take { lower: bool, worker: usize, max: usize },
    /// Somebody begins to sweep.
    Sweep { lower: bool, worker: usize },
    /// A delivery goes on for so many port calls, each with its begin and its end.
    Go { delivery: usize, points: usize },
    /// A delivery goes on to its end.
    End { delivery: usize },
    /// A delivery is dropped where it stands, and its leases run out.
    Crash { delivery: usize },
    /// A lease runs out, and nobody notices.
    Expire { lease: usize },
    /// The next write is lost or late.
    Lose(Loss),
    /// What is late arrives.
    Land,
    /// What is older than the retention is evicted.
    Evict,
}

/// How it begins, and how many messages there are.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    pub(crate) two_stores: bool,
    pub(crate) ordered: bool,
    messages: usize,
}

/// Deliveries, and what may come in between.
#[derive(Debug, Clone)]
pub(crate) struct Events;

fn queue() -> impl Strategy<Value = Event> {
    let act = prop_oneof![
        24 => Just(Act::Nothing),
        6 => Just(Act::Reply),
        6 => Just(Act::SetAlarm),
        3 => Just(Act::CancelAlarm),
        1 => Just(Act::Close),
    ];
    let trouble = prop_oneof![16 => Just(Trouble::None), 1 => Just(Trouble::Fails(1)), 1 => Just(Trouble::Refuses)];
    (prop_oneof![3 => Just(0u8), 1 => Just(1)], 0..3u8, act, trouble)
        .prop_map(|(ledger, outputs, act, trouble)| Event::Queue { ledger, outputs, act, trouble })
}

impl ReferenceStateMachine for Events {
    type State = Begun;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Begun> {
        (any::<bool>(), any::<bool>())
            .prop_map(|(two_stores, ordered)| Begun { two_stores, ordered, messages: 0 })
            .boxed()
    }

    fn transitions(begun: &Begun) -> BoxedStrategy<Event> {
        if begun.messages == 0 {
            return queue().boxed();
        }
        let (delivery, lower) = (|| 0..3usize, || proptest::bool::weighted(0.2));
        let loss = prop_oneof![Just(Loss::Answer), Just(Loss::Request), Just(Loss::Late)];
        prop_oneof![
            4 => queue(),
            7 => (0..begun.messages).prop_map(|message| Event::Duplicate { message }),
            9 => (lower(), 0..WORKERS, 1..3usize)
                .prop_map(|(lower, worker, max)| Event::Take { lower, worker, max }),
            3 => (lower(), 0..WORKERS).prop_map(|(lower, worker)| Event::Sweep { lower, worker }),
            10 => (delivery(), 1..16usize).prop_map(|(delivery, points)| Event::Go { delivery, points }),
            4 => delivery().prop_map(|delivery| Event::End { delivery }),
            3 => delivery().prop_map(|delivery| Event::Crash { delivery }),
            3 => (0..3usize).prop_map(|lease| Event::Expire { lease }),
            3 => loss.prop_map(Event::Lose),
            1 => Just(Event::Land),
            1 => Just(Event::Evict),
        ]
        .boxed()
    }

    fn preconditions(begun: &Begun, event: &Event) -> bool {
        !matches!(event, Event::Duplicate { message } if *message >= begun.messages)
    }

    fn apply(mut begun: Begun, event: &Event) -> Begun {
        begun.messages += usize::from(matches!(event, Event::Queue { .. }));
        begun
    }
}
