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
    /// Largest reply; nothing where only an entity limits it.
    pub(crate) reply: Option<String>,
    pub(crate) durable: bool,
}

const STORES: &str =
    "| store | largest entity | dedup entries kept | largest reply | both in one | survives the process |";
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
            let [entity, kept, reply] = [some(cells.next()?), some(cells.next()?), some(cells.next()?)];
            let (together, durable) = (cells.next()? == "yes", cells.next()? == "yes");
            Some((name, Line { entity, together, kept, reply, durable }))
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
        let [entity, kept, reply] = [&line.entity, &line.kept, &line.reply].map(|words| or_none(words.as_ref()));
        let (together, durable) = (yes(line.together), yes(line.durable));
        writeln!(text, "| `{name}` | {entity} | {kept} | {reply} | {together} | {durable} |").unwrap();
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

/// The pairs in short: a row for each store of entities, a column for each of dedup entries.
pub(crate) fn render_short(lines: &BTreeMap<String, Line>, calls: [usize; 2]) -> String {
    let mut text = "| entities in | the same |".to_owned();
    let others = || lines.iter().filter(|(_, line)| line.kept.is_some());
    for (dedup, _) in others() {
        write!(text, " `{dedup}` |").unwrap();
    }
    writeln!(text, "\n| --- | --- |{}", " --- |".repeat(others().count())).unwrap();
    for (entities, one) in lines.iter().filter(|(_, line)| line.entity.is_some()) {
        let cell = |calls: usize, durable: bool| {
            if durable { format!("once, {calls} calls") } else { format!("once until it ends, {calls} calls") }
        };
        let same = if one.together { cell(calls[0], one.durable) } else { "—".to_owned() };
        write!(text, "| `{entities}` | {same} |").unwrap();
        for (dedup, other) in others() {
            let cell = if dedup == entities { "—".to_owned() } else { cell(calls[1], one.durable && other.durable) };
            write!(text, " {cell} |").unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn lines_of_the_tables_of_pairs_come_back() {
    let (kept, reply) = (Some("by `evict`".into()), None);
    let one = Line { entity: Some("16 MiB".into()), together: true, kept, reply, durable: true };
    let (kept, reply) = (Some("at least 7 days".into()), Some("1 KiB".into()));
    let other = Line { entity: None, together: false, kept, reply, durable: false };
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
    let short = render_short(&lines, [3, 5]);
    let rows: Vec<&str> = short.lines().collect();
    let expected = "| `one` | once, 3 calls | — | once until it ends, 5 calls |";
    assert_eq!(rows, ["| entities in | the same | `one` | `other` |", "| --- | --- | --- | --- |", expected]);
}
