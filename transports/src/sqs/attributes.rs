//! Headers as message attributes, of which the service takes ten.
//!
//! What does not fit, and what cannot be an attribute (an empty value, say), is packed into one attribute,
//! [`MORE`]: a line `name: value` for each. A line with a name alone stands for the attribute of that name, where the order of
//! headers would be lost otherwise.

/// What the service takes of attributes in a message.
pub(super) const ATTRIBUTES_MAX: usize = 10;
/// Attributes that are ours, beside the envelope's own: they are gone when the message becomes an envelope again.
pub(super) const OURS: &str = "x-hapax-";
/// What is packed.
pub(super) const MORE: &str = "x-hapax-more";
/// How `plain` writes an application header whose name is taken.
const TAKEN: &str = "hapax-header-";
/// Longest name that the service takes.
const NAME_BYTES_MAX: usize = 256;

/// `headers` as at most `room` attributes, two at least. The order of those from `ordered` on is kept.
pub(super) fn packed(headers: Vec<(String, String)>, ordered: usize, room: usize) -> Vec<(String, String)> {
    let ordered = ordered.min(headers.len());
    let is_sorted = headers[ordered..].is_sorted_by(|(one, _), (other, _)| one <= other);
    if is_sorted && headers.len() <= room && headers.iter().all(|(name, value)| is_attribute(name, value)) {
        return headers;
    }
    let room = room.saturating_sub(1);
    let (mut attributes, mut lines) = (Vec::with_capacity(room + 1), Vec::new());
    for (place, (name, value)) in headers.into_iter().enumerate() {
        if attributes.len() < room && is_attribute(&name, &value) {
            if place >= ordered {
                lines.push(name.clone());
            }
            attributes.push((name, value));
        } else {
            // In a line of its own whatever it holds: what was written by `plain` has none of its characters escaped here.
            lines.push(format!("{name}: {}", in_a_line(&value)));
        }
    }
    attributes.push((MORE.to_owned(), lines.join("\n")));
    attributes
}

/// What [`packed`] was given, from the attributes of a message in any order. Those that are ours are left out.
pub(super) fn unpacked(attributes: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let more = attributes.iter().find(|(name, _)| name == MORE).map(|(_, value)| String::from_utf8_lossy(value));
    let mut headers: Vec<(String, Vec<u8>)> =
        attributes.iter().filter(|(name, _)| !name.to_ascii_lowercase().starts_with(OURS)).cloned().collect();
    headers.sort_by(|(one, _), (other, _)| one.cmp(other));
    for line in more.as_deref().unwrap_or_default().lines() {
        match line.split_once(": ").or_else(|| line.strip_suffix(':').map(|name| (name, ""))) {
            Some((name, value)) => headers.push((name.to_owned(), value.as_bytes().to_vec())),
            // To the end, so that they are in the order of the lines.
            None => {
                if let Some(place) = headers.iter().position(|(name, _)| name == line) {
                    let header = headers.remove(place);
                    headers.push(header);
                }
            }
        }
    }
    headers
}

/// A header may be called as an attribute of ours.
pub(super) fn written_name(name: String) -> String {
    if name.starts_with(OURS) { format!("{TAKEN}{name}") } else { name }
}

/// Whether the service takes it.
fn is_attribute(name: &str, value: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
        && !lower.starts_with("aws.")
        && !lower.starts_with("amazon.")
        && !value.is_empty()
        && is_text(value)
}

/// Whether every character is one that the service takes.
pub(super) fn is_text(text: &str) -> bool {
    text.chars().all(|c| {
        matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..) && !matches!(c, '\u{FFFE}' | '\u{FFFF}')
    })
}

/// With what the service would refuse as question marks of Unicode.
pub(super) fn as_text(text: &str) -> String {
    text.chars().map(|c| if is_text(c.encode_utf8(&mut [0; 4])) { c } else { '\u{FFFD}' }).collect()
}

fn in_a_line(value: &str) -> String {
    as_text(value).replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(headers: &[(&str, &str)]) -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// As the service gives them back: in any order.
    fn back(attributes: &[(String, String)]) -> Vec<(String, String)> {
        let mut came: Vec<(String, Vec<u8>)> =
            attributes.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        came.reverse();
        let text = |value| String::from_utf8(value).expect("text");
        unpacked(&came).into_iter().map(|(name, value)| (name, text(value))).collect()
    }

    #[test]
    fn headers_that_fit_are_attributes_and_nothing_else() {
        let headers = owned(&[("content-type", "a/b"), ("hapax-type", "t"), ("shop", "corner")]);
        assert_eq!(packed(headers.clone(), 2, 10), headers);
    }

    #[test]
    fn more_headers_than_fit_come_back_in_their_order() {
        let all: Vec<(String, String)> =
            (0..40).map(|n| (format!("h{}", (n * 7) % 40), format!("value {n}"))).collect();
        for (count, room) in [(1, 2), (10, 10), (11, 10), (40, 10), (40, 2)] {
            let packed = packed(all[..count].to_vec(), 0, room);
            assert!(packed.len() <= room, "{count} in {room}");
            assert_eq!(back(&packed), all[..count]);
        }
    }

    #[test]
    fn what_cannot_be_an_attribute_is_packed() {
        for (name, value) in [("empty", ""), ("a..b", "x"), (".a", "x"), ("aws.x", "x"), ("a.", "x"), ("b", ": : x")] {
            let headers = owned(&[("z", "first"), (name, value), ("a", "last")]);
            let packed = packed(headers.clone(), 0, 10);
            assert!(packed.iter().all(|(name, value)| is_attribute(name, value)), "{packed:?}");
            assert_eq!(back(&packed), headers);
        }
    }

    #[test]
    fn text_is_what_the_service_takes() {
        assert!(is_text("a\t\r\n ü\u{1F600}\u{FFFD}") && is_text(""));
        for bad in ["\0", "\u{1}", "\u{1f}", "\u{FFFE}", "\u{FFFF}"] {
            assert!(!is_text(bad));
            assert_eq!(as_text(bad), "\u{FFFD}");
        }
    }
}
