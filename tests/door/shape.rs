//! Whoever knows the options of one broker knows those of another.

use std::collections::{BTreeMap, BTreeSet};

/// Each broker, its options, and where they are set.
const BROKERS: [(&str, &str, &[&str]); 6] = [
    ("rabbitmq", "RabbitMqOptions", &[include_str!("../../transports/src/rabbitmq/options.rs")]),
    ("nats", "NatsOptions", &[include_str!("../../transports/src/nats/options.rs")]),
    ("redis", "RedisStreamsOptions", &[include_str!("../../transports/src/redis/options.rs")]),
    (
        "kafka",
        "KafkaOptions",
        &[
            include_str!("../../transports/src/kafka/options.rs"),
            include_str!("../../transports/src/kafka/transactions.rs"),
        ],
    ),
    ("sqs", "SqsOptions", &[include_str!("../../transports/src/sqs/options.rs")]),
    ("servicebus", "ServiceBusOptions", &[include_str!("../../transports/src/servicebus/options.rs")]),
];

/// How all are opened.
const OPEN: (&str, &str) = ("open", "impl AsRef<str>");

/// What all have, and what it takes; in this order CONTRIBUTING.md names them.
const COMMON: [(&str, &str); 12] = [
    ("message_bytes_max", "usize"),
    ("ordered_keys", "bool"),
    ("redelivery_max", "Duration"),
    ("patience", "Duration"),
    ("declare", "bool"),
    ("prefix", "impl Into<String>"),
    ("written_as", "WrittenAs"),
    ("prefetch", "u16"),
    ("lease", "Duration"),
    ("connection_name", "impl Into<String>"),
    ("certificate_authority", "impl Into<String>"),
    ("client_certificate", "impl Into<Vec<u8>>, impl Into<Vec<u8>>"),
];

/// What one lacks, has for itself, or takes in another form; and why.
const OTHERWISE: [(&str, &str, &str); 36] = [
    ("rabbitmq", "lease", "a message is its receiver's as long as the connection"),
    ("rabbitmq", "remove_unused", "the server removes queues by itself"),
    ("nats", "dedup_window", "this server drops repeats by their id"),
    ("nats", "sync_interval", "the server does not tell how long it may lose what it has confirmed"),
    ("nats", "replicas", "a stream is declared on so many servers"),
    ("nats", "credentials", "a file of credentials does not fit into a URL"),
    ("redis", "prefetch", "the server pushes nothing: what is asked for is what the endpoint has room for"),
    ("redis", "may_lose", "the server tells what it may lose, and a person accepts it"),
    ("redis", "remove_unused", "the server removes keys by itself"),
    ("kafka", "lease", "a partition is its process's as long as the session"),
    ("kafka", "session", "in place of the lease, and of processes: not of messages"),
    ("kafka", "retention", "topics forget what was read, and what was not"),
    ("kafka", "partitions", "a topic is declared with so many"),
    ("kafka", "replicas", "a topic is declared on so many brokers"),
    ("kafka", "batch", "brokers that count wrongly at the end of a batch"),
    ("kafka", "mechanism", "the URL says who it is, and not how it is shown"),
    ("kafka", "client_certificate", "the client library takes texts alone"),
    ("kafka", "danger_accept_any_certificate", "the client library can, and who tries it out asks for it"),
    ("kafka", "transactions", "no other broker of these has any that are of use"),
    ("kafka", "read_committed", "of transactions"),
    ("sqs", "open", "AWS's client is given, which knows region and credentials"),
    ("sqs", "prefetch", "the service pushes nothing: no more is asked for than the endpoint has asked for"),
    ("sqs", "connection_name", "the client that is given has the connections"),
    ("sqs", "certificate_authority", "the client that is given has the connections"),
    ("sqs", "client_certificate", "the client that is given has the connections"),
    ("sqs", "retention", "the service drops what nobody settles"),
    ("sqs", "wait", "the service is asked again and again"),
    ("sqs", "parallel", "the service gives ten messages a call"),
    ("sqs", "subscribers_known", "subscriptions are tags of queues, which are looked up"),
    ("sqs", "redrive_min", "the service takes messages away by itself"),
    ("sqs", "kms_key", "a queue is declared with it"),
    ("servicebus", "declare", "nothing can be declared over AMQP 1.0"),
    ("servicebus", "lease", "it is a property of the queue, and cannot be asked for over AMQP 1.0"),
    ("servicebus", "lock_duration", "in place of the lease: called as the property that it repeats"),
    ("servicebus", "addresses", "other servers of AMQP 1.0 have queues and topics at addresses of another form"),
    ("servicebus", "client_certificate", "the service knows an account by the key in its connection string"),
];

