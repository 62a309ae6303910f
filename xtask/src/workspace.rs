//! What cargo knows about the tree: its packages, their features and everything they depend on.

use std::path::PathBuf;

use serde_json::Value;

use crate::process;

/// One package of the dependency graph, ours or another's.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Where it comes from; none for a folder of this tree.
    pub(crate) source: Option<String>,
    pub(crate) licence: Option<String>,
    /// The oldest compiler that it says it can be built with.
    pub(crate) rust_version: Option<String>,
    pub(crate) features: Vec<String>,
    /// Names of what it needs to be built and used; not what its tests need.
    pub(crate) dependencies: Vec<String>,
}

/// The resolved graph with every feature on, for every platform.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    /// The file with which each library, program, test, example and benchmark of this tree begins.
    pub(crate) targets: Vec<PathBuf>,
}

impl Workspace {
    /// Asks cargo. Does not touch the lock file.
    ///
    /// # Errors
    /// cargo's own words, say that the lock file is not current.
    pub(crate) fn load() -> Result<Self, String> {
        let args = ["metadata", "--format-version", "1", "--all-features", "--locked"];
        let json = process::output(&mut process::cargo(args))?;
        let value: Value = serde_json::from_str(&json).map_err(|error| format!("cargo metadata: {error}"))?;
        let own = items(&value["packages"]).filter(|package| text(&package["source"]).is_none());
        let targets = own.flat_map(|package| items(&package["targets"])).filter_map(|target| text(&target["src_path"]));
        let targets = targets.map(PathBuf::from).collect();
        Ok(Self { packages: items(&value["packages"]).map(package).collect(), targets })
    }

    /// The packages of this tree.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }

    /// The packages of others.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = (&Package, &str)> {
        self.packages.iter().filter_map(|package| Some((package, package.source.as_deref()?)))
    }
}

fn package(value: &Value) -> Package {
    let for_use = |dependency: &&Value| dependency["kind"].as_str() != Some("dev");
    Package {
        name: text(&value["name"]).unwrap_or_default(),
        version: text(&value["version"]).unwrap_or_default(),
        source: text(&value["source"]),
        licence: text(&value["license"]),
        rust_version: text(&value["rust_version"]),
        features: value["features"].as_object().into_iter().flat_map(|map| map.keys().cloned()).collect(),
        dependencies: items(&value["dependencies"]).filter(for_use).filter_map(|d| text(&d["name"])).collect(),
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
