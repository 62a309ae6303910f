//! The client library's own broker, which answers as it is told. It takes transactions, and knows nothing of what they are for: whoever reads it is
//! given what was aborted too, and it lets two producers of one name be. So this shows what is asked, in which order, and what becomes of each
//! answer; that a reader sees all or nothing it does not show.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hapax::{
    Kafka,
    envelope::Outgoing,
    ids::EndpointName,
    ports::{DispatchError, Dispatcher, ErrorKind, TransportError},
    transports::kafka::{KafkaOptions, Transactions},
};
use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey as Key, RDKafkaRespErr as Code},
};

use crate::rig::{PATIENCE, PREFIX, endpoint, envelope, keyed, to, unique};

/// More answers than are asked for.
const ALWAYS: usize = 10_000;
const SOON: Duration = Duration::from_secs(2);

struct Mocked {
    cluster: MockCluster<'static, DefaultProducerContext>,
    here: EndpointName,
    there: EndpointName,
    name: String,
}

impl Mocked {
    fn start() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        let (here, there) = (endpoint(), endpoint());
        for name in [&here, &there] {
            cluster.create_topic(&format!("{PREFIX}.queue.{name}"), 2, 1).unwrap();
        }
        Self { cluster, here, there, name: unique("process") }
    }

    fn options(&self) -> KafkaOptions {
        Kafka::options()
            .prefix(PREFIX)
            .declare(false)
            .patience(SOON)
            .batch(1)
            .transactions(Transactions::of(&self.name))
    }

    async fn try_open(&self, options: KafkaOptions) -> Result<Kafka, TransportError> {
        options.open(format!("kafka://{}", self.cluster.bootstrap_servers())).await
    }

    async fn open(&self) -> Kafka {
        self.try_open(self.options()).await.unwrap()
    }

    fn answers(&self, key: Key, code: Code, times: usize) {
        self.cluster.request_errors(key, &vec![code; times]);
    }

    /// What one handled message might send.
    fn both(&self) -> [Outgoing; 2] {
        [to(&self.here, keyed("a", "here")), to(&self.there, keyed("a", "there"))]
    }

    /// How many records the queue of `name` has, whatever became of their transactions.
    fn records(&self, name: &EndpointName) -> i64 {
        let mut config = ClientConfig::new();
        let consumer: BaseConsumer =
            config.set("bootstrap.servers", self.cluster.bootstrap_servers()).create().unwrap();
        let topic = format!("{PREFIX}.queue.{name}");
        let bounds = (0..2).map(|partition| consumer.fetch_watermarks(&topic, partition, PATIENCE).unwrap());
        bounds.map(|(low, high)| high - low).sum()
    }
}

async fn failed(queue: &Kafka, outgoing: &[Outgoing]) -> Vec<TransportError> {
    let each = queue.dispatch(outgoing).await.into_iter().map(|result| match result {
        Err(DispatchError::Transient(error)) => error,
        other => panic!("{other:?}"),
    });
    each.collect()
}

fn all_are(errors: &[TransportError], kind: ErrorKind, says: &str) {
    for error in errors {
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(format!("{error:?}").contains(says), "{error:?}");
    }
}

