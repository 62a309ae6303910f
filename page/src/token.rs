//! Who may act, and read where the page is guarded.

use std::{fmt, hint::black_box};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};

use crate::PageError;

/// Shortest token, in bytes: 64 bits of hexadecimal digits, which nobody guesses over a network.
const BYTES_MIN: usize = 16;
/// Longest, in bytes: it travels in a header of every request.
const BYTES_MAX: usize = 256;

/// A secret that who acts has to know. Its hash is kept, and never shown.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// Of 16 to 256 visible characters of ASCII; white space around it is not of it, as at the end of a file.
    ///
    /// # Errors
    /// [`PageError::Token`], without the token.
    pub fn parse(text: &str) -> Result<Self, PageError> {
        let text = text.trim();
        if text.len() < BYTES_MIN {
            return Err(PageError::Token("has fewer than 16 characters"));
        }
        if text.len() > BYTES_MAX {
            return Err(PageError::Token("has more than 256 characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(PageError::Token("has a character that no header takes"));
        }
        Ok(Self(Sha256::digest(text.as_bytes()).into()))
    }

    /// Whether it stands in the headers as `Authorization: Bearer TOKEN`. How long that takes does not depend on how much of it is right:
    /// hashes are compared, and all of them.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let said = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(said) = said.and_then(|said| said.strip_prefix("Bearer ")) else { return false };
        let said: [u8; 32] = Sha256::digest(said.as_bytes()).into();
        let differs = said.iter().zip(self.0).fold(0, |differs, (one, other)| black_box(differs | (one ^ other)));
        differs == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_is_recognised_whole_and_never_shown() {
        let token = Token::parse(" 0123456789abcdef\n").unwrap();
        let said = |text: &str| -> HeaderMap { HeaderMap::from_iter([(AUTHORIZATION, text.parse().unwrap())]) };
        assert!(token.is_in(&said("Bearer 0123456789abcdef")));
        for wrong in ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "0123456789abcdef", "Bearer ", "Basic x"] {
            assert!(!token.is_in(&said(wrong)), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn what_is_short_long_or_no_header_is_no_token() {
        for wrong in ["", "short", "0123456789 abcdef", "0123456789abcdefé", &"x".repeat(257)] {
            let error = Token::parse(wrong).unwrap_err();
            assert!(wrong.is_empty() || !error.to_string().contains(wrong), "{error}");
        }
    }
}
