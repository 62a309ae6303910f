//! Which requests a fault is for and how often; and what it has met, so that a test waits for that and for no time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::watch;

use super::{Asked, Fault};

type Matches = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

/// What happens to which requests, and how often it did.
pub(super) struct Rule {
    matches: Matches,
    pub(super) fault: Fault,
    left: AtomicU32,
    seen: watch::Sender<Seen>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    matched: u32,
    served: u32,
}

impl Rule {
    pub(super) fn new(times: u32, matches: Matches, fault: Fault) -> Self {
        Self { matches, fault, left: AtomicU32::new(times), seen: watch::Sender::default() }
    }

    /// Whether it is for this request, which uses it up once.
    pub(super) fn takes(&self, asked: &Asked) -> bool {
        let takes = self.left.load(Ordering::SeqCst) > 0 && (self.matches)(asked) && {
            let less = |left: u32| left.checked_sub(1);
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
        };
        if takes {
            self.seen.send_modify(|seen| seen.matched += 1);
        }
        takes
    }

    pub(super) fn was_served(&self) {
        self.seen.send_modify(|seen| seen.served += 1);
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { matches: _, fault, left, seen } = self;
        f.debug_struct("Rule").field("fault", fault).field("left", left).field("seen", &*seen.borrow()).finish()
    }
}

/// What a rule has met with so far.
#[derive(Debug, Clone)]
pub struct Matched(Arc<Rule>);

impl Matched {
    pub(super) const fn new(rule: Arc<Rule>) -> Self {
        Self(rule)
    }

    /// How many requests the fault was for.
    #[must_use]
    pub fn matched(&self) -> u32 {
        self.0.seen.borrow().matched
    }

    /// How many of them the server has answered, with whatever status. For those that it never sees that is none.
    #[must_use]
    pub fn served(&self) -> u32 {
        self.0.seen.borrow().served
    }

    /// Waits until the fault was for so many.
    pub async fn until_matched(&self, times: u32) {
        self.until(|seen| seen.matched >= times).await;
    }

    /// Waits until the server has answered so many of them.
    pub async fn until_served(&self, times: u32) {
        self.until(|seen| seen.served >= times).await;
    }

    async fn until(&self, reached: impl Fn(&Seen) -> bool) {
        let _ = self.0.seen.subscribe().wait_for(reached).await; // The sender is this rule's own.
    }

    /// Ends the rule: from now on the fault is for no request.
    pub fn end(&self) {
        self.0.left.store(0, Ordering::SeqCst);
    }
}
