//! Lines of transports, and the table of them.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use hapax::ports::Delays;

use crate::{
    declared::{IN_MEMORY, NO_ORDER, Opened},
    seen::{SENT, Seen},
};

/// What is said of a transport, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    feature: String,
    order: String,
    delays: String,
    confirmed: String,
    copies: String,
    lease: String,
    largest: String,
    survives: String,
    evidence: String,
    pub(crate) seen_on: String,
}

const HEAD: &str = "| transport | feature | order | held back until due | a send is confirmed by | sent three times under one id, it comes | lease | largest message | survives the process | evidence | seen on |";

const fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn bytes(bytes: usize) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

fn length(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

fn times(copies: usize) -> String {
    match copies {
        1 => "once".to_owned(),
        SENT => format!("{SENT} times"),
        copies => format!("{copies} times of {SENT}"),
    }
}

impl Line {
    /// The words of `opened` are held to what it declares, as far as that tells.
    pub(crate) fn of(opened: &Opened, seen: &Seen) -> Self {
        let can = opened.usual.capabilities();
        let asked_for = opened.ordered.as_ref().is_some_and(|ordered| ordered.capabilities().ordered_keys);
        let order = match (can.ordered_keys, asked_for) {
            (true, _) => opened.order.to_owned(),
            (false, true) => format!("{}, if asked for", opened.order),
            (false, false) => NO_ORDER.to_owned(),
        };
        let (keeps, says) = (can.ordered_keys || asked_for, opened.order != NO_ORDER);
        assert_eq!(says, keeps, "{}: `{}` is not what it declares of order", can.name, opened.order);
        let says = opened.confirmed != IN_MEMORY;
        assert_eq!(
            says, can.durable,
            "{}: `{}` is not what it declares of a process's end",
            can.name, opened.confirmed
        );
        Self {
            feature: opened.feature.to_owned(),
            order,
            delays: match can.delays {
                Delays::Never => "no: give a schedule".to_owned(),
                Delays::UpTo(most) => format!("for {}, longer with a schedule", length(most)),
                Delays::Any => "yes".to_owned(),
            },
            confirmed: opened.confirmed.to_owned(),
            copies: match seen.copies_in_order {
                Some(in_order) if in_order != seen.copies => {
                    format!("{}; {} with order asked for", times(seen.copies), times(in_order))
                }
                _ => times(seen.copies),
            },
            lease: can.lease.map_or_else(|| "as long as the connection".to_owned(), length),
            largest: if opened.of_the_server {
                "as the server has it".to_owned()
            } else {
                bytes(can.message_bytes_max)
            },
            survives: yes(can.durable).to_owned(),
            evidence: yes(can.marks).to_owned(),
            seen_on: opened.seen_on.clone(),
        }
    }
}

/// The lines that a text holds, by transport.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Line> {
    let table = text.lines().skip_while(|line| *line != HEAD).skip(2).take_while(|line| line.starts_with('|'));
    table
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(|cell| unquoted(cell.trim()).to_owned());
            let mut next = || cells.next();
            let name = next()?;
            let line = Line {
                feature: next()?,
                order: next()?,
                delays: next()?,
                confirmed: next()?,
                copies: next()?,
                lease: next()?,
                largest: next()?,
                survives: next()?,
                evidence: next()?,
                seen_on: next()?,
            };
            Some((name, line))
        })
        .collect()
}

/// Without the quotes of what is quoted as a whole; a cell may also begin with something that is.
fn unquoted(cell: &str) -> &str {
    let inner = cell.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    inner.filter(|inner| !inner.contains('`')).unwrap_or(cell)
}

pub(crate) fn render(lines: &BTreeMap<String, Line>) -> String {
    let mut text = format!("{HEAD}\n|{}\n", " --- |".repeat(HEAD.matches('|').count() - 1));
    for (name, line) in lines {
        let Line { feature, order, delays, confirmed, copies, lease, largest, survives, evidence, seen_on } = line;
        writeln!(
            text,
            "| `{name}` | `{feature}` | {order} | {delays} | {confirmed} | {copies} | {lease} | {largest} | {survives} | {evidence} | {seen_on} |"
        )
        .unwrap();
    }
    text
}
