//! Another library's outbox table, brought over.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use hapax::{
    Relay,
    envelope::Outgoing,
    ports::{DispatchError, Dispatcher, Refused},
    stores::postgres::outbox::{Import, Source}, // The same for all.
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    rig::{EnqueueError, Outbox, Place},
    sink::{PATIENCE, quick},
};

/// Hands over what it is given.
#[derive(Debug)]
struct Told(UnboundedSender<Outgoing>);

#[async_trait]
impl Dispatcher for Told {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        outgoing.iter().map(|one| drop(self.0.send(one.clone()))).map(Ok).collect()
    }
}

async fn next(told: &mut UnboundedReceiver<Outgoing>) -> Outgoing {
    tokio::time::timeout(PATIENCE, told.recv()).await.expect("nothing is sent").unwrap()
}

/// What a relay sends of what was brought over by `import`.
pub(crate) async fn sent(place: &Place, outbox: &Outbox, import: &Import, count: usize) -> Vec<Outgoing> {
    let imported = outbox.import(&place.pool, import).await.unwrap();
    assert_eq!((imported.messages, imported.known, imported.refused), (count as u64, 0, Vec::new()));
    // A second time there is nothing left.
    let again = outbox.import(&place.pool, import).await.unwrap();
    assert_eq!((again.messages, again.known), (0, 0));
    let (tell, mut told) = unbounded_channel();
    let relay = Relay::to(Told(tell)).table_with(outbox.clone(), quick()).start().unwrap();
    let mut all = Vec::new();
    while all.len() < count {
        all.push(next(&mut told).await);
    }
    relay.stop().await.unwrap();
    all.sort_by_key(|outgoing| outgoing.envelope.body.to_vec());
    all
}

pub(crate) fn body(outgoing: &Outgoing) -> serde_json::Value {
    serde_json::from_slice(&outgoing.envelope.body).unwrap()
}

/// A table of `count` rows.
async fn filled(place: &Place, count: u32) -> Import {
    place.run("CREATE TABLE hapax.theirs (id bigint PRIMARY KEY, name varchar(50), lane varchar(50), body text)").await;
    let rows: Vec<String> = (1..=count).map(|id| format!("({id}, 'shop.placed', '{}', '{id}')", id % 7)).collect();
    place.run(&format!("INSERT INTO hapax.theirs VALUES {}", rows.join(", "))).await;
    let [id, name, body] = ["id", "name", "body"].map(Source::column);
    Import::new(place.sql("hapax.theirs"), id, name, body).key(Source::column("lane"))
}

#[tokio::test]
async fn each_part_of_a_message_comes_from_where_the_mapping_says() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run(
            "CREATE TABLE hapax.others (id varchar(50), kind varchar(50), payload text, cause varchar(50), headed text, \
               seconds bigint, done int NOT NULL); \
             INSERT INTO hapax.others VALUES \
               ('018f0000-0000-7000-8000-000000000001', 'shop.placed', '{\"n\": \"\u{e9}\"}', 'c-1', '{\"shop\": \"it''s\"}', 1767323045, 0), \
               ('o-2', 'shop.paid', '{\"n\": 2}', NULL, NULL, NULL, 0), ('o-3', 'shop.paid', '{\"n\": 3}', NULL, NULL, NULL, 1)",
        )
        .await;
    let [id, kind, payload] = ["id", "kind", "payload"].map(Source::column);
    let import = Import::new(place.sql("hapax.others"), id, kind, payload)
        .destination(Source::text("endpoint:billing"))
        .key(Source::text("it's \\ one"))
        .correlation_id(Source::column("cause"))
        .headers(Source::column("headed"))
        .occurred_at("seconds * 1000")
        .due_at("seconds * 1000")
        .expires_at("(seconds + 1000000000) * 1000")
        .unsent("done = 0")
        .mark("done = 1");
    let all = sent(&place, &outbox, &import, 2).await;
    let [placed, paid] = [&all[0].envelope, &all[1].envelope];
    assert_eq!(placed.message_id.to_string(), "018f0000-0000-7000-8000-000000000001");
    assert_eq!(paid.message_id.as_uuid().unwrap().get_version_num(), 8, "made of its text");
    assert_eq!(
        (body(&all[0])["n"].clone(), all[0].destination.to_string()),
        ("\u{e9}".into(), "endpoint:billing".to_owned())
    );
    assert_eq!(placed.partition_key.as_ref().unwrap().as_str(), "it's \\ one");
    assert_eq!((placed.correlation_id.as_ref().unwrap().as_str(), paid.correlation_id.as_ref()), ("c-1", None));
    assert_eq!(placed.headers.iter().collect::<Vec<_>>(), [("shop", "it's")]);
    assert_eq!(placed.occurred_at.unwrap().as_millis(), 1_767_323_045_000);
    assert_eq!(placed.expires.unwrap().as_millis(), 2_767_323_045_000);
    assert_eq!(place.number("SELECT count(*) FROM hapax.others WHERE done = 1").await, 3, "they stay, and are marked");
}

