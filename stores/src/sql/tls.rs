//! Whether a server has to show who it is.
//!
//! Left alone, the driver takes TLS where it is offered and believes any certificate, so whoever is on the way may answer in
//! the server's name. A server on another machine, which a URL names, is therefore asked for a certificate of a known
//! authority, for that very host; a URL that asks for less is refused, unless the program says that the way is trusted. What
//! never leaves this machine is as the driver has it. Options of the driver, and pools, are the program's own: nothing is
//! looked at.

use std::net::{IpAddr, Ipv6Addr};

use hapax_core::ports::ErrorKind;

/// What is done about TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tls {
    /// What URL and driver say.
    AsSaid,
    /// The server shows a certificate of a known authority, for its host.
    Verified,
    /// Nothing: what was said would believe anybody.
    Refused,
}

/// For a server that `is_near` or not. `said`: whether what the URL says, if it says anything, has a certificate verified.
pub(super) const fn decide(is_near: bool, said: Option<bool>, is_trusted: bool) -> Tls {
    match said {
        _ if is_near || is_trusted => Tls::AsSaid,
        Some(true) => Tls::AsSaid,
        Some(false) => Tls::Refused,
        None => Tls::Verified,
    }
}

/// Whether `url`, or `environment`, the variable that a driver takes in its place, says how TLS is used. A parameter whose
/// name is percent-encoded is not found: then a server elsewhere is verified, whatever it says.
pub(super) fn is_said(url: &str, environment: Option<&str>) -> bool {
    parameters(url).any(is_mode) || environment.is_some_and(|mode| !mode.is_empty())
}

/// Why `url` cannot be meant as it is: it says how TLS is used by a name that only nearly is the driver's, such as `SSLMODE` or
/// `sslMode`. The driver passes that over, so that who asks for a certificate would be shown none, and nobody would hear of it.
pub(super) fn mistaken(url: &str) -> Option<String> {
    let is_nearly = |name: &&str| !is_mode(name) && is_mode(&name.to_ascii_lowercase().replace('_', "-"));
    parameters(url).find(is_nearly).map(|name| {
        format!("the driver knows no parameter `{name}`, and would do without: it is called `sslmode` or `ssl-mode`")
    })
}

/// What the parameters are called that stand in `url`.
fn parameters(url: &str) -> impl Iterator<Item = &str> {
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter_map(|pair| pair.split('=').next())
}

fn is_mode(name: &str) -> bool {
    matches!(name, "sslmode" | "ssl-mode")
}

/// Whether `host` is this machine, without asking anybody what the name means.
pub(super) fn is_near(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The address of IPv6 that `host` is, in the brackets that it has in a URL: the driver looks it up, and in certificates, with them,
/// and finds nothing.
pub(super) fn bracketed(host: &str) -> Option<String> {
    let address = host.strip_prefix('[')?.strip_suffix(']')?;
    address.parse::<Ipv6Addr>().is_ok().then(|| address.to_owned())
}

/// `host` as it stands before a port.
pub(super) fn before_port(host: &str) -> String {
    if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() }
}

/// Why `host` is refused. `parameter`: what says too little, as it is called; `enough`: what would do.
pub(super) fn refusal(host: &str, parameter: &str, enough: &str) -> String {
    format!(
        "{host} is another machine, and {parameter} asks for nothing that shows who answers there: write `{enough}` in \
         the URL, or say nothing of it anywhere; where the way there is trusted, `danger_unverified_tls(true)` takes it as \
         it is"
    )
}

/// Why a server cannot be reached, in a word of the system's that tells nothing that is stored: what the driver says may.
pub(super) fn away(error: &sqlx::Error) -> Option<String> {
    let sqlx::Error::Io(error) = error else { return None };
    Some(format!(" ({})", error.kind()))
}

