//! Where a namespace is, and with which key: a connection string as the portal shows it, or a URL.

use percent_encoding::percent_decode_str;

/// What is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    /// Azure Service Bus, or its emulator: locks, delivery counts, scheduled messages, dead-letter sub-queues, management.
    ServiceBus,
    /// A server of AMQP 1.0 and nothing more.
    Plain,
}

/// Where it is, and how to be let in.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) server: Server,
    pub(super) is_tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// Name and key of a shared access policy, or user and password.
    pub(super) account: Option<(String, String)>,
}

const PORT: u16 = 5672;
const TLS_PORT: u16 = 5671;
const WHAT: &str = "it is neither a connection string (Endpoint=sb://NAMESPACE.servicebus.windows.net/;SharedAccessKeyName=NAME;SharedAccessKey=KEY) nor amqps://NAME:KEY@HOST nor amqp://USER:PASSWORD@HOST:PORT";

impl Address {
    /// What is wrong is told without what was given: there is a key in it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("amqps://") {
            return Self::of_url(rest, Server::ServiceBus, true);
        }
        if let Some(rest) = text.strip_prefix("amqp://") {
            return Self::of_url(rest, Server::Plain, false);
        }
        Self::of_connection_string(text)
    }

    fn of_url(rest: &str, server: Server, is_tls: bool) -> Result<Self, &'static str> {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (account, place) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((account, place)) => {
                let (name, key) = account.split_once(':').ok_or("there is no key or password before the `@`")?;
                let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(|text| text.into_owned());
                let (Ok(name), Ok(key)) = (decoded(name), decoded(key)) else {
                    return Err("name or key is not UTF-8, percent-encoded");
                };
                (Some((name, key)), place)
            }
        };
        let (host, port) = place_of(place, is_tls)?;
        Ok(Self { server, is_tls, host, port, account })
    }

    fn of_connection_string(text: &str) -> Result<Self, &'static str> {
        let (mut endpoint, mut name, mut key, mut is_emulator) = (None, None, None, false);
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            // A key may end with `=`.
            let (word, value) = part.split_once('=').ok_or(WHAT)?;
            let word = word.trim().to_ascii_lowercase();
            match word.as_str() {
                "endpoint" => endpoint = Some(value),
                "sharedaccesskeyname" => name = Some(value.to_owned()),
                "sharedaccesskey" => key = Some(value.to_owned()),
                "usedevelopmentemulator" => is_emulator = value.eq_ignore_ascii_case("true"),
                "sharedaccesssignature" => {
                    return Err(
                        "it holds a signature (SharedAccessSignature), which would have to be renewed: give the key of a policy",
                    );
                }
                "entitypath" => {
                    return Err("it is that of one queue or topic (EntityPath): give that of the namespace");
                }
                _ => {}
            }
        }
        let endpoint = endpoint.and_then(|text| text.strip_prefix("sb://")).ok_or(WHAT)?;
        let place = endpoint.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port) = place_of(place, !is_emulator)?;
        let account = match (name, key) {
            (Some(name), Some(key)) => Some((name, key)),
            _ => return Err("it has no SharedAccessKeyName and SharedAccessKey"),
        };
        Ok(Self { server: Server::ServiceBus, is_tls: !is_emulator, host, port, account })
    }

    /// For messages to people.
    pub(super) fn place(&self) -> String {
        match self.server {
            Server::ServiceBus => format!("Service Bus at {}", self.host),
            Server::Plain if self.host.contains(':') => format!("the AMQP server at [{}]:{}", self.host, self.port),
            Server::Plain => format!("the AMQP server at {}:{}", self.host, self.port),
        }
    }

    /// What the namespace is called, as the tools want it.
    pub(super) fn namespace(&self) -> &str {
        self.host.split('.').next().unwrap_or_default()
    }
}

/// Host and port, also `[::1]:5672`.
fn place_of(text: &str, is_tls: bool) -> Result<(String, u16), &'static str> {
    let usual = if is_tls { TLS_PORT } else { PORT };
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("the address in brackets has no end")?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| "the port is none")?,
        None if rest.is_empty() => usual,
        None => return Err(WHAT),
    };
    if host.is_empty() {
        return Err("it names no host");
    }
    // It is in commands that are run by a shell.
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte)) {
        return Err("the host has characters that no host has");
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_is_read_as_the_portal_shows_it() {
        let text = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=a+b/c==";
        let address = Address::parse(text).unwrap();
        assert_eq!((address.server, address.is_tls, address.port), (Server::ServiceBus, true, TLS_PORT));
        assert_eq!(address.account, Some(("Root".into(), "a+b/c==".into())));
        assert_eq!((address.host.as_str(), address.namespace()), ("shop.servicebus.windows.net", "shop"));
        let emulator = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true;";
        let address = Address::parse(emulator).unwrap();
        assert_eq!((address.server, address.is_tls, address.port), (Server::ServiceBus, false, PORT));
    }

    #[test]
    fn a_url_is_read_with_its_account_decoded() {
        let address = Address::parse("amqps://Root:a%2Bb%3D@shop.servicebus.windows.net").unwrap();
        assert_eq!((address.server, address.is_tls, address.port), (Server::ServiceBus, true, TLS_PORT));
        assert_eq!(address.account, Some(("Root".into(), "a+b=".into())));
        let address = Address::parse("amqp://guest:guest@[::1]:1234/x").unwrap();
        assert_eq!((address.server, address.host.as_str(), address.port), (Server::Plain, "::1", 1234));
        assert_eq!(Address::parse("amqp://h").unwrap().account, None);
    }

    #[test]
    fn what_is_none_is_refused_and_nothing_of_it_is_told() {
        for bad in [
            "",
            "secret",
            "http://u:secret@h",
            "amqp://secret@h",
            "amqp://u:secret@",
            "amqp://u:secret@h:secret",
            "amqp://u:secret@[::1",
            "amqp://u:secret@h;secret",
            "Endpoint=sb://$(secret);SharedAccessKeyName=n;SharedAccessKey=secret",
            "amqp://u:%FFsecret@h",
            "Endpoint=sb://h;SharedAccessKeyName=secret",
            "Endpoint=https://h;SharedAccessKeyName=n;SharedAccessKey=secret",
            "Endpoint=sb://h;SharedAccessSignature=secret",
            "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=secret;EntityPath=q",
        ] {
            let why = Address::parse(bad).err().unwrap_or_else(|| panic!("`{bad}` is taken"));
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
