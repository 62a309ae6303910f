//! What is looked at whenever a connection is made.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime},
};

use hapax_core::{
    entity::{Entity, Expected},
    ids::{EntityKey, Scope},
    ports::{EntityStore, Saved},
};

use super::{
    super::{
        super::warnings::Warnings,
        connection::{Dial, Link},
        error::Failure,
    },
    Place,
};

/// How far the stand-in for this process's clock is ahead of the real one, in seconds.
static AHEAD: AtomicI64 = AtomicI64::new(0);

fn now() -> SystemTime {
    let ahead = AHEAD.load(Ordering::Relaxed);
    let by = Duration::from_secs(ahead.unsigned_abs());
    if ahead < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
}

/// As after a fail-over to a server that lacked the last commits, and has given the number to another name.
#[tokio::test]
async fn the_number_of_a_name_is_looked_up_anew_after_the_connection_was_lost() {
    let place = Place::migrated().await;
    let store = place.known().writers(1).open().await.unwrap();
    let scope = Scope { endpoint: "e".parse().unwrap(), saga: "s".parse().unwrap() };
    let (scope, entity) = (Arc::new(scope), Entity { state: "state".into(), ..Entity::default() });
    let save = async |name: &str| {
        let key = EntityKey::new(scope.clone(), name.parse().unwrap());
        store.save(&key, &Expected::Absent, &entity, &[]).await
    };
    assert!(matches!(save("before").await.unwrap(), Saved::At(_)));
    place.run("UPDATE hapax.scope SET saga = 'another'; DELETE FROM hapax.entity").await;
    assert!(matches!(save("unnoticed").await.unwrap(), Saved::At(_)));
    place.cut().await;
    let saved = loop {
        match save("noticed").await {
            Err(error) if error.is_transient() => {}
            saved => break saved.unwrap(),
        }
    };
    assert!(matches!(saved, Saved::At(_)), "{saved:?}");
    let of = place
        .text("SELECT s.saga FROM hapax.scope AS s, hapax.entity AS e WHERE s.id = e.scope AND e.`key` = 'noticed'");
    let of: Vec<u8> = sqlx::query_scalar(of).fetch_one(&mut place.connect().await).await.unwrap();
    assert_eq!(of, b"s", "it was written under the number of another");
    store.close().await;
    place.end().await;
}

async fn connects(link: &mut Link) -> Result<(), Failure> {
    link.close().await;
    link.read(&"SELECT 1".into(), Default::default()).await.map(|_| ())
}

#[tokio::test]
async fn a_server_whose_clock_is_far_off_is_warned_of_when_a_connection_is_made() {
    let place = Place::new().await;
    let mut link = Link::new(Dial { now, ..place.dial() }, None);
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());

    connects(&mut link).await.unwrap();
    assert_eq!(warnings.take(), [""; 0], "the test's server has another clock than the test");
    for (ahead, words) in [(-3600, ["ahead", "too early"]), (3600, ["behind", "too late"])] {
        AHEAD.store(ahead, Ordering::Relaxed);
        connects(&mut link).await.unwrap();
        let told = warnings.take();
        assert_eq!(told.len(), 1, "{told:?}");
        for word in words.into_iter().chain(["NTP", "3600", &link.dial().place]) {
            assert!(
                told[0].contains(word) || word == "3600" && told[0].contains("3599"),
                "`{word}` is missing: {told:?}"
            );
        }
        connects(&mut link).await.unwrap();
        assert_eq!(warnings.take(), [""; 0], "it was said");
        AHEAD.store(0, Ordering::Relaxed);
        connects(&mut link).await.unwrap();
        assert_eq!(warnings.take(), [""; 0]);
    }
    link.close().await;
    place.end().await;
}
