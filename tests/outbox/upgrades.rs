//! Tables of a later version, which older programs go on with until it says that they must not.

use std::time::Duration;

use hapax::ports::{Care, OutboxTable};

use super::{
    rig::{Outbox, Place},
    sink::{Sink, quick, relay},
};

/// The next version has made a step that adds.
const ADDS: &str = "\
    ALTER TABLE hapax.outbox ADD COLUMN remark INT NOT NULL DEFAULT 0; \
    ALTER TABLE hapax.inbox ADD COLUMN remark INT NOT NULL DEFAULT 0; \
    INSERT INTO hapax.outbox_meta (name, value) VALUES ('usable_from', 1); \
    INSERT INTO hapax.outbox_migration (version, name) VALUES (2, 'adds')";
/// Another one that no older program goes on with.
const BREAKS: &str = "\
    UPDATE hapax.outbox_meta SET value = 3 WHERE name = 'usable_from'; \
    INSERT INTO hapax.outbox_migration (version, name) VALUES (3, 'breaks')";

#[tokio::test]
async fn older_writers_and_relays_go_on_beside_tables_of_the_next_version() {
    for place in [Place::new().await, Place::ordered().await] {
        let (both, writer, sink) = (place.outbox().await, place.outbox().await, Sink::new());
        let first = relay(&both, &sink, quick());
        // Statements are prepared by now, and rows of the older version are under way.
        place.orders(&both, 0..50).await;
        place.orders(&writer, 50..100).await;
        place.run(ADDS).await;
        place.orders(&both, 100..150).await;
        place.orders(&writer, 150..200).await;
        sink.until_all(0..200).await;
        first.stop().await.unwrap();
        // Older programs are started again beside it, and may migrate: there is nothing to do.
        let again = place.outbox().await;
        place.orders(&again, 200..210).await;
        let second = relay(&again, &sink, quick());
        place.orders(&again, 210..220).await;
        sink.until_all(0..220).await;
        second.stop().await.unwrap();
        assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE status = 1 AND remark = 0").await, 220);
        assert_eq!(place.number("SELECT max(version) FROM hapax.outbox_migration").await, 2);
    }
}

#[tokio::test]
async fn what_was_sent_before_is_removed_by_older_programs_too() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place.orders(&outbox, 0..20).await;
    let care = Care { keep: Duration::ZERO, archive: None, rows: 5 };
    place.run("UPDATE hapax.outbox SET status = 1, ended_at = stored_at").await;
    assert_eq!(outbox.care(&care).await.unwrap().ended, 5);
    place.run(ADDS).await;
    assert_eq!(outbox.care(&care).await.unwrap().ended, 5);
    let archive = Some(Duration::from_secs(3600));
    assert_eq!(outbox.care(&Care { archive, ..care }).await.unwrap().ended, 5);
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox_archive").await, 5);
}

#[tokio::test]
async fn a_database_that_is_for_newer_programs_alone_is_refused() {
    let place = Place::new().await;
    place.outbox().await;
    place.run(ADDS).await;
    place.run(BREAKS).await;
    for migrate in [false, true] {
        let error = Outbox::options().migrate(migrate).open_database(place.database()).await.unwrap_err();
        assert!(error.to_string().contains("schema 3"), "{error}");
        assert!(error.to_string().contains("update this program"), "{error}");
        assert!(!error.is_transient());
    }
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 0);
}

#[tokio::test]
async fn the_schema_applied_again_changes_nothing() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    place.orders(&outbox, 0..10).await;
    let sql = place.schema_sql();
    for _ in 0..2 {
        place.run(&sql).await;
    }
    place.orders(&outbox, 10..20).await;
    let relay = relay(&outbox, &sink, quick());
    sink.until_all(0..20).await;
    relay.stop().await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox_migration").await, 1);
}
