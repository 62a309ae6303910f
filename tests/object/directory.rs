//! A local directory as object storage.

use std::{path::Path, sync::Arc, time::Duration};

use hapax::{
    ObjectDedup,
    ports::{DedupStore, ErrorKind},
};
use hapax_tests::Scratch;

use crate::samples::{entries, entry_of, keys};

async fn create(path: &Path) -> ObjectDedup {
    ObjectDedup::directory(path).create_if_missing(true).open().await.unwrap()
}

#[tokio::test]
async fn an_object_in_a_directory_survives_its_handle() {
    let scratch = Scratch::new("object-survives");
    let path = scratch.file("deep/er/dedup with spaces");
    let entries = entries(20);
    let dedup = create(&path).await;
    assert!(dedup.dedup_capabilities().durable);
    dedup.insert(&entries).await.unwrap();
    drop(dedup);
    let known = ObjectDedup::directory(&path).open().await.unwrap().contains(&keys(&entries)).await.unwrap();
    assert!(entries.iter().all(|entry| known.entry(&entry.key) == Some(entry)));
}

/// Many tasks with a handle each, as processes would have; processes that are killed are in the tests of the example `orders`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_inserts_by_two_handles_on_a_directory_one_object_stays() {
    let scratch = Scratch::new("object-two-handles");
    let [first, second] = [(); 2].map(|()| ObjectDedup::directory(scratch.file("dedup")).create_if_missing(true));
    let handles = [Arc::new(first.open().await.unwrap()), Arc::new(second.open().await.unwrap())];
    let keys = keys(&entries(50));
    let mut tasks = Vec::new();
    for handle in &handles {
        for _ in 0..4 {
            let (handle, rivals) = (handle.clone(), keys.iter().map(|key| entry_of(*key)).collect::<Vec<_>>());
            tasks.push(tokio::spawn(async move {
                handle.insert(&rivals).await.unwrap();
                rivals
            }));
        }
    }
    let mut rivals = Vec::new();
    for task in tasks {
        rivals.extend(task.await.unwrap());
    }
    let [known, again] = [handles[0].contains(&keys).await.unwrap(), handles[1].contains(&keys).await.unwrap()];
    for key in &keys {
        let stayed = known.entry(key).unwrap();
        assert_eq!(again.entry(key), Some(stayed));
        assert!(rivals.contains(stayed));
    }
}

#[tokio::test]
async fn a_directory_of_objects_that_is_not_mounted_any_more_is_an_error_and_never_no_object() {
    let scratch = Scratch::new("object-unmounted");
    let path = scratch.file("dedup");
    let dedup = create(&path).await;
    let entries = entries(2);
    dedup.insert(&entries).await.unwrap();
    std::fs::rename(&path, scratch.file("elsewhere")).unwrap();
    for _ in 0..2 {
        let error = dedup.contains(&keys(&entries)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("is the disk mounted?"), "{error}");
        // What stands for the mount point then is empty.
        std::fs::create_dir_all(&path).unwrap();
    }
}

/// At the start: where it would be mounted there is nothing, or an empty directory.
#[tokio::test]
async fn a_directory_of_objects_that_is_not_mounted_at_the_start_is_refused_and_none_is_begun_in_its_place() {
    let scratch = Scratch::new("object-unmounted-start");
    let (path, elsewhere) = (scratch.file("dedup"), scratch.file("elsewhere"));
    let entries = entries(2);
    create(&path).await.insert(&entries).await.unwrap();
    std::fs::rename(&path, &elsewhere).unwrap();
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&path).unwrap();
        }
        let error = ObjectDedup::directory(&path).open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("is its disk mounted?"), "{error}");
        assert!(error.to_string().contains("create_if_missing(true)"), "{error}");
        assert_eq!(path.exists(), is_there);
    }
    std::fs::remove_dir(&path).unwrap(); // It is empty still.
    std::fs::rename(&elsewhere, &path).unwrap();
    let known = ObjectDedup::directory(&path).open().await.unwrap().contains(&keys(&entries)).await.unwrap();
    assert!(entries.iter().all(|entry| known.entry(&entry.key) == Some(entry)));
}

/// Whoever made it may have died in the middle, and then nothing was confirmed in it.
#[tokio::test]
async fn a_directory_of_objects_that_was_begun_is_made_whole_by_who_may_create_it() {
    let scratch = Scratch::new("object-begun");
    let path = scratch.file("dedup");
    std::fs::create_dir_all(path.join("d/00")).unwrap();
    assert_eq!(ObjectDedup::directory(&path).open().await.unwrap_err().kind(), ErrorKind::Misconfigured);
    create(&path).await;
    ObjectDedup::directory(&path).open().await.unwrap();
}

#[tokio::test]
async fn a_place_that_cannot_be_a_directory_of_objects_is_refused() {
    let scratch = Scratch::new("object-refused");
    let file = scratch.file("file");
    std::fs::write(&file, "").unwrap();
    let error = ObjectDedup::directory(file.join("dedup")).create_if_missing(true).open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("look at its path and rights"), "{error}");
}

/// A process that was killed while it wrote leaves a file with `#` in its name.
#[tokio::test]
async fn half_written_objects_are_no_entries_and_go_with_their_bucket() {
    let scratch = Scratch::new("object-half");
    let path = scratch.file("dedup");
    let options = ObjectDedup::directory(&path).create_if_missing(true).bucket(Duration::from_secs(1));
    let (dedup, entries) = (options.open().await.unwrap(), entries(5));
    let bucket = path.join("t/000001700000000-1000");
    std::fs::create_dir_all(&bucket).unwrap();
    std::fs::write(bucket.join(format!("{}#1", entries[0].key)), "").unwrap();
    let hex = entries[1].key.to_string();
    std::fs::write(path.join("d").join(&hex[46..]).join(format!("{hex}#1")), "half").unwrap();
    assert_eq!(dedup.contains(&keys(&entries)).await.unwrap(), Default::default());
    dedup.insert(&entries).await.unwrap();
    let known = dedup.contains(&keys(&entries)).await.unwrap();
    assert!(entries.iter().all(|entry| known.entry(&entry.key) == Some(entry)));
    dedup.evict(Duration::from_secs(3600)).await.unwrap();
    assert!(!bucket.exists(), "a bucket without marks is removed");
}
