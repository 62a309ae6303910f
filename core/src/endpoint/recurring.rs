//! Messages that are sent again and again, by the calendar: each time once, however many processes run the endpoint.
//!
//! A recurrence is a saga of the endpoint, one instance for each name, that waits for a timeout, says what is to be sent, and sets the
//! next. So all that makes any saga right makes this one right: an occurrence is one message, its effect is saved once, and
//! whichever process is given it acts. Each start of a process tells the saga what its program says, and it goes on from there.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::{EndpointBuilder, Error, ErrorKind};
use crate::{
    codec::Codec,
    context::{Context, envelope_of, type_name_of},
    envelope::{Destination, Outgoing},
    handler_error::HandlerError,
    ids::{EndpointName, MessageId, SagaKey},
    saga::{Correlation, Handle, Message, Needs, Saga},
    time::Timestamp,
};

/// Occurrences further away than this are waited for in steps: transports have limits for delays.
const STEP_MAX: Duration = Duration::from_secs(24 * 3600);

/// When a message recurs: a cron pattern in a time zone.
///
/// Five fields (minute, hour, day of month, month, day of week), or six with seconds before them; `L`, `#` and `W` as in other crons.
/// Where the clock is set back, a pattern of fixed hours fires once and one of every hour or minute each time; where it is set
/// forward, fixed times that do not exist fire when they would have.
#[derive(Clone)]
pub struct Calendar {
    pattern: String,
    cron: croner::Cron,
    zone: Tz,
    each: bool,
}

/// Why there is no such calendar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCalendar(String);

impl Calendar {
    /// `pattern` in UTC.
    ///
    /// # Errors
    /// [`NoCalendar`] for a pattern that cannot be read, or that never comes.
    pub fn cron(pattern: &str) -> Result<Self, NoCalendar> {
        let parser = croner::parser::CronParser::builder().seconds(croner::parser::Seconds::Optional).build();
        let cron = parser.parse(pattern).map_err(|e| NoCalendar(format!("`{pattern}` is no cron pattern: {e}")))?;
        let calendar = Self { pattern: pattern.to_owned(), cron, zone: Tz::UTC, each: false };
        match calendar.next(Timestamp::now()) {
            Some(_) => Ok(calendar),
            None => Err(NoCalendar(format!("`{pattern}` never comes"))),
        }
    }

    /// The same by the clocks of a place: a name of the IANA time zone database, such as `Europe/Athens`.
    ///
    /// # Errors
    /// [`NoCalendar`] for a name that is none.
    pub fn zone(mut self, name: &str) -> Result<Self, NoCalendar> {
        self.zone =
            Tz::from_str(name).map_err(|_| NoCalendar(format!("`{name}` is no time zone of the IANA database")))?;
        Ok(self)
    }

    /// Occurrences that were missed, because nothing ran, are all made up for, one after the other. Without it the first of them is,
    /// and the others are left out.
    #[must_use]
    pub const fn each_missed(mut self) -> Self {
        self.each = true;
        self
    }

    /// The first occurrence after `time`.
    fn next(&self, time: Timestamp) -> Option<Timestamp> {
        // Occurrences have the fraction of the second that they are looked for from.
        let second = i64::try_from(time.as_millis() / 1000).ok()?;
        let time = DateTime::<Utc>::from_timestamp(second, 0)?.with_timezone(&self.zone);
        let next = self.cron.find_next_occurrence(&time, false).ok()?;
        u64::try_from(next.timestamp_millis()).ok().map(Timestamp::from_millis)
    }

    /// The occurrence to wait for once that of `done` is over.
    fn after(&self, done: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let next = self.next(done)?;
        if self.each || next > now { Some(next) } else { self.next(now) }
    }

    /// What makes it another one.
    fn said(&self) -> String {
        format!("{} {}{}", self.pattern, self.zone.name(), if self.each { " each" } else { "" })
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said())
    }
}

/// Says through the context what is to be sent at an occurrence.
type Tell = Arc<dyn Fn(Timestamp, &mut Context) -> Result<(), HandlerError> + Send + Sync>;

/// What the program says recurs, by name.
#[derive(Clone, Default)]
pub(super) struct Recurrences {
    by_name: BTreeMap<String, (Calendar, Tell)>,
    /// The first name that was given twice.
    twice: Option<String>,
}

