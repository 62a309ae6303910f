//! Several calls are under way at once: a test holds their answers back, and looks how many there are.

use futures_util::future::join_all;

use super::*;

/// Calls that a process makes at a time, as the transport's docs say.
const CALLS: u32 = 8;
const MESSAGES: usize = 100;

/// One that waits for each answer before it goes on makes one call, and waits for ever.
#[tokio::test(flavor = "multi_thread")]
async fn eight_calls_with_ten_messages_each_are_under_way_before_the_first_is_answered() {
    let queues = SqsQueues::new();
    let proxy = FaultProxy::start(queues.url()).unwrap();
    // What is held back is waited for.
    let patient = options(&queues).patience(PATIENCE).lease(PATIENCE);
    let sqs = queues.through(proxy.url()).open(patient).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    let gate = Gate::new();
    let held = proxy.every(|asked| asked.operation() == Some("SendMessageBatch"), Fault::HoldAnswer(gate.clone()));
    let sending = {
        let (sqs, here) = (sqs.clone(), here.clone());
        tokio::spawn(async move {
            let sent: Vec<_> = (0..MESSAGES).map(|number| to(&here, envelope(&number.to_string()))).collect();
            sqs.dispatch(&sent).await
        })
    };
    tokio::time::timeout(PATIENCE, held.until_served(CALLS)).await.expect("it waits for answers");
    assert_eq!(held.matched(), CALLS, "there are more than it says");
    assert!(!sending.is_finished(), "it is told as sent before it is confirmed");
    gate.open();
    for result in sending.await.unwrap() {
        result.unwrap();
    }

    // The same with what is settled: a call for each ten of those that wait, and the first has what there was when it began.
    let mut given = Vec::new();
    while given.len() < MESSAGES {
        given.extend(ends.receiver.receive(MESSAGES - given.len()).await.unwrap());
    }
    let gate = Gate::new();
    let held = proxy.every(|asked| asked.operation() == Some("DeleteMessageBatch"), Fault::HoldAnswer(gate.clone()));
    let acks = join_all(given.iter().map(|delivery| ends.receiver.settle(&delivery.receipt, Settlement::Ack)));
    let look = async {
        tokio::time::timeout(PATIENCE, held.until_served(2)).await.expect("it waits for answers");
        gate.open();
    };
    let (settled, ()) = tokio::join!(acks, look);
    for settled in settled {
        assert_eq!(settled.unwrap(), Settled::Done);
    }
    assert_eq!(sqs.backlog(&here).await.unwrap(), 0);
}
