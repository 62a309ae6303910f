//! The heart of hapax: the words, the ports, [`SagaManager`], [`deliver`] and the endpoint.
//!
//! Applications use the `hapax` crate, which re-exports this one. Adapters for stores and brokers depend on this crate
//! alone and check themselves with `hapax_core::testing`.
// Whoever builds the docs for everybody shows which feature something needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod around;
pub mod claim;
pub mod codec;
mod context;
pub mod deliver;
pub mod endpoint;
mod enqueued;
pub mod entity;
pub mod envelope;
mod handler_error;
pub mod ids;
pub mod inbox;
pub mod manager;
pub mod metrics;
pub mod operator;
pub mod ports;
mod registry;
pub mod relay;
pub mod requests;
mod routes;
mod saga;
pub mod seal;
mod sender;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod trace;

pub use around::{Around, Every, Next, Ran, Reach};
pub use context::{Context, OUTGOING_MAX};
pub use endpoint::Endpoint;
pub use enqueued::Enqueued;
pub use handler_error::HandlerError;
pub use manager::SagaManager;
pub use registry::{Completed, Missing, Registry, ReusedId};
// For checks, which run a stateless handler without an endpoint; of no use to anybody else.
#[doc(hidden)]
pub use registry::{Stateless, stateless};
pub use relay::Relay;
pub use requests::RequestClient;
pub use routes::Routes;
pub use saga::{Correlation, Handle, Handler, Message, Needs, Saga};
pub use sender::{SendError, Sender};
