//! Checks of users' handlers: good ones pass, and each kind of mistake is found with its story.
#![allow(clippy::unwrap_used)]

mod outside;

use std::time::Duration;

use hapax_core::{Context, Correlation, Handle, HandlerError, Message, Missing, Registry, Saga};
use hapax_model::check::{Budgets, Check, Checked, Failure};
use serde::{Deserialize, Serialize};

macro_rules! message {
    ($name:ident { $($field:ident: $of:ty),* }, $on_the_wire:literal) => {
        #[derive(Debug, Clone, Serialize, Deserialize)]
        struct $name { $($field: $of),* }
        impl Message for $name {
            const TYPE: &'static str = $on_the_wire;
        }
    };
}

message!(Reserve { article: String, count: u32 }, "shop.reserve");
message!(Release { article: String, count: u32 }, "shop.release");
message!(Reserved { article: String, count: u32 }, "shop.reserved");
message!(Short { article: String }, "shop.short");

/// Five of an article.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stock {
    reserved: u32,
    released_early: u32,
}

impl Saga for Stock {
    const NAME: &'static str = "stock";
}

impl Handle<Reserve> for Stock {
    fn correlate(reserve: &Reserve) -> Correlation<'_> {
        Correlation::of("article", &reserve.article)
    }

    async fn handle(&mut self, reserve: Reserve, cx: &mut Context) -> Result<(), HandlerError> {
        let early = self.released_early.min(reserve.count);
        self.released_early -= early;
        let Reserve { article, count } = reserve;
        if self.reserved + count - early > 5 {
            return cx.publish(Short { article });
        }
        self.reserved += count - early;
        cx.publish(Reserved { article, count })
    }
}

impl Handle<Release> for Stock {
    fn correlate(release: &Release) -> Correlation<'_> {
        Correlation::of("article", &release.article)
    }

    async fn handle(&mut self, release: Release, _: &mut Context) -> Result<(), HandlerError> {
        let now = self.reserved.min(release.count);
        self.reserved -= now;
        self.released_early += release.count - now;
        Ok(())
    }
}

fn reserve(count: u32) -> Reserve {
    Reserve { article: "mug".into(), count }
}

fn release(count: u32) -> Release {
    Release { article: "mug".into(), count }
}

fn stock() -> Check<Stock> {
    Check::saga(Registry::new().starts::<Reserve>().starts::<Release>())
}

/// What every story has.
fn failure(checked: Checked, claim: &str) -> Failure {
    println!("{checked}");
    let failure = checked.failure.unwrap();
    let text = failure.to_string();
    assert_eq!(failure.claim, claim, "{text}");
    assert!(text.contains("what to do: "), "{text}");
    assert!(text.contains("replay: "), "{text}");
    failure
}

fn holds(checked: Checked) -> Checked {
    println!("{checked}");
    assert!(checked.failure.is_none());
    checked
}

#[test]
fn a_good_saga_passes_and_every_rare_path_is_taken() {
    let check = stock().messages([reserve(4), reserve(3)]);
    let check = check
        .always("never oversold", |world| world.state::<Stock>("mug").is_none_or(|stock| stock.reserved <= 5))
        .at_rest("one of both has its goods", |world| {
            assert_eq!(world.sent::<Reserved>().len(), 1);
            assert_eq!(world.sent::<Short>().len(), 1);
        });
    let checked = holds(check.report());
    assert_eq!(checked.warnings, Vec::<String>::new());
    assert_eq!(checked.paths.len(), 5);
    assert_eq!(checked.explored.len(), 4);
}

#[test]
fn all_that_was_asked_for_may_go_wrong_together() {
    let checked = holds(stock().message(reserve(4)).crashes(1).unknown(1).duplicates(1).report());
    assert_eq!(checked.explored.len(), 1);
    assert_eq!(checked.explored[0].what, ".workers(2).crashes(1).unknown(1).duplicates(1)");
    let faults = Budgets { expiries: 1, crashes: 1, ..Budgets::NONE };
    let checked = holds(stock().message(reserve(4)).two_stores().faults(faults).report());
    assert!(checked.explored[0].what.ends_with(".faults(Budgets { crashes: 1, expiries: 1, ..Budgets::NONE })"));
}