/// Some databases take these for one and the same.
#[tokio::test]
async fn ids_that_differ_by_their_case_alone_are_of_two_messages() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place.run("CREATE TABLE hapax.cased (id varchar(50), body text); INSERT INTO hapax.cased VALUES ('a', '1'), ('A', '2')").await;
    let (id, name, body) = (Source::column("id"), Source::text("shop.placed"), Source::column("body"));
    let import = Import::new(place.sql("hapax.cased"), id, name, body).batch(1);
    assert_eq!(sent(&place, &outbox, &import, 2).await.len(), 2);
    assert_eq!(place.number("SELECT count(*) FROM hapax.cased").await, 0);
}

#[tokio::test]
async fn what_cannot_be_a_message_is_told_of_and_left() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let import = filled(&place, 100).await.batch(10);
    place
        .run("UPDATE hapax.theirs SET name = '' WHERE id % 10 = 0; UPDATE hapax.theirs SET body = NULL WHERE id = 5")
        .await;
    let imported = outbox.import(&place.pool, &import).await.unwrap();
    assert_eq!((imported.messages, imported.refused.len()), (89, 11));
    let why: HashMap<String, String> = imported.refused.into_iter().collect();
    assert!(why["10"].contains("`type`") && why["5"].contains("no body"), "{why:?}");
    assert_eq!(place.number("SELECT count(*) FROM hapax.theirs").await, 11);
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 89);
}

#[tokio::test]
async fn a_mapping_that_does_not_fit_is_an_error_and_changes_nothing() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let import = filled(&place, 10).await;
    for wrong in [import.clone().key(Source::column("no such")), import.unsent("sent +")] {
        assert!(matches!(outbox.import(&place.pool, &wrong).await, Err(EnqueueError::Database(_))));
    }
    assert_eq!(place.number("SELECT count(*) FROM hapax.theirs").await, 10);
}

#[tokio::test]
async fn an_import_that_ends_anywhere_is_run_again_beside_another_and_beside_who_still_stores() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let import = filled(&place, 3000).await.batch(50);
    for wait in 1..8 {
        // Dropped in the middle of whatever it does.
        let _ = tokio::time::timeout(Duration::from_millis(wait * 7), outbox.import(&place.pool, &import)).await;
    }
    let stores = async {
        for id in 3001..3051 {
            place.run(&format!("INSERT INTO hapax.theirs VALUES ({id}, 'shop.placed', 'k', '{id}')")).await;
        }
    };
    let other = place.outbox().await;
    let both = async { tokio::join!(outbox.import(&place.pool, &import), other.import(&place.pool, &import)) };
    let ((one, two), ()) = tokio::join!(both, stores);
    one.unwrap();
    two.unwrap();
    outbox.import(&place.pool, &import).await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax.theirs").await, 0);
    let each = "SELECT count(DISTINCT body) FROM hapax.outbox";
    assert_eq!([place.number(each).await, place.number("SELECT count(*) FROM hapax.outbox").await], [3050; 2]);
}

