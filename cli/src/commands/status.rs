//! How it stands, once or again and again.

use std::io::{self, Write};

use hapax::{
    operator::{
        EndpointStatus, Operator, OutboxStatus, QueueStatus, ScheduleStatus, Status, masked_url, printable, with_causes,
    },
    ports::{Answer, Count},
};
use serde::Serialize;

use super::{is_there, open, selection};
use crate::{
    args::{Common, StatusArgs},
    failure::{Failure, in_our_words},
    place::Opened,
    print::{Out, Table, counted, span, span_or_dash},
    transport::{way_out, with_transport},
};

/// A screen of its own, without a cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
/// And back.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// From its upper left corner on.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Where it was looked: of several shells, each has a place of its own in its environment.
#[derive(Debug, Serialize)]
struct Looked {
    place: String,
    transport: Option<String>,
    #[serde(skip)]
    by_environment: bool,
}

impl Looked {
    fn at(opened: &Opened, common: &Common) -> Self {
        let has_transport = common.transport().is_some() || opened.has_queues;
        Self {
            place: masked_url(&common.store().unwrap_or_default()),
            transport: has_transport.then(|| way_out(opened, common)),
            by_environment: common.has_transport_from_environment(),
        }
    }
}

/// How it stands, and of which place that is told.
#[derive(Serialize)]
struct Placed<'a> {
    #[serde(flatten)]
    status: &'a Status,
    #[serde(flatten)]
    looked: &'a Looked,
}

pub(super) async fn run(asked: &StatusArgs, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let opened = open(common).await?;
    let looked = Looked::at(&opened, common);
    let operator = with_transport(opened, common).await?;
    if asked.watch {
        return watch(&operator, &looked, asked, common, out).await;
    }
    is_there(&operator, asked.of.endpoint.as_ref()).await?;
    let status = operator.status(&selection(&asked.of), asked.limit).await.map_err(|error| Failure::of(&error))?;
    let placed = Placed { status: &status, looked: &looked };
    if common.json { out.json(&placed) } else { out.text(&text(&placed)) }
}

/// The terminal as it was, however the program ends.
struct Screen;

impl Screen {
    fn enter(out: &mut Out) -> Result<Self, Failure> {
        out.text(ENTER)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush()); // The terminal may be gone.
    }
}

/// Draws it anew each time, until Ctrl-C; where there is no terminal, frames follow each other.
async fn watch(
    operator: &Operator,
    looked: &Looked,
    asked: &StatusArgs,
    common: &Common,
    out: &mut Out,
) -> Result<(), Failure> {
    let is_drawn = Out::is_terminal() && !common.json;
    let stop = stopped(); // Before the screen is entered: who ends it from then on finds somebody who leaves it.
    let screen = if is_drawn { Some(Screen::enter(out)?) } else { None };
    out.json_lines = true;
    let of = selection(&asked.of);
    let mut ticks = tokio::time::interval(asked.every.max(std::time::Duration::from_millis(100)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = ticks.tick() => {}
        }
        let status = tokio::select! {
            () = &mut stop => break,
            status = operator.status(&of, asked.limit) => status,
        };
        let drawn = match (&status, common.json) {
            (Ok(status), true) => out.json(&Placed { status, looked }),
            (Ok(status), false) => out.text(&frame(&text(&Placed { status, looked }), is_drawn)),
            // A server that is away comes back; who watches sees both.
            (Err(error), _) => {
                let failure = in_our_words(&with_causes(error));
                if is_drawn { out.text(&frame(&format!("{failure}\n"), true)) } else { told(&failure) }
            }
        };
        drawn?;
        if out.is_unread {
            break;
        }
    }
    drop(screen);
    Ok(())
}

fn told(failure: &str) -> Result<(), Failure> {
    let _ = writeln!(io::stderr(), "hapax: {failure}"); // There is nowhere else to say it.
    Ok(())
}

fn frame(text: &str, is_drawn: bool) -> String {
    if is_drawn { format!("{CLEAR}{text}\nCtrl-C ends it\n") } else { format!("{text}\n") }
}

