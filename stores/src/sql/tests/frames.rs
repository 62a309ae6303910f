//! What is told of entities that this program cannot read.

use super::{
    super::super::{frames::STORED, warnings::Warnings},
    Place, rig,
};

#[tokio::test]
async fn entities_that_cannot_be_read_are_warned_of_when_the_store_is_opened() {
    let place = Place::migrated().await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    for (state, outbox, why) in STORED {
        place.run("DELETE FROM hapax.entity").await;
        place.run(&rig::entity(state, outbox)).await;
        warnings.take();
        place.options.clone().open().await.unwrap().close().await;
        let told = warnings.take();
        assert_eq!(told.len(), why.map_or(0, |_| 1), "{told:?}");
        let table = place.names.put_into("hapax.entity");
        for word in why.into_iter().flat_map(|why| [why, "127.0.0.1", &table]) {
            assert!(told[0].contains(word), "`{word}` is missing: {told:?}");
        }
    }
    place.end().await;
}
