//! Queues on Redis Streams: the promises of every transport, and what is Redis' own.

mod away;
mod bell;
mod cut;
mod endpoints;
mod foreign;
mod leases;
mod refused;
mod rig;
mod server;
mod tls;
mod tools;
mod volume;

use std::{sync::Arc, time::Duration};

use hapax::{
    Endpoint, RedisStreams, Sender, Sqlite,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{DeadLetter, DeadLetters, Delays, Dispatcher, ErrorKind, Page, Settled, Settlement, Transport},
    time::Timestamp,
    transports::redis::MayLose,
};
use hapax_tests::{LogLines, RedisServer, Scratch, is_discreet};
use rig::*;

mod conformance {
    use super::{KeptQueues, Queues};

    // Whether the server of the tests shows when messages are gone is its owner's affair; those of the tests' own do.
    mod unordered {
        hapax_core::transport_suite!(
            super::Queues { ordered: false },
            unclaimed: ["in_order", "given_in_order", "behind_all", "gone_for_good", "in_the_end", "any_process"]
        );
    }

    mod in_order {
        hapax_core::transport_suite!(
            super::Queues { ordered: true },
            unclaimed: ["behind_all", "gone_for_good", "in_the_end", "any_process"]
        );
    }

    mod kept {
        hapax_core::transport_suite!(super::KeptQueues::new(false), unclaimed: ["in_order", "given_in_order"]);
    }

    mod kept_in_order {
        hapax_core::transport_suite!(super::KeptQueues::new(true), unclaimed: []);
    }

    mod survey {
        hapax_core::queue_survey_suite!(super::Queues { ordered: false });
    }

    mod dead_letters {
        hapax_core::dead_letters_suite!(super::Queues { ordered: false });
    }
}

#[tokio::test]
async fn what_goes_nowhere_is_told_of_itself_and_of_no_other() {
    let queue = open().await;
    let (here, nowhere) = (endpoint(), EndpointName::parse(unique("nobody")).unwrap());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent = [to(&nowhere, envelope("lost")), to(&here, envelope("found")), to(&nowhere, envelope("lost too"))];
    let results = queue.dispatch(&sent).await;
    let [Err(first), Ok(()), Err(last)] = &results[..] else { panic!("{results:?}") };
    for error in [first, last] {
        let why = format!("{:?}", std::error::Error::source(error).unwrap());
        assert!(why.contains("has no queue `hapax-test:queue:nobody-"), "{why}");
    }
    assert_eq!(body(&next(&ends).await), "found");
    let mut connection = plain(&url()).await;
    assert_eq!(
        ask::<u64>(&mut connection, &format!("EXISTS {}", queue_of(&nowhere))).await,
        0,
        "it was made by the way"
    );
}

#[tokio::test]
async fn a_delayed_event_comes_to_its_subscribers_and_one_without_any_harms_nobody() {
    let queue = open().await;
    let topic = TypeName::parse(unique("shop.added")).unwrap();
    let ends = queue.connect(&endpoint(), std::slice::from_ref(&topic)).await.unwrap();
    let due = Timestamp::now().after(Duration::from_millis(700));
    let event = |topic: &TypeName| Outgoing {
        destination: Destination::Topic(topic.clone()),
        envelope: Arc::new(Envelope { due: Some(due), ..envelope("event") }),
    };
    let unheard = TypeName::parse(unique("shop.unheard")).unwrap();
    send(&queue, &[event(&unheard), event(&topic)]).await;
    let delivery = next(&ends).await;
    assert!(Timestamp::now().after(Duration::from_millis(20)) >= due, "it comes before it is due");
    assert_eq!(delivery.attempts, 1, "that it was put off counts");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn what_is_no_longer_subscribed_does_not_come() {
    let queue = open().await;
    let (here, topic) = (endpoint(), TypeName::parse(unique("shop.added")).unwrap());
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let event =
        |body: &str| Outgoing { destination: Destination::Topic(topic.clone()), envelope: Arc::new(envelope(body)) };
    queue.unsubscribe(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event("unsubscribed")]).await;
    queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event("subscribed again")]).await;
    assert_eq!(body(&next(&ends).await), "subscribed again");
}

#[tokio::test]
async fn a_long_delay_does_not_hold_up_a_short_one_and_what_is_not_due_is_counted() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let after = |millis: u64| Some(Timestamp::now().after(Duration::from_millis(millis)));
    let long = Envelope { due: after(86_400_000 * 400), ..envelope("long") };
    let short = Envelope { due: after(513), ..envelope("short") };
    send(&queue, &[to(&here, long), to(&here, short)]).await;
    assert_eq!(queue.backlog(&here).await.unwrap(), 2);
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "short");
    assert_eq!((queue.delayed(&here).await.unwrap(), queue.backlog(&here).await.unwrap()), (1, 2));
    ack(&ends, &delivery).await;
    assert_eq!((queue.delayed(&here).await.unwrap(), queue.backlog(&here).await.unwrap()), (1, 1));
}

