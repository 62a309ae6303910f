//! DynamoDB or Cosmos DB, or what stands in for one. A run has a table or a database of its own there; its messages are in a file
//! here, or on a broker.

use std::{
    fmt, io,
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
};

use uuid::Uuid;

use super::server::CONNECT_LIMIT;
use crate::{Refusal, itself::Vendor, say, services};

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    DynamoDb,
    CosmosDb,
}

impl Kind {
    const ALL: [Self; 2] = [Self::DynamoDb, Self::CosmosDb];

    pub(crate) const fn scheme(self) -> &'static str {
        match self {
            Self::DynamoDb => "dynamodb",
            Self::CosmosDb => "cosmos",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "DynamoDB",
            Self::CosmosDb => "Cosmos DB",
        }
    }

    const fn vendor(self) -> Vendor {
        match self {
            Self::DynamoDb => Vendor::Aws,
            Self::CosmosDb => Vendor::Azure,
        }
    }

    /// The one that `store` names, and what is behind the scheme.
    fn of(store: &str) -> Option<(Self, &str)> {
        Self::ALL.into_iter().find_map(|kind| Some((kind, store.strip_prefix(kind.scheme())?.strip_prefix(':')?)))
    }

    const fn is_built(self) -> bool {
        match self {
            Self::DynamoDb => cfg!(feature = "dynamodb"),
            Self::CosmosDb => cfg!(feature = "cosmos"),
        }
    }
}

/// Whether `store` is kept by such a service.
pub(crate) fn is_service(store: &str) -> bool {
    Kind::of(store).is_some()
}

/// Whether `at` is where an emulator can be: nothing else is behind it, and no account before it.
pub(crate) fn is_host_and_port(at: &str) -> bool {
    at.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(['/', '@']) && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// What one run has there.
#[derive(Debug, Clone)]
#[cfg_attr(not(any(feature = "dynamodb", feature = "cosmos")), allow(dead_code, reason = "none is compiled in"))]
pub(crate) struct Service {
    pub(crate) kind: Kind,
    /// Host and port of an emulator, or the region or account of the service itself.
    at: String,
    name: String,
    queue: PathBuf,
}

#[cfg_attr(not(any(feature = "dynamodb", feature = "cosmos")), allow(dead_code, reason = "none is compiled in"))]
impl Service {
    /// A place for a new run, whose queues are in `folder`; nothing is made yet.
    pub(super) fn new(store: &str, folder: &Path) -> Result<Self, Refusal> {
        let id = Uuid::new_v4().simple().to_string();
        let service = Self::named(store, &format!("orders_{}", &id[..12]), &folder.join("cards.db"));
        let Some(service) = service else { return Err(Refusal::new("--store names no service")) };
        let (kind, scheme) = (service.kind, service.kind.scheme());
        if !kind.is_built() {
            return Err(Refusal::new(format!(
                "--store {scheme}: this program was built without {}; build it with --features {scheme}",
                kind.name()
            )));
        }
        if !is_host_and_port(&service.at) {
            kind.vendor().check("--store", scheme, &service.at)?;
        }
        Ok(service)
    }

    /// Refuses what does not answer, before anything is made that would be left behind.
    pub(super) async fn check(&self) -> Result<(), Refusal> {
        if self.itself().is_none() {
            return self.check_emulator();
        }
        services::check(self).await.map_err(|why| {
            let (store, name) = (self.store(), self.kind.name());
            Refusal::new(format!("--store {store}: {name} itself cannot be used: {why}"))
        })
    }

    fn check_emulator(&self) -> Result<(), Refusal> {
        let found = self.at.to_socket_addrs().and_then(|mut found| {
            let found = found.next().ok_or_else(|| io::Error::other("there is no such host"))?;
            TcpStream::connect_timeout(&found, CONNECT_LIMIT)
        });
        found.map(drop).map_err(|e| {
            let (at, scheme) = (&self.at, self.kind.scheme());
            Refusal::new(format!(
                "--store {scheme}: nobody answers at {at}: {e}; start an emulator (`cargo xtask emulator {scheme}`) or name another"
            ))
        })
    }

    /// The one that another process has made; the card company's ledger is beside its queues.
    pub(super) fn named(store: &str, name: &str, ledger: &Path) -> Option<Self> {
        let (kind, rest) = Kind::of(store)?;
        let at = rest.strip_prefix("//").unwrap_or(rest).trim_end_matches('/').to_owned();
        Some(Self { kind, at, name: name.to_owned(), queue: ledger.with_file_name("queues.db") })
    }

    /// As `--store` has it.
    pub(super) fn store(&self) -> String {
        format!("{}://{}", self.kind.scheme(), self.at)
    }

    /// Where an emulator is spoken to.
    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.at)
    }

    /// The region or account, where it is the service itself.
    pub(crate) fn itself(&self) -> Option<&str> {
        (!is_host_and_port(&self.at)).then_some(&self.at)
    }

    /// What the run's table or database is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file with the run's queues.
    pub(crate) fn queue(&self) -> &Path {
        &self.queue
    }

    /// Removes what the run has there.
    pub(super) async fn remove(&self) {
        if let Err(why) = services::remove(self).await {
            say(format_args!("{self} is still there: {why}; remove it"));
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ({})", self.name, self.at, self.kind.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_no_place_of_a_service_is_refused_with_what_to_write() {
        for kind in Kind::ALL {
            let scheme = kind.scheme();
            let find = |rest: &str| Service::new(&format!("{scheme}:{rest}"), Path::new("/nowhere"));
            if !kind.is_built() {
                let said = find("//127.0.0.1:1").unwrap_err().to_string();
                assert!(said.contains(&format!("build it with --features {scheme}")), "{said}");
                continue;
            }
            for rest in ["", "//", "//HOST", "//:80", "//host:0", "//a:b@host:80", "//host:80/table"] {
                let said = find(rest).unwrap_err().to_string();
                assert!(said.contains(&format!("write {scheme}://HOST:PORT")), "{rest}: {said}");
            }
            let service = find("//127.0.0.1:8000/").unwrap();
            assert_eq!((service.address().as_str(), service.itself()), ("http://127.0.0.1:8000", None));
            let same = Service::named(&service.store(), service.name(), Path::new("/nowhere/cards.db")).unwrap();
            assert_eq!(same.queue(), Path::new("/nowhere/queues.db"));
            let there =
                Service::named(&format!("{scheme}://eu-central-1"), "orders_1", Path::new("/cards.db")).unwrap();
            assert_eq!((there.itself(), there.store()), (Some("eu-central-1"), format!("{scheme}://eu-central-1")));
        }
    }
}