#[test]
fn a_sentence_that_does_not_hold_is_told_with_its_story() {
    let check = stock().messages([reserve(4), reserve(3)]);
    let failure = failure(
        check.always("at most three", |w| w.state::<Stock>("mug").is_none_or(|s| s.reserved <= 3)).report(),
        "at most three",
    );
    assert!(failure.seen.contains(r#"stock mug is {"reserved":4"#), "{failure}");
    assert_eq!(failure.messages[0], r#"shop.reserve {"article":"mug","count":4}"#);
    assert!(failure.advice.contains("any order"), "{failure}");
    assert!(failure.replay.contains(".workers(2).crashes(1)"), "{failure}");
    assert!(failure.diagram.starts_with("sequenceDiagram\n"), "{failure}");
    assert!(failure.diagram.contains("w1->>store: save"), "{failure}");
    assert!(failure.diagram.contains("queue->>w1: m"), "{failure}");
}

#[test]
#[should_panic(expected = "what to do: messages may come in any order")]
fn a_check_that_is_run_panics_with_the_story() {
    stock().messages([reserve(4), reserve(3)]).at_rest("nothing is sent", |w| w.sent::<Reserved>().is_empty()).run();
}

/// Ships what was reserved, and takes it for granted that it was.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Hasty {
    reserved: u32,
}

impl Saga for Hasty {
    const NAME: &'static str = "hasty";
}

impl Handle<Reserve> for Hasty {
    fn correlate(reserve: &Reserve) -> Correlation<'_> {
        (&reserve.article).into()
    }

    async fn handle(&mut self, reserve: Reserve, _: &mut Context) -> Result<(), HandlerError> {
        self.reserved += reserve.count;
        Ok(())
    }
}

impl Handle<Release> for Hasty {
    fn correlate(release: &Release) -> Correlation<'_> {
        (&release.article).into()
    }

    async fn handle(&mut self, release: Release, _: &mut Context) -> Result<(), HandlerError> {
        match self.reserved.checked_sub(release.count) {
            Some(reserved) => self.reserved = reserved,
            None => return Err(HandlerError::permanent("released before it was reserved")),
        }
        Ok(())
    }
}

#[test]
fn an_assumed_order_is_found() {
    let hasty = Check::saga(Registry::<Hasty>::new().starts::<Reserve>().starts::<Release>());
    let failure = failure(hasty.message(reserve(1)).message(release(1)).report(), "nothing_is_set_aside");
    assert!(failure.steps.iter().any(|step| step.contains("released before it was reserved")), "{failure}");
    assert!(failure.steps.len() <= 8, "{failure}");
    assert!(failure.advice.contains(".starts::<M>()"), "{failure}");
}

#[test]
fn a_message_that_may_not_start_a_saga_waits_for_one_that_may() {
    let hasty = || Check::saga(Registry::<Hasty>::new().starts::<Reserve>().handles::<Release>());
    let both = hasty().message(release(1)).message(reserve(1));
    holds(both.at_rest("all is released", |w| w.state::<Hasty>("mug").is_some_and(|s| s.reserved == 0)).report());
    failure(hasty().message(release(1)).report(), "nothing_is_set_aside");
    holds(hasty().message(release(1)).may_set_aside().report());
}

#[test]
fn what_a_rule_drops_must_be_allowed_to_be_dropped() {
    let drops = || Registry::<Hasty>::new().starts::<Reserve>().handles::<Release>().when_missing(Missing::Drop);
    let failure = failure(Check::saga(drops()).message(release(1)).report(), "ack_implies_done");
    assert!(failure.advice.contains(".may_drop()"), "{failure}");
    holds(Check::saga(drops()).message(release(1)).may_drop().report());
}

