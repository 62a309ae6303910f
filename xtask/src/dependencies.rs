//! What may depend on what, and which foreign packages are welcome.

use std::collections::BTreeSet;

use crate::policy::Policy;
use crate::process;
use crate::report::Verdict;
use crate::spdx;
use crate::workspace::{Package, Workspace};

/// Which crates of this tree each published crate may build on: arrows go one way. A package that is not here is
/// private, and nothing published may build on it.
pub(crate) const ARROWS: [(&str, &[&str]); 7] = [
    ("hapax-core", &[]),
    ("hapax-stores", &["hapax-core"]),
    // The queue in SQLite shares the store's writer: a file has one at a time.
    ("hapax-transports", &["hapax-core", "hapax-stores"]),
    ("hapax-model", &["hapax-core"]),
    ("hapax-otel", &["hapax-core"]),
    ("hapax-page", &["hapax-core"]),
    ("hapax", &["hapax-core", "hapax-stores", "hapax-transports", "hapax-model", "hapax-otel"]),
];

/// What must not come along: package, features, and the crates that would break the promise of that choice.
const ABSENT: [(&str, &[&str], &[&str]); 17] = [
    ("hapax", &["--no-default-features"], &["sqlx", "sqlx-core", "libsqlite3-sys", "rmp-serde", "bincode"]),
    ("hapax", &[], &["rmp-serde", "bincode"]),
    // TLS is chosen by the user, and so is its library.
    (
        "hapax",
        &["--no-default-features", "--features", "postgres"],
        &["rustls", "ring", "native-tls", "libsqlite3-sys"],
    ),
    (
        "hapax",
        &["--no-default-features", "--features", "mysql"],
        &["rustls", "ring", "native-tls", "libsqlite3-sys", "rsa"],
    ),
    ("hapax", &["--no-default-features", "--features", "redis"], &["rustls", "ring", "aws-lc-rs", "native-tls"]),
    (
        "hapax",
        &["--no-default-features", "--features", "redis,tls-ring"],
        &["aws-lc-rs", "aws-lc-sys", "native-tls", "openssl", "openssl-sys"],
    ),
    // Its usual features bring a TLS library of years ago, and another one that has to be compiled from C.
    ("hapax", &["--no-default-features", "--features", "dynamodb"], &["rustls", "ring", "aws-lc-rs", "aws-config"]),
    (
        "hapax",
        &["--no-default-features", "--features", "dynamodb,tls-ring"],
        &["aws-lc-rs", "aws-lc-sys", "hyper-tls", "openssl"],
    ),
    // A library for several stores would come along with it otherwise.
    ("hapax", &["--no-default-features", "--features", "sqs"], &["rustls", "ring", "aws-lc-rs", "aws-config", "sqlx"]),
    (
        "hapax",
        &["--no-default-features", "--features", "sqs,tls-ring"],
        &["aws-lc-rs", "aws-lc-sys", "hyper-tls", "openssl"],
    ),
    // Its client names no cryptography, and must not be let choose one.
    (
        "hapax",
        &["--no-default-features", "--features", "preview-servicebus,tls-ring"],
        &["aws-lc-rs", "aws-lc-sys", "native-tls", "openssl", "openssl-sys"],
    ),
    (
        "hapax",
        &["--no-default-features", "--features", "cosmos"],
        &["rustls", "ring", "aws-lc-rs", "native-tls", "azure_identity"],
    ),
    ("hapax", &["--no-default-features", "--features", "object"], &["rustls", "ring", "aws-lc-rs", "reqwest"]),
    ("hapax", &[], &["opentelemetry", "tracing-subscriber"]),
    // Which exporter, and by which client, is chosen by the user.
    (
        "hapax",
        &["--no-default-features", "--features", "otel"],
        &["opentelemetry-otlp", "reqwest", "tonic", "prost", "hyper"],
    ),
    // A page is served beside what a service has; it brings no store and no TLS.
    ("hapax-page", &["--all-features"], &["sqlx", "rustls", "ring", "reqwest", "tower-http"]),
    ("hapax-core", &["--all-features"], &["sqlx", "sqlx-core", "libsqlite3-sys"]),
];

/// Arrows go one way.
///
/// # Errors
/// Each dependency that goes against them.
pub(crate) fn directions(workspace: &Workspace) -> Result<String, String> {
    let own: BTreeSet<&str> = workspace.own().map(|package| package.name.as_str()).collect();
    let mut wrong = Vec::new();
    for (name, allowed) in ARROWS {
        let Some(package) = workspace.own().find(|package| package.name == name) else {
            wrong.push(format!("{name} is not in the workspace: bring it back or take it out of xtask's ARROWS"));
            continue;
        };
        let against =
            package.dependencies.iter().filter(|d| own.contains(d.as_str()) && !allowed.contains(&d.as_str()));
        wrong.extend(against.map(|dependency| format!("{name} must not depend on {dependency}")));
    }
    verdict(wrong, || format!("{} published crates", ARROWS.len()))
}

/// A choice of features does not bring along what it was made to avoid.
///
/// # Errors
/// Each crate that came along, or cargo's own error.
pub(crate) fn absent() -> Result<String, String> {
    let mut wrong = Vec::new();
    for (package, features, unwanted) in ABSENT {
        let args = ["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--package", package];
        let tree = process::output(process::cargo(args).args(features))?;
        let present: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
        let choice = [&[package], features].concat().join(" ");
        wrong.extend(
            unwanted.iter().filter(|name| present.contains(*name)).map(|name| format!("{choice}: pulls {name}")),
        );
    }
    verdict(wrong, || format!("{} choices of features", ABSENT.len()))
}

