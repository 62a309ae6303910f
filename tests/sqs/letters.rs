//! Dead letters in a queue of the endpoint's own.

use hapax::{
    envelope::Destination,
    ids::MessageId,
    ports::{DeadLetter, DeadLetters, Page, Settlement, Transport},
    time::Timestamp,
};
use hapax_tests::SqsQueues;

use super::rig::*;

#[tokio::test]
async fn a_letter_that_is_added_twice_is_listed_once_and_found_by_its_message() {
    let sqs = open(&SqsQueues::new()).await;
    let here = endpoint();
    let letter = |body: &str, time| DeadLetter {
        envelope: envelope(body).into(),
        endpoint: here.clone(),
        saga: Some("order".parse().unwrap()),
        destination: Some(Destination::parse("topic:shop.added").unwrap()),
        reason: "it is\nno \"use\"\nreason: saga: none".into(),
        attempts: 7,
        time: Timestamp::from_millis(time),
    };
    let (first, second) = (letter("first", 1_700_000_000_123), letter("second", 1_700_000_000_124));
    for letter in [&second, &first, &first] {
        sqs.add(letter).await.unwrap();
    }
    assert_eq!(sqs.list(&here, &Page::first(10)).await.unwrap(), [first.clone(), second.clone()]);
    let page = |skip, id: Option<&MessageId>| Page { skip, limit: 1, message_id: id.cloned() };
    assert_eq!(sqs.list(&here, &page(1, None)).await.unwrap(), std::slice::from_ref(&second));
    assert_eq!(sqs.list(&here, &page(0, Some(&second.envelope.message_id))).await.unwrap(), [second]);
    assert_eq!(sqs.discard(std::slice::from_ref(&first)).await.unwrap(), 1, "both copies are one letter");
    assert_eq!(sqs.discard(&[first]).await.unwrap(), 0);
}

/// Lists are read by taking all and giving them back: more than a call brings, and twice.
#[tokio::test]
async fn more_letters_than_a_call_brings_are_all_listed_oldest_first() {
    const LETTERS: usize = 45;
    let queues = SqsQueues::new();
    let sqs = queues.open(options(&queues).lease(PATIENCE)).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let mut expected = Vec::new();
    for number in 0..LETTERS {
        send(&sqs, &[to(&here, envelope(&number.to_string()))]).await;
        let delivery = next(&ends).await;
        settle(&ends, &delivery, Settlement::DeadLetter { reason: "for a test".into() }).await;
        expected.push(number.to_string());
    }
    for _ in 0..2 {
        let listed = sqs.list(&here, &Page { skip: 10, limit: 30, message_id: None }).await.unwrap();
        let bodies: Vec<String> = listed.iter().map(|l| String::from_utf8(l.envelope.body.to_vec()).unwrap()).collect();
        assert_eq!(bodies, expected[10..40]);
    }
    let listed = sqs.list(&here, &Page::first(30)).await.unwrap();
    assert_eq!(sqs.discard(&listed).await.unwrap(), 30);
    assert_eq!(sqs.list(&here, &Page::first(LETTERS)).await.unwrap().len(), LETTERS - 30);
}

/// What a person sees of it elsewhere.
#[tokio::test]
async fn a_letter_tells_its_reason_to_whoever_looks_at_the_queue() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    send(&sqs, &[to(&here, envelope("{\"n\": 7}"))]).await;
    let delivery = next(&ends).await;
    settle(&ends, &delivery, Settlement::DeadLetter { reason: "nobody wants it".into() }).await;
    let client = queues.client();
    let url = queue_url(&client, &format!("{}_dead-letters_{here}", queues.prefix())).await;
    let letter = take(&client, &url).await.unwrap();
    assert_eq!(letter.body(), Some("{\"n\": 7}"));
    let said = attributes(&letter)["x-hapax-letter"];
    assert!(said.contains(&format!("endpoint: {here}\n")) && said.ends_with("reason: nobody wants it"), "{said}");
}
