//! The name of a topic with placeholders in it, as Java's `Matcher.replaceFirst` reads it.

use super::RouteBy;

/// So that with a name of 100 bytes it is not longer than Kafka takes.
const AROUND_BYTES_MAX: usize = 149;

/// Whether `topic` gives legal names for all that is routed.
///
/// # Errors
/// What is wrong with it, and the remedy.
pub(super) fn check(topic: &str, route_by: RouteBy) -> Result<(), String> {
    let shown = topic.escape_debug();
    let (mut rest, mut around, mut routed) = (topic, 0, 0);
    while !rest.is_empty() {
        if let Some(named) = rest.strip_prefix("${") {
            let Some((name, behind)) = named.split_once('}') else {
                return Err(format!("topic `{shown}`: a `${{` is not closed: add its `}}`"));
            };
            match (name, route_by) {
                ("routedByValue", _) => routed += 1,
                ("kind", RouteBy::Destination) => around += "endpoint".len(),
                ("kind", RouteBy::Type) => {
                    return Err(format!("topic `{shown}`: `${{kind}}` is there by destination only: leave it out"));
                }
                _ => {
                    return Err(format!(
                        "topic `{shown}`: `${{{}}}` is not known: use `${{routedByValue}}`, or by destination `${{kind}}`",
                        name.escape_debug()
                    ));
                }
            }
            rest = behind;
            continue;
        }
        let end = rest.find('$').map_or(rest.len(), |at| at.max(1));
        let (literal, behind) = rest.split_at(end);
        if let Some(c) = literal.chars().find(|c| !c.is_ascii_alphanumeric() && !"._-".contains(*c)) {
            return Err(format!(
                "topic `{shown}`: `{}` is not for the name of a topic: use ASCII letters, digits and . _ -",
                c.escape_debug()
            ));
        }
        around += literal.len();
        rest = behind;
    }
    if topic.is_empty() || routed > 1 || around > AROUND_BYTES_MAX || [".", ".."].contains(&topic) {
        return Err(format!(
            "topic `{shown}`: write one `${{routedByValue}}` at most, with at most {AROUND_BYTES_MAX} bytes around it"
        ));
    }
    Ok(())
}
