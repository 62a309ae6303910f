//! A broker that is out of reach while something is under way.

use std::time::Duration;

use hapax::ports::{DispatchError, Dispatcher, Transport};

use super::{proxy::Proxied, rig::*};

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_while_the_broker_is_away_is_told_and_goes_on_when_it_is_back() {
    let proxied = Proxied::start().await;
    let queue = options().patience(Duration::from_secs(3)).open(proxied.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("before"))]).await;
    ack(&ends, &next(&ends).await).await;
    proxied.goes();
    let told = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it waits for ever");
    assert!(told.unwrap_err().is_transient());
    let failed = queue.dispatch(&[to(&here, envelope("while it is away"))]).await.pop().unwrap();
    let Err(DispatchError::Transient(error)) = failed else { panic!("{failed:?}") };
    assert!(error.is_unknown_outcome(), "{error:?}");
    proxied.comes_back();
    let sent = async {
        while queue.dispatch(&[to(&here, envelope("after"))]).await.iter().any(Result::is_err) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, sent).await.expect("it cannot be sent");
    let received = async {
        loop {
            match ends.receiver.receive(1).await {
                Ok(given) if body(&given[0]) == "after" => break,
                Ok(given) => ack(&ends, &given[0]).await, // What was sent while it was away may have been.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, received).await.expect("nothing comes");
}
