//! The sagas of a check behind the explorer's one manager, and a watch over what they send to themselves.

use std::{fmt, sync::Arc};

use hapax_core::{
    HandlerError, Needs, Registry, Saga, SagaManager,
    codec::Codec,
    envelope::Envelope,
    ids::{AttemptId, EndpointName, EntityKey, Scope, TypeName},
    manager::{Incoming, Limits, Passes, Passing, Ports},
    ports::Receipt,
};

use super::watch::{Shared, lock};

/// What a check is about: one saga, or [`Several`]. Nobody else implements it.
pub trait Subject: Sized + 'static {
    /// The messages that it knows.
    #[doc(hidden)]
    type Registries: Clone + fmt::Debug + Send + Sync;
    /// What handles them.
    #[doc(hidden)]
    type Managers;

    /// Managers on `ports`.
    #[doc(hidden)]
    fn managers(of: &Self::Registries, at: &EndpointName, ports: &Ports) -> Result<Self::Managers, String>;

    /// The same with a service.
    #[doc(hidden)]
    fn with<C: Send + Sync + 'static>(managers: Self::Managers, service: &Arc<C>) -> Self::Managers;

    /// The first of `needs` that they were not given.
    #[doc(hidden)]
    fn missing(managers: &Self::Managers, needs: &Needs) -> Option<&'static str>;

    /// All of them.
    #[doc(hidden)]
    fn all(managers: Self::Managers) -> Vec<Arc<dyn Passes>>;
}

impl<T: Saga> Subject for T {
    type Registries = Registry<T>;
    type Managers = SagaManager<T>;

    fn managers(of: &Registry<T>, at: &EndpointName, ports: &Ports) -> Result<SagaManager<T>, String> {
        let manager = SagaManager::new(at, of.clone(), ports.clone(), Limits::default(), Codec::Json);
        manager.map_err(|e| e.to_string())
    }

    fn with<C: Send + Sync + 'static>(manager: SagaManager<T>, service: &Arc<C>) -> SagaManager<T> {
        manager.with_service(service.clone())
    }

    fn missing(manager: &SagaManager<T>, needs: &Needs) -> Option<&'static str> {
        manager.missing(needs)
    }

    fn all(manager: SagaManager<T>) -> Vec<Arc<dyn Passes>> {
        vec![Arc::new(manager)]
    }
}

/// Two sagas of one endpoint; one of them may itself stand for two.
#[derive(Debug)]
pub struct Several<A, B> {
    _sagas: std::marker::PhantomData<fn() -> (A, B)>,
}

impl<A: Subject, B: Subject> Subject for Several<A, B> {
    type Registries = (A::Registries, B::Registries);
    type Managers = (A::Managers, B::Managers);

    fn managers((a, b): &Self::Registries, at: &EndpointName, ports: &Ports) -> Result<Self::Managers, String> {
        Ok((A::managers(a, at, ports)?, B::managers(b, at, ports)?))
    }

    fn with<C: Send + Sync + 'static>((a, b): Self::Managers, service: &Arc<C>) -> Self::Managers {
        (A::with(a, service), B::with(b, service))
    }

    fn missing((a, _): &Self::Managers, needs: &Needs) -> Option<&'static str> {
        A::missing(a, needs) // All are given the same.
    }

    fn all((a, b): Self::Managers) -> Vec<Arc<dyn Passes>> {
        A::all(a).into_iter().chain(B::all(b)).collect()
    }
}

/// Why these managers cannot stand side by side.
pub(super) fn clash(managers: &[Arc<dyn Passes>]) -> Option<String> {
    for (at, one) in managers.iter().enumerate() {
        for other in &managers[at + 1..] {
            let (saga, types) = (&one.scope().saga, other.types());
            if *saga == other.scope().saga {
                return Some(format!("there are two sagas of the name {saga}"));
            }
            if let Some(both) = one.types().iter().find(|of| types.contains(of)) {
                let other = &other.scope().saga;
                return Some(format!("{both} is handled by {saga} and by {other}: give them a check each"));
            }
        }
    }
    None
}

/// The managers of a check, as one.
pub(super) struct Sagas {
    managers: Vec<(Vec<TypeName>, Arc<dyn Passes>)>,
    notes: Shared,
    /// A message that nobody can read may end as a dead letter.
    may_set_aside: bool,
}

impl Sagas {
    pub(super) fn new(managers: Vec<Arc<dyn Passes>>, notes: &Shared, may_set_aside: bool) -> Self {
        let managers = managers.into_iter().map(|manager| (manager.types(), manager)).collect();
        Self { managers, notes: notes.clone(), may_set_aside }
    }

    fn first(&self) -> &Arc<dyn Passes> {
        &self.managers[0].1
    }
}

impl fmt::Debug for Sagas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.managers.iter().map(|(_, manager)| manager)).finish()
    }
}

impl Passes for Sagas {
    /// That of the first: the explorer asks for the endpoint alone, which they have in common.
    fn scope(&self) -> &Arc<Scope> {
        self.first().scope()
    }

    fn types(&self) -> Vec<TypeName> {
        self.managers.iter().flat_map(|(types, _)| types).cloned().collect()
    }

    /// Asked by the explorer for each message of the beginning, for each that is sent to a saga of the check, and at each
    /// delivery.
    fn route(
        &self,
        envelope: &Arc<Envelope>,
        receipt: Receipt,
        attempts: u32,
    ) -> Result<(EntityKey, Incoming), HandlerError> {
        let of = self.managers.iter().find(|(types, _)| types.contains(&envelope.message_type));
        let manager = of.map_or_else(|| self.first(), |(_, manager)| manager);
        let routed = manager.route(envelope, receipt, attempts);
        let mut notes = lock(&self.notes);
        let Some(coming) = &mut notes.coming else { return routed };
        match routed {
            Ok((key, incoming)) if coming.admit(incoming.key, envelope) => Ok((key, incoming)),
            Ok(_) => Err(HandlerError::permanent("one message too many for a check")),
            Err(e) => {
                // One of the beginning that cannot be read is refused by the explorer.
                if envelope.causation_id.is_some() && !self.may_set_aside {
                    coming.refuse(envelope, &e.to_string());
                }
                Err(e)
            }
        }
    }

    fn pass<'p>(&'p self, key: &'p EntityKey, messages: &'p mut [Incoming], sweep: &'p [AttemptId]) -> Passing<'p> {
        let of = self.managers.iter().find(|(_, manager)| manager.scope() == key.scope());
        let manager = of.map_or_else(|| self.first(), |(_, manager)| manager);
        manager.pass(key, messages, sweep)
    }
}
