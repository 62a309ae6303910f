//! Lies about bodies that are too large to travel.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Memory,
    ids::EndpointName,
    ports::{Bodies, BodyCapabilities, BodyName, BodyReference, Got, NewBody, Staged, StoreError},
    testing::bodies,
};

use crate::lie::expect;

const KEPT_WHOLE: &str = "bodies 1, kept whole";
const ONCE_PER_NAME: &str = "bodies 2, once per name";
const UNTIL_THE_LAST_REFERENCE: &str = "bodies 3, until the last reference";
const RELEASED_IS_TOLD: &str = "bodies 4, released is told";
const HANDED_OVER_IN_ONE_STEP: &str = "bodies 5, handed over in one step";
const STAGED_STAYS: &str = "bodies 6, staged stays";
const TOLD_WHEN_OLD: &str = "bodies 7, told when old";
const COLLECTED: &str = "bodies 8, collected";

#[derive(Debug, Clone, Copy)]
enum Lie {
    /// Gives the first megabyte.
    CutsLarge,
    /// Gives a body to those only who were named when it was put.
    GivesToTheNamed,
    /// Keeps what was put last.
    TakesTheLast,
    /// Takes any release for one of the first reference.
    CountsReleases,
    /// Lets go of all references with the first.
    LetsGoWithTheFirst,
    /// Keeps nothing for everybody.
    ForgetsForAll,
    /// Forgets a release at once.
    ForgetsReleases,
    /// Tells who has released a body that it is missing.
    TellsMissing,
    /// Takes no references in place of a released one.
    DropsInstead,
    /// Collects what is staged.
    CollectsStaged,
    /// Says that it has removed what is kept.
    RemovesKept,
    /// Says of what it does not know that it is kept.
    KeepsNothing,
    /// Tells an endpoint of the bodies of others.
    TellsOfOthers,
    /// Tells of what was put just now.
    TellsOfTheYoung,
    /// Tells of what is kept.
    TellsOfTheKept,
    /// Collects nothing.
    CollectsNothing,
    /// Keeps for everybody for a hundredth of the time.
    CollectsEarly,
    /// Tells of a release for a hundredth of the time.
    ForgetsEarly,
}

#[derive(Debug, Clone)]
struct Liar(Memory, Lie, Arc<Mutex<HashMap<BodyName, NewBody>>>);

impl Liar {
    fn put_as(&self, name: &BodyName) -> Option<NewBody> {
        self.2.lock().unwrap().get(name).cloned()
    }

    fn all(&self) -> Vec<NewBody> {
        self.2.lock().unwrap().values().cloned().collect()
    }
}

#[async_trait]
impl Bodies for Liar {
    fn body_capabilities(&self) -> BodyCapabilities {
        self.0.body_capabilities()
    }

    async fn put(&self, body: &NewBody) -> Result<(), StoreError> {
        if matches!(self.1, Lie::TakesTheLast) {
            self.0.unstage(&body.staged.name).await?;
        }
        self.2.lock().unwrap().entry(body.staged.name.clone()).or_insert_with(|| body.clone());
        self.0.put(body).await
    }

    async fn keep(&self, name: &BodyName, for_all: Duration) -> Result<bool, StoreError> {
        let for_all = match self.1 {
            Lie::ForgetsForAll => Duration::ZERO,
            Lie::CollectsEarly => for_all / 100,
            _ => for_all,
        };
        let kept = self.0.keep(name, for_all).await?;
        Ok(kept || matches!(self.1, Lie::KeepsNothing))
    }

    async fn get(&self, name: &BodyName, reference: Option<&BodyReference>) -> Result<Got, StoreError> {
        let got = self.0.get(name, reference).await?;
        Ok(match (self.1, got) {
            (Lie::CutsLarge, Got::Body(body)) => Got::Body(body.slice(..body.len().min(1 << 20))),
            (Lie::GivesToTheNamed, Got::Body(body)) => {
                let named = self.put_as(name).is_some_and(|put| reference.is_none_or(|by| put.references.contains(by)));
                if named { Got::Body(body) } else { Got::Missing }
            }
            (Lie::TellsMissing, Got::Released) => Got::Missing,
            (_, got) => got,
        })
    }