/// Every package, ours too, may be used under a licence of `deny.toml`.
///
/// # Errors
/// Each package with another licence or with none.
pub(crate) fn licences(workspace: &Workspace, policy: &Policy) -> Result<String, String> {
    let mut wrong = Vec::new();
    for Package { name, version, licence, .. } in &workspace.packages {
        let Some(licence) = licence else {
            wrong.push(format!("{name} {version} names no licence: read its licence file, then replace the package"));
            continue;
        };
        match spdx::is_met(licence, &policy.licences) {
            Ok(true) => {}
            Ok(false) => wrong.push(format!("{name} {version}: licence `{licence}` is not accepted in deny.toml")),
            Err(error) => wrong.push(format!("{name} {version}: {error}")),
        }
    }
    verdict(wrong, || format!("{} packages", workspace.packages.len()))
}

/// No banned crate, no second version of a driver, and one source for everything.
///
/// # Errors
/// Each package that breaks one of these.
pub(crate) fn bans(workspace: &Workspace, policy: &Policy) -> Result<String, String> {
    let mut wrong = Vec::new();
    let mut sources = BTreeSet::new();
    for (Package { name, version, .. }, source) in workspace.foreign() {
        if policy.banned.contains(name) {
            wrong.push(format!("{name} {version} is banned, deny.toml says why: cargo tree --all-features -i {name}"));
        }
        // Parts, because a registry's host stands in no file of this tree.
        if source.starts_with("registry+") && source.ends_with(&["crates", "io-index"].join(".")) {
            sources.insert(source);
        } else {
            wrong.push(format!("{name} {version} comes from {source}: only the default registry is allowed"));
        }
    }
    for name in &policy.single {
        let versions: Vec<&str> =
            workspace.packages.iter().filter(|p| p.name == *name).map(|p| p.version.as_str()).collect();
        if versions.len() > 1 {
            wrong.push(format!("{name} is there in versions {}: only one is allowed", versions.join(", ")));
        }
    }
    if sources.len() > 1 {
        wrong.push(format!("packages come from {} registries: only one is allowed", sources.len()));
    }
    verdict(wrong, || format!("{} foreign packages", workspace.foreign().count()))
}

/// Known vulnerabilities. They change without us, so they need a tool and a database from outside.
pub(crate) fn advisories() -> Verdict {
    const BY_HAND: &str = "`cargo deny check advisories`, on a machine that reaches the advisory database";
    if !process::has_cargo("deny") {
        return Verdict::Skipped(format!(
            "advisories were not checked: `cargo install cargo-deny --locked`, then {BY_HAND}"
        ));
    }
    if process::run(&mut process::cargo(["deny", "fetch", "db"])).is_err() {
        return Verdict::Skipped(format!("advisories were not checked, the database cannot be fetched: {BY_HAND}"));
    }
    process::run(&mut process::cargo(["deny", "--offline", "check", "advisories"])).map(|()| String::new()).into()
}

fn verdict(wrong: Vec<String>, seen: impl FnOnce() -> String) -> Result<String, String> {
    if wrong.is_empty() { Ok(seen()) } else { Err(wrong.join("\n")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn package(name: &str, source: Option<&str>, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            source: source.map(str::to_owned),
            licence: Some("MIT".to_owned()),
            rust_version: None,
            features: Vec::new(),
            dependencies: dependencies.iter().map(|d| (*d).to_owned()).collect(),
        }
    }

    fn policy() -> Policy {
        Policy { licences: vec!["MIT".into()], banned: vec!["openssl".into()], single: vec!["sqlx".into()] }
    }

    fn tree_with(core_needs: &[&str]) -> Workspace {
        let mut packages: Vec<Package> =
            ARROWS.iter().skip(1).map(|(name, needs)| package(name, None, needs)).collect();
        packages.push(package("hapax-core", None, core_needs));
        packages.push(package("xtask", None, &["hapax"]));
        Workspace { packages, targets: Vec::new() }
    }

    #[test]
    fn an_arrow_against_the_direction_is_named() {
        assert!(directions(&tree_with(&["serde"])).is_ok());
        for against in ["hapax-stores", "xtask"] {
            let error = directions(&tree_with(&[against])).unwrap_err();
            assert_eq!(error, format!("hapax-core must not depend on {against}"));
        }
    }

    #[test]
    fn a_published_crate_that_went_away_does_not_make_the_check_empty() {
        let mut tree = tree_with(&[]);
        tree.packages.retain(|package| package.name != "hapax-core");
        assert!(directions(&tree).unwrap_err().contains("hapax-core is not in the workspace"));
    }

    #[test]
    fn a_package_without_an_accepted_licence_is_named() {
        let mut tree = tree_with(&[]);
        assert!(licences(&tree, &policy()).is_ok());
        tree.packages[0].licence = Some("GPL-3.0".to_owned());
        tree.packages[1].licence = None;
        let error = licences(&tree, &policy()).unwrap_err();
        assert!(error.contains("`GPL-3.0`") && error.contains("names no licence"), "{error}");
    }

    #[test]
    fn banned_doubled_and_foreign_packages_are_named() {
        let registry = format!("registry+https://example.org/{}", ["crates", "io-index"].join("."));
        let mut tree = tree_with(&[]);
        tree.packages.push(package("sqlx", Some(&registry), &[]));
        assert!(bans(&tree, &policy()).is_ok());
        tree.packages.push(package("sqlx", Some(&registry), &[]));
        tree.packages.push(package("openssl", Some(&registry), &[]));
        tree.packages.push(package("patched", Some("git+https://example.org/patched"), &[]));
        let error = bans(&tree, &policy()).unwrap_err();
        for named in ["sqlx is there in versions", "openssl 1.0.0 is banned", "patched 1.0.0 comes from git+"] {
            assert!(error.contains(named), "{named}: {error}");
        }
    }
}
