//! Every call of a store's ports, with everything that may go wrong between its client library and its service.
//!
//! For each [`Operation`] each [`Trouble`] happens at each request that the call makes: to that request alone, and to all
//! from there on. What the call says then has to be what its port allows: a write that may have happened is told as such,
//! what is told as done is done, what is told as not done is not done and never will be, and a read answers what is there
//! or nothing. Made again where nothing goes wrong, the call has to end well, whatever had become of it before.

mod entities;
mod marks;
mod opening;
mod operation;
mod reads;
mod source;
mod trouble;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use hapax::ports::{DeadLetters, DedupStore, EntityStore};
use tokio::task::JoinSet;

pub use opening::{Opening, check_opening};
pub use operation::Operation;
pub use source::{asked_for, methods};
use trouble::Armed;
pub use trouble::Trouble;

use crate::{
    Backend,
    http_faults::{Asked, FaultProxy},
};

/// A call that makes more requests than this does not end.
const REQUESTS_MAX: usize = 60;
/// Without `HAPAX_THOROUGH=1` so many of the troubles that stay are tried for each call: one in so many, another each time.
const SAMPLED: usize = 10;
/// Failures that are shown.
const SHOWN_MAX: usize = 30;
/// On a busy machine a handle that gives up soon is not opened at once; one that never is, is none.
const OPENINGS_MAX: usize = 100;

/// Of what kind a request is; `None` for one that is not the store's own, say the client library's for an account.
pub type Kind = fn(&Asked) -> Option<String>;

/// The ports of one handle of a store.
#[derive(Debug, Clone, Default)]
pub struct Ports {
    /// Its entities, if it keeps any.
    pub entities: Option<Arc<dyn EntityStore>>,
    /// Its dedup entries.
    pub dedup: Option<Arc<dyn DedupStore>>,
    /// Its dead letters.
    pub letters: Option<Arc<dyn DeadLetters>>,
}

impl Ports {
    /// Those of a store that has them all.
    #[must_use]
    pub fn of(store: &impl Backend) -> Self {
        Self {
            entities: Some(Arc::new(store.clone())),
            dedup: Some(Arc::new(store.clone())),
            letters: Some(Arc::new(store.clone())),
        }
    }

    fn entities(&self) -> &dyn EntityStore {
        self.entities.as_deref().expect("a store of entities")
    }

    fn dedup(&self) -> &dyn DedupStore {
        self.dedup.as_deref().expect("a store of dedup entries")
    }

    fn letters(&self) -> &dyn DeadLetters {
        self.letters.as_deref().expect("a place for dead letters")
    }
}

/// Two handles of one store.
#[derive(Debug)]
pub struct Route {
    /// What the first goes through, alone.
    pub proxy: FaultProxy,
    /// Gives up soon, so that not much time is waited for what does not come.
    pub faulty: Ports,
    /// Nothing goes wrong with it.
    pub plain: Ports,
}

/// So many routes to the store at `url`. `open` is called with the URL of a route's own proxy, and makes the handle that
/// goes through it.
///
/// # Panics
/// Where it cannot be opened at all.
pub async fn routes<F, E>(count: usize, url: &str, plain: &Ports, open: impl Fn(String) -> F) -> Vec<Route>
where
    F: Future<Output = Result<Ports, E>>,
    E: fmt::Display,
{
    let mut routes = Vec::new();
    for _ in 0..count {
        let proxy = FaultProxy::start(url).expect("a free port");
        let mut opened = open(proxy.url().to_owned()).await;
        for _ in 1..OPENINGS_MAX {
            if opened.is_ok() {
                break;
            }
            opened = open(proxy.url().to_owned()).await;
        }
        let faulty = opened.unwrap_or_else(|e| panic!("not opened in {OPENINGS_MAX} tries: {e}"));
        routes.push(Route { proxy, faulty, plain: plain.clone() });
    }
    routes
}

