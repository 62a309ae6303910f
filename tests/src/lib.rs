//! Rigs that the tests share.

mod backend;
mod driver;
mod mysql;
mod mysql_server;
mod postgres;
mod postgres_role;
mod postgres_server;
mod rig;
mod scripted;
mod watched;
mod workbench;

pub use backend::{Backend, Scratch};
pub use driver::{Case, Driver, Order};
pub use mysql::MySqlTables;
pub use mysql_server::MySqlServer;
pub use postgres::PostgresSchema;
pub use postgres_role::PostgresRole;
pub use postgres_server::{Pgbouncer, PostgresServer};
pub use rig::{Rig, Setup, Shape, Stage};
pub use scripted::{Events, Hands, Out, Save, Scripted};
pub use watched::Watched;
pub use workbench::{Bench, Workbench, message, words};
