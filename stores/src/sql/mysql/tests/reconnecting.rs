//! What is forgotten when a connection is lost.

use std::sync::Arc;

use hapax_core::{
    entity::{Entity, Expected},
    ids::{EntityKey, Scope},
    ports::{EntityStore, Saved},
};

use super::Place;

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
