//! A reverse proxy for HTTP that fails as it is told, between a client library and an emulator.
//!
//! ```no_run
//! use hapax_tests::http_faults::{Fault, FaultProxy};
//!
//! let proxy = FaultProxy::start("http://127.0.0.1:8000").unwrap();
//! // The next PutItem is served, and nobody hears of it.
//! let lost = proxy.first(1, |asked| asked.operation() == Some("PutItem"), Fault::DropAnswer);
//! // ... a client that talks to `proxy.url()` ...
//! assert_eq!(lost.served(), 1);
//! ```
//!
//! Clients may speak HTTP/1.1 or, knowing that they may, HTTP/2; the server is asked in HTTP/1.1. A request is read to its
//! end before anything becomes of it, and what is forwarded is served to its end, though the client has gone by then: as
//! with a network that is late. The proxy has a thread and a runtime of its own, so a test that stands still or has its
//! clock paused does not hold it up. Requests under way or held end with the proxy.

mod asked;
mod cut;
mod fault;
mod rule;
mod serve;
mod upstream;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
};

pub use asked::Asked;
pub use fault::{Canned, Fault, Gate, Rewrite};
pub use rule::Matched;
use rule::Rule;
use upstream::Upstream;

/// The proxy. It ends when this is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    url: String,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the proxy's thread and the test share.
#[derive(Debug)]
struct Shared {
    upstream: Upstream,
    told: Mutex<Told>,
    /// How many requests have been read and are neither answered nor given up.
    under_way: watch::Sender<usize>,
}

/// One of them, counted until this is dropped: a request ends in many ways, its task's own end among them.
struct UnderWay<'a>(&'a Shared);

/// The rules, and what was asked so far.
#[derive(Debug, Default)]
struct Told {
    rules: Vec<Arc<Rule>>,
    log: Vec<Asked>,
}

impl FaultProxy {
    /// Stands in front of the server at `upstream`, as in `http://127.0.0.1:8000`, on a free port of this host. The
    /// server need not be there yet: a request that cannot be forwarded ends as one whose connection is closed.
    ///
    /// # Errors
    /// `upstream` is no such URL, or there is no port or thread to be had.
    pub fn start(upstream: &str) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            upstream: Upstream::new(upstream, &url)?,
            told: Mutex::default(),
            under_way: watch::Sender::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let serving = serve::all(listener, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("http-faults".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! { () = serving => {}, _ = stopped => {} }
            });
        })?;
        Ok(Self { url, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where clients find it, without a slash at the end. A URL of the server in its answer to `GET /` is replaced by
    /// this one, since the account of Cosmos DB names the address that its clients are to use.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets the fault happen to the first `times` requests that match, from now on. Of several rules that match, the one
    /// added first and not used up counts; it alone.
    pub fn first(&self, times: u32, matches: impl Fn(&Asked) -> bool + Send + Sync + 'static, fault: Fault) -> Matched {
        let rule = Arc::new(Rule::new(times, Box::new(matches), fault));
        self.shared.told().rules.push(Arc::clone(&rule));
        Matched::new(rule)
    }

    /// Lets the fault happen to every request that matches, until [`Matched::end`].
    pub fn every(&self, matches: impl Fn(&Asked) -> bool + Send + Sync + 'static, fault: Fault) -> Matched {
        self.first(u32::MAX, matches, fault)
    }

    /// All requests since the start or since [`forget`](Self::forget), in the order in which they were read; those that
    /// were never forwarded among them.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.told().log.clone()
    }

    /// How many of them are as you say.
    #[must_use]
    pub fn count(&self, matches: impl Fn(&Asked) -> bool) -> usize {
        self.asked().iter().filter(|asked| matches(asked)).count()
    }

    /// Waits until of the requests that were read none is under way any more, whoever still waits for its answer.
    pub async fn until_idle(&self) {
        let _ = self.shared.under_way.subscribe().wait_for(|under_way| *under_way == 0).await; // The sender is this proxy's own.
    }

    /// Empties the log. The rules stay.
    pub fn forget(&self) {
        self.shared.told().log.clear();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A matcher of the test has panicked there, and that was said.
        }
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begins(&self) -> UnderWay<'_> {
        self.under_way.send_modify(|under_way| *under_way += 1);
        UnderWay(self)
    }

    /// Notes the request, and finds the rule for it.
    fn rule(&self, asked: &Asked) -> Option<Arc<Rule>> {
        let rules = {
            let mut told = self.told();
            told.log.push(asked.clone());
            told.rules.clone()
        };
        // Outside the lock: a matcher may ask the proxy.
        rules.into_iter().find(|rule| rule.takes(asked))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|under_way| *under_way -= 1);
    }
}
