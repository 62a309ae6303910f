//! What is parsed on the command line.

use std::{str::FromStr, time::Duration};

use hapax::{ids::InvalidId, ports::RowStatus, time::Timestamp};

/// A name or an id, with what is wrong with it.
pub(crate) fn id<T: FromStr<Err = InvalidId>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: InvalidId| error.to_string())
}

/// RFC 3339, or how long ago: `2026-11-29T12:00:00Z`, `2h`.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(ago) = duration(text) {
        return Ok(Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(millis(ago))));
    }
    Timestamp::parse(text)
        .map_err(|_| "it is neither a time as 2026-11-29T12:00:00Z nor so long ago as 90s, 15m, 2h or 7d".to_owned())
}

/// RFC 3339 alone, for a time that may be to come: `2h` says how long ago everywhere else.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|_| "write it as 2026-11-29T12:00:00Z".to_owned())
}

/// `90s`, `15m`, `2h`, `7d`, `500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let wrong = || "write a number with its unit: 500ms, 90s, 15m, 2h or 7d".to_owned();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number
        .checked_mul(*millis)
        .map(Duration::from_millis)
        .ok_or_else(|| "that is longer than can be counted".to_owned())
}

/// How many at most, of which none would be no answer.
pub(crate) fn most(text: &str) -> Result<usize, String> {
    text.parse::<usize>().ok().filter(|most| *most > 0).ok_or_else(|| "write a number, from 1 on".to_owned())
}

/// In whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What has become of a row.
pub(crate) fn status(text: &str) -> Result<RowStatus, String> {
    let all = [RowStatus::Waits, RowStatus::Sent, RowStatus::Failed, RowStatus::Expired];
    all.into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| "it is waits, sent, failed or expired".to_owned())
}

/// `NAME=VALUE`.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, moment, most, time};

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "s", "-1s", "1.5h", "1 h", "99999999999999999999d", "18446744073709551615d", "é"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn none_at_most_is_no_question() {
        assert_eq!(most("1"), Ok(1));
        for wrong in ["0", "-1", "", "1.5", "99999999999999999999"] {
            assert!(most(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_said_or_counted_back() {
        assert_eq!(
            time("2026-11-29T12:00:00+01:00").map(|time| time.to_string()),
            Ok("2026-11-29T11:00:00.000Z".to_owned())
        );
        assert!(time("1h").is_ok() && time("yesterday").is_err());
        assert!(moment("2026-11-29T12:00:00Z").is_ok() && moment("1h").is_err());
    }
}