#[tokio::test]
async fn a_retry_that_does_not_count_is_not_counted_and_one_that_waits_is() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("again"))]).await;
    let millis = Duration::from_millis;
    let retries = [(0, true, 1), (0, false, 2), (30, true, 2), (30, false, 3), (0, true, 3), (0, true, 4)];
    for (delay, counts, attempts) in retries {
        let delivery = next(&ends).await;
        assert_eq!(delivery.attempts, attempts);
        let settlement = Settlement::Retry { delay: millis(delay), counts };
        ends.receiver.settle(&delivery.receipt, settlement).await.unwrap();
    }
    let last = next(&ends).await;
    assert_eq!(last.attempts, 5);
    ack(&ends, &last).await;
    let mut connection = plain(&url()).await;
    let left =
        ask::<u64>(&mut connection, &format!("EXISTS hapax-test:uncounted:{here} hapax-test:later:{here}")).await;
    assert_eq!(left, 0, "what was known of it is left");
}

#[tokio::test]
async fn a_letter_that_is_added_twice_is_listed_once_and_found_by_its_message() {
    let queue = open().await;
    let here = endpoint();
    let letter = |body: &str| DeadLetter {
        envelope: Arc::new(envelope(body)),
        endpoint: here.clone(),
        saga: Some("order".parse().unwrap()),
        destination: Some(Destination::parse("topic:shop.added").unwrap()),
        reason: "it is\nno \"use\"".into(),
        attempts: 7,
        time: Timestamp::from_millis(1_700_000_000_123),
    };
    let (first, second) = (letter("first"), letter("second"));
    for letter in [&first, &second, &first] {
        queue.add(letter).await.unwrap();
    }
    assert_eq!(queue.list(&here, &Page::first(10)).await.unwrap(), [first.clone(), second.clone()]);
    let page = |skip, id: Option<&MessageId>| Page { skip, limit: 1, message_id: id.cloned() };
    assert_eq!(queue.list(&here, &page(1, None)).await.unwrap(), std::slice::from_ref(&second));
    assert_eq!(queue.list(&here, &page(0, Some(&second.envelope.message_id))).await.unwrap(), [second]);
}

/// Lists are read by pages.
#[tokio::test]
async fn more_letters_than_a_page_are_all_listed_oldest_first() {
    const LETTERS: usize = 600;
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent: Vec<Outgoing> = (0..LETTERS).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &sent).await;
    let mut aside = 0;
    while aside < LETTERS {
        for delivery in ends.receiver.receive(100).await.unwrap() {
            let reason = Settlement::DeadLetter { reason: "for a test".into() };
            // On a machine that is very busy the last leases of a hundred run out meanwhile.
            aside += usize::from(ends.receiver.settle(&delivery.receipt, reason).await.unwrap() == Settled::Done);
        }
    }
    let listed = queue.list(&here, &Page { skip: 100, limit: 450, message_id: None }).await.unwrap();
    let bodies: Vec<String> = listed.iter().map(|l| String::from_utf8(l.envelope.body.to_vec()).unwrap()).collect();
    assert_eq!(bodies, (100..550).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(queue.discard(&listed).await.unwrap(), 450);
    assert_eq!(queue.list(&here, &Page::first(LETTERS)).await.unwrap().len(), LETTERS - 450);
}

#[tokio::test]
async fn its_capabilities_are_those_of_the_server_and_of_its_options() {
    let kept = RedisServer::start().await;
    let of_kept = RedisStreams::open(kept.url()).await.unwrap().capabilities();
    assert!(of_kept.durable && of_kept.marks && of_kept.counts_deliveries && !of_kept.ordered_keys);
    assert_eq!((of_kept.name, of_kept.lease, of_kept.delays), ("redis", Some(Duration::from_secs(30)), Delays::Any));
    let seconds = RedisServer::start_with(&[("appendfsync", "everysec")]).await;
    let of_seconds = RedisStreams::options().may_lose(MayLose::Seconds).open(seconds.url()).await.unwrap();
    // What was acknowledged in the last second comes again after a power cut: no mark behind it has passed for good.
    assert!(of_seconds.capabilities().durable && !of_seconds.capabilities().marks);
    let nothing = RedisServer::start_with(&[("appendonly", "no")]).await;
    let of_nothing = RedisStreams::options().may_lose(MayLose::Everything).open(nothing.url()).await.unwrap();
    assert!(!of_nothing.capabilities().durable && !of_nothing.capabilities().marks);
}

#[tokio::test]
async fn a_program_that_had_a_prefix_to_itself_removes_all_of_it() {
    let prefix = format!("own-{}", MessageId::random());
    let queue = options().prefix(&prefix).open(url()).await.unwrap();
    let (here, topic) = (endpoint(), message_type());
    let ends = queue.connect(&here, &[topic]).await.unwrap();
    let later = Envelope { due: Some(Timestamp::now().after(PATIENCE)), ..envelope("later") };
    send(&queue, &[to(&here, later), to(&here, envelope("aside")), to(&here, envelope("left"))]).await;
    let aside = next(&ends).await;
    ends.receiver.settle(&aside.receipt, Settlement::DeadLetter { reason: "x".into() }).await.unwrap();
    let mut connection = plain(&url()).await;
    let keys = async |connection: &mut _| ask::<Vec<String>>(connection, &format!("KEYS {prefix}:*")).await;
    assert!(keys(&mut connection).await.len() >= 5);
    drop(ends);
    queue.remove(&[here]).await.unwrap();
    assert_eq!(keys(&mut connection).await, Vec::<String>::new());
}

