//! The worlds that the specification and the explorer have been to, as the same lines of text.
//!
//! A world is compared by what hapax-model's `explore::Snapshot` has: the rows, the marks, what has left, the copies that
//! wait, the call that each worker waits for and with which message, and the faults that may still come. All else is one
//! side's own: what a task remembers, attempt ids, how often a copy was given, what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// How many examples of a difference are shown.
const EXAMPLES: usize = 3;

/// The worlds in what `worlds` of hapax-model has printed: a snapshot in JSON on each line.
///
/// # Errors
/// A line that is none.
pub(super) fn of_explorer(printed: &str) -> Result<BTreeSet<String>, String> {
    printed
        .lines()
        .map(|line| serde_json::from_str(line).map(|world| text(&world)).map_err(|e| e.to_string()))
        .collect()
}

/// The worlds in a dump of TLC.
///
/// # Errors
/// Something that cannot be read.
pub(super) fn of_spec(dump: &str) -> Result<BTreeSet<String>, String> {
    let mut worlds = BTreeSet::new();
    for state in dump.split("State ").skip(1) {
        let (_, state) = state.split_once(':').ok_or("a state without a number")?;
        worlds.insert(text(&projected(&variables(state)?)));
    }
    Ok(worlds)
}

/// The projection: a state of the specification as the snapshot that the explorer would have taken. Messages count from
/// one there and from zero here.
fn projected(state: &BTreeMap<String, Value>) -> Value {
    let of = |name: &str| state.get(name).cloned().unwrap_or_default();
    let message = |value: &Value| value.as_u64().and_then(|number| number.checked_sub(1));
    let messages = |list: &Value| list.as_array().map(|list| list.iter().map(message).collect::<Vec<_>>());
    let (row, left) = (of("row"), of("left"));
    let copies = of("queue");
    let copies = copies.as_array().into_iter().flatten().map(|count| count.as_u64().unwrap_or_default());
    let waiting: Vec<u64> = (0..).zip(copies).flat_map(|(message, count)| (0..count).map(move |_| message)).collect();
    let workers = of("tasks").as_array().cloned().unwrap_or_default();
    let working = workers.iter().filter(|task| task["pc"] != "idle");
    let tasks: Vec<Value> = working.map(|task| json!([task["pc"], message(&task["m"])])).collect();
    json!({
        "rows": [{
            "version": row["version"], "effects": messages(&row["effects"]), "outbox": messages(&row["outbox"]),
        }],
        "marks": messages(&of("marks")),
        "sent": messages(&of("sent")),
        "queue": waiting,
        "tasks": tasks,
        "crashes": left["crashes"],
        "unknown": left["unknown"],
        "refused": left["refused"],
        "duplicates": left["duplicates"],
    })
}

/// A snapshot as one line, the same for equal snapshots whatever the order of their fields.
fn text(world: &Value) -> String {
    let fields = |names: &[&str], of: &Value| -> String {
        names.iter().map(|name| format!("{name} {}", of[*name])).collect::<Vec<_>>().join(", ")
    };
    let rows = world["rows"].as_array().into_iter().flatten();
    let rows: Vec<String> = rows.map(|row| fields(&["version", "effects", "outbox"], row)).collect();
    // Neither workers nor what is in a set has an order.
    let unordered = |name: &str| {
        let mut things: Vec<String> = world[name].as_array().into_iter().flatten().map(Value::to_string).collect();
        things.sort_unstable();
        format!("{name} [{}]", things.join(","))
    };
    let lists = ["marks", "sent", "queue", "tasks"].map(unordered).join(", ");
    let faults = fields(&["crashes", "unknown", "refused", "duplicates"], world);
    format!("{}; {lists}, {faults}", rows.join("; "))
}

/// That both have been to the same worlds; says to how many.
///
/// # Errors
/// How many are on one side alone, with examples.
pub(super) fn compare(spec: &BTreeSet<String>, explorer: &BTreeSet<String>) -> Result<String, String> {
    let only = |these: &BTreeSet<String>, those: &BTreeSet<String>, who: &str| -> Option<String> {
        let missing: Vec<&String> = these.difference(those).collect();
        let examples = missing.iter().take(EXAMPLES).map(|world| format!("\n    {world}")).collect::<String>();
        (!missing.is_empty()).then(|| format!("{} worlds only in {who}:{examples}", missing.len()))
    };
    let differences: Vec<String> = [only(spec, explorer, "the specification"), only(explorer, spec, "the explorer")]
        .into_iter()
        .flatten()
        .collect();
    if !differences.is_empty() {
        return Err(differences.join("\n"));
    }
    if spec.is_empty() {
        return Err("neither side has been to any world".into());
    }
    Ok(format!("the same {} worlds", spec.len()))
}

/// The variables of a state: `/\ name = value`, again and again.
fn variables(state: &str) -> Result<BTreeMap<String, Value>, String> {
    let mut reader = Reader { rest: state };
    let mut variables = BTreeMap::new();
    while reader.takes("/\\") {
        let name = reader.name()?;
        reader.needs("=")?;
        variables.insert(name, reader.value()?);
    }
    if reader.rest.trim().is_empty() { Ok(variables) } else { Err(reader.odd("`/\\`")) }
}