/// Ctrl-C, Ctrl-\, or whoever ends programs politely. Not the end of a terminal: `nohup` is to be heeded, and there is no screen to be left.
///
/// It listens from the call on.
pub(super) fn stopped() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let mut signals = {
        use tokio::signal::unix::{SignalKind, signal};

        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit()].map(|kind| signal(kind).ok())
    };
    async move {
        #[cfg(unix)]
        std::future::poll_fn(|context| {
            match signals.iter_mut().flatten().any(|signal| signal.poll_recv(context).is_ready()) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// A page for a person.
fn text(Placed { status, looked }: &Placed) -> String {
    let said = if looked.by_environment { ", as HAPAX_TRANSPORT says" } else { "" };
    let mut text = format!("{} {} at {}\n", status.store, looked.place, status.time);
    text += &match &looked.transport {
        Some(transport) => format!("transport      {transport}{said}\n"),
        None => "transport      none was named\n".to_owned(),
    };
    text += &match &status.dedup {
        Answer::Is(dedup) => format!(
            "dedup entries  {}{}; kept for {}\n",
            dedup.entries,
            dedup.oldest_at_most_ms.map(|age| format!(", none older than {}", span(age))).unwrap_or_default(),
            dedup.retention_ms.map_or_else(|| "as long as an endpoint asks for".to_owned(), span),
        ),
        Answer::Unknown { why } => format!("dedup entries  not known here: {why}\n"),
    };
    match &status.endpoints {
        Answer::Is(endpoints) if endpoints.is_empty() => text += "\nno endpoint has left anything in this store\n",
        Answer::Is(endpoints) => endpoints.iter().for_each(|endpoint| text += &endpoint_text(endpoint)),
        Answer::Unknown { why } => text += &format!("\nendpoints  not known here: {why}\n"),
    }
    status.outboxes.iter().for_each(|outbox| text += &outbox_text(outbox));
    text
}

fn endpoint_text(endpoint: &EndpointStatus) -> String {
    let mut text = format!("\nendpoint {}\n", endpoint.endpoint);
    text += &format!("  queue         {}\n", line(&endpoint.queue, queue_text));
    text += &format!("  dead letters  {}\n", line(&endpoint.dead_letters, Count::to_string));
    text += &format!("  schedule      {}\n", line(&endpoint.schedule, schedule_text));
    match &endpoint.sagas {
        Answer::Unknown { why } => text += &format!("  sagas         not known here: {why}\n"),
        Answer::Is(sagas) if sagas.is_empty() => {}
        Answer::Is(sagas) => {
            let mut table = Table::new(&["  saga", "waiting entities", "entries", "oldest"]);
            for saga in sagas {
                let name = format!("  {}", saga.saga);
                table.row([name, saga.waiting.to_string(), saga.entries.to_string(), span_or_dash(saga.oldest_ms)]);
            }
            text += &table.text();
        }
    }
    text
}

fn line<T>(answer: &Answer<T>, text: impl Fn(&T) -> String) -> String {
    match answer {
        Answer::Is(answer) => text(answer),
        Answer::Unknown { why } => format!("not known here: {}", printable(why)),
    }
}

fn queue_text(queue: &QueueStatus) -> String {
    let messages = counted(queue.messages, "message", "messages");
    match queue.leased.is() {
        Some(leased) => format!("{messages}, {leased} under a lease"),
        None => format!("{messages}; under a lease: {}", line(&queue.leased, Count::to_string)),
    }
}

fn schedule_text(schedule: &ScheduleStatus) -> String {
    let ScheduleStatus { messages, overdue, next_in_ms, overdue_for_ms, .. } = schedule;
    let next = match (overdue_for_ms, next_in_ms) {
        (Some(since), _) => format!("; the first is overdue for {}", span(*since)),
        (None, Some(wait)) => format!("; the next is due in {}", span(*wait)),
        (None, None) => String::new(),
    };
    format!("{}, {overdue} overdue{next}", counted(messages, "message", "messages"))
}

fn outbox_text(outbox: &OutboxStatus) -> String {
    let OutboxStatus { table, waiting, claimed, oldest_ms, lag_ms, failed, relays, .. } = outbox;
    format!(
        "\noutbox {table}\n  {waiting} wait, {claimed} of them under a lease; the oldest for {}, the first that is due for {}\n  \
         {failed} have failed; {relays} relays\n",
        span_or_dash(*oldest_ms),
        span_or_dash(*lag_ms),
    )
}
