//! What a URL says of a cluster.

use percent_encoding::percent_decode_str;

use super::options::Secrets;

/// Where Kafka is unless the URL says.
const PORT: u16 = 9092;

/// Brokers, and who asks them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Hosts with their ports, with commas between.
    pub(super) brokers: String,
    pub(super) user: Option<(String, String)>,
    pub(super) uses_tls: bool,
}

impl Address {
    /// The error never repeats the URL, which may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        const MALFORMED: &str = "the URL is not kafka://USER:PASSWORD@HOST:PORT, or kafka+tls:// instead";
        let (scheme, rest) = url.trim().split_once("://").ok_or(MALFORMED)?;
        let uses_tls = match scheme {
            "kafka" => false,
            "kafka+tls" => true,
            _ => return Err(MALFORMED),
        };
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let user = match login.map(|login| login.split_once(':')) {
            None => None,
            Some(None) => return Err("the URL names a user without a password: write kafka://USER:PASSWORD@HOST:PORT"),
            Some(Some((user, password))) => Some((unescaped(user), unescaped(password))),
        };
        let brokers: Option<Vec<String>> = hosts.split(',').map(|host| broker(host.trim())).collect();
        Ok(Self { brokers: brokers.ok_or(MALFORMED)?.join(","), user, uses_tls })
    }

    pub(super) fn secrets(&self) -> Secrets {
        Secrets(self.user.iter().map(|(_, password)| password.clone()).collect())
    }
}

/// A host with its port.
fn broker(host: &str) -> Option<String> {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
    if host.is_empty() || !host.bytes().all(usual) {
        return None;
    }
    // An address of IPv6 has colons within brackets.
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    match after.rsplit_once(':') {
        Some((_, port)) => port.parse::<u16>().ok().map(|_| host.to_owned()).filter(|host| !host.starts_with(':')),
        None => Some(format!("{host}:{PORT}")),
    }
}

/// With what `%` and two hexadecimal digits stand for.
fn unescaped(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn brokers_user_and_tls_are_read() {
        let plain = Address::parse("kafka://one,two:9093,[::1]").unwrap();
        assert_eq!((plain.brokers.as_str(), plain.uses_tls), ("one:9092,two:9093,[::1]:9092", false));
        let whole = Address::parse("kafka+tls://shop:a%40b:c@one:1/").unwrap();
        assert_eq!(whole.user, Some(("shop".into(), "a@b:c".into())));
        assert_eq!((whole.brokers.as_str(), whole.uses_tls), ("one:1", true));
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for bad in [
            "",
            "kafka://",
            "http://u:secret@one",
            "kafka://u:secret@a b",
            "kafka://secret@one",
            "kafka://one:x",
            "kafka://:1",
        ] {
            let why = Address::parse(bad).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
