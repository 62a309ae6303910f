//! Which isolation a connection has is looked at whenever one is made.

use super::{
    super::connection::{Dial, Link},
    Place,
    clock::connects,
};

/// A rotation is seen by those who have waited for it at no other level.
#[tokio::test]
async fn a_session_at_another_isolation_level_than_was_asked_for_is_refused() {
    let place = Place::new().await;
    for level in ["repeatable read", "serializable"] {
        let dial = place.dial();
        let options = dial.options.clone().options([("default_transaction_isolation", level)]);
        let refused = connects(&mut Link::new(Dial { options, ..dial }, None)).await.unwrap_err();
        let told = refused.store_error("a test", "").to_string();
        assert!(told.contains(level) && told.contains("not read committed"), "{told}");
    }
    connects(&mut Link::new(place.dial(), None)).await.unwrap();
}
