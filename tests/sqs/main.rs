//! Queues on SQS: the promises of every transport, and what is SQS' own.

mod away;
mod endpoints;
mod foreign;
mod leases;
mod letters;
mod order;
mod refused;
mod rig;
mod scheduled;
mod server;
#[path = "faults.rs"]
mod sqs_proxied;
mod tools;
mod volume;

use std::{sync::Arc, time::Duration};

use hapax::{
    Endpoint, Sender, Sqlite, Sqs,
    envelope::Envelope,
    ids::{EndpointName, TypeName},
    ports::{Delays, Dispatcher, ErrorKind, Transport},
    time::Timestamp,
};
use hapax_tests::{LogLines, Scratch, SqsQueues, is_discreet};
use rig::*;

mod conformance {
    use super::Queues;

    mod unordered {
        hapax_core::transport_suite!(
            super::Queues::new(false),
            unclaimed: ["in_order", "given_in_order", "behind_all", "gone_for_good", "in_the_end", "any_process"]
        );
    }

    mod in_order {
        hapax_core::transport_suite!(
            super::Queues::new(true),
            unclaimed: ["behind_all", "gone_for_good", "in_the_end", "any_process"]
        );
    }

    mod survey {
        hapax_core::queue_survey_suite!(super::Queues::new(false));
    }

    mod dead_letters {
        hapax_core::dead_letters_suite!(super::Queues::new(false));
    }
}

#[tokio::test]
async fn what_goes_nowhere_is_told_of_itself_and_of_no_other() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let (here, nowhere) = (endpoint(), EndpointName::parse(unique("nobody")).unwrap());
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let sent = [to(&nowhere, envelope("lost")), to(&here, envelope("found")), to(&nowhere, envelope("lost too"))];
    let results = sqs.dispatch(&sent).await;
    let [Err(first), Ok(()), Err(last)] = &results[..] else { panic!("{results:?}") };
    for error in [first, last] {
        let why = format!("{:?}", std::error::Error::source(error).unwrap());
        assert!(why.contains(&format!("has no queue `{}_queue_nobody-", queues.prefix())), "{why}");
    }
    assert_eq!(body(&next(&ends).await), "found");
}

/// More than a call takes, by number and by bytes; each has its own place.
#[tokio::test]
async fn many_messages_go_in_several_calls_and_each_comes() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let large = "x".repeat(300 << 10);
    let bodies: Vec<String> =
        (0..35).map(|number| if number % 10 == 3 { format!("{number} {large}") } else { number.to_string() }).collect();
    let sent: Vec<_> = bodies.iter().map(|body| to(&here, envelope(body))).collect();
    send(&sqs, &sent).await;
    let mut came = Vec::new();
    while came.len() < bodies.len() {
        for delivery in ends.receiver.receive(100).await.unwrap() {
            came.push(body(&delivery));
            ack(&ends, &delivery).await;
        }
    }
    came.sort();
    let mut bodies = bodies;
    bodies.sort();
    assert!(came == bodies, "{} of {}", came.len(), bodies.len());
}

#[tokio::test]
async fn an_event_comes_to_its_subscribers_and_one_without_any_harms_nobody() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let ordered = queues.open(options(&queues).ordered_keys(true)).await;
    let topic = TypeName::parse(unique("shop.added")).unwrap();
    let subscribed = std::slice::from_ref(&topic);
    let (one, other, keeps_order) = (endpoint(), endpoint(), endpoint());
    let ends = [
        sqs.connect(&one, subscribed).await.unwrap(),
        sqs.connect(&other, subscribed).await.unwrap(),
        ordered.connect(&keeps_order, subscribed).await.unwrap(),
    ];
    let unheard = TypeName::parse(unique("shop.unheard")).unwrap();
    send(&sqs, &[event(&unheard, "nobody's"), event(&topic, "event"), to(&keeps_order, envelope("its own"))]).await;
    for ends in &ends[..2] {
        assert_eq!(body(&next(ends).await), "event");
    }
    let mut came = [body(&next(&ends[2]).await), body(&next(&ends[2]).await)];
    came.sort();
    assert_eq!(came, ["event", "its own"]);
}

