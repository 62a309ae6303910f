//! Producers and consumers that are not hapax.

use hapax::{
    envelope::cloudevents::Source,
    ports::{DeadLetters, Page, Settlement, Transport},
    transports::kafka::WrittenAs,
};

use super::{raw, rig::*};

/// By the client library alone, away from the runtime.
async fn put_there(topic: String, headers: Vec<(&'static str, Vec<u8>)>, body: Vec<u8>) {
    let put = move || {
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, &value[..])).collect();
        put(&topic, Some(0), &headers, &body);
    };
    tokio::task::spawn_blocking(put).await.unwrap();
}

#[tokio::test]
async fn what_others_send_is_read_plain_and_as_an_event() {
    let (queue, here, topic) = (open().await, endpoint(), topic());
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let name = format!("{PREFIX}.topic.{topic}");
    let plain = vec![("hapax-message-id", b"order 7".to_vec()), ("Shop", b"\xffcorner".to_vec())];
    put_there(name.clone(), plain, b"{}".to_vec()).await;
    let given = next(&ends).await;
    assert_eq!((given.envelope.message_id.to_string().as_str(), &given.envelope.message_type), ("order 7", &topic));
    assert_eq!(given.envelope.headers.value("shop"), Some("%FFcorner"));
    ack(&ends, &given).await;
    let event = vec![
        ("ce_specversion", b"1.0".to_vec()),
        ("ce_id", b"8".to_vec()),
        ("ce_source", b"/shop".to_vec()),
        ("ce_type", b"shop.added".to_vec()),
        ("content-type", b"application/json".to_vec()),
    ];
    put_there(name, event, b"{}".to_vec()).await;
    let given = next(&ends).await;
    assert_eq!(given.envelope.message_type.as_str(), "shop.added");
    ack(&ends, &given).await;
}

#[tokio::test]
async fn others_read_what_is_sent_with_its_key() {
    let here = endpoint();
    let queue = options()
        .partitions(1)
        .written_as(WrittenAs::CloudEvents(Source::parse("/shop").unwrap()))
        .open(url())
        .await
        .unwrap();
    queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, keyed("order 7", "body"))]).await;
    let name = format!("{PREFIX}.queue.{here}");
    let found = tokio::task::spawn_blocking(move || records(&name, 0)).await.unwrap();
    let [(key, headers, body)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&key[..], &body[..]), (&b"order 7"[..], &b"body"[..]));
    assert!(headers.contains(&("ce_type".to_owned(), b"shop.added".to_vec())), "{headers:?}");
}

