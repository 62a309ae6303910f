//! What an operator sees of an endpoint's stores and does to them, from outside: without the endpoint's program, and beside it.
//!
//! The command `hapax` is made of this, and so may be a page of your own: what is here reads through the [ports](crate::ports) alone, and each
//! answer can be written as JSON. It promises nothing of its own. A number has a bound and says when it was reached, and what a
//! store cannot tell is said as that ([`Answer::Unknown`]).
//!
//! ```
//! # use hapax_core::{operator::{Operator, Selection}, ports::{DeadLetters, DedupStore, EntityStore, Survey}};
//! # async fn run<S>(store: S) -> Result<(), Box<dyn std::error::Error>>
//! # where S: EntityStore + DedupStore + DeadLetters + Survey + 'static {
//! let operator = Operator::on(store);
//! let status = operator.status(&Selection::default(), 10_000).await?;
//! println!("{}", serde_json::to_string_pretty(&status)?);
//! let life = operator.message(&"8f0c".parse()?, &Default::default()).await?;
//! println!("{} letters", life.dead_letters.len());
//! # Ok(())
//! # }
//! ```

mod done;
mod letters;
mod life;
mod outbox;
mod refusing;
mod shown;
mod status;
mod sweep;
mod text;

use std::{sync::Arc, time::Duration};

pub use done::{DiscardedLetters, LeftLetter, LogLine, RetriedLetters, TakenAction};
pub use life::{Handled, Hints, MessageLife, QueuedCopy, ScheduledCopy, SentBy};
pub use outbox::{ShownRow, WaitingEntity, WaitingEntry};
use refusing::Refusing;
pub use shown::{ShownBody, ShownEnvelope, ShownLetter, ShownOutgoing};
pub use status::{DedupStatus, EndpointStatus, OutboxStatus, QueueStatus, SagaStatus, ScheduleStatus, Status};
pub use sweep::{NotSwept, Swept};
pub use text::{masked, masked_url, printable, printable_json, printable_lines, with_causes};

use crate::{
    endpoint::{Nothing, Settings, StoreAudit, SystemClock, office::DeadLetterOffice},
    ids::{EndpointName, SagaName, Scope},
    manager::Stores,
    ports::{
        Answer, Clock, DeadLetters, DedupStore, Dispatcher, EntityStore, OutboxRows, QueueSurvey, Schedule, StoreError,
        Survey,
    },
};

/// Endpoints and sagas of a store that are looked at, at most: an application has tens.
const SCOPES_MAX: usize = 10_000;
/// Before the names that hapax gives to what is its own, such as letters that are held while they are retried.
const OWN: &str = "hapax.";

/// Which part of a store; the default is all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this endpoint alone.
    pub endpoint: Option<EndpointName>,
    /// Of this saga, or stateless handler, alone. Together with the endpoint it is looked at also where the store cannot list names.
    pub saga: Option<SagaName>,
}

/// Looks at a store, and looks after it.
#[derive(Debug, Clone)]
pub struct Operator {
    stores: Stores,
    letters: Arc<dyn DeadLetters>,
    survey: Arc<dyn Survey>,
    dedup_is_apart: bool,
    schedule: Option<Arc<dyn Schedule>>,
    outboxes: Vec<Arc<dyn OutboxRows>>,
    queues: Option<Arc<dyn QueueSurvey>>,
    dispatcher: Arc<dyn Dispatcher>,
    clock: Arc<dyn Clock>,
}

