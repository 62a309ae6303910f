//! Several sagas in one check, which send to each other.
#![allow(clippy::unwrap_used)]

use hapax_core::{Context, Correlation, Handle, Handler, HandlerError, Message, Needs, Registry, Saga};
use hapax_model::check::{Check, Checked, External};
use serde::{Deserialize, Serialize};

macro_rules! message {
    ($name:ident, $on_the_wire:literal) => {
        #[derive(Debug, Serialize, Deserialize)]
        struct $name {
            order: String,
        }
        impl Message for $name {
            const TYPE: &'static str = $on_the_wire;
        }
    };
}

message!(Place, "duo.place");
message!(Cancel, "duo.cancel");
message!(Take, "duo.take");
message!(GiveBack, "duo.give-back");
message!(Taken, "duo.taken");
message!(Billed, "duo.billed");

#[derive(Debug, Default, Serialize, Deserialize)]
struct Order {
    placed: bool,
    cancelled: bool,
    paid: bool,
}

impl Saga for Order {
    const NAME: &'static str = "order";
}

impl Handle<Place> for Order {
    fn correlate(place: &Place) -> Correlation<'_> {
        (&place.order).into()
    }

    async fn handle(&mut self, Place { order }: Place, cx: &mut Context) -> Result<(), HandlerError> {
        self.placed = true;
        cx.send_local(Take { order })
    }
}

impl Handle<Cancel> for Order {
    fn correlate(cancel: &Cancel) -> Correlation<'_> {
        (&cancel.order).into()
    }

    async fn handle(&mut self, Cancel { order }: Cancel, cx: &mut Context) -> Result<(), HandlerError> {
        self.cancelled = true;
        cx.send("duo", GiveBack { order })
    }
}

impl Handle<Taken> for Order {
    fn correlate(taken: &Taken) -> Correlation<'_> {
        (&taken.order).into()
    }

    async fn handle(&mut self, _: Taken, _: &mut Context) -> Result<(), HandlerError> {
        self.paid = true;
        Ok(())
    }
}

/// Takes it for granted that money is taken before it is given back.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Till {
    taken: u32,
    given_back: u32,
}

impl Saga for Till {
    const NAME: &'static str = "till";

    fn needs() -> Needs {
        Needs::default().and::<External>()
    }
}

impl Handle<Take> for Till {
    fn correlate(take: &Take) -> Correlation<'_> {
        (&take.order).into()
    }

    async fn handle(&mut self, Take { order }: Take, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<External>()?.call_with_key(&cx.idempotency_key("take"));
        self.taken += 1;
        cx.publish(Taken { order })
    }
}

impl Handle<GiveBack> for Till {
    fn correlate(back: &GiveBack) -> Correlation<'_> {
        (&back.order).into()
    }

    async fn handle(&mut self, _: GiveBack, _: &mut Context) -> Result<(), HandlerError> {
        if self.taken == 0 {
            return Err(HandlerError::permanent("there is nothing to give back"));
        }
        self.given_back += 1;
        Ok(())
    }
}

/// Writes a bill for what was taken.
struct Biller;

impl Handler<Billed> for Biller {
    const NAME: &'static str = "biller";

    async fn handle(&self, _: Billed, _: &mut Context) -> Result<(), HandlerError> {
        Ok(())
    }
}

fn orders() -> Registry<Order> {
    Registry::new().starts::<Place>().starts::<Cancel>().handles::<Taken>()
}

fn till() -> Registry<Till> {
    Registry::new().starts::<Take>().starts::<GiveBack>()
}

fn place() -> Place {
    Place { order: "A".into() }
}

fn cancel() -> Cancel {
    Cancel { order: "A".into() }
}

fn card() -> External {
    External::new("take money")
}

fn holds(checked: Checked) -> Checked {
    println!("{checked}\n");
    assert!(checked.failure.is_none());
    checked
}

fn refused(checked: Checked, seen: &str) {
    let failure = checked.failure.unwrap();
    assert_eq!(failure.claim, "it_can_be_checked", "{failure}");
    assert!(failure.seen.contains(seen), "{failure}");
}

