//! What the server does not take, gives to one alone, does not have, or has in another way.

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use hapax::{
    Nats,
    ids::EndpointName,
    ports::{DispatchError, Dispatcher, ErrorKind, Settlement, Transport},
};
use hapax_tests::NatsServer;

use super::rig::*;

#[tokio::test]
async fn what_the_server_refuses_is_an_error_of_that_message_alone() {
    let (queue, full, other) = (open().await, endpoint(), endpoint());
    let narrow = Config {
        name: format!("{PREFIX}-queue-{full}"),
        subjects: vec![format!("{PREFIX}.queue.{full}")],
        max_messages: 1,
        discard: DiscardPolicy::New,
        ..Config::default()
    };
    let client = client().await;
    let stream = client.create_stream(narrow).await.unwrap();
    let ends = queue.connect(&other, &[]).await.unwrap();
    send(&queue, &[to(&full, envelope("first"))]).await;
    let refused = to(&full, envelope("refused"));
    let beside = [to(&other, envelope("before")), refused.clone(), to(&other, envelope("after"))];
    let results = queue.dispatch(&beside).await;
    let [Ok(()), Err(DispatchError::Transient(why)), Ok(())] = &results[..] else { panic!("{results:?}") };
    assert!(why.to_string().contains("refused the message"), "{why}");
    for expected in ["before", "after"] {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), expected);
        ack(&ends, &delivery).await;
    }
    // Once there is room it is taken, under the same id.
    stream.delete_message(1).await.unwrap();
    send(&queue, &[refused]).await;
    client.delete_stream(format!("{PREFIX}-queue-{full}")).await.unwrap();
}

#[tokio::test]
async fn what_goes_nowhere_is_told_of_itself_and_of_no_other() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let nowhere = EndpointName::parse(unique("nobody")).unwrap();
    let results = queue.dispatch(&[to(&nowhere, envelope("lost")), to(&here, envelope("found"))]).await;
    let [Err(DispatchError::Transient(why)), Ok(())] = &results[..] else { panic!("{results:?}") };
    assert!(why.to_string().contains("has no stream for"), "{why}");
    ack(&ends, &next(&ends).await).await;
}

#[tokio::test]
async fn what_is_larger_than_the_server_takes_is_refused_before_anything_is_saved() {
    const TAKES: usize = 256 << 10;
    let server = NatsServer::told(&format!("max_payload: {TAKES}")).await;
    let queue = Nats::open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let bytes_max = queue.capabilities().message_bytes_max;
    assert!(bytes_max < TAKES, "{bytes_max}");
    let refused = queue.check(&to(&here, envelope(&"x".repeat(bytes_max)))).unwrap_err();
    assert!(refused.0.contains(&bytes_max.to_string()), "{refused}");

    // What is large for its headers: blanks are three bytes each there.
    let mut wordy = envelope("wordy");
    for number in 0..40 {
        wordy.headers.set(&format!("header-{number}"), &" ".repeat(4000)).unwrap();
    }
    let refused = queue.check(&to(&here, wordy)).unwrap_err();
    assert!(refused.0.contains("with its headers"), "{refused}");

    // The largest is taken, and set aside with a long reason.
    let largest = envelope(&"x".repeat(bytes_max - 512));
    assert!(queue.check(&to(&here, largest.clone())).is_ok());
    send(&queue, &[to(&here, largest)]).await;
    let delivery = next(&ends).await;
    let reason = "why ".repeat(10_000);
    ends.receiver.settle(&delivery.receipt, Settlement::DeadLetter { reason }).await.unwrap();
    let letters = hapax::ports::DeadLetters::list(&queue, &here, &hapax::ports::Page::first(1)).await.unwrap();
    assert!(letters[0].reason.starts_with("why why"), "{}", letters[0].reason);
}

