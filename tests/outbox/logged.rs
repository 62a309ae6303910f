//! What is written down of a message: a line, and nothing of what is in it.

use std::sync::Arc;

use hapax::{
    MessageId,
    envelope::{Destination, Envelope, Outgoing},
    inbox::{Entered, Inbox},
    ports::Page,
};
use hapax_tests::{LogLines, samples};

use super::{
    rig::{Outbox, Place, REFUSES},
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

/// With which a server may show the row.
#[tokio::test]
async fn a_row_that_the_database_refuses_is_shown_by_no_error_and_in_no_line() {
    let (logged, place) = (LogLines::everywhere(), Place::new().await);
    let outbox = place.outbox().await;
    place.run(REFUSES).await;
    let secret = format!("secret-{:016x}", fastrand::u64(..));
    let message = secretive(&outbox, 0, &secret);
    let envelope = Envelope { body: secret.clone().into(), ..(*message.envelope).clone() };
    let message = Outgoing { envelope: Arc::new(envelope), ..message };
    let mut tx = place.begin().await;
    let error = outbox.enqueue_all(&mut tx, std::slice::from_ref(&message)).await.unwrap_err();
    let mut told = format!("{error} {error:?} {error:#?}");
    drop(tx);
    // As what a handler sends.
    let (inbox, entry) = (outbox.inbox(place.pool.clone()), samples::mark());
    let Entered::First(tx) = inbox.enter(&entry).await.unwrap() else { panic!("it is new") };
    let error = inbox.commit(tx, &entry, &[message]).await.unwrap_err();
    told += &format!("{error} {error:?} {error:#?}");
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        told += &format!("{error} {error:?} {error:#?}");
        cause = error.source();
    }
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{:?}", secret.as_bytes());
    for form in [&*secret, &*hex, list.trim_matches(['[', ']'])] {
        assert!(!told.contains(form), "{told}");
        assert_eq!(logged.with(form), Vec::<String>::new());
    }
}

/// Other programs store rows, too.
#[tokio::test]
async fn a_row_whose_headers_cannot_be_read_is_set_aside_without_what_they_say() {
    let (logged, place, sink) = (LogLines::everywhere(), Place::new().await, Sink::new());
    let outbox = place.outbox().await;
    let card = fastrand::u64(4_000_000_000_000_000..5_000_000_000_000_000).to_string();
    let mut tx = place.begin().await;
    drop(outbox.enqueue(&mut tx, &Placed { order: 0 }).await.unwrap());
    place.within(&mut tx, &format!("UPDATE hapax.outbox SET headers = '{{\"card\": {card}}}'")).await;
    tx.commit().await.unwrap();
    let relay = relay(&outbox, &sink, quick());
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 0", 0).await;
    let failed = outbox.failed(&Page::first(10)).await.unwrap();
    relay.stop().await.unwrap();
    assert!(failed.len() == 1 && failed[0].reason.contains("column `headers`"), "{failed:?}");
    assert!(!format!("{failed:?}").contains(&card), "{failed:?}");
    // The statement above is a line of the driver's.
    let told: Vec<String> = logged.with(&card).into_iter().filter(|line| !line.contains(" sqlx::")).collect();
    assert_eq!(told, Vec::<String>::new());
}
