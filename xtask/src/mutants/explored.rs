//! What `hapax-model run --json` says of a configuration.

use std::path::Path;

use serde_json::Value;

/// One configuration that was gone through.
#[derive(Debug, Clone, Default)]
pub(crate) struct Explored {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Messages, workers, faults: in one line.
    pub(crate) bounds: String,
    /// The claim that a control must break.
    pub(crate) expects: Option<String>,
    pub(crate) as_expected: bool,
    pub(crate) worlds: u64,
    pub(crate) steps: u64,
    pub(crate) histories: u64,
    pub(crate) seconds: f64,
    pub(crate) broken: Option<Broken>,
}

/// A claim that was broken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) claim: String,
    pub(crate) seen: String,
    pub(crate) story: Vec<String>,
}

impl Explored {
    /// Reads the file that the model has written.
    ///
    /// # Errors
    /// It is not there, or it is not what the model writes.
    pub(crate) fn read(file: &Path) -> Result<Vec<Self>, String> {
        let value = json(file)?;
        let results = value["results"].as_array().ok_or_else(|| format!("{}: has no results", file.display()))?;
        Ok(results.iter().map(Self::of).collect())
    }

    fn of(value: &Value) -> Self {
        let broken = &value["broken"];
        Self {
            name: text(&value["name"]),
            about: text(&value["about"]),
            bounds: bounds(&value["bounds"]),
            expects: value["expects"].as_str().map(str::to_owned),
            as_expected: value["as_expected"].as_bool().unwrap_or(false),
            worlds: value["worlds"].as_u64().unwrap_or(0),
            steps: value["steps"].as_u64().unwrap_or(0),
            histories: value["histories"].as_u64().unwrap_or(0),
            seconds: value["seconds"].as_f64().unwrap_or(0.0),
            broken: broken.is_object().then(|| Broken {
                claim: text(&broken["claim"]),
                seen: text(&broken["seen"]),
                story: broken["story"].as_array().into_iter().flatten().map(text).collect(),
            }),
        }
    }
}

/// What must hold in every world: names and sentences.
///
/// # Errors
/// As for [`Explored::read`].
pub(crate) fn claims(file: &Path) -> Result<Vec<(String, String)>, String> {
    let value = json(file)?;
    let claims = value["claims"].as_array().into_iter().flatten();
    Ok(claims.map(|claim| (text(&claim["name"]), text(&claim["says"]))).collect())
}

fn json(file: &Path) -> Result<Value, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: cannot be read: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn bounds(value: &Value) -> String {
    let count = |key: &str| value[key].as_u64().unwrap_or(0);
    let plural = |count: u64, word: &str| if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") };
    let mut parts = vec![plural(count("messages"), "message"), plural(count("workers"), "worker")];
    if count("pass") > 1 {
        parts.push(format!("passes of {}", count("pass")));
    }
    if count("stores") == 2 {
        parts.push("2 stores".into());
    }
    if count("endpoints") == 2 {
        parts.push("2 endpoints".into());
    }
    if value["fresh"] == Value::Bool(false) {
        parts.push("reads that lag".into());
    }
    parts.extend(value["faults"].as_array().into_iter().flatten().map(text));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_model_writes_is_read() {
        let value = serde_json::json!({
            "name": "crash", "as_expected": false, "worlds": 12,
            "bounds": { "messages": 2, "workers": 1, "pass": 1, "stores": 2, "fresh": true, "faults": ["1 crash"] },
            "broken": { "claim": "no_gap", "seen": "gone", "story": ["a", "b"] },
        });
        let explored = Explored::of(&value);
        assert_eq!(explored.bounds, "2 messages, 1 worker, 2 stores, 1 crash");
        assert_eq!((explored.worlds, explored.expects.as_deref()), (12, None));
        let broken = Broken { claim: "no_gap".into(), seen: "gone".into(), story: vec!["a".into(), "b".into()] };
        assert_eq!(explored.broken, Some(broken));
        assert!(!explored.as_expected);
    }
}
