//! Why a server was not reached: nobody is there, somebody else is, or they do not agree on TLS.

use std::io::ErrorKind;

use super::server::CONNECT_LIMIT;

/// What becomes of a connection to who understands nothing of what is said.
const BROKEN_OFF: [ErrorKind; 4] =
    [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::BrokenPipe];

/// The server that was meant.
pub(super) struct Meant {
    /// Of what kind: what to call it.
    pub(super) kind: &'static str,
    /// The option that names it.
    pub(super) option: &'static str,
    /// What else may be done where nobody answers.
    pub(super) or_else: &'static str,
    /// What in its URL leaves TLS out where there is none.
    pub(super) tls_if_any: &'static str,
}

/// What the server, or the way to it, says.
pub(super) fn words(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(e) => e.message().to_owned(),
        sqlx::Error::Io(e) => e.to_string(),
        sqlx::Error::Tls(e) => e.to_string(),
        e => e.to_string(),
    }
}

/// Of an error that no server of that kind has sent.
pub(super) fn why(meant: &Meant, at: &str, error: &sqlx::Error) -> String {
    let Meant { kind, option, or_else, tls_if_any } = meant;
    let words = words(error);
    match error {
        sqlx::Error::Tls(_) => format!(
            "{at}: {option} asks for TLS, and there is none: {words}; mend that, or write `{tls_if_any}` there; a server on \
             another machine has to have it: build this with --features tls-ring, or give --danger-unverified-tls where \
             the way there is trusted"
        ),
        // So it comes from the library that looks at certificates.
        sqlx::Error::Io(e) if e.kind() == ErrorKind::InvalidData => format!(
            "{at}: the server's certificate is not believed: {words}; name its authority in {option} (`ssl-ca=FILE`), \
             or give --danger-unverified-tls where the way there is trusted"
        ),
        sqlx::Error::Io(e) if e.kind() == ErrorKind::TimedOut => format!(
            "{at}: no answer of a {kind} server within {CONNECT_LIMIT:?}: a program of another kind listens there, or nothing \
             gets through to it; correct host and port in {option}"
        ),
        sqlx::Error::Io(e) if BROKEN_OFF.contains(&e.kind()) => not_that(meant, at, &words),
        sqlx::Error::Io(_) => {
            format!("{at}: no {kind} answers: {words}; start it, name another one with {option}{or_else}")
        }
        // What else the driver says is about its own protocol.
        _ => not_that(meant, at, "it sent something else"),
    }
}

fn not_that(Meant { kind, option, .. }: &Meant, at: &str, words: &str) -> String {
    format!(
        "{at}: what listens there does not speak as a {kind} server does: {words}; correct host and port in {option}"
    )
}
