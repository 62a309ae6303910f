//! Bodies that are sealed on their way: who opens them, what is refused, and what is a copy of what.

use std::{sync::Arc, time::Duration};

use hapax::{
    Endpoint, HandlerError, InProcess, Memory, Message, RequestClient, Sender,
    codec::Codec,
    endpoint::{Calendar, Settings},
    envelope::{Destination, Envelope},
    seal::{Deflate, SEALED_BY, Seal, Sealed, Seals},
    testing::Harness,
};

use crate::{
    cipher::AesGcm,
    middleware_faults::{Rows, billing},
    orders::{Notes, Place, place},
    vault::{Ear, MINUTE, Tell, Told, Vault, WORD, aes, reasons, sealed, shows, start, tell, telling, vault, words},
    work::{Log, Task, endpoint, settings, task},
};

#[tokio::test]
async fn what_one_endpoint_seals_another_opens_and_what_lies_in_between_is_sealed() {
    let store = Memory::new();
    let mut harness = Harness::start(vault(&store, aes())).await.unwrap();
    harness.refuse_sends(1000);
    harness.send(&tell(WORD)).await.unwrap();
    let outboxes: Vec<_> = store.entities().into_iter().flat_map(|(_, entity)| entity.outbox).collect();
    let waiting: Vec<_> = outboxes.iter().flat_map(|entry| &entry.outgoing).collect();
    assert_eq!(waiting.len(), 2);
    // What is stored as state is not sealed.
    assert!(store.entities().iter().any(|(_, entity)| shows(&entity.state, WORD)));
    for sent in waiting {
        assert_eq!(sent.envelope.headers.value(SEALED_BY), Some("aes-256-gcm;2026-11"));
        assert!(!shows(&sent.envelope.body, WORD) && !shows(&sent.envelope.body, "vault"));
    }
    harness.refuse_sends(0);
    harness.advance(Duration::from_secs(1)).await.unwrap();
    assert_eq!(harness.published::<Told>().unwrap(), [Told { words: vec![WORD.into()] }]);
    let told = harness.outgoing().into_iter().find(|sent| sent.envelope.message_type.as_str() == Told::TYPE).unwrap();
    assert!(!shows(&told.envelope.body, WORD));

    let ear = Endpoint::builder("ear").store(Memory::new()).seals(Seals::opened_by(AesGcm::knowing(&["2026-11"])));
    let mut ear = Harness::start(ear.saga::<Ear>(|ear| ear.starts::<Told>())).await.unwrap();
    ear.send_envelope((*told.envelope).clone()).await.unwrap();
    assert_eq!(ear.state::<Ear>("all").await.unwrap(), Some(Ear { heard: vec![vec![WORD.into()]] }));
}

#[tokio::test]
async fn timeouts_and_what_recurs_are_sealed_and_opened_like_all_else() {
    let store = Memory::new();
    let minutely = Calendar::cron("* * * * *").unwrap();
    let vault = vault(&store, aes().demanded());
    let vault =
        vault.recurring("words", minutely, |_, cx| cx.send_local(Tell { vault: "w".into(), word: WORD.into() }));
    let mut harness = Harness::start(vault).await.unwrap();
    harness.send(&tell(WORD)).await.unwrap();
    assert_eq!(words(&harness).await, [WORD]);
    harness.advance(MINUTE + MINUTE / 2).await.unwrap();
    assert_eq!(words(&harness).await, [""; 0]);
    assert_eq!(harness.state::<Vault>("w").await.unwrap(), Some(Vault { words: vec![WORD.into()] }));
    assert_eq!(reasons(&harness).await, [""; 0]);
}

#[tokio::test]
async fn a_plain_body_is_read_unless_sealed_ones_are_demanded() {
    let mut harness = start(aes()).await;
    harness.send_envelope(telling("one", "plain")).await.unwrap();
    assert_eq!(words(&harness).await, ["plain"]);
    let mut harness = start(aes().demanded()).await;
    harness.send_envelope(telling("one", "plain")).await.unwrap();
    harness.send_envelope(sealed(&aes(), telling("two", "sealed"))).await.unwrap();
    assert_eq!(words(&harness).await, ["sealed"]);
    assert_eq!(reasons(&harness).await, ["the body of sealed.tell is plain, and has to be sealed here"]);
}

