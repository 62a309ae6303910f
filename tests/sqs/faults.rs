//! Answers that are lost, and calls that are refused or half done: a proxy before the emulator, which fails as a test says.

use std::time::Duration;

use hapax::{
    Sqs,
    ids::EndpointName,
    ports::{
        Connected, DeadLetters, Delivery, DispatchError, Dispatcher, ErrorKind, Page, Settled, Settlement, Transport,
    },
};
use hapax_tests::{
    SqsQueues,
    http_faults::{Fault, FaultProxy, Gate, Matched},
};

use super::rig::*;

#[path = "signed.rs"]
mod signed;
#[path = "together.rs"]
mod together;

struct Setting {
    proxy: FaultProxy,
    /// Through the proxy.
    sqs: Sqs,
    /// Not.
    direct: Sqs,
    here: EndpointName,
    ends: Connected,
}

async fn through_a_proxy(ordered: bool) -> Setting {
    let queues = SqsQueues::new();
    let proxy = FaultProxy::start(queues.url()).unwrap();
    let options = || options(&queues).ordered_keys(ordered).patience(Duration::from_secs(5));
    let direct = queues.open(options()).await;
    let sqs = queues.through(proxy.url()).open(options()).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    // What is known of the queue is known from now on.
    send(&sqs, &[to(&here, keyed("first", "first"))]).await;
    ack(&ends, &next(&ends).await).await;
    Setting { proxy, sqs, direct, here, ends }
}

/// The next `times` requests of `operation` meet `fault`.
fn meet(proxy: &FaultProxy, times: u32, operation: &'static str, fault: Fault) -> Matched {
    proxy.first(times, move |asked| asked.operation() == Some(operation), fault)
}

/// The service refuses with an error of this name, and does nothing.
fn error(status: u16, name: &str) -> Fault {
    let body = format!(r#"{{"__type":"com.amazonaws.sqs#{name}","message":"injected"}}"#);
    Fault::answer(status, &[("content-type", "application/x-amz-json-1.0")], body)
}

fn kind(result: &Result<(), DispatchError>) -> ErrorKind {
    match result {
        Err(DispatchError::Transient(e)) => e.kind(),
        other => panic!("{other:?}"),
    }
}

/// The service has the messages, and nobody says so: they count as not sent, and as perhaps sent; repeated under their ids they
/// are copies.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_and_not_confirmed_is_told_as_unknown_and_not_sent_twice_by_itself() {
    let Setting { proxy, sqs, here, ends, .. } = through_a_proxy(false).await;
    let sent = ["a", "b", "c"].map(|body| to(&here, envelope(body)));
    let lost = meet(&proxy, 1, "SendMessageBatch", Fault::DropAnswer);
    for result in sqs.dispatch(&sent).await {
        assert_eq!(kind(&result), ErrorKind::UnknownOutcome, "{result:?}");
    }
    assert_eq!((lost.matched(), lost.served()), (1, 1), "it was sent again where a copy is no help");
    send(&sqs, &sent).await;
    let mut came = Vec::new();
    for _ in 0..6 {
        let delivery = next(&ends).await;
        came.push((body(&delivery), delivery.envelope.message_id.clone()));
        ack(&ends, &delivery).await;
    }
    came.sort();
    came.dedup();
    assert_eq!(came.len(), 3, "copies have their ids: {came:?}");
}

/// Where order is kept the service knows a copy, and the sending is repeated at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_and_not_confirmed_is_repeated_and_comes_once_where_order_is_kept() {
    let Setting { proxy, sqs, here, ends, direct, .. } = through_a_proxy(true).await;
    let sent = ["a", "b", "c"].map(|body| to(&here, keyed("k", body)));
    let lost = meet(&proxy, 1, "SendMessageBatch", Fault::DropAnswer);
    send(&sqs, &sent).await;
    assert_eq!(lost.served(), 1);
    assert_eq!(direct.backlog(&here).await.unwrap(), 3, "there are copies");
    // All answers are lost: what is sent anew is another sending, since a message may be given back before anybody answers. Its copy has
    // its message id.
    let lost = meet(&proxy, 10, "SendMessageBatch", Fault::DropAnswer);
    let more = [to(&here, keyed("k", "d"))];
    assert_eq!(kind(&sqs.dispatch(&more).await[0]), ErrorKind::UnknownOutcome);
    lost.end();
    send(&sqs, &more).await;
    for expected in ["a", "b", "c", "d", "d"] {
        let delivery = next(&ends).await;
        assert_eq!((body(&delivery).as_str(), delivery.attempts), (expected, 1));
        let of = sent.iter().chain(&more).find(|sent| sent.envelope.body == delivery.envelope.body).unwrap();
        assert_eq!(delivery.envelope.message_id, of.envelope.message_id);
        ack(&ends, &delivery).await;
    }
    assert_eq!(direct.backlog(&here).await.unwrap(), 0, "there are more copies");
}