/// Who publishes knows at once where it has subscribed or ended it itself, and others within the time that was said.
#[tokio::test]
async fn what_is_no_longer_subscribed_does_not_come() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let (here, topic) = (endpoint(), TypeName::parse(unique("shop.added")).unwrap());
    let ends = sqs.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    sqs.unsubscribe(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&sqs, &[event(&topic, "unsubscribed")]).await;
    let other = queues.open(options(&queues).subscribers_known(Duration::from_millis(1))).await;
    send(&other, &[event(&topic, "unsubscribed")]).await;
    sqs.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    send(&other, &[event(&topic, "subscribed again")]).await;
    assert_eq!(body(&next(&ends).await), "subscribed again");
}

/// A tag that nobody has removed, of a queue that somebody has.
#[tokio::test]
async fn a_subscriber_whose_queue_was_deleted_holds_up_nobody() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let topic = TypeName::parse(unique("shop.added")).unwrap();
    let (here, gone) = (endpoint(), endpoint());
    let ends = sqs.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    sqs.connect(&gone, std::slice::from_ref(&topic)).await.unwrap();
    let client = queues.client();
    let url = queue_url(&client, &queue_of(&queues, &gone)).await;
    client.delete_queue().queue_url(url).send().await.unwrap();
    let other = open(&queues).await;
    send(&other, &[event(&topic, "event")]).await;
    assert_eq!(body(&next(&ends).await), "event");
}

#[tokio::test]
async fn a_delay_is_the_services_own_and_what_is_held_back_is_counted() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let after = |millis: u64| Some(Timestamp::now().after(Duration::from_millis(millis)));
    let due = after(1300);
    let long = Envelope { due: after(890_000), ..envelope("long") };
    send(&sqs, &[to(&here, long), to(&here, Envelope { due, ..envelope("short") })]).await;
    assert_eq!((sqs.delayed(&here).await.unwrap(), sqs.backlog(&here).await.unwrap()), (2, 2));
    let delivery = next(&ends).await;
    assert!(Timestamp::now().after(Duration::from_millis(20)) >= due.unwrap(), "it comes before it is due");
    assert_eq!((body(&delivery).as_str(), delivery.attempts), ("short", 1));
    ack(&ends, &delivery).await;
    assert_eq!((sqs.delayed(&here).await.unwrap(), sqs.backlog(&here).await.unwrap()), (1, 1));
}

#[tokio::test]
async fn its_capabilities_are_those_of_its_options() {
    let queues = SqsQueues::new();
    let of_standard = queues.open(queues.options()).await.capabilities();
    assert!(of_standard.durable && of_standard.counts_deliveries && !of_standard.ordered_keys && !of_standard.marks);
    assert_eq!((of_standard.name, of_standard.lease), ("sqs", Some(Duration::from_secs(30))));
    assert_eq!(of_standard.delays, Delays::UpTo(Duration::from_secs(900)));
    assert_eq!(of_standard.message_bytes_max, 960 << 10);
    let of_fifo = queues.open(queues.options().ordered_keys(true).message_bytes_max(1000)).await.capabilities();
    assert!(of_fifo.ordered_keys);
    assert_eq!(of_fifo.message_bytes_max, 1000);
}

/// A body that is no text takes a third more; whether it fits is told before anything is saved.
#[tokio::test]
async fn what_does_not_fit_as_it_is_sent_is_refused_before_it_is_saved() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let of = |bytes: usize| to(&here, Envelope { body: vec![0xff; bytes].into(), ..envelope("") });
    let refused = sqs.check(&of(800 << 10)).unwrap_err();
    assert!(refused.0.contains("as text"), "{refused}");
    let fits = of(700 << 10);
    sqs.check(&fits).unwrap();
    send(&sqs, std::slice::from_ref(&fits)).await;
    let came = next(&ends).await;
    assert!(*came.envelope == *fits.envelope);
    // Also among the letters, with all that is said of it there.
    settle(&ends, &came, hapax::ports::Settlement::DeadLetter { reason: "ü".repeat(20_000) }).await;
}

