//! What may be shown of an error: as the command `hapax` shows it.

/// `text` on one line, without what is secret in its URLs: see [`masked_url`]. A URL ends where its word does.
pub(crate) fn masked(text: &str) -> String {
    let text = without_settings(text);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(SCHEME_END) {
        let (scheme, after) = rest.split_at(at);
        let end = after.find(|c: char| c.is_whitespace() || "'\"`".contains(c)).unwrap_or(after.len());
        shown.push_str(scheme);
        shown.push_str(&masked_url(&after[..end]));
        rest = &after[end..];
    }
    shown.push_str(rest);
    on_one_line(&shown)
}

const SCHEME_END: &str = "://";

/// `url` without user and password: without what stands before the last `@`, and without what is asked for behind `?`, where a driver takes
/// a password, too.
fn masked_url(url: &str) -> String {
    let Some((scheme, place)) = url.split_once(SCHEME_END) else { return on_one_line(url) };
    let place = match (place.rfind('@'), place.find('?')) {
        (Some(sign), Some(asked)) if asked < sign => "…".to_owned(), // Which of them is part of a password, nobody knows.
        (Some(sign), Some(asked)) => format!("…{}?…", &place[sign..asked]),
        (Some(sign), None) => format!("…{}", &place[sign..]),
        (None, Some(asked)) => format!("{}?…", &place[..asked]),
        (None, None) => place.to_owned(),
    };
    on_one_line(&format!("{scheme}{SCHEME_END}{place}"))
}

/// `text` without the values of settings that are passwords, as in `?password=..` or `sslpassword=..`.
fn without_settings(text: &str) -> String {
    const NAMES: [&str; 3] = ["password=", "passwd=", "pass="];
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        let lower = rest.to_ascii_lowercase();
        let found = NAMES.iter().filter_map(|name| lower.find(name).map(|at| at + name.len())).min();
        let Some(value) = found else { return shown + rest };
        shown.push_str(&rest[..value]);
        let end = rest[value..]
            .find(|c: char| c.is_whitespace() || "&'\"`".contains(c))
            .map_or(rest.len(), |end| value + end);
        if end > value {
            shown.push('…');
        }
        rest = &rest[end..];
    }
}

fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn a_password_is_not_shown_wherever_it_stands() {
        for (text, shown) in [
            ("opening postgres://shop:s3cret@db/orders: refused", "opening postgres://…@db/orders: refused"),
            ("mysql://db/shop?user=shop&password=s3cret: refused", "mysql://db/shop?… refused"),
            ("redis://:s3?cr@et@db", "redis://…"),
            ("host=db password=s3cret é", "host=db password=… é"),
            ("a\nb <script>", "a b <script>"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }
}
