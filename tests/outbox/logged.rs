//! What is written down of a message: a line, and nothing of what is in it.

use std::sync::Arc;

use hapax::{
    MessageId,
    envelope::{Destination, Envelope, Outgoing},
    ports::Page,
};
use hapax_tests::LogLines;

use super::{
    rig::{Outbox, Place},
    sink::{Fate, Placed, Sink, quick, relay},
};

/// Of this, with `secret` in its body and in a header.
fn secretive(outbox: &Outbox, order: u32, secret: &str) -> Outgoing {
    let outgoing = outbox.outgoing(&Placed { order }).unwrap();
    let body = format!("{{\"order\": {order}, \"card\": \"{secret}\"}}").into();
    let correlation_id = Some(format!("process-{}", MessageId::random()).parse().unwrap());
    let mut envelope = Envelope { body, correlation_id, ..(*outgoing.envelope).clone() };
    envelope.headers.set("card", secret).unwrap();
    Outgoing { destination: Destination::parse("endpoint:billing").unwrap(), envelope: Arc::new(envelope) }
}

#[tokio::test]
async fn each_message_that_is_sent_is_a_line_that_tells_whose_it_is_and_nothing_that_is_in_it() {
    let logged = LogLines::everywhere();
    let place = Place::new().await;
    let sink = Sink::with(|order| if order == 1 { Fate::Impossible } else { Fate::Taken });
    let outbox = place.outbox().await;
    let relay = relay(&outbox, &sink, quick());
    let secret = format!("secret-{}", MessageId::random());
    let messages = [0, 1].map(|order| secretive(&outbox, order, &secret));
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 0", 0).await;
    let failed = outbox.failed(&Page::first(10)).await.unwrap();
    relay.stop().await.unwrap();

    let id = |outgoing: &Outgoing| outgoing.envelope.message_id.to_string();
    let of = |outgoing: &Outgoing, begins: &str| {
        let mut lines = logged.with(&format!("message_id={}", id(outgoing)));
        lines.retain(|line| line.starts_with(begins));
        lines
    };
    let [sent, refused] = &messages;
    let lines = of(sent, "DEBUG hapax::relay::sent ");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let correlation = sent.envelope.correlation_id.as_ref().unwrap().to_string();
    for told in [&correlation, "message_type=shop.placed", "destination=endpoint:billing", "table="] {
        assert!(line.contains(told), "`{told}` is not in {line}");
    }
    assert_eq!(of(refused, "DEBUG hapax::relay::sent "), Vec::<String>::new());
    assert_eq!(of(refused, "ERROR hapax").len(), 1, "it has failed, which is told once");
    // By anybody, in any line; and not by what a program may print of it.
    assert_eq!(failed.len(), 1);
    let bytes = format!("{:?}", secret.as_bytes());
    for told in [&*secret, bytes.trim_matches(['[', ']'])] {
        assert_eq!(logged.with(told), Vec::<String>::new());
        assert!(!format!("{failed:?} {messages:?}").contains(told));
    }
}
