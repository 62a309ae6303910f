//! What is in a message is not for logs, whoever writes them.

use hapax::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    ports::Dispatcher,
};
use hapax_tests::LogLines;

use super::rig::*;

/// Lines that tell what is in the message: a body as text, or as the numbers of its bytes.
fn telling(logged: &LogLines, secret: &str) -> Vec<String> {
    let bytes = format!("{:?}", secret.as_bytes());
    let mut lines = logged.with(secret);
    lines.extend(logged.with(bytes.trim_matches(['[', ']'])));
    lines
}

/// With what must not be told in its body and in a header.
fn secretive(secret: &str) -> Envelope {
    let mut envelope = envelope(secret);
    envelope.headers.set("card", secret).unwrap();
    envelope
}

#[tokio::test]
async fn an_event_that_nobody_subscribes_is_in_no_log() {
    let logged = LogLines::everywhere();
    let (queue, secret) = (open().await, unique("secret"));
    let topic = Destination::Topic(TypeName::parse(unique("shop.unheard")).unwrap());
    let event = Outgoing { destination: topic, envelope: secretive(&secret).into() };
    // The second is answered after whatever the server has said of the first.
    for _ in 0..2 {
        send(&queue, std::slice::from_ref(&event)).await;
    }
    assert_eq!(telling(&logged, &secret), Vec::<String>::new());
}

/// The server sends it back, and the driver writes down all of it: under a name of its own, by which the docs filter it.
#[tokio::test]
async fn what_no_queue_takes_is_told_by_nobody_but_the_target_that_the_docs_filter() {
    let logged = LogLines::everywhere();
    let (queue, secret) = (open().await, unique("secret"));
    let nowhere = EndpointName::parse(unique("nobody")).unwrap();
    let result = queue.dispatch(&[to(&nowhere, secretive(&secret))]).await.pop().unwrap();
    let error = result.expect_err("it went nowhere");
    assert!(!format!("{error} {error:?}").contains(&secret), "{error:?}");
    let (of_the_driver, others): (Vec<_>, Vec<_>) =
        telling(&logged, &secret).into_iter().partition(|line| line.starts_with("WARN lapin::returned_messages "));
    assert_eq!(others, Vec::<String>::new());
    assert!(!of_the_driver.is_empty(), "the driver has become discreet: the docs need no filter any more");
}
