//! Other libraries' tables with columns that MariaDB compares, or reads as text, in its own way.

use hapax::stores::mysql::outbox::{Import, Source};

use super::{
    import::sent,
    rig::{EnqueueError, Place},
};

fn import(place: &Place, id: Source) -> Import {
    Import::new(place.sql("hapax.others"), id, Source::text("shop.placed"), Source::column("body"))
}

#[tokio::test]
async fn ids_of_a_collation_that_is_not_the_servers() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run(
            "CREATE TABLE hapax.others (id varchar(50) COLLATE utf8mb4_unicode_ci, body text); \
             INSERT INTO hapax.others VALUES ('a', '1'), ('A', '2'), ('\u{e9}', '3')",
        )
        .await;
    sent(&place, &outbox, &import(&place, Source::column("id")).batch(1), 3).await;
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused_before_anything_is_lost() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run(
            "CREATE TABLE hapax.others (id binary(16), body blob); INSERT INTO hapax.others VALUES \
               (x'018f0000000070008000f100000000f1', x'ff00fe'), (x'018f0000000070008000f100000000f2', x'ff01fe')",
        )
        .await;
    for (id, remedy) in [(Source::column("id"), "HEX"), (Source::sql("HEX(t.id)"), "body_is_bytes")] {
        let refused = outbox.import(&place.pool, &import(&place, id)).await.unwrap_err();
        assert!(matches!(&refused, EnqueueError::Refused(why) if why.contains(remedy)), "{refused}");
    }
    assert_eq!(place.number("SELECT count(*) FROM hapax.others").await, 2);
    let import = import(&place, Source::sql("HEX(t.id)")).body_is_bytes();
    let imported = outbox.import(&place.pool, &import).await.unwrap();
    assert_eq!((imported.messages, imported.refused.len()), (2, 0), "{imported:?}");
    let kept = "SELECT count(*) FROM hapax.outbox WHERE id = x'018f0000000070008000f100000000f2' AND body = x'ff01fe'";
    assert_eq!(place.number(kept).await, 1);
}

#[tokio::test]
async fn an_id_of_two_rows_is_an_error_and_both_stay() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place
        .run("CREATE TABLE hapax.others (id int, body text); INSERT INTO hapax.others VALUES (1, '1'), (1, '2')")
        .await;
    for batch in [1, 2] {
        let refused = outbox.import(&place.pool, &import(&place, Source::column("id")).batch(batch)).await.unwrap_err();
        assert!(matches!(&refused, EnqueueError::Refused(why) if why.contains("several")), "{refused}");
        assert_eq!(place.number("SELECT count(*) FROM hapax.others").await, 2);
    }
}
