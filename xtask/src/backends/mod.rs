//! The backends that tests run against, how each is provided, and whether it really was tested.
//!
//! A green run may have tested nothing: so a backend counts as tested only when a test that bears its name has passed.
//! `HAPAX_REQUIRE`, a list with commas, names the backends that must not be missing; the shared checks set it.

mod emulators;
mod http;
mod kafka;
mod machine;
mod mysql;
mod nats;
mod objects;
mod postgres;
mod python;
mod rabbitmq;
mod real;
mod redis;
mod server;
mod servicebus;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use crate::lines::Seen;
use crate::report::{Report, Verdict};
use crate::workspace::Workspace;

pub(crate) use emulators::MANIFEST as EMULATORS;
use machine::Machine;
use real::{REAL, Real};
use server::{Lack, Origin, Provided, Server};

/// Names of backends, with commas between them, whose absence is a failure.
const REQUIRE: &str = "HAPAX_REQUIRE";

/// A store or a transport that tests run against.
struct Backend {
    /// Its name in `HAPAX_REQUIRE` and in the table; its tests bear it.
    name: &'static str,
    package: &'static str,
    /// The feature of the package that compiles it in.
    feature: &'static str,
    /// What it needs beside the test process.
    server: Option<&'static dyn Server>,
}

const fn embedded(name: &'static str, package: &'static str, feature: &'static str) -> Backend {
    Backend { name, package, feature, server: None }
}

const fn served(
    name: &'static str,
    package: &'static str,
    feature: &'static str,
    server: &'static dyn Server,
) -> Backend {
    Backend { name, package, feature, server: Some(server) }
}

/// All that there are, and all that will be: one with a server is a backend as soon as its package has the feature.
const BACKENDS: [Backend; 20] = [
    embedded("memory", "hapax-stores", "memory"),
    embedded("sqlite", "hapax-stores", "sqlite"),
    embedded("in-process", "hapax-transports", "in-process"),
    embedded("partitioned-log", "hapax-transports", "partitioned-log"),
    embedded("sqlite-queue", "hapax-transports", "sqlite"),
    embedded("object", "hapax-stores", "object"),
    served("postgres", "hapax-stores", "postgres", &postgres::Postgres),
    served("postgres-queue", "hapax-transports", "postgres", &postgres::Postgres),
    served("mysql", "hapax-stores", "mysql", &mysql::MySql),
    served("mysql-queue", "hapax-transports", "mysql", &mysql::MySql),
    served("rabbitmq", "hapax-transports", "rabbitmq", &rabbitmq::RabbitMq),
    served("redis", "hapax-transports", "redis", &redis::Redis),
    served("nats", "hapax-transports", "nats", &nats::Nats),
    served("kafka", "hapax-transports", "kafka", &kafka::Kafka),
    served("dynamodb", "hapax-stores", "dynamodb", &emulators::DynamoDb),
    served("cosmos", "hapax-stores", "cosmos", &emulators::Cosmos),
    // The same feature: what the dedup store of `object` is told apart by is where its objects are.
    served("azure-blob", "hapax-stores", "object", &objects::AzureBlob),
    served("s3", "hapax-stores", "object", &objects::S3),
    served("sqs", "hapax-transports", "sqs", &objects::Sqs),
    served("servicebus", "hapax-transports", "preview-servicebus", &servicebus::ServiceBus),
];

impl Backend {
    fn is_compiled(&self, workspace: &Workspace) -> bool {
        workspace.own().any(|own| own.name == self.package && own.features.iter().any(|f| f == self.feature))
    }
}

/// The backends of this tree.
fn listed(workspace: &Workspace) -> Vec<&'static Backend> {
    BACKENDS.iter().filter(|backend| backend.server.is_none() || backend.is_compiled(workspace)).collect()
}

/// Starts the emulator of that backend on a free port, says where it is, and returns when it has ended: with this program,
/// if with nothing else.
///
/// # Errors
/// No backend of that name has an emulator, or it cannot be had.
pub(crate) fn emulate(name: &str) -> Result<(), String> {
    let (server, provided) = emulator(name)?;
    println!("{}; it ends with Ctrl-C\nexport {}={}", provided.how, server.variable(), provided.url);
    provided.wait();
    Ok(())
}

/// An emulator that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Emulator {
    /// Where it is.
    pub(crate) url: String,
    _running: Provided,
}

/// The same for something else than tests.
///
/// # Errors
/// As [`emulate`].
pub(crate) fn started(name: &str) -> Result<Emulator, String> {
    let (_, provided) = emulator(name)?;
    Ok(Emulator { url: provided.url.clone(), _running: provided })
}