/// A letter has all that the message said in its headers, since it may have to do without its body.
#[tokio::test]
async fn a_structured_event_comes_back_and_is_set_aside_in_binary_mode() {
    let here = endpoint();
    let written_as = WrittenAs::StructuredCloudEvents(Source::parse("/shop").unwrap());
    let queue = options().partitions(1).written_as(written_as).open(url()).await.unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent = keyed("order 7", "body");
    send(&queue, &[to(&here, sent.clone())]).await;
    let held = next(&ends).await;
    assert_eq!(*held.envelope, sent);
    settle(&ends, &held, Settlement::DeadLetter { reason: "nobody wants it".into() }).await;
    let name = format!("{PREFIX}.dead-letters.{here}");
    let found = tokio::task::spawn_blocking(move || records(&name, 0)).await.unwrap();
    let [(_, headers, body)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(&body[..], b"body");
    assert!(headers.contains(&("ce_type".to_owned(), b"shop.added".to_vec())), "{headers:?}");
    let letters = queue.list(&here, &Page::first(2)).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((&*letter.envelope, letter.reason.as_str()), (&sent, "nobody wants it"));
}

#[tokio::test]
async fn what_is_no_message_is_set_aside_and_holds_up_nothing() {
    let (queue, here) = (options().partitions(1).open(url()).await.unwrap(), endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let name = format!("{PREFIX}.queue.{here}");
    put_there(name.clone(), vec![("n", b"1".to_vec())], b"it has no id".to_vec()).await;
    // The client library fails in itself over this one.
    let server = url().trim_start_matches("kafka://").to_owned();
    let topic = name.clone();
    tokio::task::spawn_blocking(move || raw::put(&server, &topic, b"\xff\xfe", b"its header has no name"))
        .await
        .unwrap();
    send(&queue, &[to(&here, envelope("good"))]).await;
    let good = next(&ends).await;
    assert_eq!(body(&good), "good");
    ack(&ends, &good).await;
    let letters = format!("{PREFIX}.dead-letters.{here}");
    let committed_all = async {
        let group = format!("{PREFIX}.{here}");
        loop {
            let (group, name) = (group.clone(), name.clone());
            if tokio::task::spawn_blocking(move || committed(&group, &name, 0)).await.unwrap() == Some(3) {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, committed_all).await.expect("they hold the offset");
    let found = tokio::task::spawn_blocking(move || records(&letters, 0)).await.unwrap();
    let mut bodies: Vec<&[u8]> = found.iter().map(|(_, _, body)| &body[..]).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [&b"it has no id"[..], b"its header has no name"]);
    let reason = |(_, headers, _): &Kept| {
        let found = headers.iter().find(|(name, _)| name == "x-hapax-reason").unwrap();
        String::from_utf8(found.1.clone()).unwrap()
    };
    assert!(found.iter().any(|record| reason(record).contains("hapax-message-id")));
    assert!(found.iter().any(|record| reason(record).contains("not UTF-8")));
}

#[tokio::test]
async fn what_others_compress_is_read() {
    let (queue, here) = (options().partitions(1).open(url()).await.unwrap(), endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    for codec in ["gzip", "snappy", "lz4", "zstd"] {
        let name = format!("{PREFIX}.queue.{here}");
        let put = move || {
            let headers = [("hapax-message-id", codec.as_bytes()), ("hapax-type", &b"shop.added"[..])];
            put_by(config().set("compression.codec", codec), &name, Some(0), &headers, &[b'x'; 5000]);
        };
        tokio::task::spawn_blocking(put).await.unwrap();
        let came = next(&ends).await;
        assert_eq!((came.envelope.message_id.to_string().as_str(), came.envelope.body.len()), (codec, 5000));
        ack(&ends, &came).await;
    }
}

#[tokio::test]
async fn a_batch_that_cannot_be_decoded_holds_up_its_partition_alone_and_is_told() {
    let (queue, here, topic) = (options().partitions(1).open(url()).await.unwrap(), endpoint(), topic());
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let (server, damaged) = (url().trim_start_matches("kafka://").to_owned(), format!("{PREFIX}.topic.{topic}"));
    let name = damaged.clone();
    tokio::task::spawn_blocking(move || raw::put_undecodable(&server, &name)).await.unwrap();
    let received = async {
        loop {
            match ends.receiver.receive(1).await {
                Err(e) if e.to_string().contains(&format!("topic `{damaged}`, partition 0")) => break e,
                other => assert!(other.is_err(), "{other:?}"),
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, received).await.expect("it is silent");
    assert!(told.to_string().contains("cannot be decoded"), "{told}");
    send(&queue, &[to(&here, envelope("good"))]).await;
    let good = next(&ends).await;
    assert_eq!(body(&good), "good");
    ack(&ends, &good).await;
}

/// It would be tried for ever, and nothing behind it would ever be committed.
#[tokio::test]
async fn a_message_too_large_for_a_letter_leaves_its_place_there() {
    let here = endpoint();
    // Topics that are there keep their own limit.
    drop(options().partitions(1).open(url()).await.unwrap().connect(&here, &[]).await.unwrap());
    let queue = options().partitions(1).message_bytes_max(2000).open(url()).await.unwrap();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let name = format!("{PREFIX}.queue.{here}");
    let large = vec![
        ("hapax-message-id", b"large".to_vec()),
        ("hapax-type", b"shop.added".to_vec()),
        ("wordy", vec![b'w'; 20_000]),
    ];
    put_there(name.clone(), large, vec![b'x'; 300_000]).await;
    put_there(name.clone(), vec![("n", b"1".to_vec())], vec![b'y'; 300_000]).await;
    send(&queue, &[to(&here, envelope("good"))]).await;
    let came = next(&ends).await;
    assert_eq!(came.envelope.body.len(), 300_000);
    settle(&ends, &came, Settlement::DeadLetter { reason: "not wanted".into() }).await;
    let good = next(&ends).await;
    ack(&ends, &good).await;
    let letters = queue.list(&here, &Page::first(10)).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert!(letter.envelope.body.is_empty() && letter.reason.starts_with("not wanted"), "{}", letter.reason);
    assert!(letter.reason.ends_with(&format!("300000 bytes lies at {name} 0 0")), "{}", letter.reason);
    let aside = async {
        let topic = format!("{PREFIX}.dead-letters.{here}");
        while tokio::task::spawn_blocking({
            let topic = topic.clone();
            move || records(&topic, 0).len()
        })
        .await
        .unwrap()
            < 2
        {}
    };
    tokio::time::timeout(PATIENCE, aside).await.expect("what is no message is never set aside");
    assert_eq!(queue.discard(&letters).await.unwrap(), 1);
}
