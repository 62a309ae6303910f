//! A story as a picture.

use std::fmt::Write;

use super::{Story, outside::BETWEEN};

/// Characters beyond which a label of an arrow is cut: what is longer is in the story.
const LABEL_CHARS: usize = 90;

impl Story {
    /// The story as a sequence diagram in the language of Mermaid.
    #[must_use]
    pub fn mermaid(&self) -> String {
        let (mut workers, mut arrows) = (Vec::new(), String::new());
        for step in &self.steps {
            arrow(step, &mut workers, &mut arrows);
        }
        let mut diagram = String::from("sequenceDiagram\n    participant queue\n");
        for name in workers {
            let _ = writeln!(diagram, "    participant {name} as worker {name}");
        }
        diagram.push_str("    participant store\n    participant outside\n");
        diagram.push_str(&arrows);
        let _ = write!(diagram, "    Note over store: {}", label(&self.broken.to_string()));
        diagram
    }
}

/// The worker that a step begins with.
fn worker(step: &str) -> Option<&str> {
    let name = step.split(' ').next()?;
    let digits = name.strip_prefix('w')?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}

fn arrow<'a>(step: &'a str, workers: &mut Vec<&'a str>, arrows: &mut String) {
    let given = step.strip_prefix("worker ").and_then(|rest| Some((worker(rest)?, rest.split_once(" is given ")?.1)));
    let name = worker(step).or_else(|| given.map(|(name, _)| name));
    workers.extend(name.filter(|name| !workers.contains(name)));
    let _ = match (name, given, step.split_once(": ")) {
        (Some(name), Some((_, messages)), _) => writeln!(arrows, "    queue->>{name}: {}", label(messages)),
        (Some(name), None, Some((_, what))) => {
            let (what, outside) = what.split_once(BETWEEN).unwrap_or((what, ""));
            let (asked, answered) = what.split_once(" -> ").unwrap_or((what, ""));
            let queues = ["dispatch", "ack", "retry", "dead-letter"];
            let to = if queues.iter().any(|verb| asked.starts_with(verb)) { "queue" } else { "store" };
            let _ = writeln!(arrows, "    {name}->>{to}: {}", label(asked));
            if !answered.is_empty() {
                let _ = writeln!(arrows, "    {to}-->>{name}: {}", label(answered));
            }
            let calls = outside.split(BETWEEN).filter(|call| !call.is_empty());
            calls.into_iter().try_for_each(|call| writeln!(arrows, "    {name}->>outside: calls {}", label(call)))
        }
        (Some(name), None, None) => {
            let what = step.strip_prefix(name).unwrap_or(step);
            let arrow = if what.contains("crash") { "-x" } else { "->>" };
            writeln!(arrows, "    {name}{arrow}{name}: {}", label(what.trim_start()))
        }
        (None, ..) => writeln!(arrows, "    Note over queue: {}", label(step)),
    };
}

/// What may stand on an arrow: no line ends; what would end a statement, or begin a code, as a code.
fn label(text: &str) -> String {
    let mut label = String::with_capacity(text.len());
    for (at, c) in text.chars().enumerate() {
        match c {
            _ if at == LABEL_CHARS => {
                label.push('…');
                break;
            }
            ';' => label.push_str("#59;"),
            '#' => label.push_str("#35;"),
            '\n' | '\r' => label.push(' '),
            c => label.push(c),
        }
    }
    label
}
