//! What is not answered, and what the caller is told of it.

use std::error::Error;

use async_trait::async_trait;
use hapax::{
    Endpoint, Memory, RequestClient, ReusedId,
    envelope::Destination,
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page, StoreError, Transport},
    requests::{RequestError, RequestSettings},
    time::Timestamp,
};
use tokio::time::Instant;

use crate::{
    bank::{Account, Bank, Book, Booked, MINUTE, SECOND, Way, ask, asking, book, key, run},
    wire::{Fate, Wire},
};

fn way(way: Way, line: &str) -> Book {
    Book { way, ..book("a", line) }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_type_or_that_cannot_be_read_is_an_error_that_says_so() {
    let bank = Bank::new("other");
    let _running = bank.run().await;
    let client = bank.client("front").await;
    let other = ask(&client, &way(Way::Other, "other"), MINUTE).await.unwrap_err();
    assert_eq!(other.to_string(), "the answer is of type `bank.noted`, not of type `bank.booked`");
    let unreadable = ask(&client, &way(Way::Unreadable, "unreadable"), MINUTE).await.unwrap_err();
    assert!(matches!(unreadable, RequestError::Unreadable(_)), "{unreadable:?}");
    assert!(unreadable.to_string().contains("the body of bank.booked cannot be read"), "{unreadable}");
    for error in [other, unreadable] {
        assert!(!error.is_unknown_outcome());
    }
    assert_eq!(bank.lines("a").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_handled_and_not_answered_times_out() {
    let bank = Bank::new("silent");
    let _running = bank.run().await;
    let client = bank.looking("front").start().await.unwrap();
    let begin = Instant::now();
    let error = ask(&client, &way(Way::Silent, "silent"), 7 * SECOND).await.unwrap_err();
    assert!(matches!(error, RequestError::TimedOut { unconfirmed: None, .. }), "{error:?}");
    assert_eq!(begin.elapsed(), 7 * SECOND);
    assert_eq!(bank.lines("a").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_set_aside_fails_before_its_deadline_for_who_looks() {
    let bank = Bank::new("aside");
    let _running = bank.run().await;
    let (looks, does_not) = (bank.looking("looks").start().await.unwrap(), bank.client("does-not").await);
    let begin = Instant::now();
    let error = ask(&looks, &way(Way::Never, "aside"), MINUTE).await.unwrap_err();
    assert!(begin.elapsed() <= SECOND && error.is_unknown_outcome(), "{error:?}");
    let RequestError::SetAside { reason, time } = error else { panic!("{error:?}") };
    assert_eq!(reason, "the bank does not take it");
    assert!(Timestamp::now().since(time) < MINUTE);
    let error = ask(&does_not, &way(Way::Never, "aside"), MINUTE).await.unwrap_err();
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error:?}");
    // However often it was asked: one letter, for it was the same message each time.
    assert_eq!((bank.letters().await.len(), bank.lines("a").len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_used_for_another_body_is_refused_and_what_it_was_used_for_stays() {
    let bank = Bank::new("reused");
    let _running = bank.run().await;
    let client = bank.looking("front").start().await.unwrap();
    let answer = ask(&client, &book("a", "key"), MINUTE).await.unwrap();
    let other = Book { way: Way::Other, ..book("a", "key") };
    let begin = Instant::now();
    let error = ask(&client, &other, MINUTE).await.unwrap_err();
    assert!(matches!(error, RequestError::KeyReused) && !error.is_unknown_outcome(), "{error:?}");
    assert!(begin.elapsed() <= SECOND);
    assert_eq!(ask(&client, &book("a", "key"), MINUTE).await.unwrap(), answer);
    bank.booked_once("a", &answer);
    // Another instance is another matter: there the key is new.
    assert_eq!(ask(&client, &book("b", "key"), MINUTE).await.unwrap().lines, 1);
}

#[tokio::test(start_paused = true)]
async fn where_reused_keys_are_dropped_nobody_learns_of_it() {
    let bank = Bank::new("dropped");
    let endpoint = Endpoint::builder("bank")
        .store(bank.store.clone())
        .transport(bank.hub.clone())
        .saga::<Account>(|account| account.starts::<Book>().when_id_reused(ReusedId::Drop));
    let _running = run(endpoint).await;
    let client = bank.looking("front").start().await.unwrap();
    let answer = ask(&client, &book("a", "key"), MINUTE).await.unwrap();
    let error = ask(&client, &Book { way: Way::Other, ..book("a", "key") }, MINUTE).await.unwrap_err();
    assert!(matches!(error, RequestError::TimedOut { .. }), "{error:?}");
    bank.booked_once("a", &answer);
}

/// Letters as they would be had they been written an hour ago.
#[derive(Debug)]
struct AnHourAgo(Memory);

#[async_trait]
impl DeadLetters for AnHourAgo {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.0.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let mut letters = self.0.list(endpoint, page).await?;
        for letter in &mut letters {
            letter.time = Timestamp::from_millis(letter.time.as_millis() - 3_600_000);
        }
        Ok(letters)
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.0.discard(letters).await
    }
}

/// Goal: who was set aside once and is asked again is not given up for the old letter: it may be at work.
#[tokio::test(start_paused = true)]
async fn a_letter_of_an_earlier_time_is_believed_at_the_deadline_alone() {
    let bank = Bank::new("earlier");
    let _running = bank.run().await;
    let client = bank.looking("front").dead_letters(AnHourAgo(bank.store.clone())).start().await.unwrap();
    let begin = Instant::now();
    let error = ask(&client, &way(Way::Never, "earlier"), 20 * SECOND).await.unwrap_err();
    assert!(matches!(error, RequestError::SetAside { .. }), "{error:?}");
    assert_eq!(begin.elapsed(), 20 * SECOND);
}

/// Letters of what could not be sent bear the id of the request too, and say nothing about it.
#[tokio::test(start_paused = true)]
async fn a_letter_of_something_that_was_to_be_sent_is_none_of_the_request() {
    let bank = Bank::new("outgoing");
    let client = bank.looking("front").start().await.unwrap();
    let asked = asking(&client, book("a", "outgoing")).await;
    let connected = bank.hub.connect(&"bank".parse().unwrap(), &[]).await.unwrap();
    let given = connected.receiver.receive(1).await.unwrap().remove(0);
    let letter = DeadLetter {
        envelope: given.envelope,
        endpoint: "bank".parse().unwrap(),
        saga: None,
        destination: Some(Destination::Endpoint("elsewhere".parse().unwrap())),
        reason: "nobody there".into(),
        attempts: 1,
        time: Timestamp::MAX,
    };
    bank.store.add(&letter).await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    assert!(!asked.is_finished());
    let _running = bank.run().await;
    bank.booked_once("a", &asked.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_sent_is_refused_at_once_and_said_not_to_be_sent() {
    let bank = Bank::new("never");
    let wire = Wire::to(&bank.hub, "bank", |_| Fate::Never);
    let client = RequestClient::builder("front").transport(wire).start().await.unwrap();
    let error = ask(&client, &book("a", "never"), MINUTE).await.unwrap_err();
    assert!(matches!(error, RequestError::NotSent(_)) && !error.is_unknown_outcome(), "{error:?}");
    assert!(error.source().unwrap().to_string().contains("the wire is cut"));
    let large = Book { account: "a".repeat(17 << 20), ..book("a", "large") };
    let error = ask(&client, &large, MINUTE).await.unwrap_err();
    assert!(matches!(&error, RequestError::Invalid(why) if why.contains("bytes")), "{error:?}");
    let error = client.request::<_, Booked>("not a name", &book("a", "name"), MINUTE).await.unwrap_err();
    assert!(matches!(&error, RequestError::Invalid(why) if why.contains("not a name")), "{error:?}");
    for wrong in [true, false] {
        let mut envelope = client.envelope(&book("a", "set")).unwrap();
        if wrong {
            envelope.reply_to = Some(Destination::Endpoint("elsewhere".parse().unwrap()));
        } else {
            envelope.correlation_id = Some("mine".parse().unwrap());
        }
        let error = client.request_envelope("bank", envelope, MINUTE).await.unwrap_err();
        assert!(matches!(&error, RequestError::Invalid(why) if why.contains("leave them out")), "{error:?}");
    }
    assert_eq!(client.waiting(), 0);
}

/// Goal: that a request was refused for good is said only where no copy of it can have been sent.
#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_try_of_which_nothing_is_known_leaves_the_outcome_unknown() {
    for (first, says_why) in [(Fate::Refused, true), (Fate::Lost, false)] {
        let bank = Bank::new("perhaps");
        let wire = Wire::to(&bank.hub, "bank", move |number| if number == 0 { first } else { Fate::Never });
        let client = RequestClient::builder("front").transport(wire.clone()).start().await.unwrap();
        let error = ask(&client, &book("a", "perhaps"), 5 * SECOND).await.unwrap_err();
        assert!(matches!(error, RequestError::TimedOut { .. }), "{error:?}");
        assert_eq!(error.source().is_some(), says_why, "{error:?}");
        assert!(wire.offered() > 1);
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_and_no_more() {
    let bank = Bank::new("limit");
    let settings = RequestSettings { waiting_max: 2, ..RequestSettings::default() };
    let wire = Wire::to(&bank.hub, "bank", |_| Fate::Sent);
    let client = RequestClient::builder("front").transport(wire.clone()).settings(settings).start().await.unwrap();
    let waiting = [asking(&client, book("a", "one")).await, asking(&client, book("a", "one")).await];
    let error = ask(&client, &book("a", "two"), MINUTE).await.unwrap_err();
    assert!(matches!(error, RequestError::TooMany { max: 2 }) && !error.is_unknown_outcome(), "{error:?}");
    assert!(error.to_string().contains("raise waiting_max"), "{error}");
    assert_eq!((client.waiting(), wire.offered()), (2, 2)); // It was not sent.
    waiting[0].abort();
    tokio::task::yield_now().await;
    let third = asking(&client, book("a", "three")).await;
    assert_eq!(client.waiting(), 2);
    let _running = bank.run().await;
    assert!(third.await.unwrap().is_ok());
    assert_eq!(bank.lines("a").iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>(), ["one", "three"]);
    // Those who were answered make room.
    for line in ["four", "five", "six"] {
        ask(&client, &book("a", line), MINUTE).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn headers_and_tenant_of_an_envelope_arrive_and_the_answer_is_as_it_came() {
    let bank = Bank::new("envelope");
    let client = bank.client("front").await;
    let mut envelope = client.envelope(&book("a", "envelope")).unwrap();
    envelope.headers.set("via", "web").unwrap();
    envelope.tenant = Some("ann".parse().unwrap());
    envelope.idempotency_key = Some(key("envelope"));
    let asked = client.request_envelope("bank", envelope, MINUTE);
    let looking = async {
        let connected = bank.hub.connect(&"bank".parse().unwrap(), &[]).await.unwrap();
        let given = connected.receiver.receive(1).await.unwrap().remove(0).envelope;
        (given, bank.run().await)
    };
    let (answer, (given, _running)) = tokio::join!(asked, looking);
    let answer = answer.unwrap();
    assert_eq!((given.headers.value("via"), given.tenant.clone()), (Some("web"), Some("ann".parse().unwrap())));
    assert_eq!(answer.correlation_id, given.correlation_id);
    assert_eq!(answer.tenant, given.tenant);
    // Nothing in it differs from what another client would have sent under the key, or this one after a restart.
    assert_eq!(given.occurred_at, None);
    assert_eq!(answer.message_type.as_str(), "bank.booked");
}