#[test]
fn a_message_that_another_causes_comes_after_it() {
    let causes = || {
        let check = Check::saga(Registry::<Stock>::new().starts::<Reserve>().starts::<Release>());
        check.message(reserve(4)).always("nothing comes too early", |world| {
            assert_eq!(world.state::<Stock>("mug").map_or(0, |stock| stock.released_early), 0);
        })
    };
    failure(causes().message(release(4)).report(), "nothing comes too early");
    let checked = holds(causes().after::<Reserved, _>(release(4)).crashes(1).duplicates(1).report());
    assert!(checked.warnings.is_empty() || checked.warnings.len() == 1, "{checked}");
    // What is never caused never comes, and nobody waits for it.
    holds(causes().after::<Short, _>(release(4)).report());
}

#[test]
fn a_story_can_be_kept_and_gone_through_again() {
    let check = |most: u32| {
        let check = stock().messages([reserve(4), reserve(3)]).crashes(1);
        check.always("not too many", move |w| w.state::<Stock>("mug").is_none_or(|s| s.reserved <= most))
    };
    let told = failure(check(3).report(), "not too many");
    let line = told.replay.split_once(".replay(\"").and_then(|(_, line)| line.strip_suffix("\").holds()")).unwrap();
    assert_eq!(failure(check(3).replay(line), "not too many").steps, told.steps);
    check(5).replay(line).holds();
    let kept = std::panic::catch_unwind(|| check(3).replay(line).holds());
    assert!(
        kept.is_err_and(|story| story.downcast_ref::<String>().is_some_and(|story| story.contains("not too many")))
    );
    let lost = failure(check(3).replay("begin m9"), "it_can_be_replayed");
    assert!(lost.seen.contains("begin m0"), "{lost}");
}

/// Ends by its own timeout, unless it is released before.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Hold {
    ended: u32,
}

impl Saga for Hold {
    const NAME: &'static str = "hold";
}

impl Handle<Reserve> for Hold {
    fn correlate(reserve: &Reserve) -> Correlation<'_> {
        (&reserve.article).into()
    }

    async fn handle(&mut self, reserve: Reserve, cx: &mut Context) -> Result<(), HandlerError> {
        cx.timeout(Duration::from_secs(60), Short { article: reserve.article }).map(drop)
    }
}

impl Handle<Short> for Hold {
    fn correlate(short: &Short) -> Correlation<'_> {
        (&short.article).into()
    }

    async fn handle(&mut self, _: Short, _: &mut Context) -> Result<(), HandlerError> {
        self.ended += 1;
        Ok(())
    }
}

#[test]
fn a_timeout_that_a_saga_sets_comes_by_itself() {
    let hold = Check::saga(Registry::<Hold>::new().starts::<Reserve>().handles::<Short>()).message(reserve(1));
    holds(hold.at_rest("it has ended once", |w| w.state::<Hold>("mug").is_some_and(|hold| hold.ended == 1)).report());
}

/// Writes down everything.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Diary {
    pages: Vec<u32>,
}

impl Saga for Diary {
    const NAME: &'static str = "diary";
}

impl Handle<Reserve> for Diary {
    fn correlate(reserve: &Reserve) -> Correlation<'_> {
        (&reserve.article).into()
    }

    async fn handle(&mut self, reserve: Reserve, _: &mut Context) -> Result<(), HandlerError> {
        self.pages.push(reserve.count);
        Ok(())
    }
}

#[test]
fn state_that_grows_without_end_is_found() {
    let diary = || Check::saga(Registry::<Diary>::new().starts::<Reserve>()).message(reserve(1));
    let checked = holds(diary().report());
    assert!(checked.warnings.iter().any(|warning| warning.starts_with("the state grows")), "{checked}");
    let failure = failure(diary().state_bytes_max(40).report(), "state_bytes_max");
    assert!(failure.advice.contains("sums instead of lists"), "{failure}");
    holds(diary().state_bytes_max(1000).report());
}

#[test]
fn a_path_that_no_history_takes_is_a_warning() {
    let checked = holds(stock().message(reserve(1)).workers(1).faults(Budgets::NONE).report());
    assert_eq!(checked.warnings.len(), 5, "{checked}");
    assert!(checked.warnings[0].contains(".workers(2)"), "{checked}");
}
