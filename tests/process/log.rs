//! What hapax logs, on standard error, a line each.

/// From now on everything that a person should know is written down.
pub(crate) fn begin() {
    let lines = hapax_tests::lines(|line| eprintln!("{line}"));
    tracing::subscriber::set_global_default(lines).expect("nobody else has begun");
}