/// What several have for themselves and is not of one type; and why.
const OF_SEVERAL_TYPES: [(&str, &str); 1] =
    [("replicas", "a stream of NATS is on five servers at most, a topic of Kafka on any number")];

/// Goal: no broker gets a setter under another name or of another type, nor is left without one, unless a reason stands here. Method: the
/// signatures in the sources.
#[test]
fn brokers_are_opened_by_the_same_setters_and_each_exception_has_its_reason() {
    let mut exceptions: BTreeSet<(&str, &str)> =
        OTHERWISE.iter().map(|(broker, setter, _)| (*broker, *setter)).collect();
    let mut unexplained = Vec::new();
    for (broker, options, sources) in BROKERS {
        let has = setters(options, sources);
        let names: BTreeSet<&str> = wanted().map(|(name, _)| name).chain(has.keys().copied()).collect();
        for name in names {
            let wanted = wanted().find(|(wanted, _)| *wanted == name).map(|(_, takes)| takes);
            let found = has.get(name).map(String::as_str);
            if wanted != found && !exceptions.remove(&(broker, name)) {
                unexplained.push(format!("{broker}: {name} takes {found:?}, where all have {wanted:?}"));
            }
        }
    }
    assert!(unexplained.is_empty(), "call it as the others do, or give a reason in OTHERWISE: {unexplained:#?}");
    assert!(exceptions.is_empty(), "there is no such exception any more: {exceptions:?}");
}

/// Goal: what some brokers have beside, they have under one name and of one type. Method: the same.
#[test]
fn what_several_brokers_have_for_themselves_takes_the_same() {
    let mut takes: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (_, options, sources) in BROKERS {
        for (name, what) in setters(options, sources) {
            if wanted().all(|(wanted, _)| wanted != name) {
                takes.entry(name).or_default().insert(what);
            }
        }
    }
    let of_several: Vec<&str> = takes.iter().filter(|(_, takes)| takes.len() > 1).map(|(name, _)| *name).collect();
    let known: Vec<&str> = OF_SEVERAL_TYPES.iter().map(|(name, _)| *name).collect();
    assert_eq!(of_several, known, "{takes:#?}");
}

/// Goal: who adds a broker reads what its options have. Method: the list is looked for in the page.
#[test]
fn contributors_are_told_what_all_brokers_have() {
    let names = COMMON.map(|(name, _)| name).join(", ");
    let page = include_str!("../../CONTRIBUTING.md");
    assert!(page.contains(&format!("brokers `{names}`")), "CONTRIBUTING.md does not name {names}");
}

fn wanted() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMON.into_iter().chain([OPEN])
}

/// What is called on options and takes them along, with the types that it takes beside.
fn setters(options: &str, sources: &[&'static str]) -> BTreeMap<&'static str, String> {
    let mut all = BTreeMap::new();
    let begin = format!("\nimpl {options} {{");
    for source in sources {
        for block in source.split(begin.as_str()).skip(1) {
            let block = block.split_once("\n}\n").map_or(block, |(block, _)| block);
            all.extend(block.split("\n    pub ").skip(1).filter_map(setter));
        }
    }
    assert!(
        all.len() > COMMON.len() / 2,
        "{options} has {all:?} alone: it is written in another form than is read here"
    );
    all
}

/// Of `const fn NAME(mut self, WHAT: TYPE) -> Self {` and what follows.
fn setter(item: &'static str) -> Option<(&'static str, String)> {
    let (signature, _) = item.split_once(" {")?;
    let signature =
        ["const ", "async "].into_iter().fold(signature, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    let (name, rest) = signature.strip_prefix("fn ")?.split_once('(')?;
    let (parameters, _) = rest.rsplit_once(") -> ")?;
    let mut parameters = parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
    parameters.next().filter(|this| ["self", "mut self"].contains(this))?;
    let types: Vec<&str> =
        parameters.filter_map(|parameter| parameter.split_once(": ")).map(|(_, takes)| takes).collect();
    Some((name, types.join(", ")))
}
