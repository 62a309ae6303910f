//! Answers find who waits for them, whatever is doubled or lost on the way.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    InProcess, RequestClient,
    requests::{RequestError, RequestSettings},
    transports::in_process::{Faults, LEASE},
};

use tokio::time::Instant;

use crate::{
    bank::{Bank, Booked, MINUTE, SECOND, ask, asking, book, run},
    wire::{Fate, Wire},
};

#[tokio::test(start_paused = true)]
async fn each_gets_the_answer_to_what_it_has_asked() {
    let bank = Bank::new("each");
    let _running = bank.run().await;
    let clients = [bank.client("one").await, bank.client("two").await];
    let asked = (0..40).map(|number| {
        let client = &clients[number % 2];
        let account = format!("account-{number}");
        async move { (ask(client, &book(&account, &format!("line-{number}")), MINUTE).await.unwrap(), account) }
    });
    for (answer, account) in join_all(asked).await {
        bank.booked_once(&account, &answer);
    }
    assert_eq!(clients.map(|client| (client.waiting(), client.unawaited())), [(0, 0), (0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_is_a_new_one_each_time() {
    let bank = Bank::new("anew");
    let _running = bank.run().await;
    let client = bank.client("front").await;
    let first: Booked = client.request("bank", &book("a", "line"), MINUTE).await.unwrap();
    let second: Booked = client.request("bank", &book("a", "line"), MINUTE).await.unwrap();
    assert_eq!((first.lines, second.lines), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn copies_of_the_request_and_of_the_answer_are_one_effect_and_one_answer() {
    let faults = Faults { seed: 1, duplicates: 1.0, delay_max: SECOND, ..Faults::default() };
    let bank = Bank { hub: InProcess::with_faults("copies", LEASE, faults), ..Bank::new("copies") };
    let _running = bank.run().await;
    let client = bank.client("front").await;
    let answer = ask(&client, &book("a", "copied"), MINUTE).await.unwrap();
    bank.idle().await;
    bank.booked_once("a", &answer);
    // Each copy of the request was answered, and each answer came twice: nobody waited for three of the four.
    assert_eq!((client.waiting(), client.unawaited()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_asked_for_again_under_the_same_id() {
    let bank = Bank::new("lost");
    let lossy = Wire::to(&bank.hub, "front", |number| if number < 3 { Fate::Lost } else { Fate::Sent });
    let _running = run(bank.endpoint(lossy.clone())).await;
    let requests = Wire::to(&bank.hub, "bank", |_| Fate::Sent);
    let client = RequestClient::builder("front").transport(requests.clone()).start().await.unwrap();
    // With a key and without: it is one request as long as somebody waits.
    let answer: Booked = client.request("bank", &book("a", "lost"), MINUTE).await.unwrap();
    bank.booked_once("a", &answer);
    assert_eq!((requests.offered(), lossy.offered()), (4, 4));
    let answer = ask(&client, &book("b", "kept"), MINUTE).await.unwrap();
    bank.booked_once("b", &answer);
    assert_eq!(bank.letters().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_lost_or_not_confirmed_is_sent_again() {
    for (fate, name) in [(Fate::Lost, "lost"), (Fate::Refused, "refused"), (Fate::Unconfirmed, "unconfirmed")] {
        let bank = Bank::new(name);
        let _running = bank.run().await;
        let wire = Wire::to(&bank.hub, "bank", move |number| if number < 2 { fate } else { Fate::Sent });
        let client = RequestClient::builder("front").transport(wire.clone()).start().await.unwrap();
        let answer = ask(&client, &book("a", name), MINUTE).await.unwrap();
        bank.booked_once("a", &answer);
        // One that has arrived was answered, whether its sender knew or not.
        assert_eq!(wire.offered(), if fate == Fate::Unconfirmed { 1 } else { 3 }, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_wait_for_the_confirmation_of_its_request() {
    let bank = Bank::new("early");
    let _running = bank.run().await;
    let untold = Wire::to(&bank.hub, "bank", |_| Fate::Untold);
    let client = RequestClient::builder("front").transport(untold).start().await.unwrap();
    let answer = ask(&client, &book("a", "early"), MINUTE).await.unwrap();
    bank.booked_once("a", &answer);
}

#[tokio::test(start_paused = true)]
async fn parallel_requests_under_one_key_are_one_effect_and_equal_answers() {
    let bank = Bank::new("parallel");
    let _running = bank.run().await;
    let clients = [bank.client("one").await, bank.client("two").await];
    let (line, begin) = (book("a", "parallel"), Instant::now());
    let answers = join_all((0..50).map(|number| ask(&clients[number % 2], &line, MINUTE))).await;
    for answer in answers {
        bank.booked_once("a", &answer.unwrap());
    }
    assert!(begin.elapsed() < SECOND / 4); // One answer is for all who wait for it: nobody had to ask again.
    assert_eq!(clients.map(|client| client.waiting()), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_is_counted_and_had_when_it_is_asked_for_again() {
    let bank = Bank::new("late");
    let client = bank.client("front").await;
    let late = ask(&client, &book("a", "late"), 3 * SECOND).await.unwrap_err();
    assert!(matches!(late, RequestError::TimedOut { within, unconfirmed: None } if within == 3 * SECOND), "{late:?}");
    assert!(late.is_unknown_outcome() && late.to_string().contains("ask again under the same key"), "{late}");
    assert_eq!((client.waiting(), client.unawaited()), (0, 0));
    assert!(bank.hub.backlog(&"bank".parse().unwrap()) > 1);
    let _running = bank.run().await;
    bank.idle().await;
    assert_eq!(client.unawaited(), 1); // What came together was answered together, to nobody.
    let answer = ask(&client, &book("a", "late"), MINUTE).await.unwrap();
    bank.booked_once("a", &answer);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_less_and_less_often_as_long_as_nobody_answers() {
    let bank = Bank::new("nobody");
    let wire = Wire::to(&bank.hub, "bank", |_| Fate::Lost);
    let settings = RequestSettings { ask_again_delay: SECOND, ask_again_delay_max: 8 * SECOND, ..Default::default() };
    let client = RequestClient::builder("front").transport(wire.clone()).settings(settings).start().await.unwrap();
    let within = Duration::from_secs(15 + 80);
    ask(&client, &book("a", "nobody"), within).await.unwrap_err();
    // At 0, 1, 3, 7, 15 s and every 8 s from there; each wait is shortened by up to half.
    assert!((15..=30).contains(&wire.offered()), "{}", wire.offered());
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_is_forgotten() {
    let bank = Bank::new("dropped");
    let client = bank.client("front").await;
    let [dropped, stays] = [asking(&client, book("a", "both")).await, asking(&client, book("a", "both")).await];
    assert_eq!(client.waiting(), 2);
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert_eq!(client.waiting(), 1);
    let _running = bank.run().await;
    bank.booked_once("a", &stays.await.unwrap().unwrap());
    assert_eq!(client.waiting(), 0);
}
