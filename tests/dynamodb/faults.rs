//! Answers of writes that are lost, throttles, conflicts of transactions.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use aws_sdk_dynamodb::{Client, config::retry::RetryConfig};
use hapax::{
    DynamoDb,
    entity::{DedupEntry, Entity, Expected},
    ids::EntityKey,
    ports::{DedupStore, EntityStore, ErrorKind, Finished, Saved, StoreError},
};
use hapax_tests::{
    http_faults::{Asked, Fault, Gate},
    samples::{entity, entry_of, mark, outgoing, save, won},
};

use crate::rig::{JSON, Rig, cancelled, error, key, next, throttled};

/// More than the store tries.
pub(crate) const ALWAYS: u32 = 100;
pub(crate) const LARGE: usize = 500_000;
/// For a try that is held meanwhile.
const LATE: Duration = Duration::from_secs(60);

async fn create(
    store: &DynamoDb,
    key: &EntityKey,
    state: &Entity,
    processed: &[DedupEntry],
) -> Result<Saved, StoreError> {
    store.save(key, &Expected::Absent, state, processed).await
}

#[tokio::test]
async fn a_save_in_dynamodb_whose_answer_was_lost_meets_itself_and_has_won() {
    let rig = Rig::new().await;
    next(rig.proxy(), 1, "PutItem", Fault::DropAnswer);
    let version = won(create(&rig.store, &key("new"), &entity("a", &[]), &[]).await.unwrap());
    assert_eq!(rig.asked(), ["PutItem", "PutItem"], "it was tried again");
    assert_eq!(rig.plain.version(&key("new")).await.unwrap(), Some(version.clone()));

    next(rig.proxy(), 1, "PutItem", Fault::DropAnswer);
    let second = save(&rig.store, &key("new"), Some(&version), &entity("b", &[])).await;
    let stored = rig.plain.load(&key("new"), &[]).await.unwrap().stored.unwrap();
    assert_eq!((stored.version, stored.entity), (second, entity("b", &[])));
}

#[tokio::test]
async fn a_transaction_in_dynamodb_whose_answer_was_lost_is_done_once() {
    let rig = Rig::new().await;
    let mark = mark();
    next(rig.proxy(), 1, "TransactWriteItems", Fault::DropAnswer);
    let marked = create(&rig.store, &key("marked"), &entity("a", &[]), std::slice::from_ref(&mark)).await.unwrap();
    let version = won(marked);
    // The service does what has one token once.
    let token = |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).unwrap()["ClientRequestToken"].clone();
    let tokens: Vec<_> = rig.proxy().asked().iter().map(|asked| token(asked.body())).collect();
    assert!(tokens.len() == 2 && tokens[0] == tokens[1] && tokens[0].is_string(), "{tokens:?}");
    assert_eq!(rig.asked(), ["TransactWriteItems"; 2]);
    assert!(rig.plain.contains(&[mark.key]).await.unwrap().attempt(&mark.key, &mark.attempt));

    next(rig.proxy(), 1, "TransactWriteItems", Fault::DropAnswer);
    let waits = entry_of(vec![outgoing("x")]);
    let waiting =
        save(&rig.store, &key("marked"), Some(&version), &entity(vec![1; LARGE], std::slice::from_ref(&waits))).await;

    next(rig.proxy(), 1, "TransactWriteItems", Fault::DropAnswer);
    let (done, clean) = (waits.to_dedup_entry(), entity(vec![1; LARGE], &[]));
    let finished = rig.store.finish(&key("marked"), &[done], Some((&waiting, &clean))).await.unwrap();
    let Some(Finished::Cleaned(Some(version))) = finished else { panic!("{finished:?}") };
    let stored = rig.plain.load(&key("marked"), &[waits.key]).await.unwrap();
    assert_eq!(stored.stored.map(|stored| (stored.version, stored.entity)), Some((version, clean)));
    assert!(stored.known.unwrap().attempt(&waits.key, &waits.attempt));
}

