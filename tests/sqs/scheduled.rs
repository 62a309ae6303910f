//! The service holds messages back for a quarter of an hour: what is due later waits in a schedule, and the service has it for the rest.

use std::time::Duration;

use async_trait::async_trait;
use hapax::{
    Sqs,
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, Next, Transport, TransportCapabilities, TransportError},
};
use hapax_tests::SqsQueues;

use super::rig::*;

#[path = "../broker/scheduled.rs"]
mod broker;

const MINUTE: Duration = Duration::from_secs(60);
/// What [`Short`] says that it holds back. An endpoint leaves half of it to a transport.
const HELD: Duration = Duration::from_secs(1);

/// The same queues, which say of themselves that they hold messages back for a second: a quarter of an hour takes too long for a test.
#[derive(Debug)]
struct Short(Sqs);

#[async_trait]
impl Transport for Short {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { delays: Delays::UpTo(HELD), ..self.0.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.connect(endpoint, types).await
    }
}

/// The shipped limit: one message on each side of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_after_a_quarter_of_an_hour_waits_in_the_schedule_and_what_is_due_before_at_the_service() {
    let queues = SqsQueues::new();
    let (sqs, here) = (open(&queues).await, endpoint());
    let kitchen = broker::Kitchen::open(&here, sqs.clone()).await;
    let boil = broker::Boil { kitchen: here.as_str().to_owned(), boils: 16 * MINUTE, cools: 14 * MINUTE };
    sqs.sender().send(here.as_str(), &boil).await.unwrap();
    // One is held back, and nothing else is there: what was handled is gone.
    let apart = async {
        while kitchen.next().await.is_none()
            || (sqs.delayed(&here).await.unwrap(), sqs.backlog(&here).await.unwrap()) != (1, 1)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, apart).await.expect("they do not wait where they should");
    let next = kitchen.next().await;
    let Some(Next::In(wait)) = next else { panic!("{next:?}") };
    assert!(wait > 14 * MINUTE && wait <= 16 * MINUTE + Duration::from_secs(1), "{wait:?}");
    kitchen.close().await;
}

/// Counted on the way to the service.
mod sqs_proxied {
    use hapax_tests::http_faults::FaultProxy;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_due_later_waits_in_a_schedule_and_comes_over_the_service_at_its_time() {
        let queues = SqsQueues::new();
        let proxy = FaultProxy::start(queues.url()).unwrap();
        let sqs = queues.through(proxy.url()).open(options(&queues)).await;
        let given = async || {
            let mut messages = 0;
            for asked in proxy.asked().iter().filter(|asked| asked.operation() == Some("SendMessageBatch")) {
                let body: serde_json::Value = serde_json::from_slice(asked.body()).unwrap();
                messages += body["Entries"].as_array().unwrap().len();
            }
            messages
        };
        let short = Short(sqs.clone());
        broker::waits_and_comes_at_its_time(short, sqs.sender(), endpoint(), HELD / 2, given).await;
    }
}
