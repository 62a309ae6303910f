//! Other libraries' tables with columns that SQLite takes for something else.

use hapax::stores::sqlite::outbox::{Import, Source};

use super::rig::{EnqueueError, Place};

fn import(place: &Place, id: Source) -> Import {
    Import::new(place.sql("hapax.others"), id, Source::text("shop.placed"), Source::column("body"))
}

#[tokio::test]
async fn a_column_rowid_is_not_taken_for_the_place_of_a_row() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run(
            "CREATE TABLE hapax.others (id text, rowid text, body text, sent int); INSERT INTO hapax.others VALUES \
               ('a', '1) OR (1=1', '1', 0), ('b', '2', '2', 1)",
        )
        .await;
    let refused = outbox.import(&place.pool, &import(&place, Source::column("id")).unsent("sent = 0")).await;
    assert!(matches!(&refused, Err(EnqueueError::Refused(why)) if why.contains("`rowid`")), "{refused:?}");
    // One that holds numbers, the same for several.
    place.run("UPDATE hapax.others SET rowid = '7'").await;
    let refused = outbox.import(&place.pool, &import(&place, Source::column("id")).unsent("sent = 0")).await;
    assert!(matches!(&refused, Err(EnqueueError::Refused(why)) if why.contains("`rowid`")), "{refused:?}");
    assert_eq!(place.number("SELECT count(*) FROM hapax.others").await, 2);
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 0);
}

#[tokio::test]
async fn ids_of_bytes_are_to_be_given_as_texts() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run(
            "CREATE TABLE hapax.others (id blob, body blob); \
             INSERT INTO hapax.others VALUES (x'018f0000000070008000f100000000f1', '{\"n\": 1}')",
        )
        .await;
    let refused = outbox.import(&place.pool, &import(&place, Source::column("id"))).await;
    assert!(matches!(&refused, Err(EnqueueError::Refused(why)) if why.contains("HEX")), "{refused:?}");
    let imported = outbox.import(&place.pool, &import(&place, Source::sql("HEX(t.id)"))).await.unwrap();
    assert_eq!((imported.messages, imported.refused.len()), (1, 0));
}
