//! What is in a message is not for logs, whoever writes them.

use std::sync::Arc;

use hapax::{Endpoint, InProcess, Sender};
use hapax_tests::{DynamoDbTable, LogLines, is_discreet};

#[tokio::test]
async fn nobody_logs_what_is_in_a_message() {
    let logged = LogLines::everywhere();
    let hub = InProcess::new("discreet");
    let table = DynamoDbTable::new();
    let store = table.open().await;
    let (here, sender) = ("vault".parse().unwrap(), Sender::new(Arc::new(hub.clone())));
    let endpoint = Endpoint::builder("vault").store(store.clone()).transport(hub);
    is_discreet(&logged, (&here, endpoint), sender, &store, None).await;
}