/// Reads values as TLC writes them.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn takes(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn needs(&mut self, token: &str) -> Result<(), String> {
        if self.takes(token) { Ok(()) } else { Err(self.odd(token)) }
    }

    fn odd(&self, expected: &str) -> String {
        let found: String = self.rest.trim_start().chars().take(40).collect();
        format!("TLC's dump has `{found}` where {expected} should be")
    }

    fn name(&mut self) -> Result<String, String> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if name.is_empty() {
            return Err(self.odd("a name"));
        }
        self.rest = rest;
        Ok(name.to_owned())
    }

    fn value(&mut self) -> Result<Value, String> {
        if self.takes("<<") {
            return self.list(">>").map(Value::Array);
        }
        if self.takes("{") {
            return self.list("}").map(Value::Array);
        }
        if self.takes("[") {
            return self.record();
        }
        if self.takes("\"") {
            let (text, rest) = self.rest.split_once('"').ok_or("TLC's dump ends within a text")?;
            self.rest = rest;
            return Ok(text.into());
        }
        let name = self.name()?;
        match name.as_str() {
            "TRUE" => Ok(true.into()),
            "FALSE" => Ok(false.into()),
            number => number.parse::<u64>().map(Value::from).map_err(|_| format!("TLC's dump has a value `{number}`")),
        }
    }

    fn list(&mut self, end: &str) -> Result<Vec<Value>, String> {
        let mut list = Vec::new();
        while !self.takes(end) {
            list.push(self.value()?);
            if !self.takes(",") {
                self.needs(end)?;
                break;
            }
        }
        Ok(list)
    }

    fn record(&mut self) -> Result<Value, String> {
        let mut record = Map::new();
        loop {
            let name = self.name()?;
            self.needs("|->")?;
            record.insert(name, self.value()?);
            if !self.takes(",") {
                self.needs("]")?;
                return Ok(record.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DUMP: &str = r#"State 1:
/\ row = [version |-> 1, effects |-> <<2>>, outbox |-> <<2>>]
/\ marks = {}
/\ sent = {2, 1}
/\ queue = <<1, 2>>
/\ tasks = << [pc |-> "idle"],
   [pc |-> "dispatch", m |-> 2, helped |-> FALSE], [pc |-> "dispatch", m |-> 0] >>
/\ left = [crashes |-> 1, unknown |-> 0, refused |-> 0, duplicates |-> 1]
/\ acked = {}
"#;
    const PRINTED: &str = r#"{"rows":[{"version":1,"effects":[1],"outbox":[1]}],"marks":[],"sent":[0,1],"queue":[0,1,1],"tasks":[["dispatch",null],["dispatch",1]],"crashes":1,"unknown":0,"refused":0,"duplicates":1}"#;

    #[test]
    fn a_world_is_the_same_text_from_either_side() {
        let (spec, explorer) = (of_spec(DUMP).unwrap(), of_explorer(PRINTED).unwrap());
        assert_eq!(compare(&spec, &explorer).unwrap(), "the same 1 worlds");
    }

    #[test]
    fn every_field_of_a_world_tells_it_from_another() {
        let spec = of_spec(DUMP).unwrap();
        for (this, that) in [
            ("\"version\":1", "\"version\":2"),
            ("\"effects\":[1]", "\"effects\":[]"),
            ("\"outbox\":[1]", "\"outbox\":[]"),
            ("\"marks\":[]", "\"marks\":[1]"),
            ("\"sent\":[0,1]", "\"sent\":[0]"),
            ("[\"dispatch\",1]", "[\"finish\",1]"),
            ("[\"dispatch\",1]", "[\"dispatch\",null]"),
            ("\"queue\":[0,1,1]", "\"queue\":[0,1]"),
            ("\"crashes\":1", "\"crashes\":0"),
            ("\"duplicates\":1", "\"duplicates\":0"),
        ] {
            assert!(PRINTED.contains(this), "{this}");
            let difference = compare(&spec, &of_explorer(&PRINTED.replace(this, that)).unwrap()).unwrap_err();
            assert!(difference.contains("1 worlds only in the specification:\n"), "{difference}");
            assert!(difference.contains("1 worlds only in the explorer:\n"), "{difference}");
        }
    }

    #[test]
    fn a_side_that_has_been_nowhere_is_no_agreement() {
        assert!(compare(&BTreeSet::new(), &BTreeSet::new()).is_err());
        assert!(compare(&of_spec(DUMP).unwrap(), &BTreeSet::new()).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(of_spec("State 1:\n/\\ row = (1 :> 2)").unwrap_err().contains("(1 :> 2)"));
        assert!(of_spec("State 1:\nrow = 1").unwrap_err().contains("row = 1"));
        assert!(of_explorer("{").is_err());
    }
}
