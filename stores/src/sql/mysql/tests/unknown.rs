//! What a failure says of what was written.

use std::sync::Arc;

use sqlx::{Executor, mysql::MySqlArguments};

use super::{
    super::{arguments::Text, connection::Link},
    Place,
};

fn text(place: &Place, sql: &str) -> Text {
    let mut text = Text::with_capacity(sql.len());
    text.sql(&place.names.put_into(sql));
    text
}

/// A stand-in for a commit that cannot be written: within a distributed transaction a session may not commit by itself. That
/// error is one that nobody has thought of.
#[tokio::test]
async fn a_commit_that_fails_is_unknown_whatever_it_says() {
    let place = Place::migrated().await;
    let mut link = Link::new(place.dial(), None);
    let start = |number: u32| format!("XA START '{}_{number}'", place.account);
    for (number, with) in [(1, ""), (2, "SELECT 1")] {
        let begin = format!("COMMIT; {}; UPDATE hapax.settled SET times = 7", start(number));
        link.begin(text(&place, &begin)).await.unwrap();
        let failure = link.commit(text(&place, with)).await.unwrap_err();
        assert!(failure.is_unknown(), "{failure:?}");
        assert!(format!("{failure:?}").contains("1399"), "{failure:?}");
    }
    link.define(start(3)).await.unwrap();
    let failure = link.write(&"COMMIT".into(), MySqlArguments::default()).await.unwrap_err();
    assert!(failure.is_unknown(), "{failure:?}");
    link.close().await;
    place.end().await;
}

#[tokio::test]
async fn a_statement_that_is_refused_has_written_nothing_whether_it_commits_by_itself_or_not() {
    let place = Place::migrated().await;
    let mut link = Link::new(place.dial(), None);
    place.run("ALTER TABLE hapax.floor ADD CHECK (version < 100), ADD COLUMN small TINYINT NOT NULL DEFAULT 0").await;
    for sql in [
        "UPDATE hapax.floor SET version = 100",
        "INSERT INTO hapax.floor (one, version) VALUES (1, 0)",
        "UPDATE hapax.floor SET version = NULL",
        "UPDATE hapax.floor SET small = 1000",
        "UPDATE hapax.floor SET version = 'x'",
        "UPDATE hapax.floor SET nowhere = 1",
        "UPDATE hapax.nowhere SET version = 1",
        "no statement",
    ] {
        let named: Arc<str> = place.names.put_into(sql).into();
        let alone = link.write(&named, MySqlArguments::default()).await.unwrap_err();
        assert!(!alone.is_unknown(), "{alone:?}");
        let mut several = text(&place, "SELECT 1");
        several.end().sql(&named);
        let together = link.transaction(several).await.unwrap_err();
        assert!(!together.is_unknown(), "{together:?}");
    }
    let mut other = place.connect().await;
    other.execute(sqlx::raw_sql(place.text("BEGIN; SELECT * FROM hapax.floor FOR UPDATE"))).await.unwrap();
    let wait = place.names.put_into("UPDATE hapax.floor SET version = version").into();
    let waited = link.write(&wait, MySqlArguments::default()).await.unwrap_err();
    assert!(waited.is_of_a_wait(), "{waited:?}");
    link.close().await;
    drop(other);
    place.end().await;
}
