//! Who has to give way when there is no place left, and who must not: in paused time, with connections that lead nowhere.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use super::*;

#[derive(Debug)]
struct Wire(Arc<AtomicBool>);

impl Leave for Wire {
    async fn leave(self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn sit(connections: &Connections) -> (Arc<Seats<Wire>>, Arc<AtomicBool>) {
    let (seat, left) = (Seats::new(connections, &Arc::default()), Arc::new(AtomicBool::new(false)));
    let place = connections.place(Duration::ZERO).await.unwrap();
    seat.sit(Wire(left.clone()), place);
    (seat, left)
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_has_that_of_the_connection_which_was_idle_longest() {
    let connections = Connections::at_most(2);
    let (first, first_left) = sit(&connections).await;
    let (second, second_left) = sit(&connections).await;
    let (connection, place) = first.rise().unwrap();
    tokio::time::advance(Duration::from_millis(1)).await;
    first.sit(connection, place); // Used since: it is the other one's turn.
    let begun = Instant::now();
    let third = connections.place(Duration::from_secs(1)).await;
    assert!(third.is_some() && begun.elapsed() <= IDLE + LOOK, "{:?}", begun.elapsed());
    assert!(second_left.load(Ordering::Relaxed) && !first_left.load(Ordering::Relaxed));
    assert_eq!((connections.open(), connections.waiting()), (2, 0));
    assert!(second.rise().is_none() && first.rise().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_in_use_is_not_taken_and_gives_way_once_it_has_had_its_time() {
    let connections = Connections::at_most(1);
    let (seat, left) = sit(&connections).await;
    let (connection, place) = seat.rise().unwrap();
    assert!(connections.place(10 * TENURE).await.is_none(), "it is in use");
    assert_eq!(connections.waiting(), 0);
    let waiting = tokio::spawn({
        let connections = connections.clone();
        async move { connections.place(10 * TENURE).await.is_some() }
    });
    while connections.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    seat.sit(connection, place);
    assert!(seat.rise().is_none(), "somebody waits, and it has been there for long");
    assert!(waiting.await.unwrap() && left.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_taken_away_what_was_opened_just_now_and_is_used_all_the_time() {
    let connections = Connections::at_most(1);
    let (seat, left) = sit(&connections).await;
    let waiting = connections.place(TENURE / 2);
    let using = async {
        loop {
            let (connection, place) = seat.rise().expect("it is its own");
            tokio::time::sleep(IDLE / 2).await;
            seat.sit(connection, place);
            tokio::time::sleep(IDLE / 2).await;
        }
    };
    tokio::select! {
        given = waiting => assert!(given.is_none()),
        () = using => {}
    }
    assert!(!left.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_costs_one_connection() {
    let connections = Connections::at_most(3);
    let seats = [sit(&connections).await, sit(&connections).await, sit(&connections).await];
    tokio::time::advance(2 * TENURE).await;
    let place = connections.place(Duration::from_secs(1)).await;
    assert!(place.is_some());
    let left = seats.iter().filter(|(_, left)| left.load(Ordering::Relaxed)).count();
    assert_eq!(left, 1);
}

#[tokio::test(start_paused = true)]
async fn places_come_back_with_what_holds_them() {
    let connections = Connections::at_most(1);
    let (seat, _) = sit(&connections).await;
    drop(seat);
    assert_eq!(connections.open(), 0);
    assert!(connections.place(Duration::ZERO).await.is_some());
    assert_eq!((Connections::at_most(0).0.max, connections.open()), (1, 0));
}
