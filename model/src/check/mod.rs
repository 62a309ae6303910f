#![doc = include_str!("../../CHECK.md")]

mod advice;
mod builder;
mod coming;
mod external;
mod growth;
mod hush;
mod outcome;
mod paths;
mod plan;
mod run;
mod sagas;
mod tell;
mod watch;
mod world;

pub use builder::Check;
pub use external::External;
pub use outcome::{Checked, Explored, Failure};
pub use sagas::{Several, Subject};
pub use world::{Holds, World};

pub use crate::explore::Budgets;