/// Given back before its first sending was answered: it comes again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_before_its_sending_was_answered_is_not_lost_where_order_is_kept() {
    let Setting { proxy, sqs, here, ends, .. } = through_a_proxy(true).await;
    let sent = [to(&here, keyed("k", "m"))];
    // As long as the call lasts, it is repeated without an answer, and the message is there already.
    let lost = meet(&proxy, 10, "SendMessageBatch", Fault::DropAnswer);
    let results = sqs.dispatch(&sent).await;
    assert_eq!(kind(&results[0]), ErrorKind::UnknownOutcome);
    lost.end();
    let first = next(&ends).await;
    settle(&ends, &first, Settlement::Retry { delay: Duration::ZERO, counts: false }).await;
    let again = next(&ends).await;
    assert_eq!((&again.envelope, again.attempts), (&first.envelope, 1));
    ack(&ends, &again).await;
}

/// Each entry of a call has its own answer, in any order, and what is not answered may have been sent.
#[tokio::test(flavor = "multi_thread")]
async fn each_message_has_the_answer_of_its_own_entry() {
    let Setting { proxy, sqs, here, ends, .. } = through_a_proxy(false).await;
    let sent: Vec<_> = (0..5).map(|number| to(&here, envelope(&number.to_string()))).collect();
    // Of five that are served, the answer is turned round, says nothing of the second, and refuses the fourth.
    let turned = Fault::rewrite(|body| {
        let mut answer: serde_json::Value = serde_json::from_slice(body).unwrap();
        let done = answer["Successful"].as_array_mut().unwrap();
        done.reverse();
        done.retain(|entry| entry["Id"] != "1" && entry["Id"] != "3");
        answer["Failed"] = serde_json::json!([{ "Id": "3", "SenderFault": false, "Code": "RequestThrottled" }]);
        serde_json::to_vec(&answer).unwrap()
    });
    meet(&proxy, 1, "SendMessageBatch", turned);
    let results = sqs.dispatch(&sent).await;
    for place in [0, 2, 4] {
        assert!(results[place].is_ok(), "{place}: {results:?}");
    }
    assert_eq!((kind(&results[1]), kind(&results[3])), (ErrorKind::UnknownOutcome, ErrorKind::Unavailable));
    for _ in 0..5 {
        ack(&ends, &next(&ends).await).await;
    }
}

