//! What the server drops as a repeat, and what it must not.

use hapax::{
    envelope::Envelope,
    ports::{DeadLetters, Dispatcher, Page, Settlement, Transport},
};

use super::rig::*;

#[tokio::test]
async fn a_message_that_is_sent_again_while_it_waits_is_in_the_queue_once() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let message = to(&here, envelope("once"));
    for _ in 0..3 {
        send(&queue, &[message.clone(), message.clone()]).await;
    }
    assert_eq!(queue.backlog(&here).await.unwrap(), 1);
    let given = next(&ends).await;
    send(&queue, std::slice::from_ref(&message)).await;
    assert_eq!(queue.backlog(&here).await.unwrap(), 0, "it is given, and there all the same");
    ack(&ends, &given).await;
}

/// Within the window the server would drop it, and say that it has it.
#[tokio::test]
async fn a_dead_letter_that_is_sent_again_comes_although_the_server_knows_its_id() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let message = to(&here, envelope("poison"));
    send(&queue, std::slice::from_ref(&message)).await;
    let given = next(&ends).await;
    ends.receiver.settle(&given.receipt, Settlement::DeadLetter { reason: "poison".into() }).await.unwrap();
    let letter = queue.list(&here, &Page::first(1)).await.unwrap().pop().unwrap();
    send(&queue, &[to(&here, (*letter.envelope).clone())]).await;
    assert_eq!(queue.discard(&[letter]).await.unwrap(), 1);
    let again = next(&ends).await;
    assert_eq!((again.envelope.clone(), again.attempts), (message.envelope, 1));
    ack(&ends, &again).await;
}

/// The endpoint tells them apart, and sets the second aside with the reason.
#[tokio::test]
async fn another_message_under_the_same_id_is_not_dropped() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let first = envelope("first");
    let second = Envelope { body: "second".into(), ..first.clone() };
    let results = queue.dispatch(&[to(&here, first), to(&here, second)]).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let mut came = Vec::new();
    for _ in 0..2 {
        let delivery = next(&ends).await;
        came.push(body(&delivery));
        ack(&ends, &delivery).await;
    }
    assert_eq!(came, ["first", "second"]);
}

/// They were settled, so that each is looked for and stored again; some at a time, and none before another.
#[tokio::test]
async fn many_that_are_sent_again_after_they_were_settled_come_again_in_their_order() {
    const MESSAGES: usize = 100;
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let bodies: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    let messages: Vec<_> = bodies.iter().map(|body| to(&here, envelope(body))).collect();
    for _ in 0..2 {
        send(&queue, &messages).await;
        let mut came = Vec::new();
        while came.len() < MESSAGES {
            let delivery = next(&ends).await;
            came.push(body(&delivery));
            ack(&ends, &delivery).await;
        }
        assert_eq!(came, bodies);
    }
}
