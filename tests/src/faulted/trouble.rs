//! What goes wrong with a request of a call. Before the call is judged, nothing of it is left that could still take effect.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::timeout;

use super::{Case, Kind, Route, is_query};
use crate::http_faults::{Fault, Gate, Matched};

/// Longer than an emulator takes for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something that goes wrong on the way to a service.
#[derive(Debug, Clone, Copy)]
pub struct Trouble {
    /// What a failure calls it.
    pub name: &'static str,
    /// Whether it can happen to a request of this kind.
    pub fits: fn(&str) -> bool,
    /// Makes it; what the gate holds goes on when the call has ended.
    pub fault: fn(&Gate) -> Fault,
}

impl Trouble {
    /// What may happen to any request of any service: it is lost, or its answer, or half of that; or they come after
    /// the call has given up.
    pub const ANYWHERE: [Self; 5] = [
        Self::everywhere("request lost", |_| Fault::DropRequest),
        Self::everywhere("answer lost", |_| Fault::DropAnswer),
        Self::everywhere("answer cut off", |_| Fault::CutAnswer),
        Self::everywhere("request late", |gate| Fault::Hold(gate.clone())),
        Self::everywhere("answer late", |gate| Fault::HoldAnswer(gate.clone())),
    ];

    /// One that can happen to a request of any kind.
    #[must_use]
    pub const fn everywhere(name: &'static str, fault: fn(&Gate) -> Fault) -> Self {
        Self { name, fits: |_| true, fault }
    }
}

/// A trouble that waits for its request.
pub(super) struct Armed<'a> {
    pub(super) route: &'a Route,
    pub(super) case: Case,
    kind: Kind,
    /// Which request it is for.
    pub(super) position: usize,
    gate: Gate,
    seen: Arc<AtomicUsize>,
    met: Arc<Mutex<BTreeSet<String>>>,
}

impl<'a> Armed<'a> {
    pub(super) fn new(route: &'a Route, case: Case, kind: Kind, position: usize) -> Self {
        Self { route, case, kind, position, gate: Gate::new(), seen: Arc::default(), met: Arc::default() }
    }

    /// Makes the call with the trouble, and waits until nothing of it is left that could take effect.
    pub(super) async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.route.proxy.forget();
        let rule = self.begin();
        let answer = call.await;
        rule.end();
        self.gate.open();
        // What was held, and also what was tried again shortly before the call has given up.
        let served = timeout(PATIENCE, self.route.proxy.until_idle()).await;
        served.expect("the service answers what is under way");
        answer
    }

    fn begin(&self) -> Matched {
        let Self { kind, position, case: Case { always, past_queries, .. }, .. } = *self;
        let (fits, seen, met) = (self.case.trouble.fits, Arc::clone(&self.seen), Arc::clone(&self.met));
        let fault = (self.case.trouble.fault)(&self.gate);
        let matches = move |asked: &crate::http_faults::Asked| {
            let Some(kind) = kind(asked).filter(|kind| !(past_queries && is_query(kind))) else { return false };
            let number = seen.fetch_add(1, Ordering::SeqCst);
            let is_meant = (number == position || always && number > position) && fits(&kind);
            if is_meant {
                met.lock().unwrap_or_else(PoisonError::into_inner).insert(kind);
            }
            is_meant
        };
        self.route.proxy.every(matches, fault)
    }

    /// Whether the call has come to its request.
    pub(super) fn was_reached(&self) -> bool {
        self.seen.load(Ordering::SeqCst) > self.position
    }

    /// The kinds of the requests to which it happened.
    pub(super) fn met(&self) -> BTreeSet<String> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
