//! Prometheus' text format, as far as the page reads it.
//!
//! # Source
//! Prometheus, "Exposition formats", text-based format.

use crate::counts::{Numbers, SAGAS_MAX, Sagas};

/// Longest line that is read, in bytes: two names of 100 bytes, and whatever labels a collector adds.
const LINE_BYTES_MAX: usize = 8 << 10;

/// What was counted, by names of `hapax-otel`'s instruments; `None` where the text tells nothing of hapax at all.
pub(crate) fn read(text: &str) -> Option<Sagas> {
    let (mut sagas, mut is_of_hapax) = (Sagas::new(), false);
    for line in text.lines().filter(|line| line.len() <= LINE_BYTES_MAX) {
        is_of_hapax |= line.strip_prefix("# TYPE ").unwrap_or(line).starts_with("hapax_");
        let Some((name, endpoint, saga, value)) = sample(line) else { continue };
        let numbers = match name {
            "hapax_handled_total" => Numbers { handled: value, ..Numbers::default() },
            "hapax_duplicates_total" => Numbers { duplicates: value, ..Numbers::default() },
            "hapax_dropped_total" => Numbers { dropped: value, ..Numbers::default() },
            "hapax_dead_letters_total" => Numbers { dead_letters: value, ..Numbers::default() },
            _ => continue,
        };
        let (is_full, name) = (sagas.len() >= SAGAS_MAX, (endpoint, saga));
        if !is_full || sagas.contains_key(&name) {
            // Of one name there are several where other labels differ, such as the rule that has dropped.
            sagas.entry(name).or_default().add(numbers);
        }
    }
    is_of_hapax.then_some(sagas)
}

/// Name, endpoint, saga and value of a line; `None` where it is no counter of a saga.
fn sample(line: &str) -> Option<(&str, String, String, u64)> {
    let (name, rest) = line.split_once('{')?;
    if !name.starts_with("hapax_") {
        return None;
    }
    let (mut rest, mut endpoint, mut saga) = (rest, None, None);
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(behind) = rest.strip_prefix('}') {
            let value = number(behind.split_whitespace().next()?)?;
            return Some((name.trim(), endpoint?, saga?, value));
        }
        let (label, quoted) = rest.split_once("=\"")?;
        let (value, behind) = unquoted(quoted)?;
        match label.trim() {
            "hapax_endpoint" => endpoint = Some(value),
            "hapax_saga" => saga = Some(value),
            _ => {}
        }
        rest = behind;
    }
}

/// The text up to the quotation mark that ends it, and what is behind.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

/// A counter: no fraction, no sign, no `NaN`.
fn number(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok()?;
    (value.is_finite() && (0.0..9e18).contains(&value)).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn counters_are_read_by_saga_whatever_else_is_there() {
        let text = "# TYPE hapax_handled_total counter\n\
            hapax_handled_total{hapax_endpoint=\"shop\",hapax_saga=\"order\",otel_scope_name=\"hapax\"} 12 1700000000000\n\
            hapax_dropped_total{ hapax_saga=\"order\", hapax_endpoint=\"shop\", hapax_rule=\"a\" } 1e1\n\
            hapax_dropped_total{hapax_saga=\"order\",hapax_endpoint=\"shop\",hapax_rule=\"b\"} 1\n\
            hapax_duplicates_total{hapax_endpoint=\"a\\\"}{\\\\ \\n\",hapax_saga=\"é\",} 3\n\
            process_cpu_seconds_total 5\n";
        let sagas = read(text).unwrap();
        let order = sagas[&("shop".to_owned(), "order".to_owned())];
        assert_eq!((order.handled, order.dropped, order.duplicates), (12, 11, 0));
        assert_eq!(sagas[&("a\"}{\\ \n".to_owned(), "é".to_owned())].duplicates, 3);
    }

    #[test]
    fn what_is_broken_is_passed_by_and_what_is_not_of_hapax_is_not_zero() {
        for broken in [
            "hapax_handled_total{hapax_endpoint=\"shop\",hapax_saga=\"order\"} NaN",
            "hapax_handled_total{hapax_endpoint=\"shop\",hapax_saga=\"order\"} -1",
            "hapax_handled_total{hapax_endpoint=\"shop\",hapax_saga=\"order\"}",
            "hapax_handled_total{hapax_endpoint=\"shop\",hapax_saga=\"order",
            "hapax_handled_total{hapax_endpoint=\"shop\\",
            "hapax_handled_total{hapax_endpoint=\"shop\"} 1",
            "hapax_handled_total{",
        ] {
            assert_eq!(read(broken), Some(Sagas::new()), "{broken}");
        }
        assert_eq!(read("up 1\n"), None);
        assert_eq!(read(""), None);
    }

    /// Method: cut everywhere, and each character replaced by those that mean something.
    #[test]
    fn whatever_another_process_tells_ends_nothing() {
        const TEXT: &str = "# TYPE hapax_handled_total counter\n\
            hapax_handled_total{hapax_endpoint=\"shöp\",hapax_saga=\"a\\\"\\n\",} 18446744073709551615 1\n\
            hapax_dropped_total{hapax_saga=\"order\",hapax_endpoint=\"shop\"} 1e999\n";
        for (at, c) in TEXT.char_indices() {
            drop(read(&TEXT[..at]));
            for other in ['"', '\\', '{', '}', '=', ',', ' ', '\n', '\0', '€'] {
                drop(read(&format!("{}{other}{}", &TEXT[..at], &TEXT[at + c.len_utf8()..])));
            }
        }
    }
}
