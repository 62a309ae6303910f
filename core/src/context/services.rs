//! What handlers may ask for.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::Arc,
};

use crate::saga::Needs;

/// What was given to the endpoint for its handlers, one of each type.
#[derive(Clone, Default)]
pub(crate) struct Services(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Services {
    pub(crate) fn insert<C: Send + Sync + 'static>(&mut self, service: C) {
        self.share(Arc::new(service));
    }

    pub(crate) fn share<C: Send + Sync + 'static>(&mut self, service: Arc<C>) {
        self.0.insert(TypeId::of::<C>(), service);
    }

    pub(crate) fn get<C: Send + Sync + 'static>(&self) -> Option<&C> {
        self.0.get(&TypeId::of::<C>())?.downcast_ref()
    }

    /// The first of `needs` that is missing.
    pub(crate) fn missing(&self, needs: &Needs) -> Option<&'static str> {
        needs.0.iter().find(|need| !self.0.contains_key(&need.id)).map(|need| need.name)
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} services", self.0.len())
    }
}