    async fn release(
        &self,
        name: &BodyName,
        reference: &BodyReference,
        instead: &[BodyReference],
        told: Duration,
    ) -> Result<(), StoreError> {
        let (told, instead) = match self.1 {
            Lie::ForgetsReleases => (Duration::ZERO, instead),
            Lie::ForgetsEarly => (told / 100, instead),
            Lie::DropsInstead => (told, &[][..]),
            _ => (told, instead),
        };
        let put = self.put_as(name).map(|put| put.references).unwrap_or_default();
        match self.1 {
            Lie::CountsReleases if !put.contains(reference) && !put.is_empty() => {
                self.0.release(name, &put[0], instead, told).await
            }
            Lie::LetsGoWithTheFirst if put.contains(reference) => {
                for other in &put {
                    self.0.release(name, other, instead, told).await?;
                }
                Ok(())
            }
            _ => self.0.release(name, reference, instead, told).await,
        }
    }

    async fn staged(&self, endpoint: &EndpointName, age: Duration, limit: usize) -> Result<Vec<Staged>, StoreError> {
        let age = if matches!(self.1, Lie::TellsOfTheYoung) { Duration::ZERO } else { age };
        let mut staged = self.0.staged(endpoint, age, limit).await?;
        if staged.len() == limit {
            return Ok(staged);
        }
        let others = self.all().into_iter().map(|put| put.staged).filter(|other| !staged.contains(other));
        match self.1 {
            Lie::TellsOfOthers if !self.all().iter().any(|put| put.staged.entity.scope().endpoint == *endpoint) => {
                let mut told = others.filter(|other| other.entity.scope().endpoint != *endpoint).collect();
                staged.append(&mut told);
            }
            Lie::TellsOfTheKept if !staged.is_empty() => {
                let mut told = others.filter(|other| other.entity.scope().endpoint == *endpoint).collect();
                staged.append(&mut told);
            }
            _ => {}
        }
        Ok(staged)
    }

    async fn unstage(&self, name: &BodyName) -> Result<bool, StoreError> {
        let removed = self.0.unstage(name).await?;
        let is_there = matches!(self.0.get(name, None).await?, Got::Body(_));
        Ok(removed || matches!(self.1, Lie::RemovesKept) && is_there)
    }

    async fn collect(&self, limit: usize) -> Result<usize, StoreError> {
        match self.1 {
            Lie::CollectsNothing => return Ok(0),
            Lie::CollectsStaged => {
                for put in self.all() {
                    self.0.unstage(&put.staged.name).await?;
                }
            }
            _ => {}
        }
        self.0.collect(limit).await
    }
}

#[async_trait]
impl bodies::Builder for Liar {
    async fn bodies(&self) -> Arc<dyn Bodies> {
        Arc::new(self.clone())
    }
}

async fn breaks(promise: &str, lie: Lie) {
    expect(promise, bodies::first_broken(&Liar(Memory::new(), lie, Arc::default())).await);
}

macro_rules! rejected {
    ($($test:ident: $lie:ident $promise:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                breaks($promise, Lie::$lie).await;
            }
        )+
    };
}

rejected! {
    a_body_that_is_cut_is_rejected: CutsLarge KEPT_WHOLE;
    a_body_given_only_to_those_who_were_named_is_rejected: GivesToTheNamed KEPT_WHOLE;
    a_body_that_changes_when_it_is_put_again_is_rejected: TakesTheLast ONCE_PER_NAME;
    a_body_released_by_a_stranger_is_rejected: CountsReleases UNTIL_THE_LAST_REFERENCE;
    a_body_that_goes_with_its_first_reference_is_rejected: LetsGoWithTheFirst UNTIL_THE_LAST_REFERENCE;
    a_body_that_is_not_kept_for_everybody_is_rejected: ForgetsForAll UNTIL_THE_LAST_REFERENCE;
    a_release_that_is_forgotten_is_rejected: ForgetsReleases RELEASED_IS_TOLD;
    a_released_body_told_to_be_missing_is_rejected: TellsMissing RELEASED_IS_TOLD;
    a_body_that_is_not_handed_over_is_rejected: DropsInstead HANDED_OVER_IN_ONE_STEP;
    a_staged_body_that_is_collected_is_rejected: CollectsStaged STAGED_STAYS;
    a_kept_body_that_is_told_to_be_removed_is_rejected: RemovesKept STAGED_STAYS;
    a_body_that_is_not_there_and_told_to_be_kept_is_rejected: KeepsNothing STAGED_STAYS;
    staged_bodies_of_others_are_rejected: TellsOfOthers TOLD_WHEN_OLD;
    staged_bodies_that_are_young_are_rejected: TellsOfTheYoung TOLD_WHEN_OLD;
    staged_bodies_that_are_kept_are_rejected: TellsOfTheKept TOLD_WHEN_OLD;
    a_body_that_is_never_collected_is_rejected: CollectsNothing COLLECTED;
    a_body_that_is_collected_early_is_rejected: CollectsEarly COLLECTED;
    a_release_that_is_forgotten_early_is_rejected: ForgetsEarly COLLECTED;
}
