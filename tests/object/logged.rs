//! What is in a message is not for logs, whoever writes them.

use std::sync::Arc;

use hapax::{Endpoint, InProcess, Memory, Sender};
use hapax_tests::{LogLines, is_discreet};

use crate::place::Place;

async fn is_in_no_log(logged: LogLines, place: Place) {
    let hub = InProcess::new("discreet");
    let entities = Memory::new();
    let (here, sender) = ("vault".parse().unwrap(), Sender::new(Arc::new(hub.clone())));
    let endpoint = Endpoint::builder("vault").entities(entities.clone()).dead_letters(entities.clone());
    let endpoint = endpoint.dedup(place.open("discreet").await).transport(hub);
    is_discreet(&logged, (&here, endpoint), sender, &entities, None).await;
}

#[tokio::test]
async fn nobody_logs_what_is_in_a_message_remembered_in_s3() {
    is_in_no_log(LogLines::everywhere(), Place::s3().await).await;
}

#[tokio::test]
async fn nobody_logs_what_is_in_a_message_remembered_in_azure_blob() {
    is_in_no_log(LogLines::everywhere(), Place::azure_blob().await).await;
}
