//! A web page for operators, over [`hapax_core::operator`]: what waits, what was set aside, what has become of a message.
//!
//! It shows, unless it is given [`Actions`]: then dead letters can be retried and discarded by who knows the [`Token`]. It is a [`Router`] of
//! axum, for a server of yours; with the feature `serve` it has one of its own, `serve`, and reads numbers from other processes, `Scraped`.
//! The command `hapax page` is made of both.
//!
//! ```
//! # use hapax_core::{operator::Operator, ports::{DeadLetters, DedupStore, EntityStore, Survey}};
//! use hapax_page::{Actions, Page, PageMetrics, Token};
//!
//! # fn page<S>(store: S, token: &str) -> Result<(), Box<dyn std::error::Error>>
//! # where S: EntityStore + DedupStore + DeadLetters + Survey + 'static {
//! // Also for the endpoint: `.metrics(Arc::new(metrics.clone()))`, or beside another observer by `Both`.
//! let metrics = PageMetrics::default();
//! let router = Page::new(Operator::on(store))
//!     .below("/hapax")?
//!     .host("ops.example.org")
//!     .guarded(Token::parse(token)?)
//!     .actions(Actions::new(Token::parse(token)?))
//!     .counts(metrics)
//!     .router();
//! # let _: axum::Router = router;
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//! 1. *Reading alone:* without [`Actions`] there is no route by which anything changes.
//! 2. *Nothing of a message is run:* what others have written is put into the page as text, and the page may run no script but its own.
//! 3. *No stranger's page acts or reads:* another site's request is refused, and so is a name that somebody else may have made to mean this host.
//! 4. *Bodies stay* where they are, unless [`bodies`](Page::bodies) says otherwise.
//! 5. *Bounded:* so many questions are asked of the store at a time, each for so long; beyond them the answer is 503, or 504.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod actions;
mod answer;
mod api;
mod counts;
mod guard;
mod letters;
mod observe;
#[cfg(feature = "serve")]
mod scrape;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod text_format;
mod token;

use std::sync::Arc;

use axum::Router;
use hapax_core::operator::{Operator, Selection};
use tokio::sync::Semaphore;

pub use actions::Actions;
pub use counts::{Counted, Counts, Numbers, ProcessState, SagaNumbers, Step};
pub use observe::{Both, PageMetrics};
#[cfg(feature = "serve")]
pub use scrape::Scraped;
#[cfg(feature = "serve")]
pub use serve::serve;
pub use token::Token;

/// Questions that are asked of the store at a time: a few readers of the page. Each may take a connection of the store's pool, and endpoints
/// come first.
const ASKED_AT_ONCE_MAX: usize = 8;

/// Why a page cannot be as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// A path to put it below.
    #[error(
        "`{0}` is no path to put a page below: write it as `/hapax`, of letters, digits and `-`, without a slash at its end"
    )]
    Path(String),
    /// A token.
    #[error("the token {0}: take 32 hexadecimal digits, for example of `openssl rand -hex 16`")]
    Token(&'static str),
    /// Where numbers are read.
    #[error("`{0}` is no place to read numbers from: {1}")]
    Metrics(String, &'static str),
}

/// The page, while it is put together.
#[derive(Debug, Clone)]
#[must_use]
pub struct Page {
    operator: Operator,
    of: Selection,
    below: String,
    hosts: Vec<String>,
    bodies: bool,
    guard: Option<Token>,
    actions: Option<Actions>,
    counts: Counts,
}

impl Page {
    /// That shows what `operator` sees. Retrying needs an operator that [sends](Operator::sends_by).
    pub fn new(operator: Operator) -> Self {
        Self {
            operator,
            of: Selection::default(),
            below: String::new(),
            hosts: Vec::new(),
            bodies: false,
            guard: None,
            actions: None,
            counts: Counts::unknown(
                "no store keeps them: give the page an observer of its process (`PageMetrics`), or begin `hapax page` with --metrics URL",
            ),
        }
    }

    /// That shows this part alone, unless a reader asks for another: for stores that cannot list their endpoints.
    pub fn of(mut self, of: Selection) -> Self {
        self.of = of;
        self
    }

    /// Below a path of a server that has more to show, such as `/hapax`. Its router is [merged](Router::merge) there, not nested.
    ///
    /// # Errors
    /// [`PageError::Path`].
    pub fn below(mut self, path: &str) -> Result<Self, PageError> {
        let is_part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let is_path = path.strip_prefix('/').is_some_and(|path| path.split('/').all(is_part));
        if !is_path {
            return Err(PageError::Path(path.to_owned()));
        }
        path.clone_into(&mut self.below);
        Ok(self)
    }

    /// Also under this name, without a port. Addresses in digits and `localhost` are always answered to: any other name may be a
    /// stranger's, whose page in somebody's browser would read what is here (DNS rebinding).
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.hosts.push(name.into().to_ascii_lowercase());
        self
    }

    /// With the bodies of single dead letters. They may be confidential; the default is their size.
    pub fn bodies(mut self, shown: bool) -> Self {
        self.bodies = shown;
        self
    }

    /// Reading needs the token, too. Wherever others reach the page it is to be guarded.
    pub fn guarded(mut self, token: Token) -> Self {
        self.guard = Some(token);
        self
    }

    /// With what changes something.
    pub fn actions(mut self, actions: Actions) -> Self {
        self.actions = Some(actions);
        self
    }

    /// With numbers that no store keeps: what was handled, and how many copies were dropped.
    pub fn counts(mut self, counts: impl Into<Counts>) -> Self {
        self.counts = counts.into();
        self
    }

    /// The page and what it asks.
    pub fn router(self) -> Router {
        let below = self.below.clone();
        let asked = Arc::new(Asked { page: self, permits: Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX)) });
        let router = guard::routes(&asked);
        if below.is_empty() { router } else { guard::below(&below, router) }
    }
}

/// What all routes know.
#[derive(Debug)]
struct Asked {
    page: Page,
    permits: Arc<Semaphore>,
}
