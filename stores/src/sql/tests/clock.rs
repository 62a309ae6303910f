//! How far this process's clock is from the server's is looked at whenever a connection is made.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime},
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

pub(super) async fn connects(link: &mut Link) -> Result<(), Failure> {
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