/// Has what tests bring themselves beside that backend's server, and says how it went.
pub(crate) fn beside(name: &str) -> Option<String> {
    let backend = BACKENDS.iter().find(|backend| backend.name == name)?;
    backend.server?.beside(&Machine::here())
}

fn emulator(name: &str) -> Result<(&'static dyn Server, Provided), String> {
    of_ones_own(name, "emulator", |server| matches!(server.origin(), Origin::Made { .. }))
}

/// Runs a server of its own of the backend of this name, until somebody ends this; what is in it goes with it.
///
/// # Errors
/// There is no such server, or it cannot be started; with the command that would provide it.
pub(crate) fn serve(name: &str) -> Result<(), String> {
    let (_, provided) = of_ones_own(name, "server", |server| matches!(server.origin(), Origin::Debian(_)))?;
    println!("{}; it ends with Ctrl-C, and with it what is in it\n{}", provided.how, provided.url);
    provided.wait();
    Ok(())
}

fn of_ones_own(
    name: &str,
    kind: &str,
    is_one: impl Fn(&dyn Server) -> bool,
) -> Result<(&'static dyn Server, Provided), String> {
    let meant = |backend: &Backend| backend.server.filter(|server| is_one(*server));
    let server = BACKENDS.iter().filter(|backend| backend.name == name).find_map(meant);
    let server = server.ok_or_else(|| {
        let known: Vec<&str> = BACKENDS.iter().filter(|it| meant(it).is_some()).map(|it| it.name).collect();
        format!("`{name}` has no {kind}: there are those of {}", known.join(", "))
    })?;
    match server::own(server, &Machine::here()) {
        Ok(provided) => Ok((server, provided)),
        Err(Lack::Wrong(why) | Lack::Missing(why)) => Err(why),
    }
}

