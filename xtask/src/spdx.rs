//! Licence expressions: may a package with this expression be used, given the terms we accept?
//!
//! The grammar is SPDX's (`AND` binds tighter than `OR`, brackets, `WITH` an exception), and the old `/` of manifests,
//! which means `OR`. Anything else is an error: a text that cannot be read is not a permission.
//!
//! # Source
//! SPDX specification, annex "SPDX license expressions".

/// Whether the expression can be met by accepted terms alone.
///
/// # Errors
/// The expression is not one; the text says where.
pub(crate) fn is_met(expression: &str, accepted: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, accepted };
    let met = parser.alternatives().map_err(|error| format!("licence `{expression}`: {error}"))?;
    match parser.words.first() {
        None => Ok(met),
        Some(word) => Err(format!("licence `{expression}`: `{word}` stands where the expression should end")),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    accepted: &'a [String],
}

impl Parser<'_> {
    fn alternatives(&mut self) -> Result<bool, String> {
        let mut met = self.conjunction()?;
        while self.takes("OR") {
            met |= self.conjunction()?;
        }
        Ok(met)
    }

    fn conjunction(&mut self) -> Result<bool, String> {
        let mut met = self.term()?;
        while self.takes("AND") {
            met &= self.term()?;
        }
        Ok(met)
    }

    fn term(&mut self) -> Result<bool, String> {
        if self.takes("(") {
            let met = self.alternatives()?;
            return if self.takes(")") { Ok(met) } else { Err("a bracket is left open".to_owned()) };
        }
        let mut term = self.name()?.to_owned();
        if self.takes("WITH") {
            term = format!("{term} WITH {}", self.name()?);
        }
        Ok(self.accepted.contains(&term))
    }

    fn name(&mut self) -> Result<&str, String> {
        let Some((name, rest)) = self.words.split_first() else {
            return Err("a term is missing at the end".to_owned());
        };
        if ["OR", "AND", "WITH", "(", ")"].contains(name) {
            return Err(format!("`{name}` stands where a term should be"));
        }
        self.words = rest;
        Ok(name)
    }

    fn takes(&mut self, word: &str) -> bool {
        let taken = self.words.first() == Some(&word);
        if taken {
            self.words = &self.words[1..];
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(expression: &str) -> Result<bool, String> {
        is_met(expression, &["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned))
    }

    #[test]
    fn one_accepted_alternative_is_enough() {
        for expression in ["MIT", "MIT OR GPL-3.0", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "MIT / GPL-3.0", "((MIT))"] {
            assert_eq!(met(expression), Ok(true), "{expression}");
        }
        assert_eq!(met("GPL-3.0 OR MPL-2.0"), Ok(false));
    }

    #[test]
    fn every_part_of_a_conjunction_must_be_accepted() {
        assert_eq!(met("(MIT OR Apache-2.0) AND Unicode-3.0"), Ok(true));
        assert_eq!(met("(MIT OR Apache-2.0) AND GPL-3.0"), Ok(false));
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert_eq!(met("MIT OR Apache-2.0 AND GPL-3.0"), Ok(true));
        assert_eq!(met("(MIT OR Apache-2.0) AND GPL-3.0"), Ok(false));
        assert_eq!(met("GPL-3.0 AND MIT OR Apache-2.0"), Ok(true));
    }

    #[test]
    fn an_exception_makes_another_term() {
        assert_eq!(met("Apache-2.0 WITH LLVM-exception OR GPL-2.0"), Ok(true));
        assert_eq!(met("MIT WITH LLVM-exception"), Ok(false));
        assert_eq!(met("Apache-2.0+"), Ok(false));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_no_permission() {
        for expression in ["", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Apache-2.0", "MIT AND OR MIT", "MIT WITH", "()"]
        {
            assert!(met(expression).is_err(), "{expression}");
        }
    }
}
