//! Finds two passes that collided because the rule was broken, and shows them side by side.

use std::{cmp::Reverse, collections::HashSet, fmt};

use hapax::{
    Saga,
    ids::{DedupKey, EntityKey},
};

use super::{
    Call, Port, Rule, Sabotage,
    diary::{Diary, Pass},
};
use crate::{books::Finding, order::Order, payment::Payment};

/// Findings that are quoted.
const QUOTED: usize = 2;
/// Collisions of which the neatest is shown.
const COMPARED: usize = 200;
/// Width of a column, in characters; two of them and the time fit into 100.
const COLUMN: usize = 44;
/// Width of a paragraph, in characters.
const LINE: usize = 100;
/// What stands beside the call in which the rule was broken.
const HERE: [&str; 2] = [">>", "<<"];

/// What became of a run in which a rule was broken.
#[derive(Debug)]
pub(crate) struct Story {
    rule: Rule,
    mended: bool,
    /// How often it was broken to some effect.
    times: u64,
    balanced: bool,
    collision: Option<Collision>,
}

/// Two passes that came together badly.
#[derive(Debug)]
struct Collision {
    /// Number of the call in which the rule was broken.
    fatal: u64,
    /// What the two messages are called, and the passes over them; the one that was undone or undid stands right.
    passes: [(String, Pass); 2],
    /// The message that it happened to.
    victim: String,
    /// What the books say of the entity.
    findings: Vec<String>,
}

impl Story {
    pub(super) fn find(sabotage: &Sabotage, findings: &[Finding]) -> Self {
        let calls = sabotage.trace.take();
        Self {
            rule: sabotage.rule,
            mended: sabotage.mended,
            times: sabotage.trace.fatal(),
            balanced: findings.is_empty(),
            collision: find(sabotage.rule, &calls, findings),
        }
    }
}

/// The collision that is easiest to see, at an entity of which the books speak.
fn find(rule: Rule, calls: &[Call], findings: &[Finding]) -> Option<Collision> {
    let diary = Diary::of(calls);
    let named: HashSet<&str> = findings.iter().map(|finding| finding.about.as_str()).collect();
    let says = what_follows(rule);
    let loud = findings.iter().filter(|finding| finding.what.contains(says));
    let loud: HashSet<&str> = loud.map(|finding| finding.about.as_str()).collect();
    let weight = |call: &Call| {
        let Some(entity) = &call.entity else { return 0 };
        let name = name_in_the_books(entity);
        if !named.contains(name.as_str()) {
            return 0;
        }
        // An order's own trouble is told in a word; of shelves there is much to say, of payments it is told elsewhere.
        let order = entity.scope().saga.as_str() == Order::NAME;
        1 + u8::from(order) + u8::from(order && loud.contains(name.as_str()))
    };
    let mut fatal: Vec<&Call> = calls.iter().filter(|call| call.fatal && weight(call) > 0).collect();
    fatal.sort_by_key(|call| Reverse(weight(call)));
    let collisions = fatal.into_iter().filter_map(|call| Some((call, collide(rule, &diary, call)?)));
    let neatest = collisions.take(COMPARED).max_by_key(|(call, passes)| {
        (weight(call), neatness(rule, passes), Reverse(call.number)) // Of equals the earliest.
    });
    let (call, passes) = neatest?;
    let name = name_in_the_books(call.entity.as_ref()?);
    let mut said: Vec<&Finding> = findings.iter().filter(|finding| finding.about == name).collect();
    said.sort_by_key(|finding| (!finding.what.contains(says), finding.what.len()));
    let victim = if rule == Rule::AckEarly { &passes[1] } else { &passes[0] };
    Some(Collision {
        fatal: call.number,
        victim: format!("{}, {}", diary.describe(&victim.message), diary.id(&victim.message)),
        findings: said.into_iter().take(QUOTED).map(ToString::to_string).collect(),
        passes: passes.map(|pass| (diary.title(&pass.message), pass)),
    })
}

/// The finding that shows best what comes of it: money for an effect too many, silence for one too few.
const fn what_follows(rule: Rule) -> &'static str {
    match rule {
        Rule::CheckBeforeLoad | Rule::ForgetfulDedup => "was charged 2",
        Rule::BlindSave | Rule::AckEarly | Rule::MarkBeforeDispatch => "came to no end",
    }
}

/// How easily two passes are understood: two workers rather than one that did both; a second handling that asks for money;
/// a worker that dies while it sends; and a pass that comes to its end.
fn neatness(rule: Rule, [left, right]: &[Pass; 2]) -> u8 {
    let sends = |pass: &Pass, what: &str| {
        pass.calls.iter().any(|call| call.port == Port::Dispatch && call.says.starts_with(what))
    };
    let tells = match rule {
        Rule::CheckBeforeLoad | Rule::ForgetfulDedup => sends(right, "take-payment") && !sends(left, "take-payment"),
        Rule::MarkBeforeDispatch => left.calls.iter().any(|call| call.port == Port::Dispatch && call.cut_off),
        Rule::BlindSave | Rule::AckEarly => true,
    };
    let settles = right.calls.last().is_some_and(|call| call.port == Port::Settle);
    u8::from(left.worker != right.worker) * 4 + u8::from(tells) * 2 + u8::from(settles)
}

