//! Whether what somebody else has declared keeps the promises: looked at where nothing is declared here.
//!
//! What breaks none may be otherwise: more replicas, a longer lease, a limit that refuses what is new in place of dropping what is old.

use std::collections::BTreeSet;

use hapax_core::ports::{ErrorKind, TransportError};
use serde_json::Value;

/// How something is, beside how it is wanted.
pub(super) struct Look<'a> {
    found: &'a Value,
    wanted: &'a Value,
    wrong: Vec<String>,
}

impl<'a> Look<'a> {
    /// At the settings of a stream. `largest`: the bytes of the largest message, with its headers.
    pub(super) fn at_stream(found: &'a Value, wanted: &'a Value, largest: usize) -> Self {
        let mut look = Self { found, wanted, wrong: Vec::new() };
        look.same("retention");
        look.same("storage");
        look.check("subjects", subjects(found) == subjects(wanted));
        look.at_least("num_replicas");
        look.at_least("duplicate_window");
        // Beyond a limit that drops what is old, messages go that nobody has settled. One that refuses what is new is told to who sends.
        let refuses = found["discard"] == "new";
        for limit in ["max_msgs", "max_bytes"] {
            if is_limit(wanted, limit) || !is_limit(found, limit) || refuses {
                continue;
            }
            look.wrong.push(format!(
                "{limit} is {} with discard {}, needed: no limit, or discard \"new\"",
                found[limit], found["discard"]
            ));
        }
        look.check("max_age", number(found, "max_age") == 0 || is_no_less(found, wanted, "max_age"));
        let each = "max_msgs_per_subject";
        let as_wanted = if is_limit(wanted, each) { found[each] == wanted[each] } else { !is_limit(found, each) };
        look.check(each, as_wanted);
        let is_wide = !is_limit(found, "max_msg_size") || number(found, "max_msg_size") >= as_number(largest);
        if !is_wide {
            look.wrong.push(format!("max_msg_size is {}, needed: no limit, or {largest}", found["max_msg_size"]));
        }
        look.off("no_ack"); // Nothing would ever be confirmed.
        look.off("sealed");
        look.off("subject_transform");
        if wanted["retention"] == "limits" {
            look.off("deny_delete"); // Dead letters would stay.
        }
        look
    }

    /// At the settings of a consumer of a stream that is kept on so many servers.
    pub(super) fn at_consumer(found: &'a Value, wanted: &'a Value, replicas: u8) -> Self {
        let mut look = Self { found, wanted, wrong: Vec::new() };
        look.same("ack_policy");
        look.same("replay_policy");
        look.at_least("ack_wait"); // Shorter, another would have a message whose lease lasts here.
        // Given for the last time, a message that is not settled would never come again.
        let as_wanted = |name| is_limit(found, name) == is_limit(wanted, name);
        let is_one = !is_limit(wanted, "max_ack_pending") || found["max_ack_pending"] == wanted["max_ack_pending"];
        look.check("max_deliver", as_wanted("max_deliver"));
        look.check("max_ack_pending", as_wanted("max_ack_pending") && is_one);
        let filter = |of: &Value| of["filter_subject"].as_str().unwrap_or_default().to_owned();
        look.check("filter_subject", filter(found) == filter(wanted));
        let kept = number(found, "num_replicas");
        look.check("num_replicas", kept == 0 || kept >= i64::from(replicas));
        for setting in [
            "backoff", // In place of the lease.
            "deliver_subject",
            "filter_subjects",
            "headers_only",
            "inactive_threshold", // It would go while nobody receives, and what is published with it.
            "max_batch",
            "max_bytes",
            "max_expires",
            "mem_storage",
        ] {
            look.off(setting);
        }
        look
    }

    /// An error that names all that is wrong with `what`, with the request that makes it right.
    pub(super) fn judged(
        self,
        operation: &'static str,
        place: &str,
        (kind, name): (&str, &str),
        (subject, request): (&str, &Value),
    ) -> Result<(), TransportError> {
        if self.wrong.is_empty() {
            return Ok(());
        }
        let why = format!(
            "{place} has {kind} `{name}`, declared in another way, by which messages would be lost, held up or given twice: {}. Change it (`nats request '$JS.API.{subject}' '{request}'`, by an account that may), or, where the server does not change that, delete it once it is empty and let it be declared (NatsOptions::declare)",
            self.wrong.join("; ")
        );
        Err(TransportError::new(ErrorKind::Misconfigured, operation, why))
    }

    fn check(&mut self, name: &str, is_right: bool) {
        if !is_right {
            self.wrong.push(format!("{name} is {}, needed: {}", self.found[name], self.wanted[name]));
        }
    }

    fn same(&mut self, name: &str) {
        self.check(name, self.found[name] == self.wanted[name]);
    }

    fn at_least(&mut self, name: &str) {
        self.check(name, is_no_less(self.found, self.wanted, name));
    }

    /// A setting that has to be left out.
    fn off(&mut self, name: &str) {
        let is_off = match &self.found[name] {
            Value::Null => true,
            Value::Bool(is_on) => !is_on,
            Value::Number(number) => number.as_i64().is_some_and(|number| number <= 0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(_) => false,
        };
        if !is_off {
            self.wrong.push(format!("{name} is {}, needed: none", self.found[name]));
        }
    }
}

/// What is left out is zero.
fn number(of: &Value, name: &str) -> i64 {
    of[name].as_i64().unwrap_or_default()
}

/// Zero and what is below it are no limit.
fn is_limit(of: &Value, name: &str) -> bool {
    number(of, name) > 0
}

fn is_no_less(found: &Value, wanted: &Value, name: &str) -> bool {
    number(found, name) >= number(wanted, name) && (number(wanted, name) != 0 || number(found, name) == 0)
}

fn as_number(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn subjects(of: &Value) -> BTreeSet<&str> {
    of["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
