//! What is settled at the same time goes to the server as one word: of nothing but that.

use futures_util::future::join_all;
use hapax::ports::{Settled, Settlement, Transport as _};

use super::rig::*;

/// Of six, four are settled at once, one of them as not done, and two are not.
#[tokio::test]
async fn what_is_settled_at_once_takes_nothing_with_it_that_is_not() {
    let (queue, here) = (open().await, endpoint());
    let first = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[1, 2, 3, 4, 5, 6].map(|number| to(&here, envelope(&number.to_string())))).await;
    let mut given = Vec::new();
    while given.len() < 6 {
        given.push(next(&first).await);
    }
    assert_eq!(given.iter().map(body).collect::<String>(), "123456");
    let again = || Settlement::Retry { delay: std::time::Duration::ZERO, counts: true };
    // On one thread all of them wait before the first is told to the server.
    let endings =
        [(0, Settlement::Ack), (1, Settlement::Ack), (3, Settlement::Ack), (4, again()), (3, Settlement::Ack)];
    let ended = endings.map(|(place, how)| {
        let receipt = &given[place].receipt;
        first.receiver.settle(receipt, how)
    });
    let ended: Vec<Settled> = join_all(ended).await.into_iter().map(Result::unwrap).collect();
    // What is said twice of one is true of the first.
    assert_eq!(ended, [Settled::Done, Settled::Done, Settled::Done, Settled::Done, Settled::LeaseLost]);
    let back = next(&first).await;
    assert_eq!((body(&back).as_str(), back.attempts), ("5", 2));
    drop((back, given, first));
    let second = queue.connect(&here, &[]).await.unwrap();
    let mut left = Vec::new();
    while left.len() < 3 {
        left.push(body(&next(&second).await));
    }
    left.sort();
    assert_eq!(left.concat(), "356");
    assert_eq!(queue.backlog(&here).await.unwrap(), 0);
}