impl Operator {
    /// On a store that keeps entities, dedup entries and dead letters.
    pub fn on<S: EntityStore + DedupStore + DeadLetters + Survey + 'static>(store: S) -> Self {
        let store = Arc::new(store);
        Self {
            stores: Stores::one(store.clone()),
            letters: store.clone(),
            survey: store,
            dedup_is_apart: false,
            schedule: None,
            outboxes: Vec::new(),
            queues: None,
            dispatcher: Arc::new(Refusing),
            clock: Arc::new(SystemClock::default()),
        }
    }

    /// Where there are outbox tables alone.
    #[must_use]
    pub fn without_store() -> Self {
        Self::on(Nothing)
    }

    /// The same where dedup entries are kept in another store.
    #[must_use]
    pub fn dedup(mut self, dedup: impl DedupStore + 'static) -> Self {
        self.stores = Stores::two(self.stores.entities().clone(), Arc::new(dedup));
        self.dedup_is_apart = true;
        self
    }

    /// The same with the schedule that endpoints on it use.
    #[must_use]
    pub fn schedule(mut self, schedule: impl Schedule + 'static) -> Self {
        self.schedule = Some(Arc::new(schedule));
        self
    }

    /// The same with another outbox table.
    #[must_use]
    pub fn outbox(mut self, outbox: impl OutboxRows + 'static) -> Self {
        self.outboxes.push(Arc::new(outbox));
        self
    }

    /// The same with the queues of its endpoints.
    #[must_use]
    pub fn queues(mut self, queues: impl QueueSurvey + 'static) -> Self {
        self.queues = Some(Arc::new(queues));
        self
    }

    /// The same with a way out: for retrying dead letters and sweeping, which are refused without one.
    #[must_use]
    pub fn sends_by(mut self, dispatcher: impl Dispatcher + 'static) -> Self {
        self.dispatcher = Arc::new(dispatcher);
        self
    }

    /// Its outbox tables.
    #[must_use]
    pub fn outboxes(&self) -> &[Arc<dyn OutboxRows>] {
        &self.outboxes
    }

    /// The dead letters of `endpoint`, and what `by` can do with them: a name for the record. Of one saga, letters are retried in the order
    /// in which they are listed, for which entity each is is not known here.
    ///
    /// `retention` is that of the endpoint: what was set aside longer ago is not retried unasked.
    #[must_use]
    pub fn dead_letter_office(
        &self,
        endpoint: &EndpointName,
        by: impl Into<String>,
        retention: Duration,
    ) -> DeadLetterOffice {
        let (letters, entities) = (self.letters.clone(), self.stores.entities().clone());
        DeadLetterOffice::outside(
            endpoint,
            (letters, entities),
            (self.dispatcher.clone(), self.clock.clone()),
            retention,
            by.into(),
        )
    }

    /// An audit from outside, of what `of` selects: of what waits there, and of up to `entities_max` other entities. Look at least twice, some
    /// seconds apart: most of it compares two looks.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn audit(&self, of: &Selection, entities_max: usize) -> Result<Answer<StoreAudit>, StoreError> {
        let scopes = match self.scopes(of).await? {
            Answer::Is(scopes) => scopes,
            Answer::Unknown { why } => return Ok(Answer::Unknown { why }),
        };
        let mut entities = Vec::new();
        for scope in &scopes {
            let limit = entities_max.saturating_sub(entities.len());
            if limit == 0 {
                break;
            }
            if let Answer::Is(keys) = self.survey.entity_keys(scope, None, limit).await? {
                entities.extend(keys);
            }
        }
        let settings = Settings { sweep_age: Duration::ZERO, ..Settings::default() };
        Ok(Answer::Is(StoreAudit::new(&self.stores, &self.clock, scopes, entities, &settings).await))
    }

    /// The retention that the store keeps to; else the default of an endpoint.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn retention(&self) -> Result<Duration, StoreError> {
        let usual = Settings::default().retention;
        if self.dedup_is_apart {
            return Ok(self.stores.dedup().dedup_capabilities().keeps.unwrap_or(usual));
        }
        let keeps = self.stores.dedup().dedup_capabilities().keeps;
        let told = self.survey.dedup_count(1).await?;
        Ok(keeps.or_else(|| told.is().and_then(|entries| entries.retention)).unwrap_or(usual))
    }

    /// Endpoints that are known here: those with entities or dead letters, and the one that `of` names.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn endpoints(&self, of: &Selection) -> Result<Answer<Vec<EndpointName>>, StoreError> {
        if let Some(endpoint) = &of.endpoint {
            return Ok(Answer::Is(vec![endpoint.clone()]));
        }
        self.endpoints_with(of, &self.scopes(of).await?).await
    }

    /// The same, where it is known which endpoints and sagas `of` selects.
    async fn endpoints_with(
        &self,
        of: &Selection,
        scopes: &Answer<Vec<Arc<Scope>>>,
    ) -> Result<Answer<Vec<EndpointName>>, StoreError> {
        if let Some(endpoint) = &of.endpoint {
            return Ok(Answer::Is(vec![endpoint.clone()]));
        }
        // What is said of a saga is said of entities.
        let lettered = if of.saga.is_none() { self.survey.lettered(SCOPES_MAX).await?.is().cloned() } else { None };
        Ok(scopes.clone().map(|scopes| {
            let mut endpoints: Vec<EndpointName> = scopes.iter().map(|scope| scope.endpoint.clone()).collect();
            let is_a_name = |endpoint: &EndpointName| !endpoint.as_str().starts_with(OWN);
            endpoints.extend(lettered.into_iter().flatten().filter(is_a_name));
            endpoints.sort();
            endpoints.dedup();
            endpoints
        }))
    }

    /// Endpoints and sagas that `of` selects.
    async fn scopes(&self, of: &Selection) -> Result<Answer<Vec<Arc<Scope>>>, StoreError> {
        if let Selection { endpoint: Some(endpoint), saga: Some(saga) } = of {
            return Ok(Answer::Is(vec![Arc::new(Scope { endpoint: endpoint.clone(), saga: saga.clone() })]));
        }
        let wanted = |scope: &Scope| {
            of.endpoint.as_ref().is_none_or(|endpoint| *endpoint == scope.endpoint)
                && of.saga.as_ref().is_none_or(|saga| *saga == scope.saga)
                && !scope.endpoint.as_str().starts_with(OWN)
        };
        let listed = self.survey.scopes(SCOPES_MAX).await?;
        Ok(listed.map(|scopes| {
            let mut scopes: Vec<_> = scopes.into_iter().filter(wanted).map(Arc::new).collect();
            scopes.sort();
            scopes
        }))
    }
}
