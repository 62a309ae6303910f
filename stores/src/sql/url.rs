//! What is asked of the URL of a database on a server before its driver reads it: the driver would take the end of a password for a name, and
//! tell it in its error.

/// Whether the end of a password is where a database, a parameter or a fragment should be.
pub(super) fn has_unescaped_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = path.split_once('/').map_or("", |(_, path)| path);
    let is_parameter = |query: &str| query.split('@').next().is_some_and(|before| before.contains('='));
    fragment.contains('@') || path.contains('@') || query.contains('@') && !is_parameter(query)
}