/// What a person can do where TLS has failed.
pub(super) fn meaning(error: &sqlx::Error) -> Option<(ErrorKind, &'static str)> {
    let (sqlx::Error::Tls(_) | sqlx::Error::Io(_)) = error else { return None };
    let words = error.to_string();
    if words.contains("without TLS support") {
        return Some((
            ErrorKind::Misconfigured,
            "this program has no TLS in it, which the URL or a server on another machine needs: build it with hapax's \
             feature `tls-ring`, or with one of sqlx's; where the way there is trusted, `danger_unverified_tls(true)` \
             does without",
        ));
    }
    if words.contains("does not support TLS") {
        return Some((
            ErrorKind::Unavailable,
            "the server offers no TLS, which the URL or a server on another machine needs: switch it on there; where \
             the way there is trusted, `danger_unverified_tls(true)` does without",
        ));
    }
    words.contains("certificate").then_some((
        ErrorKind::Unavailable,
        "the server's certificate is of no known authority, or for another host: name its authority's file \
         (`ssl-ca=FILE`), and the host as the certificate has it, in the URL",
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;

    use hapax_core::ports::ErrorKind;
    use sqlx::Error;

    use super::{Tls, before_port, bracketed, decide, is_near, is_said, meaning, mistaken};

    #[test]
    fn only_what_leaves_this_machine_has_to_be_verified() {
        for said in [None, Some(true), Some(false)] {
            assert_eq!(decide(true, said, false), Tls::AsSaid, "{said:?}");
            assert_eq!(decide(false, said, true), Tls::AsSaid, "{said:?}");
        }
        assert_eq!(decide(false, None, false), Tls::Verified);
        assert_eq!(decide(false, Some(true), false), Tls::AsSaid);
        assert_eq!(decide(false, Some(false), false), Tls::Refused);
    }

    #[test]
    fn what_is_near_is_this_machine_and_nothing_else() {
        for host in ["localhost", "LocalHost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "::ffff:127.0.0.1"] {
            assert!(is_near(host), "{host}");
        }
        for host in ["", "db", "db.example.org", "localhost.example.org", "%6Cocalhost"] {
            assert!(!is_near(host), "{host}");
        }
        for host in ["10.0.0.1", "0.0.0.0", "127.1", "::", "[2001:db8::1]"] {
            assert!(!is_near(host), "{host}");
        }
    }

    #[test]
    fn an_address_of_ipv6_is_in_brackets_where_a_port_may_follow() {
        for address in ["::1", "2001:db8::1", "::ffff:10.0.0.1"] {
            let host = format!("[{address}]");
            assert_eq!(bracketed(&host).as_deref(), Some(address));
            assert_eq!(before_port(address), host);
        }
        for host in ["", "[]", "db", "[db]", "10.0.0.1", "[10.0.0.1]", "[::1", "::1]", "[[::1]]", "/run/[::1]"] {
            assert_eq!(bracketed(host), None, "{host}");
            assert_eq!(before_port(host), host);
        }
    }

    #[test]
    fn a_mode_is_said_in_the_query_or_in_the_environment() {
        for url in ["x://h/d?sslmode=", "x://h/d?ssl-mode=a", "x://h/d?a=b&sslmode=c#d", "x://h?sslmode"] {
            assert!(is_said(url, None), "{url}");
        }
        for url in ["", "x://sslmode=a@h/d", "x://h/sslmode=a", "x://h/d#?sslmode=a", "x://h/d?a=sslmode=b"] {
            assert!(!is_said(url, None) && !is_said(url, Some("")), "{url}");
            assert!(is_said(url, Some("prefer")), "{url}");
        }
    }

    #[test]
    fn a_name_that_only_nearly_is_a_mode_is_a_mistake() {
        for name in ["SSLMODE", "sslMode", "SSL-MODE", "ssl_mode", "SslMode"] {
            let why = mistaken(&format!("x://h/d?a=b&{name}=verify-full#e")).unwrap();
            assert!(why.contains(&format!("`{name}`")) && why.contains("`sslmode`"), "{why}");
        }
        for url in
            ["x://h/d", "x://h/d?sslmode=A&ssl-mode=B", "x://SSLMODE=a@h/d", "x://h/d?a=SSLMODE", "x://h/d#?SSLMODE=a"]
        {
            assert_eq!(mistaken(url), None, "{url}");
        }
    }

    #[test]
    fn where_tls_has_failed_the_remedy_is_named() {
        let tls = |words: &str| meaning(&Error::Tls(words.into()));
        let io = |error: io::Error| meaning(&Error::Io(error));
        let (kind, text) = tls("TLS upgrade required but SQLx was built without TLS support enabled").unwrap();
        assert!(kind == ErrorKind::Misconfigured && text.contains("`tls-ring`"), "{text}");
        assert!(tls("server does not support TLS").unwrap().1.contains("`danger_unverified_tls(true)`"));
        assert!(io(io::Error::other("invalid peer certificate: UnknownIssuer")).unwrap().1.contains("`ssl-ca=FILE`"));
        assert!(io(io::ErrorKind::ConnectionRefused.into()).is_none());
        assert!(tls("something else").is_none() && meaning(&Error::PoolClosed).is_none());
    }

    /// Goal: each URL of PostgreSQL leads to the mode that it should. Method: a table; with neither PGSSLMODE nor PGHOST set.
    #[cfg(feature = "postgres")]
    #[test]
    fn a_url_of_postgres_is_verified_unless_it_stays_on_this_machine() {
        use crate::Postgres;

        let mode = |url: &str| format!("{:?}", Postgres::options(url).connect_options().unwrap().get_ssl_mode());
        for (url, expected) in [
            ("postgres://shop@localhost/shop", "Prefer"),
            ("postgres://shop@LOCALHOST:5433/shop", "Prefer"),
            ("postgres://127.0.0.1:5432/shop", "Prefer"),
            ("postgres://[::1]/shop", "Prefer"),
            ("postgres:///shop", "Prefer"),
            ("postgres:///shop?host=/var/run/postgresql", "Prefer"),
            ("postgres://%2Fvar%2Frun%2Fpostgresql/shop", "Prefer"),
            ("postgres://db/shop?host=/var/run/postgresql", "Prefer"),
            ("postgres://db/shop?host=localhost", "Prefer"),
            ("postgres://localhost/shop?sslmode=disable", "Disable"),
            ("postgres://localhost/shop?sslmode=require", "Require"),
            ("postgres://shop@db/shop", "VerifyFull"),
            ("postgres://shop:s3cret@db.example.org:6432/shop?application_name=shop&port=5432", "VerifyFull"),
            ("postgres://10.0.0.1/shop", "VerifyFull"),
            ("postgres://[2001:db8::1]/shop", "VerifyFull"),
            ("postgres://%6Cocalhost/shop", "VerifyFull"),
            ("postgres://localhost/shop?host=db.example.org", "VerifyFull"),
            ("postgres:///shop?hostaddr=10.0.0.1", "VerifyFull"),
            ("postgres://db/shop?ssl%6Dode=disable", "VerifyFull"),
            ("postgres://db/shop?sslmode=VERIFY-FULL", "VerifyFull"),
            ("postgres://db/shop?sslmode=disable&ssl-mode=verify-full", "VerifyFull"),
            ("postgres://db/shop?sslmode=verify-ca&sslrootcert=ca.pem", "VerifyCa"),
        ] {
            assert_eq!(mode(url), expected, "{url}");
        }
        for said in ["sslmode=disable", "sslmode=allow", "ssl-mode=PREFER", "a=b&sslmode=require"] {
            let options = Postgres::options(format!("postgres://shop:s3cret@db.example.org/shop?{said}"));
            let error = options.connect_options().unwrap_err();
            let line = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{line}");
            for word in ["db.example.org", "`sslmode=verify-full`", "`danger_unverified_tls(true)`"] {
                assert!(line.contains(word) && !line.contains("s3cret"), "{line}");
            }
            assert!(options.danger_unverified_tls(true).connect_options().is_ok(), "{said}");
        }
        // Which the driver passes over: near or far, trusted or not, what was asked for would not be done.
        for url in [
            "postgres://shop:s3cret@localhost/shop?SSLMODE=verify-full",
            "postgres://shop:s3cret@db/shop?sslMode=disable",
        ] {
            let error = Postgres::options(url).danger_unverified_tls(true).connect_options().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains("`sslmode`") && !error.to_string().contains("s3cret"), "{error}");
        }
        let trusted = Postgres::options("postgres://db/shop").danger_unverified_tls(true).connect_options().unwrap();
        assert_eq!(format!("{:?}", trusted.get_ssl_mode()), "Prefer");
        let own = Postgres::with("postgres://db/shop?sslmode=disable".parse().unwrap()).connect_options().unwrap();
        assert_eq!(format!("{:?}", own.get_ssl_mode()), "Disable");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn an_address_of_ipv6_in_a_url_of_postgres_is_no_name() {
        use crate::Postgres;

        for (url, host) in [
            ("postgres://[::1]/shop", "::1"),
            ("postgres://shop@[2001:db8::1]:5433/shop?application_name=shop", "2001:db8::1"),
            ("postgres://db/shop?host=[2001:db8::1]", "2001:db8::1"),
            ("postgres://db/shop?hostaddr=2001:db8::1", "2001:db8::1"),
            ("postgres://db/shop", "db"),
        ] {
            assert_eq!(Postgres::options(url).connect_options().unwrap().get_host(), host, "{url}");
        }
    }

    /// The same for MariaDB.
    #[cfg(feature = "mysql")]
    #[test]
    fn a_url_of_mysql_is_verified_unless_it_stays_on_this_machine() {
        use crate::MySql;

        let mode = |url: &str| format!("{:?}", MySql::options(url).connect_options().unwrap().get_ssl_mode());
        for (url, expected) in [
            ("mysql://shop@localhost/shop", "Preferred"),
            ("mariadb://shop@LOCALHOST:3307/shop", "Preferred"),
            ("mysql://127.0.0.1/shop", "Preferred"),
            ("mysql://[::1]/shop", "Preferred"),
            ("mysql:///shop", "Preferred"),
            ("mysql://db/shop?socket=/run/mysqld/mysqld.sock", "Preferred"),
            ("mysql://localhost/shop?ssl-mode=disabled", "Disabled"),
            ("mysql://shop@db/shop", "VerifyIdentity"),
            ("mysql://shop:s3cret@db.example.org:3306/shop?charset=utf8mb4", "VerifyIdentity"),
            ("mysql://10.0.0.1/shop", "VerifyIdentity"),
            ("mysql://[2001:db8::1]/shop", "VerifyIdentity"),
            ("mysql://%6Cocalhost/shop", "VerifyIdentity"),
            ("mysql://%2Frun%2Fmysqld/shop", "VerifyIdentity"),
            ("mysql://db/shop?ssl%2Dmode=disabled", "VerifyIdentity"),
            ("mysql://db/shop?ssl-mode=disabled&sslmode=verify_identity", "VerifyIdentity"),
            ("mysql://db/shop?ssl-mode=VERIFY_CA&ssl-ca=ca.pem", "VerifyCa"),
        ] {
            assert_eq!(mode(url), expected, "{url}");
        }
        for said in ["ssl-mode=disabled", "sslmode=PREFERRED", "a=b&ssl-mode=required"] {
            let options = MySql::options(format!("mysql://shop:s3cret@db.example.org/shop?{said}"));
            let error = options.connect_options().unwrap_err();
            let line = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{line}");
            for word in ["db.example.org", "`ssl-mode=VERIFY_IDENTITY`", "`danger_unverified_tls(true)`"] {
                assert!(line.contains(word) && !line.contains("s3cret"), "{line}");
            }
            assert!(options.danger_unverified_tls(true).connect_options().is_ok(), "{said}");
        }
        for url in
            ["mysql://shop:s3cret@localhost/shop?SSL-MODE=VERIFY_CA", "mysql://shop:s3cret@db/shop?sslMode=disabled"]
        {
            let error = MySql::options(url).danger_unverified_tls(true).connect_options().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains("`ssl-mode`") && !error.to_string().contains("s3cret"), "{error}");
        }
        let trusted = MySql::options("mysql://db/shop").danger_unverified_tls(true).connect_options().unwrap();
        assert_eq!(format!("{:?}", trusted.get_ssl_mode()), "Preferred");
        let own = MySql::with("mysql://db/shop?ssl-mode=disabled".parse().unwrap()).connect_options().unwrap();
        assert_eq!(format!("{:?}", own.get_ssl_mode()), "Disabled");
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn an_address_of_ipv6_in_a_url_of_mysql_is_no_name() {
        use crate::MySql;

        for (url, host) in [
            ("mysql://[::1]/shop", "::1"),
            ("mariadb://shop@[2001:db8::1]:3307/shop?charset=utf8mb4", "2001:db8::1"),
            ("mysql://db/shop", "db"),
        ] {
            assert_eq!(MySql::options(url).connect_options().unwrap().get_host(), host, "{url}");
        }
    }
}
