//! Versions of a program side by side: the one that is here, and one to come whose schema has a step more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    super::{migrate::SCHEMA, wire::Schema},
    Place,
    rig::*,
};
use hapax_core::{
    entity::{Entity, Expected},
    ids::{EntityKey, Scope},
    ports::{DedupStore, EntityStore, ErrorKind, Saved, StoreError},
};

/// The schema of a program to come.
fn newer(step: &str) -> Schema {
    let next = SCHEMA.latest() + 1;
    let step = step.replace("NEXT", &next.to_string()).leak();
    let steps = SCHEMA.migrations.iter().copied().chain([(next, &*step)]);
    Schema { migrations: steps.collect::<Vec<_>>().leak(), framed: None, ..SCHEMA }
}

async fn old(place: &Place) -> Result<Store, StoreError> {
    place.known().writers(1).open().await
}

async fn save(store: &Store, name: &str) -> Result<(), StoreError> {
    let scope = Scope { endpoint: "e".parse().unwrap(), saga: "s".parse().unwrap() };
    let key = EntityKey::new(Arc::new(scope), name.parse().unwrap());
    let entity = Entity { state: "state".into(), ..Entity::default() };
    let saved = store.save(&key, &Expected::Absent, &entity, &[]).await?;
    assert!(matches!(saved, Saved::At(_)));
    assert_eq!(store.load(&key, &[]).await?.stored.unwrap().entity, entity);
    Ok(())
}

fn is_told_to_update(error: &StoreError) {
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error:?}");
    let line = error.to_string();
    let newer = format!("schema {} of a newer hapax", SCHEMA.latest() + 1);
    assert!(line.contains(&newer) && line.contains("update this program"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_go_on_while_a_newer_one_makes_a_step_that_only_adds_and_afterwards() {
    let place = Place::migrated().await;
    let running = place.known().writers(2).open().await.unwrap();
    let (end, store) = (Arc::new(AtomicBool::new(false)), running.clone());
    let working = tokio::spawn({
        let end = end.clone();
        async move {
            let mut number = 0;
            while !end.load(Ordering::Relaxed) {
                save(&store, &format!("k{number}")).await.unwrap();
                number += 1;
            }
            number
        }
    });
    starts(&place, &newer(ADDS), true).await.unwrap();
    starts(&place, &newer(ADDS), true).await.unwrap();
    starts(&place, &newer(ADDS), false).await.unwrap();
    save(&running, "after").await.unwrap();
    end.store(true, Ordering::Relaxed);
    assert!(working.await.unwrap() > 0);
    running.evict(Duration::from_millis(1)).await.unwrap();

    // With connections made anew, which look at the schema; and a start of the old, whether it may migrate or not.
    place.cut().await;
    for number in 0..40 {
        // One answer of each connection is lost.
        let told = save(&running, &format!("cut-{number}")).await;
        assert!(told.as_ref().map_or_else(StoreError::is_transient, |()| true), "{told:?}");
    }
    save(&running, "anew").await.unwrap();
    save(&old(&place).await.unwrap(), "later").await.unwrap();
    Store::migrate(place.options.clone()).await.unwrap();
    place.end().await;
}

/// One that runs finds other tables than it knows; with the next connection it finds out why.
#[tokio::test]
async fn the_old_are_refused_after_a_step_that_they_must_not_go_on_with_also_while_they_run() {
    let place = Place::migrated().await;
    let running = old(&place).await.unwrap();
    save(&running, "before").await.unwrap();
    starts(&place, &newer(BREAKS), true).await.unwrap();

    let error = save(&running, "after").await.unwrap_err();
    assert!(error.to_string().contains("hapax's tables are not as this version needs them"), "{error}");
    is_told_to_update(&save(&running, "after").await.unwrap_err());
    for may_migrate in [false, true] {
        is_told_to_update(&place.options.clone().migrate(may_migrate).open().await.unwrap_err());
    }
    is_told_to_update(&Store::migrate(place.options.clone()).await.unwrap_err());
    let count = place.text("SELECT count(*) FROM hapax.entity");
    assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(&mut place.connect().await).await.unwrap(), 1);
    place.end().await;
}

#[tokio::test]
async fn a_new_program_that_may_not_migrate_says_what_to_do_about_an_older_schema() {
    let place = Place::migrated().await;
    let error = starts(&place, &newer(ADDS), false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let line = error.to_string();
    let by_hand = format!("`{PROGRAM}::migrate`, or `{PROGRAM}::schema_sql`");
    let (has, needs) = (format!("has schema {}", SCHEMA.latest()), format!("needs {}", SCHEMA.latest() + 1));
    for words in [&*has, &needs, &by_hand, "`migrate(true)`"] {
        assert!(line.contains(words), "\"{words}\" is missing: {line}");
    }
    save(&old(&place).await.unwrap(), "as before").await.unwrap();
    place.end().await;
}

/// What its steps have made is there afterwards, and what was stored before.
#[tokio::test]
async fn an_older_schema_is_refused_and_with_leave_brought_up_to_date() {
    for version in 1..SCHEMA.latest() {
        let place = Place::new().await;
        let count = usize::try_from(version).unwrap();
        let older = Schema { migrations: &SCHEMA.migrations[..count], rows: &[], framed: None, ..SCHEMA };
        starts(&place, &older, true).await.unwrap();
        let error = place.options.clone().open().await.unwrap_err();
        let has = format!("has schema {version}, this hapax needs {}", SCHEMA.latest());
        assert!(error.kind() == ErrorKind::Misconfigured && error.to_string().contains(&has), "{error}");
        let store = place.options.clone().migrate(true).open().await.unwrap();
        save(&store, "afterwards").await.unwrap();
        starts(&place, &older, false).await.unwrap(); // Each step so far has only added something.
        place.end().await;
    }
}

/// Another server may have taken the place of the one that was found when the store was opened.
#[tokio::test]
async fn a_schema_that_has_become_older_is_found_out_with_the_next_connection() {
    let place = Place::migrated().await;
    let running = old(&place).await.unwrap();
    save(&running, "before").await.unwrap();
    place.run("DELETE FROM hapax.migration").await;
    save(&running, "unnoticed").await.unwrap();
    place.cut().await;
    let error = loop {
        match save(&running, "noticed").await {
            Err(error) if error.is_transient() => {}
            told => break told.unwrap_err(),
        }
    };
    assert_eq!(error.kind(), ErrorKind::Absent, "{error:?}");
    assert!(error.to_string().contains("has no tables of hapax"), "{error}");
    place.end().await;
}
