//! What a server is like: whether it keeps what it confirms.

use std::collections::HashMap;

use ::redis::{Value, aio::ConnectionLike, cmd};
use hapax_core::ports::{ErrorKind, TransportError};

use super::{
    answer::{array, text},
    errors::error_of,
    link::CONNECTING,
    options::MayLose,
};

/// Earlier ones keep entries that were deleted in the list of what is pending.
const VERSION_MIN: u32 = 7;

/// What a server says of itself.
#[derive(Debug, Default)]
pub(super) struct Survey(HashMap<String, String>);

impl Survey {
    /// Asks the server behind `connection`. Settings that it does not tell are left out.
    pub(super) async fn of(connection: &mut impl ConnectionLike, place: &str) -> Result<Self, TransportError> {
        let failed = |e| error_of(CONNECTING, place, e, false);
        let info: String = cmd("INFO").query_async(connection).await.map_err(failed)?;
        let mut told = Self::default();
        let pairs = info.lines().filter_map(|line| line.split_once(':'));
        told.0.extend(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())));
        // What may be forbidden, also on servers that others run.
        let settings = cmd("CONFIG").arg("GET").arg("*append*").query_async::<Value>(connection).await;
        let settings = settings.ok().and_then(array).unwrap_or_default();
        let mut settings = settings.into_iter().filter_map(text);
        while let (Some(name), Some(value)) = (settings.next(), settings.next()) {
            told.0.insert(name, value);
        }
        Ok(told)
    }

    fn says(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Which run of which server it is.
    pub(super) fn run(&self) -> Option<&str> {
        self.says("run_id")
    }

    /// What it may lose of what it has confirmed.
    fn may_lose(&self) -> MayLose {
        if self.says("aof_enabled") != Some("1") {
            return MayLose::Everything;
        }
        let waits = self.says("appendfsync") == Some("always") && self.says("no-appendfsync-on-rewrite") == Some("no");
        if waits { MayLose::Nothing } else { MayLose::Seconds }
    }

    /// What it may lose, if that is `accepted` and nothing else is wrong with it. `expires`: some of our keys have a time to live.
    pub(super) fn judge(&self, place: &str, accepted: MayLose, expires: bool) -> Result<MayLose, TransportError> {
        let refused = |why: String| Err(TransportError::new(ErrorKind::Misconfigured, CONNECTING, why));
        let version = self.says("redis_version").unwrap_or("none");
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < VERSION_MIN) {
            return refused(format!("{place} says that it is version {version}: Redis 7.0 or later is needed"));
        }
        if self.says("cluster_enabled") == Some("1") {
            return refused(format!(
                "{place} is a node of a cluster, and keys of a queue would be on several: use a server alone"
            ));
        }
        if self.says("role").is_some_and(|role| role != "master") {
            return refused(format!("{place} is a replica: connect to the server that it copies"));
        }
        let policy = self.says("maxmemory_policy").unwrap_or("noeviction");
        let is_bounded = self.says("maxmemory").is_some_and(|most| most != "0");
        if is_bounded && policy.starts_with("allkeys") {
            return refused(format!(
                "{place} drops whole queues when it is short of memory (maxmemory-policy {policy}): set `maxmemory-policy noeviction`"
            ));
        }
        if is_bounded && policy.starts_with("volatile") && expires {
            return refused(format!(
                "{place} drops keys that have a time to live when it is short of memory (maxmemory-policy {policy}): queues have one with RedisStreamsOptions::remove_unused, and who receives with ordered_keys. Set `maxmemory-policy noeviction`, or do without these"
            ));
        }
        let found = self.may_lose();
        if found <= accepted {
            return Ok(found);
        }
        let (has, accept) = match found {
            MayLose::Nothing | MayLose::Seconds => {
                let (fsync, rewrite) = (self.says("appendfsync"), self.says("no-appendfsync-on-rewrite"));
                let unknown = "which it does not tell this account (CONFIG GET)";
                let rewrite = if rewrite == Some("yes") { " and no-appendfsync-on-rewrite yes" } else { "" };
                let told = fsync.map_or_else(|| unknown.to_owned(), |fsync| format!("{fsync}{rewrite}"));
                (format!("confirms before its disk has it (appendfsync: {told})"), "Seconds")
            }
            MayLose::Everything => {
                ("keeps nothing on disk, or a snapshot now and then (appendonly no)".to_owned(), "Everything")
            }
        };
        refused(format!(
            "{place} {has}, and would lose messages when it dies: set `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no`, or accept that with RedisStreamsOptions::may_lose(MayLose::{accept})"
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn survey(told: &[(&str, &str)]) -> Survey {
        let usual = [
            ("redis_version", "7.0.15"),
            ("cluster_enabled", "0"),
            ("role", "master"),
            ("maxmemory", "0"),
            ("maxmemory_policy", "noeviction"),
            ("aof_enabled", "1"),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
        ];
        let told = usual.iter().chain(told).filter(|(_, value)| !value.is_empty());
        Survey(told.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_server_that_may_lose_more_than_is_accepted_is_refused_with_the_option_that_accepts_it() {
        let nothing = ("aof_enabled", "0");
        let now_and_then = ("appendfsync", "everysec");
        let while_rewriting = ("no-appendfsync-on-rewrite", "yes");
        for (told, found, says) in [
            (nothing, MayLose::Everything, "MayLose::Everything"),
            (now_and_then, MayLose::Seconds, "MayLose::Seconds"),
            (while_rewriting, MayLose::Seconds, "MayLose::Seconds"),
        ] {
            let survey = survey(&[told]);
            assert_eq!(survey.judge("it", MayLose::Everything, false).unwrap(), found);
            let refused = survey.judge("it", MayLose::Nothing, false).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Misconfigured);
            assert!(refused.to_string().contains(says) && refused.to_string().contains("appendonly"), "{refused}");
        }
        assert_eq!(survey(&[]).judge("it", MayLose::Nothing, false).unwrap(), MayLose::Nothing);
        assert!(survey(&[nothing]).judge("it", MayLose::Seconds, false).is_err());
    }

    /// Managed servers do not let everybody read their settings.
    #[test]
    fn settings_that_are_not_told_are_not_taken_for_good() {
        let mut silent = survey(&[]);
        silent.0.retain(|name, _| !name.contains("append"));
        assert!(silent.judge("it", MayLose::Nothing, false).unwrap_err().to_string().contains("CONFIG GET"));
        assert_eq!(silent.judge("it", MayLose::Seconds, false).unwrap(), MayLose::Seconds);
    }

    #[test]
    fn servers_that_do_not_do_are_refused_with_the_reason() {
        for (told, says) in [
            (&[("redis_version", "6.2.7")][..], "7.0 or later"),
            (&[("cluster_enabled", "1")], "cluster"),
            (&[("role", "slave")], "replica"),
            (&[("maxmemory", "1000000"), ("maxmemory_policy", "allkeys-lru")], "maxmemory-policy"),
        ] {
            let refused = survey(told).judge("it", MayLose::Everything, false).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
        // Keys of queues have no time to live, unless that was asked for.
        let volatile = survey(&[("maxmemory", "1000000"), ("maxmemory_policy", "volatile-lru")]);
        assert!(volatile.judge("it", MayLose::Nothing, false).is_ok());
        let refused = volatile.judge("it", MayLose::Nothing, true).unwrap_err().to_string();
        assert!(refused.contains("volatile-lru") && refused.contains("remove_unused"), "{refused}");
        let unbounded = survey(&[("maxmemory_policy", "volatile-lru")]);
        assert!(unbounded.judge("it", MayLose::Nothing, true).is_ok());
    }
}