#[tokio::test]
async fn where_order_is_kept_it_is_that_of_the_other_table() {
    let place = Place::ordered().await;
    let outbox = place.outbox().await;
    let import = filled(&place, 700).await.order("t.id DESC").batch(64);
    outbox.import(&place.pool, &import).await.unwrap();
    let (tell, mut told) = unbounded_channel();
    let relay = Relay::to(Told(tell)).table_with(outbox.clone(), quick()).start().unwrap();
    let mut last: HashMap<String, u64> = HashMap::new();
    for _ in 0..700 {
        let outgoing = next(&mut told).await;
        let number = body(&outgoing).as_u64().unwrap();
        let key = outgoing.envelope.partition_key.as_ref().unwrap().as_str().to_owned();
        let before = last.insert(key, number).unwrap_or(u64::MAX);
        assert!(number < before, "{number} comes after {before}");
    }
    relay.stop().await.unwrap();
}

/// As SQLite does it where nothing forbids it: the first row of a table that is empty again has the first row's id.
#[tokio::test]
async fn an_id_that_is_given_again_is_told_of_and_its_row_left() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let import = filled(&place, 5).await;
    assert_eq!(outbox.import(&place.pool, &import).await.unwrap().messages, 5);
    place.run("INSERT INTO hapax.theirs VALUES (1, 'shop.paid', 'k', '6'), (6, 'shop.paid', 'k', '7')").await;
    let imported = outbox.import(&place.pool, &import).await.unwrap();
    assert_eq!((imported.messages, imported.known, imported.refused.len()), (1, 0, 1));
    assert!(imported.refused[0].0 == "1" && imported.refused[0].1.contains("Import::salt"), "{imported:?}");
    assert_eq!(place.number("SELECT count(*) FROM hapax.theirs").await, 1, "it is left");
    assert_eq!(outbox.import(&place.pool, &import.salt("the second life")).await.unwrap().messages, 1);
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 7);
}

#[tokio::test]
async fn a_uuid_that_is_there_is_the_same_message() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run(
            "CREATE TABLE hapax.named (id varchar(50), body text); \
             INSERT INTO hapax.named VALUES ('018f0000-0000-7000-8000-000000000001', '1')",
        )
        .await;
    let (id, name, body) = (Source::column("id"), Source::text("shop.placed"), Source::column("body"));
    let import = Import::new(place.sql("hapax.named"), id, name, body);
    assert_eq!(outbox.import(&place.pool, &import).await.unwrap().messages, 1);
    place.run("INSERT INTO hapax.named VALUES ('018f0000-0000-7000-8000-000000000001', '1')").await;
    let again = outbox.import(&place.pool, &import).await.unwrap();
    assert_eq!((again.messages, again.known, again.refused.len()), (0, 1, 0));
    assert_eq!(place.number("SELECT count(*) FROM hapax.named").await, 0);
}

#[tokio::test]
async fn an_import_that_would_not_end_is_refused() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let import = filled(&place, 10).await.batch(4).mark("name = 'done'");
    for endless in [import.clone(), import.clone().unsent("name <> 'no such'")] {
        let refused = outbox.import(&place.pool, &endless).await.unwrap_err();
        assert!(matches!(&refused, EnqueueError::Refused(why) if why.contains("unsent")), "{refused}");
    }
    // The second had brought over its first batch before it was found out.
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 4);
    let rest = outbox.import(&place.pool, &import.unsent("name <> 'done'")).await.unwrap();
    assert_eq!((rest.messages, rest.refused.len()), (6, 0));
}

/// Bodies are held in memory while a batch is written.
#[tokio::test]
async fn large_bodies_come_in_small_batches() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    let import = filled(&place, 200).await;
    let large = format!("UPDATE hapax.theirs SET body = '\"{}\"'", "x".repeat(60_000));
    place.run(&large).await;
    let imported = outbox.import(&place.pool, &import).await.unwrap();
    assert_eq!((imported.messages, imported.refused.len()), (200, 0));
    assert_eq!(place.number("SELECT count(*) FROM hapax.theirs").await, 0);
}
