//! Does the store do what the promises need? Asked of the store itself.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use hapax_core::ports::{ErrorKind, StoreError};
use object_store::path::Path;
use uuid::Uuid;

use super::{
    clock::stamp,
    error::Failure,
    names::Names,
    objects::{Created, Objects},
    start::OPENING,
};

/// Creates of one name at the same time. Default 20: enough that a store which looks first and writes then is seen doing so.
const CREATES: usize = 20;
/// How often that is tried until one wins. Default 3: answers are rarely lost.
const ROUNDS: usize = 3;
/// Objects that are looked for, created, and looked for again. Default 4: two by each client.
const LOOKS: usize = 4;
/// What stamps that are cut to seconds may be apart without any time between them.
const CUT: Duration = Duration::from_secs(1);

/// A probe of one store by two clients.
struct Probe<'a> {
    place: &'a str,
    names: &'a Names,
    clients: [&'a Objects; 2],
    /// How far apart the service's clocks may be.
    clock_margin: Duration,
    begun: Instant,
    run: String,
}

/// Refuses a store that doubles effects, with what it did and the remedy.
pub(super) async fn probe(
    place: &str,
    names: &Names,
    clients: [&Objects; 2],
    clock_margin: Duration,
) -> Result<(), StoreError> {
    let run = Uuid::new_v4().simple().to_string();
    let probe = Probe { place, names, clients, clock_margin, begun: Instant::now(), run };
    let looked = match probe.creates_once().await {
        Ok(()) => match probe.shows_at_once().await {
            Ok(()) => probe.stamps_by_one_clock().await,
            refused => refused,
        },
        refused => refused,
    };
    let deleted = probe.deletes().await;
    looked?;
    deleted
}

/// What each create of one name writes.
fn body_of(index: usize) -> Vec<u8> {
    format!("create {index}").into_bytes()
}

/// The name of an object that is looked for before it is there.
fn look(index: usize) -> String {
    format!("look-{index}")
}

impl Probe<'_> {
    fn name(&self, name: &str) -> Path {
        self.names.probe(&self.run, name)
    }

    fn failed(&self, failure: Failure) -> StoreError {
        failure.of_read(self.place, OPENING)
    }

    async fn read(&self, client: &Objects, path: &Path) -> Result<Option<Bytes>, StoreError> {
        client.get(path).await.map_err(|failure| self.failed(failure))
    }

    fn refused(&self, did: &str) -> StoreError {
        let why =
            format!("{} {did}; effects would double: keep dedup entries elsewhere, or set it up otherwise", self.place);
        StoreError::new(ErrorKind::Misconfigured, OPENING, why)
    }

    /// Of creates of one name one wins, and its content stays.
    async fn creates_once(&self) -> Result<(), StoreError> {
        for round in 0..ROUNDS {
            let path = self.name(&format!("one-{round}"));
            let create = |index: usize| self.clients[index % 2].create(&path, body_of(index));
            let mut winners = Vec::new();
            for (index, created) in join_all((0..CREATES).map(create)).await.into_iter().enumerate() {
                if created.map_err(|failure| self.failed(failure))? == Created::New {
                    winners.push(index);
                }
            }
            match winners[..] {
                [winner] => return self.keeps(&path, &body_of(winner)).await,
                // The winner's answer was lost, and its client has repeated it and met its own object.
                [] => {}
                _ => {
                    let count = winners.len();
                    let did =
                        format!("lets {count} of {CREATES} creates of one object win (it ignores `If-None-Match`)");
                    return Err(self.refused(&did));
                }
            }
        }
        Err(self.refused("lets none of many creates of one object win"))
    }

    /// Both clients see `body` in the object that was just created.
    async fn keeps(&self, path: &Path, body: &[u8]) -> Result<(), StoreError> {
        for client in self.clients {
            match self.read(client, path).await? {
                Some(found) if found == body => {}
                Some(_) => return Err(self.refused("refuses a create and writes its content all the same")),
                None => return Err(self.refused("does not show an object that it has just created")),
            }
        }
        Ok(())
    }

    /// What one client has created the other reads and lists at once, also where it has looked before.
    async fn shows_at_once(&self) -> Result<(), StoreError> {
        for index in 0..LOOKS {
            let (writer, reader) = (self.clients[index % 2], self.clients[(index + 1) % 2]);
            let path = self.name(&look(index));
            if self.read(reader, &path).await?.is_some() {
                return Err(self.refused("shows an object that nobody has created"));
            }
            writer.create(&path, vec![b'x']).await.map_err(|failure| self.failed(failure))?;
            if self.read(reader, &path).await?.is_none() {
                return Err(
                    self.refused("says of an object that it has just created that there is none (a cache answers)")
                );
            }
            let listed = reader.list(&self.names.probes(&self.run)).await.map_err(|failure| self.failed(failure))?;
            if !listed.iter().any(|meta| meta.location == path) {
                return Err(self.refused("does not list an object that it has just created"));
            }
        }
        Ok(())
    }

    /// Stamps are no further apart than the clocks may be, and what lay between the creates.
    async fn stamps_by_one_clock(&self) -> Result<(), StoreError> {
        let (mut stamps, names) = (Vec::new(), ["one-0".to_owned()].into_iter().chain((0..LOOKS).map(look)));
        for (index, name) in names.enumerate() {
            let read = self.clients[index % 2].head(&self.name(&name)).await;
            stamps.extend(read.map_err(|failure| self.failed(failure))?.as_ref().map(stamp));
        }
        let apart = stamps.iter().max().zip(stamps.iter().min()).map(|(latest, first)| latest.abs_diff(*first));
        let most = self.clock_margin.saturating_add(self.begun.elapsed()).saturating_add(CUT);
        match apart.map(Duration::from_millis) {
            Some(apart) if stamps.len() >= LOOKS && apart <= most => Ok(()),
            _ => {
                let did = format!(
                    "stamps objects by clocks that are far apart, {} when they may be {most:?}, so that their age is not known \
                     (if they always are no further apart, open it with such a `clock_margin`)",
                    apart.map_or_else(|| "nobody knows how far".to_owned(), |apart| format!("{apart} ms"))
                );
                Err(self.refused(&did))
            }
        }
    }

    /// Removes what the probe has written. What stays visible is evicted late, which is safe.
    async fn deletes(&self) -> Result<(), StoreError> {
        let names = (0..ROUNDS).map(|round| format!("one-{round}")).chain((0..LOOKS).map(look));
        let paths: Vec<Path> = names.map(|name| self.name(&name)).collect();
        self.clients[0].delete(paths.clone()).await.map_err(|failure| self.failed(failure))?;
        self.clients[0].remove_folder(&self.names.probes(&self.run)).await;
        for path in &paths {
            if self.read(self.clients[1], path).await?.is_some() {
                let place = self.place;
                tracing::warn!(
                    place,
                    "an object that was just deleted is still there: dedup entries are evicted late or never"
                );
                break;
            }
        }
        Ok(())
    }
}
