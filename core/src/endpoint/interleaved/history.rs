//! Handlers of one message fail at the same time.

use super::*;
use crate::{
    HandlerError,
    ids::{EntityKey, SagaKey, Scope},
    sync::explored::{all, exhaust},
};

#[derive(Debug)]
struct Unheard;

impl Metrics for Unheard {
    fn observe(&self, _: Event<'_>) {}
}

#[async_trait]
impl DeadLetters for Unheard {
    async fn add(&self, _: &DeadLetter) -> Result<(), StoreError> {
        Ok(())
    }

    async fn list(&self, _: &EndpointName, _: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(Vec::new())
    }

    async fn discard(&self, _: &[DeadLetter]) -> Result<usize, StoreError> {
        Ok(0)
    }
}

/// Two entities of one saga were given the same message.
#[test]
fn failures_of_one_message_beside_each_other_are_all_told() {
    exhaust(|| {
        let history = Arc::new(History::new(Arc::new(Unheard), Arc::new(Unheard)));
        let (endpoint, saga): (EndpointName, SagaName) =
            ("shop".parse().expect("a name"), "order".parse().expect("a name"));
        let message_id: MessageId = "m-1".parse().expect("an id");
        let scope = Arc::new(Scope { endpoint, saga: saga.clone() });
        all([1, 2].map(|attempt| {
            let (history, scope, message_id) = (history.clone(), scope.clone(), message_id.clone());
            async move {
                let key = EntityKey::new(scope, SagaKey::parse(format!("{attempt}")).expect("a key"));
                let error = HandlerError::permanent("why");
                history.observe(Event::Failed { key: &key, message_id: &message_id, attempt, error: &error });
            }
        }));
        let told = history.failed(|failed| failed.told(&(saga, message_id), "last")).expect("it has failed");
        assert!(told.contains("attempt 1: why") && told.contains("attempt 2: why"), "{told}");
        assert_eq!(history.failed(|failed| (failed.of.len(), failed.order.len())), (1, 1));
    });
}