/// Sends what was held to the emulator itself.
fn post(url: &str, asked: &Asked, body: &[u8]) {
    let address = url.trim_start_matches("http://");
    let target = asked.target().unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: {}\r\nx-amz-target: {target}\r\n\
         authorization: {}\r\nx-amz-date: {}\r\ncontent-length: {}\r\n\r\n",
        JSON[0].1,
        asked.header("authorization").unwrap(),
        asked.header("x-amz-date").unwrap(),
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// The service knows a token for ten minutes, and a try may be on its way for longer.
#[tokio::test]
async fn a_transaction_in_dynamodb_whose_token_is_forgotten_meets_itself_and_has_won() {
    let rig = Rig::new().await;
    let (gate, mark) = (Gate::new(), mark());
    let held = rig.proxy().first(1, |asked| asked.operation() == Some("TransactWriteItems"), Fault::Hold(gate.clone()));
    let store =
        rig.table.through(rig.proxy().url()).options().attempt_limit(LATE).call_limit(LATE).open().await.unwrap();
    let saving = tokio::spawn(async move { create(&store, &key("late"), &entity("a", &[]), &[mark]).await });
    held.until_matched(1).await;
    let asked = rig.proxy().asked().into_iter().find(|asked| asked.operation() == Some("TransactWriteItems")).unwrap();
    let mut body: serde_json::Value = serde_json::from_slice(asked.body()).unwrap();
    body["ClientRequestToken"] = "another".into();
    let url = rig.table.url().to_owned();
    tokio::task::spawn_blocking(move || post(&url, &asked, body.to_string().as_bytes())).await.unwrap();
    gate.open();
    let version = won(saving.await.unwrap().unwrap());
    assert_eq!(rig.plain.version(&key("late")).await.unwrap(), Some(version));
}

#[tokio::test]
async fn a_save_in_dynamodb_that_is_never_answered_is_an_unknown_outcome() {
    let rig = Rig::new().await;
    for (name, fault, stored) in [("served", Fault::DropAnswer, true), ("lost", Fault::DropRequest, false)] {
        let lost = rig.proxy().every(|asked| asked.operation() == Some("PutItem"), fault);
        let error = create(&rig.store, &key(name), &entity("a", &[]), &[]).await.unwrap_err();
        lost.end();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
        assert_eq!(rig.plain.version(&key(name)).await.unwrap().is_some(), stored);
    }
}

#[tokio::test]
async fn a_save_in_dynamodb_that_takes_too_long_is_an_unknown_outcome_and_may_land_later() {
    let rig = Rig::new().await;
    let options = rig.table.through(rig.proxy().url()).options();
    let hasty = options.call_limit(Duration::from_millis(200)).open().await.unwrap();
    let gate = Gate::new();
    let held = rig.proxy().every(|asked| asked.operation() == Some("PutItem"), Fault::Hold(gate.clone()));
    let error = create(&hasty, &key("late"), &entity("a", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert_eq!(rig.plain.version(&key("late")).await.unwrap(), None);
    gate.open();
    held.until_served(1).await;
    assert!(rig.plain.version(&key("late")).await.unwrap().is_some());
}

#[tokio::test]
async fn what_dynamodb_throttles_was_not_written_and_is_tried_again() {
    let rig = Rig::new().await;
    for name in ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"] {
        next(rig.proxy(), 2, "PutItem", error(400, name));
        won(create(&rig.store, &key(name), &entity("a", &[]), &[]).await.unwrap());
    }
    next(rig.proxy(), ALWAYS, "PutItem", throttled());
    let error = create(&rig.store, &key("never"), &entity("a", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(rig.plain.version(&key("never")).await.unwrap(), None);
}

#[tokio::test]
async fn a_throttle_after_a_lost_answer_of_dynamodb_is_an_unknown_outcome() {
    let rig = Rig::new().await;
    next(rig.proxy(), 1, "PutItem", Fault::DropAnswer);
    next(rig.proxy(), ALWAYS, "PutItem", throttled());
    let error = create(&rig.store, &key("there"), &entity("a", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert!(rig.plain.version(&key("there")).await.unwrap().is_some());
}

/// The client library tells of its last try alone, so that a throttle would hide the lost answer before it.
#[tokio::test]
async fn the_client_librarys_own_repetitions_are_off_in_dynamodb() {
    let rig = Rig::new().await;
    let table = rig.table.through(rig.proxy().url());
    let eager = RetryConfig::standard().with_max_attempts(10).with_initial_backoff(Duration::from_millis(1));
    let client = Client::from_conf(table.client().config().to_builder().retry_config(eager).build());
    let store = table.options_of(client).open().await.unwrap();
    rig.proxy().forget();
    next(rig.proxy(), 1, "PutItem", Fault::DropAnswer);
    next(rig.proxy(), ALWAYS, "PutItem", throttled());
    let error = create(&store, &key("eager"), &entity("a", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert_eq!(rig.asked(), ["PutItem"; 5], "the store's own tries");
}

#[tokio::test]
async fn an_error_of_dynamodbs_own_may_have_written() {
    let rig = Rig::new().await;
    let served = Fault::answer_after_served(
        500,
        &[("content-type", "application/x-amz-json-1.0")],
        r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"injected"}"#,
    );
    next(rig.proxy(), ALWAYS, "PutItem", served);
    let error = create(&rig.store, &key("there"), &entity("a", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert!(rig.plain.version(&key("there")).await.unwrap().is_some());
}

#[tokio::test]
async fn another_transaction_on_the_items_is_waited_for_in_dynamodb() {
    let rig = Rig::new().await;
    next(rig.proxy(), 2, "TransactWriteItems", cancelled(&["TransactionConflict", "None"]));
    won(create(&rig.store, &key("waited"), &entity("a", &[]), &[mark()]).await.unwrap());
    next(rig.proxy(), 2, "PutItem", error(400, "TransactionConflictException"));
    won(create(&rig.store, &key("put"), &entity("a", &[]), &[]).await.unwrap());

    let mark = mark();
    next(rig.proxy(), ALWAYS, "TransactWriteItems", cancelled(&["None", "TransactionConflict"]));
    let error = create(&rig.store, &key("never"), &entity("a", &[]), std::slice::from_ref(&mark)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(rig.plain.version(&key("never")).await.unwrap(), None);
    assert!(rig.plain.contains(&[mark.key]).await.unwrap().entry(&mark.key).is_none());
}

/// Whoever saves it has not known of the other attempt: were its state stored, the message would be handled twice.
#[tokio::test]
async fn a_save_in_dynamodb_with_the_entry_of_another_attempt_is_a_lost_race() {
    let rig = Rig::new().await;
    let first = mark();
    rig.store.insert(std::slice::from_ref(&first)).await.unwrap();
    let (other, new) = (DedupEntry { key: first.key, ..mark() }, mark());
    let saved = create(&rig.store, &key("saved"), &entity("a", &[]), &[other, new.clone()]).await.unwrap();
    assert_eq!(saved, Saved::Conflict);
    assert_eq!(rig.plain.version(&key("saved")).await.unwrap(), None);
    let known = rig.plain.contains(&[first.key, new.key]).await.unwrap();
    assert_eq!((known.entry(&first.key), known.entry(&new.key)), (Some(&first), None));
}

#[tokio::test]
async fn an_entry_of_another_attempt_stays_as_it_is_in_dynamodb_and_stops_no_finish() {
    let rig = Rig::new().await;
    let first = mark();
    rig.store.insert(std::slice::from_ref(&first)).await.unwrap();
    let version = save(&rig.store, &key("finished"), None, &entity("a", &[])).await;
    let (other, new) = (DedupEntry { key: first.key, ..mark() }, mark());
    let done = [other, new.clone()];
    let finished = rig.store.finish(&key("finished"), &done, Some((&version, &entity("a", &[])))).await.unwrap();
    assert!(matches!(finished, Some(Finished::Cleaned(Some(_)))), "{finished:?}");
    let known = rig.plain.contains(&[first.key, new.key]).await.unwrap();
    assert_eq!((known.entry(&first.key), known.entry(&new.key)), (Some(&first), Some(&new)));
}

#[tokio::test]
async fn ones_own_entry_that_is_there_stops_no_transaction_of_dynamodb() {
    let rig = Rig::new().await;
    let mark = mark();
    rig.plain.insert(std::slice::from_ref(&mark)).await.unwrap();
    won(create(&rig.store, &key("own"), &entity("a", &[]), std::slice::from_ref(&mark)).await.unwrap());
    assert_eq!(rig.asked(), ["TransactWriteItems"], "it is not taken for another attempt's and left out");
}

/// The client library tells of it as of a refusal of the service.
#[tokio::test]
async fn a_write_whose_answer_from_dynamodb_cannot_be_read_may_have_happened() {
    let rig = Rig::new().await;
    next(rig.proxy(), ALWAYS, "PutItem", Fault::answer_after_served(200, &JSON, "<html>"));
    let error = create(&rig.store, &key("unread"), &entity("a", &[]), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert!(rig.plain.version(&key("unread")).await.unwrap().is_some());
}

/// Behind an answer with nothing in it may be a refusal.
#[tokio::test]
async fn a_write_that_dynamodb_answers_with_nothing_is_tried_again_and_then_may_have_happened() {
    let rig = Rig::new().await;
    let empty = || Fault::answer_after_served(200, &JSON, "");
    save(&rig.plain, &key("other"), None, &entity("a", &[])).await;
    for (operation, marks) in [("PutItem", &[][..]), ("TransactWriteItems", &[mark()])] {
        next(rig.proxy(), 1, operation, empty());
        let saved = create(&rig.store, &key("other"), &entity("b", &[]), marks).await.unwrap();
        assert_eq!(saved, Saved::Conflict, "{operation}");
    }

    next(rig.proxy(), ALWAYS, "PutItem", empty());
    let saved = create(&rig.store, &key("new"), &entity("a", &[]), &[]).await;
    assert_eq!(saved.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(rig.store.insert(&[mark()]).await.unwrap_err().kind(), ErrorKind::UnknownOutcome);
}

#[tokio::test]
async fn somebody_elses_save_after_a_lost_answer_of_dynamodb_is_a_conflict() {
    let rig = Rig::new().await;
    let version = save(&rig.plain, &key("raced"), None, &entity("a", &[])).await;
    let gate = Gate::new();
    let held = rig.proxy().first(1, |asked| asked.operation() == Some("PutItem"), Fault::Hold(gate.clone()));
    let (late, expected) = (rig.store.clone(), Expected::Version(version.clone()));
    let late = tokio::spawn(async move { late.save(&key("raced"), &expected, &entity("late", &[]), &[]).await });
    held.until_matched(1).await;
    let winner = save(&rig.plain, &key("raced"), Some(&version), &entity("b", &[])).await;
    gate.open();
    assert_eq!(late.await.unwrap().unwrap(), Saved::Conflict);
    assert_eq!(rig.plain.version(&key("raced")).await.unwrap(), Some(winner));
}

#[tokio::test]
async fn a_refused_permission_of_dynamodb_says_what_to_allow() {
    let rig = Rig::new().await;
    for (refusal, remedy) in [("AccessDeniedException", "policy_json"), ("ExpiredTokenException", "credentials")] {
        next(rig.proxy(), 1, "PutItem", error(400, refusal));
        let error = create(&rig.store, &key("x"), &entity("a", &[]), &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

#[tokio::test]
async fn fifty_tasks_add_to_one_entity_in_dynamodb_and_no_addition_is_lost() {
    const TASKS: usize = 50;
    const EACH: usize = 4;
    let rig = Rig::new().await;
    save(&rig.plain, &key("sum"), None, &entity("0", &[])).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let store = rig.plain.clone();
            tokio::spawn(async move {
                let mut left = EACH;
                while left > 0 {
                    let Ok(loaded) = store.load(&key("sum"), &[]).await else { continue };
                    let stored = loaded.stored.unwrap();
                    let sum: usize = std::str::from_utf8(&stored.entity.state).unwrap().parse().unwrap();
                    let next = entity((sum + 1).to_string(), &[]);
                    match store.save(&key("sum"), &Expected::Version(stored.version), &next, &[]).await {
                        Ok(Saved::At(_)) => left -= 1,
                        Ok(Saved::Conflict) => {}
                        Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let sum = rig.plain.load(&key("sum"), &[]).await.unwrap().stored.unwrap().entity.state;
    assert_eq!(std::str::from_utf8(&sum).unwrap(), (TASKS * EACH).to_string());
}