#[tokio::test]
async fn a_seal_or_a_key_that_is_unknown_here_may_be_known_to_another_version() {
    let message = sealed(&AesGcm::knowing(&["2026-12"]).into(), telling("one", WORD));
    let unknown = [Seals::default(), Seals::from(Deflate::default()), aes()];
    let said = [
        "the body of sealed.tell is sealed by `aes-256-gcm`, which is unknown here; add it with .seals(..)",
        "the body of sealed.tell is sealed by `aes-256-gcm`, which is unknown here; add it with .seals(..)",
        "there is no key `2026-12` here",
    ];
    for (seals, said) in unknown.into_iter().zip(said) {
        let mut harness = start(seals).await;
        harness.send_envelope(message.clone()).await.unwrap();
        assert_eq!((reasons(&harness).await, harness.waiting().len()), (vec![], 1));
        harness.advance(10 * MINUTE).await.unwrap();
        assert_eq!(reasons(&harness).await, [said]);
    }
    let both = AesGcm::knowing(&["2026-12", "2026-11"]);
    let mut harness = start(Seals::sealed_by(Deflate::default()).and_opens(both)).await;
    harness.send_envelope(message).await.unwrap();
    assert_eq!(words(&harness).await, [WORD]);
}

#[tokio::test]
async fn what_was_changed_on_its_way_is_set_aside_at_once_with_its_sealed_body() {
    let message = sealed(&aes(), telling("one", WORD));
    let mut changed = message.body.to_vec();
    changed[20] ^= 1;
    let short = message.body.slice(..5);
    let other = Envelope { message_id: "two".parse().unwrap(), ..message.clone() };
    for forged in [Envelope { body: changed.into(), ..message.clone() }, Envelope { body: short, ..message }, other] {
        let mut harness = start(aes()).await;
        harness.send_envelope(forged.clone()).await.unwrap();
        let letters = harness.dead_letters().await.unwrap();
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].reason, "the body was not sealed with this key, or was changed since");
        assert_eq!((&letters[0].envelope.body, &letters[0].envelope.headers), (&forged.body, &forged.headers));
    }
}

#[tokio::test]
async fn copies_that_were_sealed_anew_are_copies_and_another_body_is_not() {
    let mut harness = start(aes()).await;
    let copies = [telling("one", WORD), telling("one", WORD)].map(|copy| sealed(&aes(), copy));
    assert_ne!(copies[0].body, copies[1].body);
    for copy in copies.into_iter().chain([telling("one", WORD)]) {
        harness.send_envelope(copy).await.unwrap();
    }
    assert_eq!((words(&harness).await, reasons(&harness).await), (vec![WORD.to_owned()], vec![]));
    harness.send_envelope(sealed(&aes(), telling("one", "another"))).await.unwrap();
    assert_eq!(words(&harness).await, [WORD]);
    assert_eq!(reasons(&harness).await, ["the identity of one was used before with another type or body"]);
}

#[tokio::test]
async fn copies_that_were_sealed_anew_are_copies_for_a_handler_in_a_transaction_too() {
    let (rows, notes) = (Arc::new(Rows::default()), Notes::default());
    let mut harness = Harness::start(billing(&rows, &notes).seals(aes())).await.unwrap();
    let message = || {
        let order: Place = place("kept", 1);
        sealed(&aes(), Sender::envelope_with(Codec::default(), "one".parse().unwrap(), &order).unwrap())
    };
    harness.send_envelope(message()).await.unwrap();
    harness.send_envelope(message()).await.unwrap();
    assert_eq!((notes.take(), reasons(&harness).await), (vec!["sees kept".to_owned()], vec![]));
    assert!(rows.sent().iter().all(|sent| sent.envelope.headers.value(SEALED_BY).is_some()));
}