impl EndpointBuilder {
    /// Runs `send` at each occurrence of `calendar`, which is the time it is given: once, however many processes run the endpoint.
    /// It says through the context what is to be sent, and does nothing else; where it fails, the occurrence is tried again as a message is.
    /// Each process says every ten minutes what its program has for `name`; so another calendar holds ten minutes after the last
    /// process of the old program has stopped, at the latest. While both run, either may be told of an occurrence: let a name that only one of them
    /// has be met by the others as a dead letter, which is made good by that same saying. An occurrence is late by what a delayed
    /// message is late, and never early.
    ///
    /// A name that no program has any more ends as a dead letter at its next occurrence.
    ///
    /// ```
    /// # use hapax_core::{Endpoint, Message, endpoint::{Calendar, EndpointBuilder, NoCalendar}};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct MakeReport { night: u64 }
    /// # impl Message for MakeReport { const TYPE: &'static str = "shop.make-report"; }
    /// # fn shop() -> Result<EndpointBuilder, NoCalendar> {
    /// let nightly = Calendar::cron("0 3 * * *")?.zone("Europe/Athens")?;
    /// let shop = Endpoint::builder("shop").recurring("nightly report", nightly, |due, cx| {
    ///     cx.send_local(MakeReport { night: due.as_millis() })
    /// });
    /// # Ok(shop)
    /// # }
    /// ```
    pub fn recurring(
        mut self,
        name: &str,
        calendar: Calendar,
        send: impl Fn(Timestamp, &mut Context) -> Result<(), HandlerError> + Send + Sync + 'static,
    ) -> Self {
        let Recurrences { by_name, twice } = &mut self.recurrences;
        if by_name.insert(name.to_owned(), (calendar, Arc::new(send))).is_some() {
            twice.get_or_insert_with(|| name.to_owned());
        }
        self
    }

    /// Adds the saga, if anything recurs.
    pub(super) fn with_recurrences(self) -> Self {
        if self.recurrences.by_name.is_empty() {
            return self;
        }
        let recurrences = self.recurrences.clone();
        self.with(recurrences).own_saga::<Recurring>(|recurring| recurring.starts::<Begin>().handles::<Due>())
    }
}

impl Recurrences {
    /// What a process that starts tells its endpoint.
    ///
    /// # Errors
    /// [`Error`] for a name that is none, and for one that was given twice.
    pub(super) fn begin(&self, endpoint: &EndpointName) -> Result<Vec<Outgoing>, Error> {
        let begin = |name: &String| {
            SagaKey::parse(name.as_str())
                .map_err(|e| format!("`{}` is no name: {e}; give another", name.escape_debug()))?;
            let begin = Begin { name: name.clone() };
            let message_type = type_name_of::<Begin>().map_err(|e| e.to_string())?;
            let envelope =
                envelope_of(MessageId::random(), message_type, &begin, Codec::Json).map_err(|e| e.to_string())?;
            Ok(Outgoing { destination: Destination::Endpoint(endpoint.clone()), envelope: Arc::new(envelope) })
        };
        let wrong =
            |why: String| Error::new(ErrorKind::Misconfigured, format!("endpoint {endpoint}, recurring: {why}"));
        if let Some(name) = &self.twice {
            return Err(wrong(format!("two things recur as `{}`; rename one", name.escape_debug())));
        }
        self.by_name.keys().map(begin).collect::<Result<_, String>>().map_err(wrong)
    }

    fn of(&self, name: &str) -> Result<&(Calendar, Tell), HandlerError> {
        // Another version of the program may have it.
        self.by_name
            .get(name)
            .ok_or_else(|| HandlerError::transient(format!("this program has nothing that recurs as `{name}`")))
    }
}

/// A process has started.
#[derive(Debug, Serialize, Deserialize)]
struct Begin {
    name: String,
}

impl Message for Begin {
    const TYPE: &'static str = "hapax.recurring.begin";
}

/// It is time, or a step nearer to it.
#[derive(Debug, Serialize, Deserialize)]
struct Due {
    name: String,
}

impl Message for Due {
    const TYPE: &'static str = "hapax.recurring.due";
}

/// One thing that recurs.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Recurring {
    /// The calendar as it was said last.
    said: String,
    /// The next occurrence, in milliseconds since 1970.
    next: Option<u64>,
    /// The timeout that is waited for.
    timeout: Option<String>,
}

impl Saga for Recurring {
    const NAME: &'static str = "hapax.recurring";

    fn needs() -> Needs {
        Needs::default().and::<Recurrences>()
    }
}

