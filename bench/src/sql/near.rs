//! What this program finds of servers on its own machine, and how it tells its own places there from others.

use std::{fs, path::Path};

/// What schemas and databases of this program begin with.
const OURS: &str = "bench_";

/// A name for a place that has the number of this process in it, as [`may_live`] reads it.
pub(crate) fn new_name(name: &str) -> String {
    format!("{OURS}{}_{:04x}_{}", std::process::id(), fastrand::u16(..), name.replace('-', "_"))
}

/// Whether the process that has made `name` may live. Numbers of processes say something only of a server that `is_near`:
/// on others what has not our names is not asked.
pub(crate) fn may_live(name: &str, is_near: bool) -> bool {
    let process = Path::new("/proc").join(name.split('_').nth(1).unwrap_or_default());
    if is_near { process.exists() } else { !name.starts_with(OURS) }
}

/// Whether a server at `host` runs on this machine, unless a tunnel or a container makes it look so.
pub(crate) fn is_near(host: &str) -> bool {
    host.starts_with('/')
        || host == "localhost"
        || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A process of this machine.
#[derive(Debug)]
pub(crate) struct Process {
    /// Of its program.
    pub(crate) name: String,
    pub(crate) parent: u32,
    /// User and system time, and of children that have ended, which only the first process has.
    pub(crate) cpu_seconds: f64,
}

impl Process {
    pub(crate) fn read(number: &str) -> Option<Self> {
        const TICKS_PER_SECOND: f64 = 100.0;
        let text = fs::read_to_string(Path::new("/proc").join(number).join("stat")).ok()?;
        let (name, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        Some(Self {
            name: name.split_once('(')?.1.to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            cpu_seconds: [11, 12, 13, 14].map(ticks).iter().sum::<f64>() / TICKS_PER_SECOND,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_living_process_uses_stays() {
        assert!(may_live(&new_name("p1"), true));
        let dead = format!("bench_{}_0001_p1", u32::MAX);
        assert!(!may_live(&dead, true) && !may_live(&dead, false));
        assert!(may_live("t_1_2", false), "of another machine, and not ours");
    }

    #[test]
    fn this_process_has_a_name_and_a_parent_and_uses_time() {
        let process = Process::read("self").unwrap();
        assert!(process.name.starts_with("hapax") && process.parent > 0 && process.cpu_seconds >= 0.0, "{process:?}");
        assert!(is_near("127.0.0.1") && is_near("[::1]") && is_near("/run") && !is_near("10.0.0.1"));
    }
}