#[test]
fn what_one_saga_sends_the_other_handles_and_its_answer_comes_back() {
    let check = Check::saga(orders()).and(till()).with(card()).message(place());
    let checked = check
        .always("only what is placed is taken", |world| {
            world.state::<Till>("A").is_none_or(|_| world.state::<Order>("A").is_some_and(|order| order.placed))
        })
        .at_rest("it is paid once", |world| {
            assert!(world.state::<Order>("A").is_some_and(|order| order.paid));
            assert_eq!(world.state::<Till>("A").map(|till| till.taken), Some(1));
        });
    let checked = holds(checked.report());
    assert_eq!(checked.explored.len(), 4);
    assert!(checked.explored[0].worlds > 50, "{checked}");
}

#[test]
fn a_mistake_that_lies_between_two_sagas_is_found() {
    let both = |endpoint: &str| {
        let check = Check::saga(orders()).and(till()).endpoint(endpoint).with(card());
        check.message(place()).message(cancel()).report()
    };
    let checked = both("duo");
    println!("{checked}");
    let failure = checked.failure.unwrap();
    assert_eq!(failure.claim, "nothing_is_set_aside");
    assert!(failure.steps.iter().any(|step| step.contains("there is nothing to give back")), "{failure}");
    // Each by itself is in order; and so are both, when what is sent to `duo` goes to nobody here.
    holds(Check::saga(orders()).message(place()).message(cancel()).report());
    holds(both("uno"));
}

#[test]
fn the_messages_of_the_beginning_may_be_for_any_of_them() {
    let check = Check::saga(orders()).and(till()).and_handler(Biller).with(card());
    let check = check.message(Billed { order: "A".into() }).message(Take { order: "A".into() }).may_set_aside();
    holds(check.at_rest("it is taken", |world| world.state::<Till>("A").is_some_and(|till| till.taken == 1)).report());
}

#[test]
fn sagas_that_cannot_stand_side_by_side_are_refused() {
    let check = Check::saga(orders()).and(Registry::<Order>::new().starts::<Place>());
    refused(check.message(place()).report(), "two sagas of the name order");
    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Other;
    impl Saga for Other {
        const NAME: &'static str = "other";
    }
    impl Handle<Place> for Other {
        fn correlate(place: &Place) -> Correlation<'_> {
            (&place.order).into()
        }
        async fn handle(&mut self, _: Place, _: &mut Context) -> Result<(), HandlerError> {
            Ok(())
        }
    }
    let check = Check::saga(orders()).and(Registry::<Other>::new().starts::<Place>());
    refused(check.message(place()).report(), "duo.place is handled by order and by other");
}

#[test]
fn a_service_is_for_all_of_them() {
    refused(Check::saga(orders()).and(till()).message(place()).report(), "add .with(..)");
    refused(Check::saga(orders()).with(card()).and(till()).message(place()).report(), ".and(..) before .with(..)");
    refused(Check::saga(orders()).endpoint("no name").message(place()).report(), "no name");
}

/// Tells how many messages it has seen: under one id, what is another number in another world.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counter {
    seen: u32,
}

impl Saga for Counter {
    const NAME: &'static str = "counter";
}

impl Handle<Place> for Counter {
    fn correlate(place: &Place) -> Correlation<'_> {
        (&place.order).into()
    }

    async fn handle(&mut self, _: Place, cx: &mut Context) -> Result<(), HandlerError> {
        self.seen += 1;
        cx.publish(Taken { order: self.seen.to_string() })
    }
}

/// Keeps what it is told last.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Last {
    told: String,
}

impl Saga for Last {
    const NAME: &'static str = "last";
}

impl Handle<Taken> for Last {
    fn correlate(_: &Taken) -> Correlation<'_> {
        "l".into()
    }

    async fn handle(&mut self, taken: Taken, _: &mut Context) -> Result<(), HandlerError> {
        self.told = taken.order;
        Ok(())
    }
}

#[test]
fn another_content_in_another_world_is_no_difference_between_runs() {
    let check =
        Check::saga(Registry::<Counter>::new().starts::<Place>()).and(Registry::<Last>::new().starts::<Taken>());
    let checked = check.messages([place(), place()]).workers(1).crashes(1).report();
    println!("{checked}");
    checked.holds();
}
