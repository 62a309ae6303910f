//! Claim check and dead letters: a letter holds the body that its message has come without. Time is paused, and that of the bodies in memory
//! with it.

use hapax::{InProcess, Memory, claim::BODY_IN, endpoint::office::Filter, envelope::Envelope};
use tokio::time::sleep;

use crate::depot::*;

/// Goal: a letter holds the body, each for its own saga, until it is handled or given up. Method: two sagas refuse a message; the letter of
/// one is retried, that of the other discarded.
#[tokio::test(start_paused = true)]
async fn dead_letters_hold_the_body_until_the_last_is_handled_or_given_up() {
    let (hub, store, depot, mood) = (InProcess::new("letters"), Memory::new(), Depot::default(), Mood::default());
    let archive = || {
        let archive = reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE);
        archive.saga::<Index>(|index| index.starts::<Text>())
    };
    let office = archive().start().await.unwrap().dead_letter_office("alice");
    for gives_up in [false, true] {
        let begun = read(&store, "archive", "index").len();
        mood.refuses("shelf", 2);
        mood.refuses("index", 1);
        let _running = (run(writer(&store, hub.clone(), &depot)).await, run(archive()).await);
        write(&hub, &to(&["archive"])).await;
        sleep(5 * HOUR).await;
        let letters = office.list(&Filter::default(), 0, 10).await.unwrap();
        assert_eq!(letters.len(), 2);
        for letter in &letters {
            assert_eq!(letter.envelope.headers.value(BODY_IN), Some("depot"), "what is set aside is what came");
            assert!(office.body(letter).await.unwrap().is_some_and(|body| body.len() > 5000));
        }
        let of = |saga: &str| {
            let of = |letter: &&_| -> bool {
                let letter: &hapax::ports::DeadLetter = letter;
                letter.saga.as_ref().is_some_and(|of| of.as_str() == saga)
            };
            letters.iter().filter(of).cloned().collect::<Vec<_>>()
        };
        // It was set aside long ago, and nobody else has handled it.
        assert_eq!(office.retry_beyond_retention(&of("index")).await.unwrap().done, 1);
        sleep(MINUTE).await;
        assert_eq!(read(&store, "archive", "index").len(), begun + 1);
        assert!(depot.size().1 > 5000, "the shelf's letter needs it");
        assert_eq!(office.retry_beyond_retention(&of("shelf")).await.unwrap().done, 1);
        sleep(MINUTE).await;
        let again = office.list(&Filter::default(), 0, 10).await.unwrap();
        assert!(again.len() == 1 && depot.size().1 > 5000, "it was refused again: {again:?}");
        if gives_up {
            assert_eq!(office.discard(&again).await.unwrap(), 1);
        } else {
            assert_eq!(office.retry_all(&Filter::default()).await.unwrap().done, 1);
        }
        sleep(MINUTE).await;
        assert_eq!((read(&store, "archive", "shelf").len(), depot.size().1), (1, 0));
        assert_eq!(office.list(&Filter::default(), 0, 10).await.unwrap(), []);
        sleep(2 * RETENTION).await;
        assert_eq!(depot.size(), (0, 0));
    }
}

/// Goal: a letter holds its body from when it is there. Method: of two sagas one sets the message aside and the other puts it off, and when that
/// is done with it the first is not there: an older version of the program runs.
#[tokio::test(start_paused = true)]
async fn a_letter_holds_the_body_whoever_ends_the_message() {
    let (hub, store, depot, mood) = (InProcess::new("ends"), Memory::new(), Depot::default(), Mood::default());
    let alone = || reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE);
    let both = || alone().saga::<Index>(|index| index.starts::<Text>());
    mood.refuses("index", 1);
    mood.puts_off("shelf");
    let (_front, newer) = (run(writer(&store, hub.clone(), &depot)).await, run(both()).await);
    write(&hub, &to(&["archive"])).await;
    sleep(MINUTE / 60).await; // Not so long that what is put off is given up.
    assert_eq!(letters(&store, "archive").await.len(), 1);
    drop(newer);
    mood.refuses("shelf", 0);
    let older = run(alone()).await;
    sleep(HOUR).await;
    assert_eq!((read(&store, "archive", "shelf"), read(&store, "archive", "index")), (vec![5000], vec![]));
    assert!(depot.size().1 > 5000, "the letter needs it");
    drop(older);
    let office = both().start().await.unwrap().dead_letter_office("alice");
    let _newer = run(both()).await;
    assert_eq!(office.retry_all(&Filter::default()).await.unwrap().done, 1);
    sleep(MINUTE).await;
    assert_eq!(read(&store, "archive", "index"), [5000]);
    assert_eq!((letters(&store, "archive").await, depot.size().1), (vec![], 0));
    sleep(2 * RETENTION).await;
    assert_eq!(depot.size(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_edited_so_that_its_body_travels_lets_go_of_the_other() {
    for whole in [true, false] {
        let (hub, store, depot, mood) = (InProcess::new("edited"), Memory::new(), Depot::default(), Mood::default());
        let archive = || reader("archive", &store, &hub, &mood).bodies(depot.clone(), ABOVE);
        let office = archive().start().await.unwrap().dead_letter_office("alice");
        mood.refuses("shelf", 1);
        let _running = (run(writer(&store, hub.clone(), &depot)).await, run(archive()).await);
        write(&hub, &to(&["archive"])).await;
        sleep(MINUTE).await;
        let letter = letters(&store, "archive").await.pop().unwrap();
        let plain = serde_json::to_vec(&Text { key: "a".into(), text: "short".into() }).unwrap();

        // What is not the body any more, and says nowhere where that is, would be handled as one.
        let refused = office.edit(&letter, |envelope| envelope.headers.remove(BODY_IN)).await.unwrap_err();
        assert!(refused.to_string().contains("leave the header, or replace the body, too"), "{refused}");
        // A header of its own loses nothing.
        let noted = office.edit(&letter, |envelope| envelope.headers.set("note", "looked at").unwrap()).await.unwrap();
        assert!(office.body(&noted).await.unwrap().is_some_and(|body| body.len() > 5000));

        let edited = office.edit(&noted, |envelope| {
            if whole {
                let mut whole = Envelope::new(envelope.message_id.clone(), envelope.message_type.clone(), plain);
                whole.occurred_at = envelope.occurred_at;
                *envelope = whole;
            } else {
                envelope.body = plain.into();
            }
        });
        let edited = edited.await.unwrap();
        assert_eq!(depot.size().1, 0);
        assert_eq!(office.retry(&[edited]).await.unwrap().done, 1);
        sleep(MINUTE).await;
        assert_eq!((read(&store, "archive", "shelf"), letters(&store, "archive").await), (vec![5], vec![]));
    }
}