/// Says that it opens to what it does not.
struct Bomb;

impl Seal for Bomb {
    const NAME: &'static str = "bomb";

    fn seal(&self, _: &Envelope) -> Result<Option<Sealed>, HandlerError> {
        Ok(Some(Sealed::new("small")))
    }

    fn open(&self, _: &Envelope, _: Option<&str>, bytes_max: usize) -> Result<Vec<u8>, HandlerError> {
        Ok(vec![b' '; bytes_max + 1])
    }
}

#[tokio::test]
async fn a_body_that_opens_to_more_than_the_bound_is_set_aside() {
    let word = "a".repeat(100_000);
    let deflated = sealed(&Deflate::default().into(), telling("one", &word));
    assert!(deflated.body.len() < 1000);
    let mut harness = start(Seals::from(Deflate::default()).opened_bytes_max(110_000)).await;
    harness.send_envelope(deflated.clone()).await.unwrap();
    assert_eq!(words(&harness).await, [word]);
    let bound = |seals: Seals| seals.opened_bytes_max(90_000);
    for (seals, message) in
        [(Seals::from(Deflate::default()), deflated), (Bomb.into(), sealed(&Bomb.into(), telling("one", "")))]
    {
        let mut harness = start(bound(seals)).await;
        harness.send_envelope(message).await.unwrap();
        let why = "the body opens to more than 90000 bytes; raise opened_bytes_max, if it may";
        assert_eq!(reasons(&harness).await, [why]);
    }
}

#[tokio::test(start_paused = true)]
async fn who_edits_a_letter_sees_it_sealed_and_may_open_it_and_seal_it_again() {
    let (store, hub) = (Memory::new(), InProcess::new("office"));
    let endpoint = || vault(&store, aes()).transport(hub.clone());
    let garbled = Envelope { body: "{}".into(), ..telling("one", "") };
    hub.sender().seals(aes()).send_envelope(Destination::parse("endpoint:vault").unwrap(), garbled).await.unwrap();
    endpoint().run_until(hub.idle()).await.unwrap();
    let office = endpoint().start().await.unwrap().dead_letter_office("alice");
    let letter = office.list(&Default::default(), 0, 1).await.unwrap().remove(0);
    assert!(letter.reason.contains("cannot be read"), "{}", letter.reason);
    let edited = office
        .edit(&letter, |envelope| {
            assert!(!shows(&envelope.body, "{}"));
            let mut opened = aes().open(envelope).unwrap().into_owned();
            assert_eq!(opened.body, "{}");
            opened.body = telling("one", WORD).body;
            *envelope = sealed(&aes(), opened);
        })
        .await
        .unwrap();
    assert!(!shows(&edited.envelope.body, WORD));
    assert_eq!(office.retry_all(&Default::default()).await.unwrap().done, 1);
    endpoint().run_until(hub.idle()).await.unwrap();
    let (_, entity) = store.entities().into_iter().find(|(key, _)| key.scope().saga.as_str() == "vault").unwrap();
    assert!(entity.completed, "it was told the word, and its minute has passed");
}

