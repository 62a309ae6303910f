//! Several sagas are done with one message whose body is elsewhere, at the same time.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::*;
use crate::{
    ports::{BodyCapabilities, NewBody, Staged},
    sync::explored::{all, exhaust, explore, step},
};

/// Who needs the only body. Others come in between, before each call has an effect and before it is answered.
#[derive(Debug)]
struct Depot(std::sync::Mutex<BTreeSet<BodyReference>>);

impl Depot {
    fn needed_by(&self) -> Vec<Option<String>> {
        let needed = self.0.lock().expect("nobody panics");
        needed.iter().map(|by| by.saga.as_ref().map(ToString::to_string)).collect()
    }
}

#[async_trait]
impl Bodies for Depot {
    fn body_capabilities(&self) -> BodyCapabilities {
        BodyCapabilities { name: "explored", body_bytes_max: usize::MAX, durable: false }
    }

    async fn put(&self, _: &NewBody) -> Result<(), StoreError> {
        Ok(())
    }

    async fn keep(&self, _: &BodyName, _: Duration) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn get(&self, _: &BodyName, _: Option<&BodyReference>) -> Result<Got, StoreError> {
        Ok(Got::Missing)
    }

    /// A body that is gone stays gone: nobody can refer to it any more.
    async fn release(
        &self,
        _: &BodyName,
        reference: &BodyReference,
        instead: &[BodyReference],
        _: Duration,
    ) -> Result<(), StoreError> {
        step();
        let mut needed = self.0.lock().expect("nobody panics");
        if needed.remove(reference) {
            needed.extend(instead.iter().cloned());
        }
        drop(needed);
        step();
        Ok(())
    }

    async fn staged(&self, _: &EndpointName, _: Duration, _: usize) -> Result<Vec<Staged>, StoreError> {
        Ok(Vec::new())
    }

    async fn unstage(&self, _: &BodyName) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn collect(&self, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }
}

fn body() -> (Arc<Depot>, Hold) {
    let reference = BodyReference {
        message_id: "m-1".parse().expect("an id"),
        endpoint: "shop".parse().expect("a name"),
        saga: None,
    };
    let depot = Arc::new(Depot(std::sync::Mutex::new(BTreeSet::from([reference.clone()]))));
    let name = BodyName::parse("b-1").expect("a name");
    let hold =
        Hold { bodies: depot.clone(), name, reference: Some(reference), told: Duration::ZERO, left: Mutex::default() };
    (depot, hold)
}

/// Each of `sagas` is done with the message; one with a name has set it aside.
fn over(sagas: &[Option<&'static str>]) -> Vec<Option<String>> {
    let (depot, hold) = body();
    let hold = hold.shared(sagas.len());
    all(sagas.iter().map(|saga| {
        let (hold, saga) = (hold.clone(), saga.map(|saga| saga.parse::<SagaName>().expect("a name")));
        async move { hold.over(saga.as_ref()).await.expect("it can be let go of") }
    }));
    depot.needed_by()
}

#[test]
fn a_body_that_nobody_has_set_aside_goes_with_the_last_of_two_sagas_in_every_order() {
    exhaust(|| assert_eq!(over(&[None, None]), []));
}

#[test]
fn a_letter_keeps_the_body_whichever_of_two_sagas_is_done_first_in_every_order() {
    exhaust(|| assert_eq!(over(&[Some("order"), None]), [Some("order".to_owned())]));
    exhaust(|| assert_eq!(over(&[Some("order"), Some("stock")]), ["order", "stock"].map(|saga| Some(saga.into()))));
}

/// The other one is not done: the body is its own until then.
#[test]
fn the_message_keeps_its_body_while_one_of_three_sagas_is_not_done_in_every_order() {
    exhaust(|| {
        let (depot, hold) = body();
        let hold = hold.shared(3);
        all([Some("order"), None].map(|saga| {
            let (hold, saga) = (hold.clone(), saga.map(|saga| saga.parse::<SagaName>().expect("a name")));
            async move { hold.over(saga.as_ref()).await.expect("it can be let go of") }
        }));
        assert_eq!(depot.needed_by(), [None, Some("order".to_owned())]);
        all([async move { hold.over(None).await.expect("it can be let go of") }]);
        assert_eq!(depot.needed_by(), [Some("order".to_owned())]);
    });
}

#[test]
fn letters_of_two_sagas_keep_the_body_beside_a_third_that_is_done() {
    explore(|| {
        let letters = over(&[Some("order"), None, Some("stock")]);
        assert_eq!(letters, ["order", "stock"].map(|saga| Some(saga.into())));
    });
}