#[tokio::test]
async fn a_program_that_had_a_prefix_to_itself_removes_all_of_it() {
    let queues = SqsQueues::new();
    let sqs = open(&queues).await;
    let (here, topic) = (endpoint(), message_type());
    let ends = sqs.connect(&here, &[topic]).await.unwrap();
    send(&sqs, &[to(&here, envelope("aside")), to(&here, envelope("left"))]).await;
    let aside = next(&ends).await;
    settle(&ends, &aside, hapax::ports::Settlement::DeadLetter { reason: "x".into() }).await;
    let client = queues.client();
    let names = async || {
        let listed = client.list_queues().queue_name_prefix(format!("{}_", queues.prefix())).send().await.unwrap();
        listed.queue_urls().len()
    };
    assert_eq!(names().await, 3);
    drop(ends);
    sqs.remove(&[here]).await.unwrap();
    if hapax_tests::real::is_asked(hapax_tests::real::AWS) {
        return eprintln!("SKIPPED: that they are gone: it takes the service a minute");
    }
    assert_eq!(names().await, 0);
}

#[tokio::test]
async fn what_cannot_be_opened_says_why_and_what_to_do() {
    let expect = |opened: Result<Sqs, hapax::ports::TransportError>, expected: ErrorKind, says: &str| {
        let error = opened.unwrap_err();
        let text = format!("{error:?}");
        assert_eq!(error.kind(), expected, "{text}");
        assert!(text.contains(says), "{text}");
    };
    let nobody = Sqs::local_client("http://127.0.0.1:1");
    expect(Sqs::open(&nobody).await, ErrorKind::Unavailable, "SQS in us-east-1 cannot be asked now");
    expect(Sqs::options().prefix("a_b").open(&nobody).await, ErrorKind::Misconfigured, "is no prefix");
}

/// Whoever handles the policy of an account reads it by its ARNs.
#[test]
fn the_policy_of_sqs_names_queues_and_is_json() {
    let policy: serde_json::Value =
        serde_json::from_str(&Sqs::policy_json("arn:aws:sqs:eu-central-1:1:hapax_*")).unwrap();
    let statement = &policy["Statement"][0];
    assert_eq!(statement["Resource"], "arn:aws:sqs:eu-central-1:1:hapax_*");
    assert!(statement["Action"].as_array().unwrap().contains(&"sqs:ReceiveMessage".into()));
}

/// Shared by several tasks, as an endpoint does it.
#[tokio::test(flavor = "multi_thread")]
async fn two_receivers_share_what_there_is_and_each_message_goes_to_one() {
    const MESSAGES: usize = 60;
    let queues = SqsQueues::new();
    // Long leases: a machine that is busy is not the matter here.
    let sqs = Arc::new(queues.open(options(&queues).lease(PATIENCE)).await);
    let here = endpoint();
    let ends = [sqs.connect(&here, &[]).await.unwrap(), sqs.connect(&here, &[]).await.unwrap()];
    let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&sqs, &sent).await;
    let tasks = ends.map(|ends| {
        tokio::spawn(async move {
            let mut came = Vec::new();
            while let Ok(given) = tokio::time::timeout(Duration::from_secs(3), ends.receiver.receive(5)).await {
                for delivery in given.unwrap() {
                    ack(&ends, &delivery).await;
                    came.push(body(&delivery).parse::<usize>().unwrap());
                }
            }
            came
        })
    });
    let mut came = Vec::new();
    for task in tasks {
        came.extend(task.await.unwrap());
    }
    came.sort_unstable();
    assert_eq!(came, (0..MESSAGES).collect::<Vec<_>>());
}

#[tokio::test]
async fn nobody_logs_what_is_in_a_message() {
    let logged = LogLines::everywhere();
    let queues = SqsQueues::new();
    let (queue, here, scratch) = (open(&queues).await, endpoint(), Scratch::new("discreet"));
    let store = Sqlite::open(scratch.file("vault.db")).await.unwrap();
    let endpoint = Endpoint::builder(here.as_str()).entities(store.clone()).dedup(store).transport(queue.clone());
    is_discreet(&logged, (&here, endpoint), Sender::new(Arc::new(queue.clone())), &queue, None).await;
}
