//! One handle onto the store of bodies under test, and what every check does with it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{ALL, Broken, Builder};
use crate::{
    ids::{EndpointName, EntityKey, PartitionKey, SagaKey, Scope},
    ports::{Bodies, BodyName, BodyReference, Got, NewBody, Staged},
    testing::{
        samples,
        wait::{eventually, insistently},
    },
};

/// One handle, an endpoint, and the promise that is being checked with them.
#[derive(Clone)]
pub(super) struct Hand {
    pub(super) bodies: Arc<dyn Bodies>,
    pub(super) endpoint: EndpointName,
    pub(super) promise: &'static str,
}

impl Hand {
    pub(super) async fn new(builder: &dyn Builder, promise: &'static str) -> Self {
        Self { bodies: builder.bodies().await, endpoint: samples::endpoint(), promise }
    }

    /// Another process of the same endpoint.
    pub(super) async fn again(&self, builder: &dyn Builder) -> Self {
        Self { bodies: builder.bodies().await, ..self.clone() }
    }

    pub(super) fn broken(&self, what: impl Into<String>) -> Broken {
        Broken::new(self.promise, what)
    }

    /// A body that nobody has put yet, of an entity of the endpoint.
    pub(super) fn body(&self, bytes: impl Into<Bytes>, references: &[&BodyReference]) -> NewBody {
        let attempt = samples::attempt();
        let scope = Scope { endpoint: self.endpoint.clone(), saga: samples::saga("suite") };
        let entity = EntityKey::new(Arc::new(scope), SagaKey::parse("key ü/1").expect("a key"));
        let entity = entity.in_partition(PartitionKey::parse("partition").expect("a partition"));
        let staged = Staged { name: BodyName::of(&attempt, 3), entity, attempt };
        NewBody {
            staged,
            references: references.iter().map(|reference| (*reference).clone()).collect(),
            bytes: bytes.into(),
        }
    }

    pub(super) async fn put(&self, body: &NewBody) -> Result<(), Broken> {
        insistently(self.promise, "putting a body", || self.bodies.put(body)).await
    }

    pub(super) async fn keep(&self, name: &BodyName, for_all: Duration) -> Result<(), Broken> {
        match insistently(self.promise, "keeping a body", || self.bodies.keep(name, for_all)).await? {
            true => Ok(()),
            false => {
                Err(self.broken(format!("a body that was put is told not to be there when it is to be kept: {name}")))
            }
        }
    }

    /// Puts a body and keeps it.
    pub(super) async fn kept(&self, references: &[&BodyReference], for_all: Duration) -> Result<BodyName, Broken> {
        let body = self.body("a body", references);
        self.put(&body).await?;
        self.keep(&body.staged.name, for_all).await?;
        Ok(body.staged.name)
    }

    pub(super) async fn got(&self, name: &BodyName, reference: Option<&BodyReference>) -> Result<Got, Broken> {
        insistently(self.promise, "getting a body", || self.bodies.get(name, reference)).await
    }

    pub(super) async fn expect(
        &self,
        name: &BodyName,
        by: Option<&BodyReference>,
        want: &Got,
        why: &str,
    ) -> Result<(), Broken> {
        let got = self.got(name, by).await?;
        if got == *want {
            return Ok(());
        }
        Err(self.broken(format!("{why}: {want:?} was to be given, {got:?} is")))
    }

    pub(super) async fn is_there(&self, name: &BodyName, why: &str) -> Result<(), Broken> {
        self.expect(name, None, &Got::Body("a body".into()), why).await
    }

    pub(super) async fn release(
        &self,
        name: &BodyName,
        by: &BodyReference,
        instead: &[BodyReference],
        told: Duration,
    ) -> Result<(), Broken> {
        let release = || self.bodies.release(name, by, instead, told);
        insistently(self.promise, "releasing a body", release).await
    }

    pub(super) async fn unstage(&self, name: &BodyName) -> Result<bool, Broken> {
        insistently(self.promise, "removing a staged body", || self.bodies.unstage(name)).await
    }

    pub(super) async fn staged(&self, age: Duration, limit: usize) -> Result<Vec<Staged>, Broken> {
        let staged = || self.bodies.staged(&self.endpoint, age, limit);
        insistently(self.promise, "listing staged bodies", staged).await
    }

    /// Collects all there is to collect.
    pub(super) async fn collect(&self) -> Result<(), Broken> {
        loop {
            let collected = insistently(self.promise, "collecting", || self.bodies.collect(ALL)).await?;
            if collected > ALL {
                return Err(self.broken(format!("{collected} bodies are collected where {ALL} were asked for")));
            }
            if collected < ALL {
                return Ok(());
            }
        }
    }

    /// Collects until nothing is left of a body.
    pub(super) async fn gone(&self, name: &BodyName, by: Option<&BodyReference>, why: &str) -> Result<(), Broken> {
        let never = || self.broken(format!("{why}, and something is left of it"));
        eventually(never, || async {
            self.collect().await?;
            Ok((self.got(name, by).await? == Got::Missing).then_some(()))
        })
        .await
    }
}