async fn sent(queue: &Kafka, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

/// What is made anew rests before.
async fn sent_soon(queue: &Kafka, outgoing: &[Outgoing]) {
    let last = std::sync::Mutex::new(Vec::new());
    let sent = async {
        loop {
            let results = queue.dispatch(outgoing).await;
            if results.iter().all(Result::is_ok) {
                break;
            }
            *last.lock().unwrap() = results;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let sent = tokio::time::timeout(PATIENCE, sent).await;
    assert!(sent.is_ok(), "it never goes on: {:?}", last.lock().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_call_sends_is_there_when_it_is_told_so() {
    let mocked = Mocked::start();
    let queue = mocked.open().await;
    for round in 1..=3 {
        sent(&queue, &mocked.both()).await;
        assert_eq!((mocked.records(&mocked.here), mocked.records(&mocked.there)), (round, round));
    }
}

/// Each journey takes 250 ms. One after the other the transactions would take 45 seconds, and a look for its topics of each call 30, whatever
/// the machine; together all of it takes some ten journeys.
#[tokio::test(flavor = "multi_thread")]
async fn what_calls_send_at_the_same_time_goes_in_few_transactions() {
    const CALLS: usize = 60;
    let mocked = Mocked::start();
    // In batches of one, each message would be a journey of its own.
    let queue = mocked.try_open(mocked.options().patience(PATIENCE).batch(1000)).await.unwrap();
    mocked.cluster.broker_round_trip_time(-1, Duration::from_millis(250)).unwrap();
    let (begun, both) = (Instant::now(), mocked.both());
    join_all((0..CALLS).map(|_| sent(&queue, &both))).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    mocked.cluster.broker_round_trip_time(-1, Duration::ZERO).unwrap();
    assert_eq!(mocked.records(&mocked.here), CALLS as i64);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_go_yet_holds_up_what_is_sent_with_it_and_nothing_else() {
    let mocked = Mocked::start();
    let queue = mocked.open().await;
    let nobody = endpoint();
    let errors = failed(&queue, &[to(&mocked.here, envelope("waits")), to(&nobody, envelope("goes nowhere"))]).await;
    all_are(&errors[..1], ErrorKind::Unavailable, "the same transaction or not at all");
    all_are(&errors[1..], ErrorKind::Unavailable, "start endpoint");
    assert_eq!(mocked.records(&mocked.here), 0);
    sent(&queue, &mocked.both()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_asks_for_patience_is_no_failure() {
    let mocked = Mocked::start();
    mocked.answers(Key::InitProducerId, Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, 2);
    let queue = mocked.open().await;
    mocked.answers(Key::AddPartitionsToTxn, Code::RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS, 2);
    sent(&queue, &mocked.both()).await;
    mocked.answers(Key::EndTxn, Code::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, 2);
    sent(&queue, &mocked.both()).await;
    mocked.answers(Key::EndTxn, Code::RD_KAFKA_RESP_ERR__TRANSPORT, 1);
    sent(&queue, &mocked.both()).await;
}

/// The broker refuses the commit and takes the abort: nothing is there, and the next is sent.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_aborted_has_failed_for_now_and_is_not_unknown() {
    let mocked = Mocked::start();
    let queue = mocked.open().await;
    mocked.answers(Key::EndTxn, Code::RD_KAFKA_RESP_ERR_UNKNOWN, 1);
    let errors = failed(&queue, &mocked.both()).await;
    assert!(errors.iter().all(|error| !error.is_unknown_outcome() && error.is_transient()), "{errors:?}");
    sent(&queue, &mocked.both()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_not_answered_is_unknown_and_ended_before_anything_else_is_sent() {
    let mocked = Mocked::start();
    let queue = mocked.open().await;
    mocked.answers(Key::EndTxn, Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, ALWAYS);
    all_are(&failed(&queue, &mocked.both()).await, ErrorKind::UnknownOutcome, "did not say whether");
    all_are(&failed(&queue, &mocked.both()).await, ErrorKind::Unavailable, "has not ended yet");
    assert_eq!(mocked.records(&mocked.here), 1, "nothing more was begun");
    mocked.cluster.clear_request_errors(Key::EndTxn);
    sent(&queue, &mocked.both()).await;
    assert_eq!(mocked.records(&mocked.here), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_taken_over_from_sends_nothing_any_more_and_who_took_over_does() {
    for (key, kind) in [
        (Key::AddPartitionsToTxn, ErrorKind::Misconfigured),
        // Its own commit may have been answered before, and the answer been lost.
        (Key::EndTxn, ErrorKind::UnknownOutcome),
    ] {
        let mocked = Mocked::start();
        let before = mocked.open().await;
        mocked.answers(key, Code::RD_KAFKA_RESP_ERR_PRODUCER_FENCED, 1);
        let remedy = format!("refuses `{PREFIX}.{}`", mocked.name);
        all_are(&failed(&before, &mocked.both()).await, kind, &remedy);
        for _ in 0..3 {
            let errors = failed(&before, &mocked.both()).await;
            all_are(&errors, ErrorKind::Misconfigured, &remedy);
            all_are(&errors, ErrorKind::Misconfigured, "Transactions::of");
            assert!(errors.iter().all(|error| !error.is_transient()));
        }
        sent(&mocked.open().await, &mocked.both()).await;
        all_are(&failed(&before, &mocked.both()).await, ErrorKind::Misconfigured, &remedy);
    }
}

/// The broker ends what is open for too long, and refuses who had it, as if another had taken over. Nobody has: this one was there all the time.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_awake_when_its_transaction_timed_out_goes_on() {
    let mocked = Mocked::start();
    let transactions = Transactions::of(&mocked.name).timeout(Duration::from_secs(1));
    let queue = mocked.try_open(mocked.options().transactions(transactions)).await.unwrap();
    mocked.answers(Key::EndTxn, Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, ALWAYS);
    let both = mocked.both();
    // Answered only once it has been open for longer than it may.
    let refused = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        mocked.cluster.clear_request_errors(Key::EndTxn);
        mocked.answers(Key::EndTxn, Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, 1);
    };
    let (errors, ()) = tokio::join!(failed(&queue, &both), refused);
    all_are(&errors, ErrorKind::UnknownOutcome, "did not say whether");
    sent_soon(&queue, &mocked.both()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_cannot_go_on_is_made_anew_after_a_rest() {
    let mocked = Mocked::start();
    let queue = mocked.open().await;
    mocked.answers(Key::EndTxn, Code::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, 1);
    all_are(&failed(&queue, &mocked.both()).await, ErrorKind::UnknownOutcome, "did not say whether");
    sent_soon(&queue, &mocked.both()).await;
    sent(&queue, &mocked.both()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_its_topic_never_takes_is_refused_for_good_and_what_is_sent_with_it_goes() {
    let mocked = Mocked::start();
    let queue = mocked.open().await;
    mocked.answers(Key::Produce, Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, 1);
    let results = queue.dispatch(&mocked.both()).await;
    let refused = results.iter().filter(|result| matches!(result, Err(DispatchError::Permanent(_)))).count();
    assert_eq!((refused, results.iter().filter(|result| result.is_ok()).count()), (1, 1), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_transactions_impossible_is_told_when_it_is_opened() {
    let mocked = Mocked::start();
    for (code, kind, says) in [
        (
            Code::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorKind::Denied,
            "grant Describe and Write on the transactional id",
        ),
        (Code::RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT, ErrorKind::Misconfigured, "transaction.max.timeout.ms"),
    ] {
        // Not once: the producer without transactions asks the same, and which of them asks first is not certain.
        mocked.answers(Key::InitProducerId, code, ALWAYS);
        let error = mocked.try_open(mocked.options()).await.unwrap_err();
        mocked.cluster.clear_request_errors(Key::InitProducerId);
        all_are(&[error], kind, says);
    }
    // A broker that has none, and one that cannot end any: the first message tells.
    mocked.cluster.apiversion(Key::EndTxn, None, None).unwrap();
    let queue = mocked.open().await;
    for _ in 0..3 {
        all_are(
            &failed(&queue, &mocked.both()).await,
            ErrorKind::Misconfigured,
            "leave KafkaOptions::transactions out",
        );
    }
    mocked.cluster.apiversion(Key::InitProducerId, None, None).unwrap();
    let error = mocked.try_open(mocked.options()).await.unwrap_err();
    all_are(&[error], ErrorKind::Misconfigured, "leave KafkaOptions::transactions out");
    for name in ["", "a b", &"x".repeat(101)] {
        let error = mocked.try_open(mocked.options().transactions(Transactions::of(name))).await.unwrap_err();
        all_are(&[error], ErrorKind::Misconfigured, "names no process");
    }
}
