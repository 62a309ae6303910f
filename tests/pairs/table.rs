//! Lines of stores, and the tables of them.

use std::{collections::BTreeMap, fmt::Write};

/// What a store declares, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Largest entity; nothing where it keeps none.
    pub(crate) entity: Option<String>,
    /// It keeps both in one: a load answers for dedup entries, and a finish marks and cleans up.
    pub(crate) together: bool,
    /// How long dedup entries are kept; nothing where it keeps none.
    pub(crate) kept: Option<String>,
    pub(crate) durable: bool,
}

const STORES: &str = "| store | largest entity | dedup entries kept | both in one | survives the process |";
const PAIRS: &str = "| entities in | dedup entries in | effects | survives | load and check | mark and clean-up | calls | largest entity | kept |";

const fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn or_none(words: Option<&String>) -> &str {
    words.map_or("—", String::as_str)
}

/// The lines of stores that a text holds.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Line> {
    let table = text.lines().skip_while(|line| *line != STORES).skip(2).take_while(|line| line.starts_with('|'));
    table
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
            let name = cells.next()?.trim_matches('`').to_owned();
            let some = |cell: String| (cell != "—").then_some(cell);
            let (entity, kept) = (some(cells.next()?), some(cells.next()?));
            let (together, durable) = (cells.next()? == "yes", cells.next()? == "yes");
            Some((name, Line { entity, together, kept, durable }))
        })
        .collect()
}

/// Both tables. `calls` are those of a message, where both are one store and where they are two.
pub(crate) fn render(lines: &BTreeMap<String, Line>, calls: [usize; 2]) -> String {
    let mut text = String::new();
    let head = |text: &mut String, head: &str| {
        writeln!(text, "{head}\n|{}", " --- |".repeat(head.matches('|').count() - 1)).unwrap();
    };
    head(&mut text, STORES);
    for (name, line) in lines {
        let (entity, kept) = (or_none(line.entity.as_ref()), or_none(line.kept.as_ref()));
        writeln!(text, "| `{name}` | {entity} | {kept} | {} | {} |", yes(line.together), yes(line.durable)).unwrap();
    }
    text.push('\n');
    head(&mut text, PAIRS);
    for (entities, one) in lines {
        for (dedup, other) in lines {
            let (Some(entity), Some(kept)) = (&one.entity, &other.kept) else { continue };
            let together = entities == dedup && one.together;
            let (check, mark, calls) =
                if together { ("one call", "one call", calls[0]) } else { ("two calls", "two calls", calls[1]) };
            let other = if entities == dedup { "the same".to_owned() } else { format!("`{dedup}`") };
            let survives = yes(one.durable && lines[dedup].durable);
            writeln!(
                text,
                "| `{entities}` | {other} | once | {survives} | {check} | {mark} | {calls} | {entity} | {kept} |"
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn lines_of_the_tables_of_pairs_come_back() {
    let one = Line { entity: Some("16 MiB".into()), together: true, kept: Some("by `evict`".into()), durable: true };
    let other = Line { entity: None, together: false, kept: Some("at least 7 days".into()), durable: false };
    let lines = BTreeMap::from([("one".to_owned(), one), ("other".to_owned(), other)]);
    let text = render(&lines, [3, 5]);
    assert_eq!(parse(&text), lines);
    assert!(
        text.contains("| `one` | the same | once | yes | one call | one call | 3 | 16 MiB | by `evict` |"),
        "{text}"
    );
    assert!(
        text.contains("| `one` | `other` | once | no | two calls | two calls | 5 | 16 MiB | at least 7 days |"),
        "{text}"
    );
    assert!(!text.contains("| `other` | the same"), "{text}");
}