/// The two passes of which the call was the undoing.
fn collide(rule: Rule, diary: &Diary<'_>, fatal: &Call) -> Option<[Pass; 2]> {
    let entity = fatal.entity.as_ref()?;
    let earlier = || diary.at(entity).iter().filter(|call| call.number < fatal.number);
    let mut later = diary.at(entity).iter().filter(|call| call.number > fatal.number);
    let saves =
        |call: &Call, key: &DedupKey| call.port == Port::Save && call.after.is_some() && call.keys.contains(key);
    match rule {
        Rule::CheckBeforeLoad | Rule::ForgetfulDedup => {
            let victim = fatal.victim?;
            let first = earlier().find(|call| saves(call, &victim))?;
            let again = diary.pass(entity, fatal, &victim)?;
            again.calls.iter().find(|call| call.number > fatal.number && saves(call, &victim))?;
            Some([diary.pass(entity, first, &victim)?, again])
        }
        Rule::BlindSave => {
            let won = |call: &&&Call| call.port == Port::Save && call.after.is_some() && call.before == fatal.before;
            let rival = earlier().find(won)?;
            let (victim, other) = (diary.handled(entity, rival)?, diary.handled(entity, fatal)?);
            if victim == other {
                return None; // Two copies of one message: their effect is the same.
            }
            Some([diary.pass(entity, rival, &victim)?, diary.pass(entity, fatal, &other)?])
        }
        Rule::AckEarly => {
            let victim = *fatal.keys.first()?;
            let died = later.find(|call| call.worker == fatal.worker && call.keys.contains(&victim))?;
            let again = later.any(|call| call.keys.contains(&victim));
            if again || !died.cut_off || died.port != Port::Load {
                return None; // It may have come twice, and of a save nobody knows whether it took effect.
            }
            let (sent, cause) = diary.sender(fatal.message.as_ref()?)?;
            let sender = diary.pass(cause.entity.as_ref()?, sent, cause.keys.first()?)?;
            Some([sender, diary.pass(entity, died, &victim)?])
        }
        Rule::MarkBeforeDispatch => {
            let victim = diary.handled(entity, fatal)?;
            let died = diary.pass(entity, fatal, &victim)?;
            if diary.is_dispatched(&victim) || !died.calls.iter().any(|call| call.cut_off) {
                return None;
            }
            let told = later.find(|call| call.port == Port::Load && call.over.contains(&victim))?;
            Some([died, diary.pass(entity, told, &victim)?])
        }
    }
}

/// An entity as a person would call it.
pub(super) fn name_of(entity: &EntityKey) -> String {
    format!("{} {}", entity.scope().saga, entity.key())
}

/// And as the books do, which tell an order's payment with the order.
fn name_in_the_books(entity: &EntityKey) -> String {
    let saga = entity.scope().saga.as_str();
    format!("{} {}", if saga == Payment::NAME { Order::NAME } else { saga }, entity.key())
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, mended, times, balanced, collision } = self;
        if *mended {
            return writeln!(f, "--break {rule} --mend: the same ambush was laid, but the rule was kept");
        }
        writeln!(f, "\nBROKEN ON PURPOSE: {rule}, {times} times")?;
        paragraph(f, "step", rule.step())?;
        paragraph(f, "broken", rule.broken())?;
        paragraph(f, "shipped", rule.shipped())?;
        match collision {
            Some(collision) => {
                paragraph(f, "example", &collision.victim)?;
                writeln!(f, "\n{collision}")?;
                paragraph(f, "so", rule.moral())?;
                collision.findings.iter().try_for_each(|finding| paragraph(f, "books", finding))
            }
            None if *balanced => {
                paragraph(f, "books", "balance all the same: nobody was unlucky this time; take another --seed")
            }
            None => paragraph(f, "traces", "too long ago to be remembered; take fewer --orders"),
        }
    }
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(left_message, left), (right_message, right)] = &self.passes;
        let later = if left.worker == right.worker { ", later" } else { "" };
        row(f, "ms", &format!("worker {}", left.worker), &format!("worker {}{later}", right.worker))?;
        row(f, "", left_message, right_message)?;
        let mut calls: Vec<(&Call, bool)> = left.calls.iter().map(|call| (call, true)).collect();
        calls.extend(right.calls.iter().map(|call| (call, false)));
        calls.sort_by_key(|(call, _)| call.number);
        for (call, is_left) in calls {
            let [before, after] = if call.number == self.fatal { HERE } else { [""; 2] };
            let died = if call.cut_off { "... the worker dies" } else { "" };
            let mut cell = format!("{:<9}", call.port.name());
            for part in [&call.says, died, after].into_iter().filter(|part| !part.is_empty()) {
                cell.push_str(part);
                cell.push(' ');
            }
            let time = format!("{before:<2}{:>7.1}", call.at.as_secs_f64() * 1000.0);
            if is_left { row(f, &time, cell.trim_end(), "")? } else { row(f, &time, "", cell.trim_end())? }
        }
        Ok(())
    }
}

/// A line of the two columns.
fn row(f: &mut fmt::Formatter<'_>, time: &str, left: &str, right: &str) -> fmt::Result {
    writeln!(f, "{}", format!("{time:>9}  {left:<COLUMN$}  {right}").trim_end())
}

/// A paragraph with a name in the margin.
fn paragraph(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    let mut line = format!("  {name:<9}");
    let empty = line.chars().count();
    let mut width = empty;
    for word in text.split_whitespace() {
        let longer = width + 1 + word.chars().count();
        if longer > LINE && width > empty {
            writeln!(f, "{}", line.trim_end())?;
            line = " ".repeat(empty);
            width = empty;
        }
        line.push_str(word);
        line.push(' ');
        width += 1 + word.chars().count();
    }
    writeln!(f, "{}", line.trim_end())
}
