//! What is in a message is not for logs, and neither is the key.

use std::sync::Arc;

use hapax::{Endpoint, Sender, ServiceBus, Sqlite, ports::ErrorKind};
use hapax_tests::{LogLines, Scratch, is_discreet};

use super::{
    endpoints::{Counted, Counts},
    rig::*,
};

#[tokio::test]
async fn nobody_logs_what_is_in_a_message() {
    if is_azure() {
        return eprintln!("SKIPPED: here the test counts deliveries, and endpoints take the service as it is");
    }
    let logged = LogLines::everywhere();
    let (here, scratch) = (endpoint(), Scratch::new("discreet"));
    let queue = Counted { queues: open().await, counts: Counts::default() };
    let store = Sqlite::open(scratch.file("vault.db")).await.unwrap();
    let endpoint = Endpoint::builder(here.as_str()).entities(store.clone()).dedup(store).transport(queue.clone());
    is_discreet(&logged, (&here, endpoint), Sender::new(Arc::new(queue.clone())), &queue, None).await;
}

/// One that lets nobody in, since it is to be unlike any other word in the log.
#[tokio::test]
async fn nobody_logs_a_key() {
    if is_azure() {
        return eprintln!("SKIPPED: the wrong key goes over `amqp://`, which the service does not take");
    }
    let (logged, server, key) = (LogLines::everywhere(), url(), unique("key"));
    let place = server.rsplit_once('@').unwrap().1;
    let string = format!("Endpoint=sb://{place};SharedAccessKeyName=guest;SharedAccessKey={key}");
    for at in [format!("amqp://guest:{key}@{place}"), format!("{string};UseDevelopmentEmulator=true")] {
        let error = ServiceBus::open(&at).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(!format!("{error} {error:?}").contains(&key), "{error:?}");
    }
    // The listening itself works, so that silence says something.
    tracing::debug!(target: "discreet", told = key.as_str(), "to see that it is heard");
    let telling = logged.telling(&key);
    assert!(telling.len() == 1 && telling[0].starts_with("DEBUG discreet"), "{telling:#?}");
}