impl Handle<Begin> for Recurring {
    fn correlate(begin: &Begin) -> Correlation<'_> {
        (&begin.name).into()
    }

    async fn handle(&mut self, begin: Begin, cx: &mut Context) -> Result<(), HandlerError> {
        let (calendar, _) = cx.get::<Recurrences>()?.of(&begin.name)?.clone();
        let (said, now) = (calendar.said(), cx.now());
        let next = calendar.next(now).map(Timestamp::as_millis);
        if self.said != said || self.next.is_none() {
            self.next = next;
            self.said = said;
        }
        // None is further away than the next of all, unless a clock was wrong when it was worked out.
        self.next = self.next.into_iter().chain(next).min();
        // Also where nothing has changed: should the timeout have been lost among the dead letters, it goes on.
        self.wait(begin.name, cx)
    }
}

impl Handle<Due> for Recurring {
    fn correlate(due: &Due) -> Correlation<'_> {
        (&due.name).into()
    }

    async fn handle(&mut self, due: Due, cx: &mut Context) -> Result<(), HandlerError> {
        let (calendar, send) = cx.get::<Recurrences>()?.of(&due.name)?.clone();
        let now = cx.now();
        if let Some(next) = self.next.map(Timestamp::from_millis).filter(|next| *next <= now) {
            send(next, cx)?;
            self.next = calendar.after(next, now).map(Timestamp::as_millis);
        }
        self.wait(due.name, cx)
    }
}

impl Recurring {
    /// Waits for the next occurrence, and no longer for any other.
    fn wait(&mut self, name: String, cx: &mut Context) -> Result<(), HandlerError> {
        if let Some(timeout) = self.timeout.take() {
            cx.cancel_timeout(&MessageId::parse(timeout.as_str()).map_err(HandlerError::permanent)?);
        }
        if let Some(next) = self.next {
            let wait = Timestamp::from_millis(next).since(cx.now()).min(STEP_MAX);
            self.timeout = Some(cx.timeout(wait, Due { name })?.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// In the endpoint's store and in its queue while a newer program takes the place of an older one: what one has set the other is told of.
    #[test]
    fn what_is_kept_and_sent_of_a_recurrence_keeps_its_text() {
        const STATE: &str = r#"{"said":"0 3 * * * Europe/Athens each","next":1700000000000,"timeout":"01234567-89ab-869c-9583-170169612366"}"#;
        const MESSAGE: &str = r#"{"name":"nightly report"}"#;
        let said = Calendar::cron("0 3 * * *").unwrap().zone("Europe/Athens").unwrap().each_missed().said();
        let timeout = Some("01234567-89ab-869c-9583-170169612366".to_owned());
        let state = Recurring { said, next: Some(1_700_000_000_000), timeout };
        assert_eq!(serde_json::to_string(&state).unwrap(), STATE);
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Recurring>(STATE).unwrap()).unwrap(), STATE);
        let name = "nightly report".to_owned();
        assert_eq!(serde_json::to_string(&Begin { name: name.clone() }).unwrap(), MESSAGE);
        assert_eq!(serde_json::to_string(&Due { name }).unwrap(), MESSAGE);
        let read = (serde_json::from_str::<Begin>(MESSAGE).unwrap(), serde_json::from_str::<Due>(MESSAGE).unwrap());
        assert_eq!((&*read.0.name, &*read.1.name), ("nightly report", "nightly report"));
        let names = [Begin::TYPE, Due::TYPE, <Recurring as Saga>::NAME];
        assert_eq!(names, ["hapax.recurring.begin", "hapax.recurring.due", "hapax.recurring"]);
    }

    #[test]
    fn what_was_missed_is_made_up_for_once_or_each() {
        let time = |text: &str| Timestamp::parse(text).unwrap();
        let (done, now) = (time("2026-01-01T01:00:00Z"), time("2026-01-01T05:30:00Z"));
        let hourly = Calendar::cron("0 * * * *").unwrap();
        assert_eq!(hourly.after(done, now), Some(time("2026-01-01T06:00:00Z")));
        assert_eq!(hourly.clone().each_missed().after(done, now), Some(time("2026-01-01T02:00:00Z")));
        assert_eq!(hourly.after(now, done), Some(time("2026-01-01T06:00:00Z")));
        assert_ne!(hourly.said(), hourly.clone().each_missed().said());
        assert_ne!(hourly.said(), hourly.clone().zone("Asia/Kolkata").unwrap().said());
    }
}
