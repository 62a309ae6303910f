//! Lines of stores, and the tables of them.

use std::{collections::BTreeMap, fmt::Write};

use crate::counted::Seen;

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

/// What was seen of pairs, by where entities and where dedup entries are.
pub(crate) type Pairs = BTreeMap<(String, String), Seen>;

/// Instead of a name, of the second store.
const SAME: &str = "the same";

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

/// The pairs that a text holds.
pub(crate) fn parse_pairs(text: &str) -> Pairs {
    let table = text.lines().skip_while(|line| *line != PAIRS).skip(2).take_while(|line| line.starts_with('|'));
    table
        .filter_map(|line| {
            let cells: Vec<&str> =
                line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let [entities, dedup, effects, _, _, _, calls, ..] = cells[..] else { return None };
            let dedup = if dedup == SAME { entities } else { dedup };
            let effects = if effects == times(1) { 1 } else { effects.split_once(' ')?.0.parse().ok()? };
            Some(((entities.to_owned(), dedup.to_owned()), Seen { effects, calls: calls.parse().ok()? }))
        })
        .collect()
}

fn times(effects: usize) -> String {
    if effects == 1 { "once".to_owned() } else { format!("{effects} times") }
}

/// Both tables.
pub(crate) fn render(lines: &BTreeMap<String, Line>, pairs: &Pairs) -> String {
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
    for ((entities, dedup), seen) in pairs {
        let (one, other) = (&lines[entities], &lines[dedup]);
        let (entity, kept) = (or_none(one.entity.as_ref()), or_none(other.kept.as_ref()));
        let each = if entities == dedup && one.together { "one call" } else { "two calls" };
        let (effects, calls, survives) = (times(seen.effects), seen.calls, yes(one.durable && other.durable));
        let other = if entities == dedup { SAME.to_owned() } else { format!("`{dedup}`") };
        writeln!(
            text,
            "| `{entities}` | {other} | {effects} | {survives} | {each} | {each} | {calls} | {entity} | {kept} |"
        )
        .unwrap();
    }
    text
}

/// The pairs in short: a row for each store of entities, a column for each of dedup entries.
pub(crate) fn render_short(lines: &BTreeMap<String, Line>, pairs: &Pairs) -> String {
    let mut text = format!("| entities in | {SAME} |");
    let others = || lines.iter().filter(|(_, line)| line.kept.is_some());
    for (dedup, _) in others() {
        write!(text, " `{dedup}` |").unwrap();
    }
    writeln!(text, "\n| --- | --- |{}", " --- |".repeat(others().count())).unwrap();
    let cell = |entities: &String, dedup: &String| {
        let Some(seen) = pairs.get(&(entities.clone(), dedup.clone())) else { return "—".to_owned() };
        let durable = lines[entities].durable && lines[dedup].durable;
        let until = if durable { "" } else { " until it ends" };
        format!("{}{until}, {} calls", times(seen.effects), seen.calls)
    };
    for (entities, _) in lines.iter().filter(|(_, line)| line.entity.is_some()) {
        write!(text, "| `{entities}` | {} |", cell(entities, entities)).unwrap();
        for (dedup, _) in others() {
            let cell = if dedup == entities { "—".to_owned() } else { cell(entities, dedup) };
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
    let pair = |dedup: &str, effects, calls| (("one".to_owned(), dedup.to_owned()), Seen { effects, calls });
    let pairs = Pairs::from([pair("one", 1, 3), pair("other", 2, 5)]);
    let text = render(&lines, &pairs);
    assert_eq!((parse(&text), parse_pairs(&text)), (lines.clone(), pairs.clone()));
    assert!(
        text.contains("| `one` | the same | once | yes | one call | one call | 3 | 16 MiB | by `evict` |"),
        "{text}"
    );
    assert!(
        text.contains("| `one` | `other` | 2 times | no | two calls | two calls | 5 | 16 MiB | at least 7 days |"),
        "{text}"
    );
    let short = render_short(&lines, &pairs);
    let rows: Vec<&str> = short.lines().collect();
    let expected = "| `one` | once, 3 calls | — | 2 times until it ends, 5 calls |";
    assert_eq!(rows, ["| entities in | the same | `one` | `other` |", "| --- | --- | --- | --- |", expected]);
}