#[tokio::test(start_paused = true)]
async fn requests_and_their_answers_are_sealed_and_asking_again_is_the_same_request() {
    let (store, hub) = (Memory::new(), InProcess::new("asks"));
    let demanded = || aes().demanded();
    let endpoint = vault(&store, demanded()).transport(hub.clone()).start().await.unwrap();
    let running = tokio::spawn(endpoint.run_until(std::future::pending::<()>()));
    let client = RequestClient::builder("front").transport(hub.clone()).seals(demanded()).start().await.unwrap();
    for _ in 0..2 {
        let told: Told = client.request_with_key("key".parse().unwrap(), "vault", &tell(WORD), MINUTE).await.unwrap();
        assert_eq!(told, Told { words: vec![WORD.into()] });
    }
    // So it is where the caller has sealed it.
    let keyed = || Envelope { idempotency_key: Some("key".parse().unwrap()), ..client.envelope(&tell(WORD)).unwrap() };
    let ids = [keyed(), sealed(&aes(), keyed())].map(|envelope| client.request_envelope("vault", envelope, MINUTE));
    let [one, two] = ids;
    assert_eq!(one.await.unwrap().correlation_id, two.await.unwrap().correlation_id);
    let plain = RequestClient::builder("plain").transport(hub).start().await.unwrap();
    let unread = plain.request_envelope("vault", sealed(&aes(), plain.envelope(&tell("2")).unwrap()), MINUTE).await;
    assert!(unread.unwrap().headers.value(SEALED_BY).is_some());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn what_bodies_open_to_counts_as_what_is_held() {
    let (store, hub, log) = (Memory::new(), InProcess::new("held"), Log::default());
    let large = "x".repeat(100_000);
    for number in 0..32 {
        let task = Task { millis: 100, ..task(&format!("{number}"), &format!("{number}-{large}")) };
        let sender = hub.sender().seals(Deflate::default());
        sender.send_as(format!("{number}").parse().unwrap(), "work", &task).await.unwrap();
    }
    let settings = Settings { bytes_in_flight_max: 1 << 20, ..settings() };
    let endpoint = endpoint(&store, hub.clone(), &log).settings(settings).seals(Deflate::default());
    endpoint.run_until(hub.idle()).await.unwrap();
    // As many as are taken while nothing is known of how large they are, and then no more for as long as they are held.
    assert_eq!(log.most_of_all(), 16);
}

/// A seal with a mistake.
struct Panics;

impl Seal for Panics {
    const NAME: &'static str = "panics";

    fn seal(&self, _: &Envelope) -> Result<Option<Sealed>, HandlerError> {
        panic!("it seals nothing")
    }

    fn open(&self, _: &Envelope, _: Option<&str>, _: usize) -> Result<Vec<u8>, HandlerError> {
        panic!("it opens nothing")
    }
}

#[tokio::test]
async fn a_seal_that_panics_is_an_error_of_the_message() {
    let seals: Seals = Panics.into();
    let error = seals.seal(&mut telling("one", WORD)).unwrap_err();
    assert_eq!(error.to_string(), "panics panicked: it seals nothing");
    let mut harness = start(seals).await;
    let mut message = telling("one", WORD);
    message.headers.set(SEALED_BY, "panics").unwrap();
    harness.send_envelope(message).await.unwrap();
    harness.send_envelope(telling("two", WORD)).await.unwrap();
    harness.advance(10 * MINUTE).await.unwrap();
    let mut reasons = reasons(&harness).await;
    reasons.sort();
    assert_eq!(reasons, ["panics panicked: it opens nothing", "panics panicked: it seals nothing"]);
}

pub(crate) struct Unnamed<const MANY: bool>;

impl<const MANY: bool> Seal for Unnamed<MANY> {
    const NAME: &'static str = if MANY { "one;two" } else { "" };

    fn seal(&self, _: &Envelope) -> Result<Option<Sealed>, HandlerError> {
        Ok(None)
    }

    fn open(&self, _: &Envelope, _: Option<&str>, _: usize) -> Result<Vec<u8>, HandlerError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn seals_without_names_of_their_own_are_refused_at_the_start() {
    for (seals, said) in [
        (Seals::opened_by(Unnamed::<true>), "`one;two` is no name for a seal"),
        (Seals::opened_by(Unnamed::<false>), "`` is no name for a seal"),
        (aes().and_opens(AesGcm::knowing(&["2026-12"])), "two seals are named `aes-256-gcm`; rename one"),
    ] {
        let error = Harness::start(vault(&Memory::new(), seals)).await.expect_err("it must not start").to_string();
        assert!(error.starts_with("endpoint vault: ") && error.contains(said), "{error}");
    }
}

#[test]
fn nothing_of_a_body_is_printed_with_what_seals_it() {
    let printed = format!("{:?} {:?}", Sealed::new(WORD).under("2026-11"), aes().demanded());
    assert!(!printed.contains(WORD) && printed.contains("aes-256-gcm"), "{printed}");
}