/// The connection is mended by the driver, and what is behind it may be set in another way.
#[tokio::test]
async fn what_a_server_takes_that_has_come_in_place_of_another_is_what_counts() {
    let mut server = NatsServer::start().await;
    let queue = Nats::open(server.url()).await.unwrap();
    let here = endpoint();
    queue.connect(&here, &[]).await.unwrap();
    let large = to(&here, envelope(&"x".repeat(300 << 10)));
    assert!(queue.check(&large).is_ok());
    server.told_anew("max_payload: 262144");
    let until_it_is_back = async {
        while queue.check(&large).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, until_it_is_back).await.expect("it saves what the server will never take");
}

#[tokio::test]
async fn who_asks_for_one_at_a_time_leaves_the_others_to_others() {
    let here = endpoint();
    let lasting = || options().lease(std::time::Duration::from_secs(60));
    let receiver = async || lasting().prefetch(1).open(url()).await.unwrap().connect(&here, &[]).await.unwrap();
    let queue = lasting().open(url()).await.unwrap();
    let first = receiver().await;
    send(&queue, &[to(&here, envelope("1")), to(&here, envelope("2")), to(&here, envelope("3"))]).await;
    let held = first.receiver.receive(10).await.unwrap().pop().unwrap();
    assert_eq!(body(&held), "1");
    // While it holds one it is given none.
    expect_none(&first, std::time::Duration::from_millis(300)).await;
    let second = receiver().await;
    assert_eq!(body(&next(&second).await), "2");
    assert_eq!(queue.backlog(&here).await.unwrap(), 1, "the third is nobody's");
    ack(&first, &held).await;
    assert_eq!(body(&next(&first).await), "3");
}

fn misconfigured<T: std::fmt::Debug>(result: Result<T, hapax::ports::TransportError>, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn who_may_not_declare_works_with_what_is_there_and_is_told_what_is_missing() {
    let (here, missing) = (endpoint(), endpoint());
    let owner = open().await;
    owner.connect(&here, &[]).await.unwrap();
    let guest = options().declare(false).open(url()).await.unwrap();
    misconfigured(guest.connect(&missing, &[]).await, "NatsOptions::declare");
    misconfigured(guest.connect(&here, &[message_type()]).await, "NatsOptions::declare"); // It is not subscribed yet.
    let ends = guest.connect(&here, &[]).await.unwrap();
    send(&guest, &[to(&here, envelope("by a guest"))]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "by a guest");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn a_stream_that_was_declared_otherwise_is_an_error_that_says_so() {
    let prefix = unique("odd")[..30].to_owned();
    let client = client().await;
    let name = format!("{prefix}-topics");
    let odd = Config { name: name.clone(), subjects: vec![format!("{prefix}.topic.*.>")], ..Config::default() };
    client.create_stream(odd).await.unwrap();
    let opened = options().prefix(&prefix).open(url()).await;
    client.delete_stream(&name).await.unwrap();
    misconfigured(opened, "declared in another way");

    let taken = Config { name: format!("{prefix}-x"), subjects: vec![format!("{prefix}.>")], ..Config::default() };
    client.create_stream(taken).await.unwrap();
    let opened = options().prefix(&prefix).open(url()).await;
    client.delete_stream(format!("{prefix}-x")).await.unwrap();
    misconfigured(opened, "to another stream");
}

#[tokio::test]
async fn a_server_that_does_not_let_this_account_in_says_so() {
    let mut server = NatsServer::start().await;
    server.told_anew("authorization { users = [{ user: a, password: b }] }");
    let until_it_answers = async {
        loop {
            let opened = Nats::open(server.url().replace("//", "//a:secret@")).await;
            let Err(error) = opened else { panic!("it takes any password") };
            if error.kind() != ErrorKind::Unavailable {
                return error;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let error = tokio::time::timeout(PATIENCE, until_it_answers).await.expect("it does not answer");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    Nats::open(server.url().replace("//", "//a:b@")).await.unwrap();
    // What has a meaning in a URL is escaped there.
    server.told_anew("authorization { token: \"one@two/three\" }");
    let with_token = async {
        while Nats::open(server.url().replace("//", "//one%40two%2Fthree@")).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, with_token).await.expect("its token does not let it in");
}
