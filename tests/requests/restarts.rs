//! Crashes and restarts on either side.

use futures_util::future::join_all;
use hapax::requests::RequestError;

use crate::{
    bank::{Bank, Book, Booked, MINUTE, SECOND, Way, ask, asking, book, run, until},
    wire::{Fate, Wire},
};

/// Goal: a bank that dies when it has saved and not yet answered owes the answer. Method: its answers get stuck on the wire; it is
/// dropped there, and another one takes over.
#[tokio::test(start_paused = true)]
async fn a_bank_that_dies_between_its_save_and_its_answer_gives_the_answer_after_its_restart() {
    let bank = Bank::new("dies");
    let stuck = Wire::to(&bank.hub, "front", |_| Fate::Stuck);
    let running = run(bank.endpoint(stuck.clone())).await;
    let client = bank.client("front").await;
    let asked = asking(&client, book("a", "dies")).await;
    until("an answer to be sent", || stuck.offered() > 0).await;
    assert_eq!(bank.lines("a").len(), 1); // Saved.
    drop(running);
    tokio::time::sleep(SECOND).await;
    assert!(!asked.is_finished());
    let _running = bank.run().await;
    bank.booked_once("a", &asked.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_bank_that_dies_when_it_has_answered_gives_the_same_answer_again() {
    let bank = Bank::new("died");
    let running = bank.run().await;
    let client = bank.client("front").await;
    let answer = ask(&client, &book("a", "died"), MINUTE).await.unwrap();
    drop(running);
    let _running = bank.run().await;
    assert_eq!(ask(&client, &book("a", "died"), MINUTE).await.unwrap(), answer);
    bank.booked_once("a", &answer);
}

/// Goal: a client that dies while it waits has the answer after its restart, and so has one of another name.
#[tokio::test(start_paused = true)]
async fn a_client_that_was_restarted_has_the_answer_to_what_it_had_asked() {
    let bank = Bank::new("restarted");
    let lossy = Wire::to(&bank.hub, "front", |number| if number < 2 { Fate::Lost } else { Fate::Sent });
    let _running = run(bank.endpoint(lossy.clone())).await;
    let client = bank.client("front").await;
    let asked = asking(&client, book("a", "restarted")).await;
    until("an answer that is lost", || lossy.offered() == 1).await;
    asked.abort();
    drop((asked.await, client));
    let client = bank.client("front").await;
    let answer = ask(&client, &book("a", "restarted"), MINUTE).await.unwrap();
    bank.booked_once("a", &answer);
    let other = bank.client("another").await;
    assert_eq!(ask(&other, &book("a", "restarted"), MINUTE).await.unwrap(), answer);
    assert_eq!(bank.lines("a").len(), 1);
}

/// Goal: what was asked before the restart under the same key is not taken for the answer to another body. Method: the bank begins
/// when both are in its queue, and its answer to the first comes while the second is waited for.
#[tokio::test(start_paused = true)]
async fn the_answer_to_another_body_under_the_same_key_is_not_taken() {
    for looks in [false, true] {
        let bank = Bank::new("another-body");
        let client = bank.client("front").await;
        let asked = asking(&client, book("a", "key")).await;
        asked.abort();
        drop((asked.await, client));
        let client = if looks { bank.looking("front").start().await.unwrap() } else { bank.client("front").await };
        let asked = asking(&client, Book { way: Way::Other, ..book("a", "key") }).await;
        let _running = bank.run().await;
        let error = asked.await.unwrap().unwrap_err();
        match looks {
            true => assert!(matches!(error, RequestError::KeyReused), "{error:?}"),
            false => assert!(matches!(error, RequestError::TimedOut { .. }), "{error:?}"),
        }
        assert!(client.unawaited() > 0); // That of the first body has come.
        let answer = ask(&client, &book("a", "key"), MINUTE).await.unwrap();
        bank.booked_once("a", &answer);
    }
}

/// Goal: nobody rests on any one process. Method: the bank dies and comes back again and again while twenty ask, from clients that
/// are restarted too.
#[tokio::test(start_paused = true)]
async fn everybody_has_an_answer_although_bank_and_clients_are_restarted_again_and_again() {
    let bank = Bank::new("again-and-again");
    let lines: Vec<_> = (0..20).map(|number| book("a", &format!("line-{number}"))).collect();
    for round in 0..10 {
        let wire = Wire::to(&bank.hub, "front", move |number| match (number + round) % 3 {
            0 => Fate::Lost,
            1 => Fate::Sent,
            _ => Fate::Unconfirmed,
        });
        let _running = run(bank.endpoint(wire)).await;
        let client = bank.client("front").await;
        let asked = join_all(lines.iter().map(|line| ask(&client, line, SECOND / 5)));
        drop(tokio::time::timeout(SECOND / 5 * (1 + round % 2), asked).await);
    }
    let _running = bank.run().await;
    let client = bank.client("front").await;
    let answers = join_all(lines.iter().map(|line| ask(&client, line, MINUTE))).await;
    let booked = bank.lines("a");
    assert_eq!(booked.len(), lines.len());
    for (line, answer) in lines.iter().zip(answers) {
        let at = booked.iter().position(|(name, _)| *name == line.line).unwrap();
        assert_eq!(answer.unwrap(), Booked { lines: at + 1, run: booked[at].1 });
    }
}
