//! Every call of the store, with everything that may go wrong between the client library and the service: over HTTP to an
//! emulator of S3, and for evictions, which are a matter of time, in a store whose clock is set.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hapax::{
    ObjectDedup,
    ports::{DedupStore, ErrorKind, StoreError},
};
use hapax_tests::{
    faulted::{self, Opening, Operation, Ports, Route, Trouble},
    http_faults::{Asked, Fault},
    real::{AWS, is_asked},
};

use tokio::sync::OnceCell;

use crate::{
    place::Place,
    rigged::{Rigged, Way},
    samples::{entries, keys},
};

/// Calls that are made at a time.
const ROUTES: usize = 6;
/// Longer than the emulator takes: what does not come is waited for as long.
const LIMIT: Duration = Duration::from_millis(500);

/// What is asked for, as the client library calls it.
fn kind(asked: &Asked) -> Option<String> {
    let query = asked.path().split_once('?').map(|(_, query)| query);
    let method = match (asked.method(), query) {
        ("PUT", None) if asked.header("if-none-match").is_some() => "put_opts",
        ("PUT", None) => "put",
        ("HEAD", None) => "head",
        ("GET", None) => "get",
        ("GET", Some(query)) if query.contains("delimiter=") => "list_with_delimiter",
        ("GET", Some(query)) if query.contains("list-type=2") => "list",
        ("POST", Some(query)) if query.contains("delete") => "delete_stream",
        (method, _) => return Some(format!("{method} {}", asked.path())),
    };
    Some(method.to_owned())
}

const XML: [(&str, &str); 1] = [("content-type", "application/xml")];

/// How an opening may end. A service that answers what was never written is one that the start refuses.
const MAY_BE: [ErrorKind; 4] =
    [ErrorKind::Unavailable, ErrorKind::UnknownOutcome, ErrorKind::Malformed, ErrorKind::Misconfigured];

fn troubles() -> Vec<Trouble> {
    let everywhere = Trouble::everywhere;
    let mut troubles = Trouble::ANYWHERE.to_vec();
    troubles.extend([
        everywhere("throttled", |_| Fault::answer(503, &XML, "<Error><Code>SlowDown</Code></Error>")),
        everywhere("throttled by its account", |_| Fault::answer(429, &XML, "")),
        everywhere("failed when it was served", |_| {
            Fault::answer_after_served(500, &XML, "<Error><Code>InternalError</Code></Error>")
        }),
        everywhere("answered with what is no answer", |_| Fault::answer_after_served(200, &XML, "<html>")),
        everywhere("answered with nothing", |_| Fault::answer_after_served(200, &XML, "")),
    ]);
    troubles
}

async fn open(place: &Place, is_hasty: bool) -> Result<ObjectDedup, StoreError> {
    let options = place.options("every");
    if is_hasty { options.write_limit(LIMIT).read_limit(LIMIT).open().await } else { options.open().await }
}

async fn routes() -> Vec<Route> {
    let place = Place::emulated_s3().await;
    let ports = |dedup| Ports { dedup: Some(Arc::new(dedup)), ..Ports::default() };
    let plain = ports(open(&place, false).await.unwrap());
    let through = |url: String| {
        let place = place.through(&url);
        async move { open(&place, true).await.map(ports) }
    };
    faulted::routes(ROUTES, place.url(), &plain, through).await
}

/// A bucket that nobody has used.
fn opening() -> Opening {
    let place = Arc::new(OnceCell::new());
    Arc::new(move |url: String, is_hasty| {
        let place = place.clone();
        Box::pin(async move {
            let place = place.get_or_init(Place::emulated_s3).await.through(&url);
            open(&place, is_hasty).await.map(drop)
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_on_the_way_to_s3_no_call_says_what_is_not_so() {
    if is_asked(AWS) {
        println!("skipped: no proxy can stand before the service itself");
        return;
    }
    let troubles = troubles();
    let mut met = faulted::check(routes().await, kind, &troubles, Operation::DEDUP).await;
    let place = Place::emulated_s3().await;
    met.extend(faulted::check_opening(place.url(), kind, &troubles, &MAY_BE, opening).await);

    // Nothing was left out but what an eviction alone asks for, and it itself: see below.
    assert_eq!(met.missing(&troubles), [""; 0]);
    let mut can_ask = faulted::asked_for("object", &["store"], &["clone"]);
    assert!(can_ask.remove("list_with_delimiter"), "{can_ask:?}");
    assert_eq!(met.kinds(), can_ask.iter().map(String::as_str).collect());
    let mut made: BTreeSet<String> = Operation::DEDUP.iter().map(|operation| operation.method().to_owned()).collect();
    made.insert("evict".to_owned());
    assert_eq!(made, faulted::methods("dedup_store"));
}

/// Each request of an eviction is refused, or served without an answer, or never answered; alone, and with all behind it.
#[tokio::test(start_paused = true)]
async fn whatever_happens_to_an_eviction_of_objects_it_is_made_good_and_nothing_young_goes() {
    const HOUR_MILLIS: i64 = 3_600_000;
    const REQUESTS_MAX: usize = 100;
    let retention = Duration::from_secs(3600);
    let mut reached = 0;
    for way in [Way::Unreachable, Way::Unanswered, Way::Silent] {
        for always in [false, true] {
            for number in 0..REQUESTS_MAX {
                let store = Rigged::new(Way::Honest);
                let dedup = ObjectDedup::options(store.clone(), "shop").open().await.unwrap();
                let old = entries(5);
                dedup.insert(&old).await.unwrap();
                store.set_clock(4 * HOUR_MILLIS);
                let dedup = ObjectDedup::options(store.clone(), "shop").open().await.unwrap();
                let young = entries(5);
                dedup.insert(&young).await.unwrap();
                let case = format!("{way:?} at {number}, always: {always}");

                store.set_at(number, always, way);
                let said = dedup.evict(retention).await;
                let was_reached = store.end_at();
                let left = dedup.contains(&keys(&old)).await.unwrap();
                let left = old.iter().filter(|entry| left.entry(&entry.key).is_some()).count();
                match said {
                    Ok(evicted) => assert!(evicted.entries as usize + left <= old.len(), "{case}: {evicted:?}"),
                    Err(e) if e.kind() == ErrorKind::Unavailable => assert_eq!(left, old.len(), "{case}: {e:?}"),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::UnknownOutcome, "{case}: {e:?}"),
                }
                // A turn that was not ended is over in the end, by the service's clock.
                store.set_clock(4 * HOUR_MILLIS + 10 * 60_000);
                while dedup.evict(retention).await.unwrap().more {}
                let known = dedup.contains(&keys(&[old, young.clone()].concat())).await.unwrap();
                let young = young.iter().filter(|entry| known.entry(&entry.key) == Some(entry)).count();
                assert_eq!(young, 5, "{case}");
                assert_eq!(store.names("shop/d").await.len(), 5, "{case}");
                if !was_reached {
                    break;
                }
                reached += 1;
            }
        }
    }
    assert!(reached > 6 * 10, "{reached}");
}