/// All of them are in memory at once; the first is asked for alone, since nobody knows how large it is.
#[tokio::test]
async fn a_call_gives_no_more_once_it_has_many_bytes() {
    const MESSAGES: usize = 40;
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let large = "x".repeat(1_000_000);
    for _ in 0..MESSAGES / 8 {
        let few: Vec<_> = (0..8).map(|_| to(&here, envelope(&large))).collect();
        send(&queue, &few).await;
    }
    let mut came = Vec::new();
    while came.iter().sum::<usize>() < MESSAGES {
        let given = tokio::time::timeout(PATIENCE, ends.receiver.receive(512)).await.expect("nothing came").unwrap();
        for delivery in &given {
            ack(&ends, delivery).await;
        }
        came.push(given.len());
    }
    // 8 MiB are passed with the ninth, and those that are read with it are twice as many at most.
    assert!(came.iter().all(|given| *given <= 16), "{came:?}");
    assert!(came[0] >= 9, "{came:?}");
}

/// Where nobody else may connect.
#[tokio::test]
async fn a_server_is_reached_over_a_socket() {
    let server = RedisServer::start_with(&[("unixsocket", "redis.sock"), ("unixsocketperm", "777")]).await;
    let socket = server.folder().join("redis.sock");
    for scheme in ["unix", "redis+unix"] {
        let queue = RedisStreams::open(format!("{scheme}://{}", socket.display())).await.unwrap();
        assert!(format!("{queue:?}").contains("redis.sock"), "{queue:?}");
        let here = endpoint();
        let ends = queue.connect(&here, &[]).await.unwrap();
        nothing(&ends, Duration::from_millis(300)).await; // It waits to be told.
        send(&queue, &[to(&here, envelope("over a socket"))]).await;
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), "over a socket");
        ack(&ends, &delivery).await;
    }
    let nobody = RedisStreams::open(format!("unix://{}", server.folder().join("none").display())).await.unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::Unavailable, "{nobody:?}");
    assert!(nobody.to_string().contains("none"), "{nobody}");
}

#[tokio::test]
async fn what_cannot_be_opened_says_why_and_what_to_do() {
    let failed = |opened: Result<RedisStreams, hapax::ports::TransportError>| {
        let error = opened.unwrap_err();
        (error.kind(), format!("{error:?}"))
    };
    let expect = |(kind, text): (ErrorKind, String), expected: ErrorKind, says: &str| {
        assert_eq!(kind, expected, "{text}");
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("secret"), "it tells the password: {text}");
    };
    expect(failed(RedisStreams::open("http://secret@x").await), ErrorKind::Misconfigured, "redis://USER:PASSWORD");
    // In a build of all features there is TLS, and nobody there who speaks it.
    let (kind, text) = failed(RedisStreams::open("rediss://u:secret@127.0.0.1:1").await);
    assert!(text.contains("`tls-ring`") || kind == ErrorKind::Unavailable, "{text}");
    assert!(!text.contains("secret"), "it tells the password: {text}");
    let nobody = "redis://u:secret@127.0.0.1:1";
    expect(failed(RedisStreams::open(nobody).await), ErrorKind::Unavailable, "127.0.0.1:1");
    let closed = RedisServer::start().await;
    let mut connection = plain(&closed.url()).await;
    ask::<String>(&mut connection, "CONFIG SET requirepass right").await;
    let stranger = format!("redis://:secret@127.0.0.1:{}", closed.port());
    expect(failed(RedisStreams::open(stranger).await), ErrorKind::Denied, "check user and password");
    let known = format!("redis://:right@127.0.0.1:{}", closed.port());
    RedisStreams::open(known).await.unwrap();
    let prefix = options().prefix("a b").open(url()).await;
    expect(failed(prefix), ErrorKind::Misconfigured, "is no prefix");
    let certificate = options().certificate_authority("-----BEGIN CERTIFICATE-----").open(url()).await;
    expect(failed(certificate), ErrorKind::Misconfigured, "rediss://");
}

#[tokio::test]
async fn nobody_logs_what_is_in_a_message() {
    let logged = LogLines::everywhere();
    let (queue, here, scratch) = (open().await, endpoint(), Scratch::new("discreet"));
    let store = Sqlite::open(scratch.file("vault.db")).await.unwrap();
    let endpoint = Endpoint::builder(here.as_str()).entities(store.clone()).dedup(store).transport(queue.clone());
    is_discreet(&logged, (&here, endpoint), Sender::new(Arc::new(queue.clone())), &queue, None).await;
}