/// A message that may not have been sent is not overtaken by what comes behind it in the same call.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_behind_a_message_of_its_key_that_was_not() {
    let Setting { proxy, sqs, here, ends, .. } = through_a_proxy(true).await;
    let sent: Vec<_> =
        (0..25).map(|number| to(&here, keyed(if number == 12 { "other" } else { "k" }, &number.to_string()))).collect();
    meet(&proxy, 1, "SendMessageBatch", error(400, "AccessDeniedException"));
    let results = sqs.dispatch(&sent).await;
    for (place, result) in results.iter().enumerate() {
        assert_eq!(result.is_ok(), place == 12, "{place}: {result:?}");
    }
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "12");
    ack(&ends, &delivery).await;
    nothing(&ends, Duration::from_millis(300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_throttles_is_asked_again_and_what_it_did_not_do_is_told_as_not_done() {
    let Setting { proxy, sqs, here, ends, .. } = through_a_proxy(false).await;
    let throttled = meet(&proxy, 2, "SendMessageBatch", error(400, "RequestThrottled"));
    send(&sqs, &[to(&here, envelope("m"))]).await;
    assert_eq!(throttled.matched(), 2);
    let delivery = next(&ends).await;
    let throttled = meet(&proxy, 2, "DeleteMessageBatch", error(503, "ServiceUnavailable"));
    ack(&ends, &delivery).await;
    assert_eq!(throttled.matched(), 2);
    meet(&proxy, 1000, "SendMessageBatch", error(400, "RequestThrottled"));
    assert_eq!(kind(&sqs.dispatch(&[to(&here, envelope("too much"))]).await[0]), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_let_in_is_told_so_and_with_what_to_do() {
    let queues = SqsQueues::new();
    let proxy = FaultProxy::start(queues.url()).unwrap();
    for (name, says) in [
        ("AccessDeniedException", "Sqs::policy_json"),
        ("InvalidClientTokenId", "credentials"),
        ("KmsAccessDenied", "key"),
    ] {
        let denied = meet(&proxy, 10, "GetQueueUrl", error(403, name));
        let client = queues.through(proxy.url()).client();
        let refused = queues.options().open(&client).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused:?}");
        assert!(refused.to_string().contains(says), "{refused}");
        denied.end();
    }
}

/// Taken by a call whose answer was lost: it comes again once it is no longer hidden, and counts.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_in_an_answer_that_is_lost_comes_again() {
    let Setting { proxy, direct, here, ends, .. } = through_a_proxy(false).await;
    for fault in [Fault::DropAnswer, Fault::CutAnswer] {
        send(&direct, &[to(&here, envelope("m"))]).await;
        let lost = meet(&proxy, 1, "ReceiveMessage", fault);
        let is_met = async {
            while lost.served() == 0 {
                // A call of before may be under way, and bring it: then there is another.
                for delivery in ends.receiver.receive(1).await.unwrap_or_default() {
                    ack(&ends, &delivery).await;
                    send(&direct, &[to(&here, envelope("m"))]).await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, is_met).await.expect("no answer is lost");
        let delivery = next(&ends).await;
        assert_eq!((body(&delivery).as_str(), delivery.attempts), ("m", 2));
        ack(&ends, &delivery).await;
    }
}

/// A delete that was done and not confirmed is done again, which changes nothing; one that is never confirmed is told as unknown.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_and_not_confirmed_is_never_told_as_lost() {
    let Setting { proxy, direct, here, ends, .. } = through_a_proxy(false).await;
    send(&direct, &[to(&here, envelope("m"))]).await;
    let delivery = next(&ends).await;
    let lost = meet(&proxy, 1, "DeleteMessageBatch", Fault::DropAnswer);
    ack(&ends, &delivery).await;
    assert_eq!(lost.served(), 1);
    send(&direct, &[to(&here, envelope("n"))]).await;
    let delivery = next(&ends).await;
    let lost = meet(&proxy, 1000, "DeleteMessageBatch", Fault::DropAnswer);
    let settled = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await;
    assert_eq!(settled.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    lost.end();
    assert_eq!(direct.backlog(&here).await.unwrap(), 0);
}

/// Of several that are deleted in one call each is told how its own ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_fails_for_one_is_told_to_that_one() {
    let Setting { proxy, direct, here, ends, .. } = through_a_proxy(false).await;
    let sent: Vec<_> = (0..4).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&direct, &sent).await;
    let mut held = Vec::new();
    while held.len() < 4 {
        held.extend(ends.receiver.receive(4 - held.len()).await.unwrap());
    }
    // The first goes alone and is held; the others go together behind it.
    let gate = Gate::new();
    let first = meet(&proxy, 1, "DeleteMessageBatch", Fault::HoldAnswer(gate.clone()));
    let half = Fault::rewrite(|body| {
        let mut answer: serde_json::Value = serde_json::from_slice(body).unwrap();
        let done = answer["Successful"].as_array_mut().unwrap();
        assert_eq!(done.len(), 3);
        done.retain(|entry| entry["Id"] != "1" && entry["Id"] != "2");
        let failed = |id: &str, code: &str| serde_json::json!({ "Id": id, "SenderFault": true, "Code": code });
        answer["Failed"] = serde_json::json!([failed("2", "ReceiptHandleIsInvalid"), failed("1", "AccessDenied")]);
        serde_json::to_vec(&answer).unwrap()
    });
    meet(&proxy, 1, "DeleteMessageBatch", half);
    let ack = |delivery: &Delivery| {
        let (receiver, receipt) = (ends.receiver.clone(), delivery.receipt.clone());
        tokio::spawn(async move { receiver.settle(&receipt, Settlement::Ack).await })
    };
    let mut acks = vec![ack(&held[0])];
    first.until_matched(1).await;
    acks.extend(held[1..].iter().map(ack));
    // All have asked by then, or nearly: the second call takes what is there when the first has ended.
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.open();
    let mut told = Vec::new();
    for ack in acks {
        told.push(match ack.await.unwrap() {
            Ok(settled) => format!("{settled:?}"),
            Err(e) => format!("{:?}", e.kind()),
        });
    }
    told.sort();
    let mut expected = vec![
        format!("{:?}", Settled::Done),
        format!("{:?}", Settled::Done),
        format!("{:?}", Settled::LeaseLost),
        format!("{:?}", ErrorKind::Denied),
    ];
    expected.sort();
    assert_eq!(told, expected);
}

/// A copy that was sent, of a message that could not be deleted: two copies, and never none.
#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_count_is_sent_before_it_is_taken_away() {
    let Setting { proxy, direct, here, ends, .. } = through_a_proxy(false).await;
    let given_again = Settlement::Retry { delay: Duration::ZERO, counts: false };
    send(&direct, &[to(&here, envelope("m"))]).await;
    let delivery = next(&ends).await;
    let refused = meet(&proxy, 100, "SendMessageBatch", error(403, "AccessDeniedException"));
    let settled = ends.receiver.settle(&delivery.receipt, given_again.clone()).await;
    assert_eq!(settled.unwrap_err().kind(), ErrorKind::Denied);
    refused.end();
    let again = next(&ends).await;
    assert_eq!(again.attempts, 2, "it was not deleted, and its lease ran out");
    let refused = meet(&proxy, 100, "DeleteMessageBatch", error(403, "AccessDeniedException"));
    ends.receiver.settle(&again.receipt, given_again).await.unwrap_err();
    refused.end();
    for _ in 0..2 {
        let copy = next(&ends).await;
        assert_eq!(copy.envelope, delivery.envelope);
        ack(&ends, &copy).await;
    }
    assert_eq!(direct.backlog(&here).await.unwrap(), 0);
}

/// The same for what is set aside.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_kept_before_its_message_is_taken_away() {
    let Setting { proxy, direct, here, ends, .. } = through_a_proxy(false).await;
    send(&direct, &[to(&here, envelope("m"))]).await;
    let delivery = next(&ends).await;
    let aside = || Settlement::DeadLetter { reason: "for a test".into() };
    let refused = meet(&proxy, 100, "SendMessageBatch", error(403, "AccessDeniedException"));
    ends.receiver.settle(&delivery.receipt, aside()).await.unwrap_err();
    refused.end();
    let again = next(&ends).await;
    let refused = meet(&proxy, 100, "DeleteMessageBatch", error(403, "AccessDeniedException"));
    ends.receiver.settle(&again.receipt, aside()).await.unwrap_err();
    refused.end();
    let again = next(&ends).await;
    settle(&ends, &again, aside()).await;
    let letters = direct.list(&here, &Page::first(10)).await.unwrap();
    assert_eq!(letters.len(), 1, "copies of a letter are one");
    assert_eq!(letters[0].envelope, delivery.envelope);
}

/// A service that stands still answers nobody, and nobody waits for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_does_not_answer_is_not_waited_for_longer_than_was_said() {
    let queues = SqsQueues::new();
    let proxy = FaultProxy::start(queues.url()).unwrap();
    let patient = || options(&queues).patience(Duration::from_millis(600)).wait(Duration::from_secs(1));
    let sqs = queues.through(proxy.url()).open(patient()).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    send(&sqs, &[to(&here, envelope("first"))]).await;
    ack(&ends, &next(&ends).await).await;
    let gate = Gate::new();
    let held = proxy.every(|_| true, Fault::HoldAnswer(gate.clone()));
    let begun = std::time::Instant::now();
    let failed = sqs.dispatch(&[to(&here, envelope("m"))]).await.pop().unwrap();
    assert_eq!(kind(&failed), ErrorKind::UnknownOutcome);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it waits for ever").unwrap_err();
    held.end();
    gate.open();
    let came = async {
        loop {
            match ends.receiver.receive(1).await {
                Ok(deliveries) => break deliveries,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, came).await.expect("it never comes").len(), 1);
}
