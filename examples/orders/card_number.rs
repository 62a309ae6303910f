//! Card numbers as people type them.

use std::fmt;

/// Fewest and most digits of a card number. Source: ISO/IEC 7812-1 allows 19 at most; fewer than 12 no issuer gives out.
const DIGITS: std::ops::RangeInclusive<usize> = 12..=19;

/// Why a number is none. Does not quote it: it ends up in a dead letter's reason, and in logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Something that is no digit, and neither a space nor a hyphen.
    Sign(char),
    /// So many digits.
    Digits(usize),
    /// The last digit does not follow from the others: at least one of them is wrong, and nobody can know which.
    CheckDigit,
}

/// Whether `number` can be the number of a card. Spaces and hyphens do not count.
pub(crate) fn check(number: &str) -> Result<(), Malformed> {
    let signs = number.chars().filter(|sign| !matches!(sign, ' ' | '-'));
    let digits = signs.map(|sign| sign.to_digit(10).ok_or(Malformed::Sign(sign))).collect::<Result<Vec<_>, _>>()?;
    if !DIGITS.contains(&digits.len()) {
        return Err(Malformed::Digits(digits.len()));
    }
    if luhn(&digits).is_multiple_of(10) { Ok(()) } else { Err(Malformed::CheckDigit) }
}

/// What was meant, as far as anybody can tell: letters that look like digits are taken for these, and the check digit has to agree. It finds any
/// single wrong digit, and of several nine in ten: a real shop would ask its customer.
pub(crate) fn mend(number: &str) -> Option<String> {
    let looks_like = |sign| match sign {
        'O' | 'o' => '0',
        'I' | 'l' => '1',
        'S' => '5',
        'B' => '8',
        other => other,
    };
    let meant: String = number.chars().map(looks_like).collect();
    check(&meant).is_ok().then_some(meant)
}

/// A number in good order, of an issuer that is not in the shop's list. New ones come into the list by and by, so that another delivery may
/// find it there: how many there are is a rule in the shop's settings, by this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownIssuer;

/// Whether the issuer of `number`, which is in good order, is in the list. Those that begin with 9 never come into it. Source: ISO/IEC 7812-1
/// leaves them to each country.
pub(crate) fn find_issuer(number: &str) -> Result<(), UnknownIssuer> {
    if number.trim_start_matches([' ', '-']).starts_with('9') { Err(UnknownIssuer) } else { Ok(()) }
}

/// What no list says and a person knows: the cards of the issuer 9000 go on under 4000, each with a check digit of its own.
pub(crate) fn reissued(number: &str) -> Option<String> {
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    let rest = digits.strip_prefix("9000")?;
    let without_check = format!("4000{}", &rest[..rest.len().checked_sub(1)?]);
    (0..10).map(|check_digit| format!("{without_check}{check_digit}")).find(|number| check(number).is_ok())
}

/// The sum that is a multiple of ten. Source: ISO/IEC 7812-1, annex B (Luhn's formula).
fn luhn(digits: &[u32]) -> u32 {
    let doubled = |digit: u32| if digit < 5 { 2 * digit } else { 2 * digit - 9 };
    let from_the_right = digits.iter().rev().enumerate();
    from_the_right.map(|(at, digit)| if at % 2 == 1 { doubled(*digit) } else { *digit }).sum()
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sign(sign) => write!(f, "the card number is malformed: {sign:?} is no digit"),
            Self::Digits(digits) => {
                let (fewest, most) = (DIGITS.start(), DIGITS.end());
                write!(f, "the card number is malformed: it has {digits} digits, and needs {fewest} to {most}")
            }
            Self::CheckDigit => f.write_str("the card number is malformed: its check digit is wrong"),
        }
    }
}

impl std::error::Error for Malformed {}

impl fmt::Display for UnknownIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the issuer of the card is not in the list yet")
    }
}

impl std::error::Error for UnknownIssuer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_checked_and_a_malformed_one_says_what_is_wrong() {
        for number in ["4111 1111 1111 1111", "4111-1111-1111-1111", "378282246310005"] {
            assert_eq!(check(number), Ok(()), "{number}");
        }
        for (number, expected) in [
            ("", Malformed::Digits(0)),
            ("4111 1111 111", Malformed::Digits(11)),
            ("41111111111111111111", Malformed::Digits(20)),
            ("4111 1111 1111 1112", Malformed::CheckDigit),
            ("4111 1111 1111 11l1", Malformed::Sign('l')),
            ("4111\u{00a0}1111 1111 1111", Malformed::Sign('\u{00a0}')),
        ] {
            assert_eq!(check(number), Err(expected), "{number}");
        }
    }

    #[test]
    fn only_a_number_whose_check_digit_agrees_is_mended() {
        assert_eq!(mend("4l1I 1111 1111 1111").as_deref(), Some("4111 1111 1111 1111"));
        for hopeless in ["4111 1111 1111 1112", "4O11 1111 1111 1111", "4111 1111 1111", "on file"] {
            assert_eq!(mend(hopeless), None, "{hopeless}");
        }
    }

    #[test]
    fn a_number_of_an_issuer_that_is_no_more_is_reissued_in_good_order() {
        let old = "9000 2261 2965 3194";
        assert_eq!((check(old), find_issuer(old)), (Ok(()), Err(UnknownIssuer)));
        let new = reissued(old).unwrap_or_default();
        assert_eq!((new.as_str(), check(&new), find_issuer(&new)), ("4000226129653195", Ok(()), Ok(())));
        for other in ["4000 2261 2965 3195", "9100 2261 2965 3193", "9000", ""] {
            assert_eq!(reissued(other), None, "{other}");
        }
    }
}