/// Which kinds of requests have met which troubles.
#[derive(Debug, Default, Clone)]
pub struct Met(BTreeMap<String, BTreeSet<&'static str>>);

impl Met {
    /// The kinds.
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// That this kind of request has met this trouble.
    pub fn add(&mut self, kind: String, trouble: &'static str) {
        self.0.entry(kind).or_default().insert(trouble);
    }

    /// What `other` has met, too.
    pub fn extend(&mut self, other: Self) {
        for (kind, troubles) in other.0 {
            self.0.entry(kind).or_default().extend(troubles);
        }
    }

    /// Those of `troubles` that can happen to a kind of request and have not.
    pub fn missing<'t>(&self, troubles: impl IntoIterator<Item = &'t Trouble>) -> Vec<String> {
        let mut missing = Vec::new();
        for trouble in troubles {
            let fitting = self.0.iter().filter(|(kind, met)| (trouble.fits)(kind) && !met.contains(trouble.name));
            missing.extend(fitting.map(|(kind, _)| format!("{}: {kind}", trouble.name)));
        }
        missing
    }
}

/// A call to be made once for each of its requests.
#[derive(Debug, Clone, Copy)]
struct Case {
    operation: Operation,
    trouble: Trouble,
    /// It happens to all requests from there on.
    always: bool,
    /// Queries are passed over: a purge begins anywhere, and comes to what it removes after some or many.
    past_queries: bool,
}

/// By the name that either client library has for it.
fn is_query(kind: &str) -> bool {
    matches!(kind, "Query" | "query_items")
}

/// What the workers share.
struct Table {
    kind: Kind,
    cases: Mutex<Vec<Case>>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    calls: usize,
    met: Met,
    wrong: Vec<String>,
}

/// Goes through the table, one call at a time on each route.
///
/// # Panics
/// With every call that said what it must not say, or could not be made good.
pub async fn check(routes: Vec<Route>, kind: Kind, troubles: &[Trouble], operations: &[Operation]) -> Met {
    let mut cases = Vec::new();
    for operation in operations {
        for trouble in troubles.iter().filter(|trouble| operation.meets(trouble.name)) {
            let once = Case { operation: *operation, trouble: *trouble, always: false, past_queries: false };
            cases.push(once);
            if operation.method() == "purge" {
                cases.push(Case { past_queries: true, ..once });
            }
            if !operation.is_large() && (is_thorough() || fastrand::usize(..SAMPLED) == 0) {
                cases.push(Case { always: true, ..once });
            }
        }
    }
    fastrand::shuffle(&mut cases);
    let table = Arc::new(Table { kind, cases: Mutex::new(cases), seen: Mutex::default() });
    let mut workers = JoinSet::new();
    for route in routes {
        let table = Arc::clone(&table);
        workers.spawn(async move { table.work(&route).await });
    }
    let begun = Instant::now();
    while let Some(ended) = workers.join_next().await {
        ended.expect("a worker that does not panic");
    }
    let seen = std::mem::take(&mut *table.seen.lock().unwrap_or_else(PoisonError::into_inner));
    println!("{seen}in {:?}", begun.elapsed());
    assert!(seen.wrong.is_empty(), "{seen}");
    seen.met
}

fn is_thorough() -> bool {
    std::env::var("HAPAX_THOROUGH").is_ok_and(|value| value == "1")
}

impl Table {
    async fn work(&self, route: &Route) {
        loop {
            let case = self.cases.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(case) = case else { return };
            for position in 0..REQUESTS_MAX {
                let armed = Armed::new(route, case, self.kind, position);
                let ended = case.operation.run(&route.faulty, &route.plain, &armed).await;
                self.note(&armed, ended);
                if !armed.was_reached() {
                    break;
                }
            }
        }
    }

    fn note(&self, armed: &Armed<'_>, ended: Result<(), String>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.calls += 1;
        for kind in armed.met() {
            seen.met.add(kind, armed.case.trouble.name);
        }
        if let Err(why) = ended {
            let Case { operation, trouble: Trouble { name, .. }, always, .. } = armed.case;
            let number = armed.position;
            let on = if always { " and from there on" } else { "" };
            let asked: Vec<String> = armed.route.proxy.asked().iter().filter_map(self.kind).collect();
            seen.wrong.push(format!("{operation:?}, {name} at request {number}{on} of {asked:?}: {why}"));
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} calls, {} wrong; met: {:?}", self.calls, self.wrong.len(), self.met.0)?;
        self.wrong.iter().take(SHOWN_MAX).try_for_each(|wrong| writeln!(f, "- {wrong}"))
    }
}