/// The backends of one run. The servers started for it end with this.
#[derive(Debug)]
pub(crate) struct Backends {
    rows: Vec<Row>,
    required: BTreeSet<String>,
    /// By the variable that tells the tests where each is.
    servers: Vec<(&'static str, Result<Provided, String>)>,
    /// The services behind the emulators, and whether each is asked for.
    real: Vec<(&'static Real, bool)>,
}

/// One backend, and how it is there or why it is not.
#[derive(Debug)]
struct Row {
    name: &'static str,
    provided: Result<String, String>,
    /// Its tests fail without it, so they are left out.
    needs_server: bool,
}

impl Row {
    /// What some tests of the server need beside it, where there is such a thing.
    fn apart(server: &dyn Server, provided: &Result<String, String>, machine: &Machine) -> Option<Self> {
        let apart = server.apart()?;
        let made = provided.as_ref().map_err(Clone::clone).and_then(|_| (apart.make)(machine));
        Some(Self { name: apart.name, provided: made, needs_server: true })
    }
}

impl Backends {
    /// Provides all that can be had.
    ///
    /// # Errors
    /// `HAPAX_REQUIRE` names a backend that does not exist, or a variable a server that does not answer.
    pub(crate) fn provide(workspace: &Workspace) -> Result<Self, String> {
        let backends = listed(workspace);
        let required = required(&std::env::var(REQUIRE).unwrap_or_default(), &backends)?;
        Self::from(workspace, &backends, required, &Machine::here())
    }

    /// Provides those alone whose names are `wanted`.
    ///
    /// # Errors
    /// A variable names a server that does not answer.
    pub(crate) fn provide_some(workspace: &Workspace, wanted: impl Fn(&str) -> bool) -> Result<Self, String> {
        let mut backends = listed(workspace);
        backends.retain(|backend| wanted(backend.name));
        Self::from(workspace, &backends, BTreeSet::new(), &Machine::here())
    }

    /// Builds the emulators.
    pub(crate) fn emulators_build() -> Command {
        emulators::building(&Machine::here())
    }

    /// Where what the emulators are made of is built.
    pub(crate) fn emulators_target() -> PathBuf {
        emulators::target(&Machine::here())
    }

    fn from(
        workspace: &Workspace,
        backends: &[&'static Backend],
        required: BTreeSet<String>,
        machine: &Machine,
    ) -> Result<Self, String> {
        let real = REAL.iter().filter(|real| backends.iter().any(|backend| backend.name == real.backend));
        let real = real.map(|real| (real, real.is_asked(machine))).collect();
        let mut all = Self { rows: Vec::new(), required, servers: Vec::new(), real };
        for backend in backends {
            let Backend { name, package, feature, server } = backend;
            let provided = match server {
                Some(server) => all.server(*server, machine)?,
                None if backend.is_compiled(workspace) => Ok(format!("embedded in {package}")),
                None => Err(format!(
                    "{package} has no feature `{feature}`: add it, or take the backend out of xtask's list"
                )),
            };
            let apart = server.and_then(|server| Row::apart(server, &provided, machine));
            all.rows.push(Row { name, provided, needs_server: server.is_some() });
            all.rows.extend(apart);
        }
        Ok(all)
    }

    /// How the server is there; it is provided once, for whatever needs it.
    fn server(&mut self, server: &dyn Server, machine: &Machine) -> Result<Result<String, String>, String> {
        let variable = server.variable();
        if !self.servers.iter().any(|(known, _)| *known == variable) {
            let provided = match server::provide(server, machine) {
                Err(Lack::Wrong(why)) => return Err(why),
                Err(Lack::Missing(why)) => Err(why),
                Ok(mut provided) => {
                    provided.how.extend(server.beside(machine).map(|own| format!("; {own}")));
                    Ok(provided)
                }
            };
            self.servers.push((variable, provided));
        }
        let known = self.servers.iter().find(|(known, _)| *known == variable).map(|(_, provided)| provided.as_ref());
        let known = known.ok_or_else(|| format!("{variable} was provided and is gone"))?;
        Ok(known.map(|provided| provided.how.clone()).map_err(Clone::clone))
    }

    /// What tells the tests where the servers are: variables and their values.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.servers.iter().filter_map(|(name, provided)| Some((*name, provided.as_ref().ok()?.url.as_str())))
    }

    /// What the tests bear in their names that cannot run, for want of a server or of a place for a proxy.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let without = self.rows.iter().filter(|row| row.needs_server && row.provided.is_err());
        let proxied = self.real.iter().filter(|(_, asked)| *asked).filter_map(|(real, _)| real.left_out());
        without.map(|row| row.name.replace('-', "_")).chain(proxied.map(str::to_owned)).collect()
    }

    /// The service that took this emulator's place.
    fn asked(&self, name: &str) -> Option<&Real> {
        self.real.iter().find(|(real, asked)| *asked && real.backend == name).map(|(real, _)| *real)
    }

    /// Adds one row for each backend. `complete` is false where only some tests were asked for, so that a backend
    /// without a test is no surprise.
    pub(crate) fn report(self, seen: &Seen, complete: bool, report: &mut Report) {
        let names: Vec<&str> = self.rows.iter().map(|row| row.name).collect();
        for Row { name, provided, .. } in &self.rows {
            let tests = seen.passed.iter().filter(|test| bears(test, name, &names)).count();
            let verdict = match (self.asked(name), provided) {
                (Some(real), Ok(_)) => missing(real.instead(), name, &self.required),
                (_, Ok(how)) if tests > 0 || !complete => Verdict::Passed(format!("{how}, {tests} tests passed")),
                (_, Ok(how)) => missing(format!("{how}, but no test that bears its name passed"), name, &self.required),
                (_, Err(why)) => missing(why.clone(), name, &self.required),
            };
            report.note(&format!("backend {name}"), verdict);
        }
        for (real, asked) in &self.real {
            real.report(*asked, seen, complete, &names, report);
        }
    }
}

/// What is missing is a failure only if it was required.
fn missing(why: String, name: &str, required: &BTreeSet<String>) -> Verdict {
    if required.contains(name) {
        Verdict::Failed(format!("required by {REQUIRE}: {why}"))
    } else {
        Verdict::Skipped(why)
    }
}

/// Whether a test, given by program and path, is one of the backend's, and not of one whose longer name holds this one.
fn bears(test: &str, name: &str, names: &[&str]) -> bool {
    let mut test = test.replace('-', "_");
    for longer in names.iter().filter(|longer| **longer != name && longer.contains(name)) {
        test = test.replace(&longer.replace('-', "_"), "");
    }
    test.contains(&name.replace('-', "_"))
}

fn required(list: &str, backends: &[&Backend]) -> Result<BTreeSet<String>, String> {
    let apart = backends.iter().filter_map(|backend| backend.server?.apart()).map(|apart| apart.name);
    let known: Vec<&str> = backends.iter().map(|backend| backend.name).chain(apart).collect();
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| match known.contains(&name) {
            true => Ok(name.to_owned()),
            false => Err(format!("{REQUIRE} names `{name}`, which is no backend: known are {}", known.join(", "))),
        })
        .collect()
}
