//! Topics that are there already, and may be other than those that are declared: what loses messages in them, or takes none, is told before
//! anything is sent or given.

use std::time::Duration;

use hapax_core::ports::{ErrorKind, TransportError};
use rdkafka::{
    admin::{AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier},
    error::RDKafkaErrorCode as Code,
};

use super::{
    Broker, KafkaOptions,
    errors::{code_of, failure},
    options::HEADERS_BYTES,
    topology::Use,
};

/// What a topic is configured to, as far as that is told.
#[derive(Debug, Default)]
struct Terms {
    cleanup: Option<String>,
    retention_millis: Option<i64>,
    bytes_max: Option<i64>,
    in_sync_min: Option<i64>,
}

impl Terms {
    fn of(resource: &ConfigResource) -> Self {
        let value = |name| resource.get(name).and_then(|entry| entry.value.clone());
        let number = |name| value(name).and_then(|value| value.parse().ok());
        Self {
            cleanup: value("cleanup.policy"),
            retention_millis: number("retention.ms"),
            bytes_max: number("max.message.bytes"),
            in_sync_min: number("min.insync.replicas"),
        }
    }

    /// What is wrong, each with its remedy.
    fn wrong(&self, what: Use, options: &KafkaOptions) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some(cleanup) = &self.cleanup {
            let is_compacted = cleanup.split(',').any(|policy| policy.trim() == "compact");
            match what {
                Use::Messages if is_compacted => wrong.push(format!(
                    "keeps the last message of each key alone (`cleanup.policy` is `{cleanup}`): set it to `delete`"
                )),
                Use::Keys if cleanup.trim() != "compact" => wrong.push(format!(
                    "does not keep dead letters and notes for good (`cleanup.policy` is `{cleanup}`): set it to `compact`"
                )),
                Use::Messages | Use::Keys => {}
            }
        }
        // A negative one is none.
        let retention = self.retention_millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
        let behind = options.redelivery_max.min(options.retention);
        if let Some(retention) = retention.filter(|retention| what == Use::Messages && *retention < behind) {
            wrong.push(format!(
                "keeps messages for {retention:?}, and an endpoint may fall behind by {behind:?}: raise `retention.ms`, or lower KafkaOptions::redelivery_max"
            ));
        }
        let bytes = i64::try_from(options.message_bytes_max + HEADERS_BYTES).unwrap_or(i64::MAX);
        if let Some(bytes_max) = self.bytes_max.filter(|bytes_max| *bytes_max < bytes) {
            wrong.push(format!(
                "takes {bytes_max} bytes, and a message may have {bytes} with its headers: raise `max.message.bytes`, or lower KafkaOptions::message_bytes_max"
            ));
        }
        wrong
    }
}

/// Whether asking again would change nothing: this user may not ask, or the broker answers nobody. Whatever else there is may pass, and is an error.
const fn is_never_told(code: Code) -> bool {
    matches!(
        code,
        Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::UnsupportedFeature
            | Code::UnsupportedVersion
    )
}

fn not_told(place: &str, why: &dyn std::fmt::Display) {
    tracing::warn!(
        "{place} does not tell how topics are configured ({why}): what may be wrong with them shows later. Grant DescribeConfigs, if the broker has it"
    );
}

impl Broker {
    /// That topics which were there before are such as this relies on. Where a broker or a user's permissions do not let that be asked, it is
    /// taken on trust, and the log says so. How many partitions one has is its own affair.
    pub(super) async fn verified(
        &self,
        operation: &'static str,
        topics: &[(String, Use)],
    ) -> Result<(), TransportError> {
        if topics.is_empty() {
            return Ok(());
        }
        let place = self.link.place();
        let asked: Vec<ResourceSpecifier<'_>> =
            topics.iter().map(|(topic, _)| ResourceSpecifier::Topic(topic)).collect();
        let within = AdminOptions::new().request_timeout(Some(self.link.patience));
        let told = self.link.admin()?.describe_configs(&asked, &within).await;
        let told = match told {
            Err(e) if code_of(&e).is_some_and(is_never_told) => {
                not_told(place, &e);
                return Ok(());
            }
            told => told.map_err(|e| failure(operation, place, &e, false))?,
        };
        for resource in told {
            let resource = match resource {
                Ok(resource) => resource,
                Err(code) if is_never_told(code) => {
                    not_told(place, &code);
                    continue;
                }
                Err(code) => return Err(failure(operation, place, &rdkafka::error::KafkaError::AdminOp(code), false)),
            };
            let OwnedResourceSpecifier::Topic(name) = &resource.specifier else { continue };
            let Some((topic, what)) = topics.iter().find(|(topic, _)| topic == name) else { continue };
            let terms = Terms::of(&resource);
            let mut wrong = terms.wrong(*what, &self.options);
            if let Some(in_sync_min) = terms.in_sync_min.filter(|min| *min > 1) {
                let name = topic.clone();
                let replicas = self.link.ask(operation, move |asker| asker.replicas(&name)).await?;
                if replicas.is_some_and(|replicas| i64::try_from(replicas).is_ok_and(|replicas| replicas < in_sync_min))
                {
                    wrong.push(format!(
                        "would confirm no message: it has {} replicas, and {in_sync_min} are to be in sync. Lower `min.insync.replicas`, or raise its replication factor",
                        replicas.unwrap_or_default()
                    ));
                }
            }
            if !wrong.is_empty() {
                let why = format!("{place}: topic `{topic}` {}", wrong.join("; and it "));
                return Err(TransportError::new(ErrorKind::Misconfigured, operation, why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600 * 1000;

    fn wrong(what: Use, terms: &Terms) -> String {
        terms.wrong(what, &KafkaOptions::new()).join("; ")
    }

    #[test]
    fn what_brokers_have_by_default_will_do() {
        let usual = Terms {
            cleanup: Some("delete".into()),
            retention_millis: Some(7 * DAY),
            bytes_max: Some(1_048_588),
            in_sync_min: Some(1),
        };
        assert_eq!(wrong(Use::Messages, &usual), "");
        assert_eq!(wrong(Use::Messages, &Terms { retention_millis: Some(-1), ..usual }), "");
        assert_eq!(wrong(Use::Keys, &Terms { cleanup: Some("compact".into()), ..Terms::default() }), "");
        assert_eq!(wrong(Use::Keys, &Terms::default()), "", "what is not told is taken on trust");
    }

    #[test]
    fn what_is_never_told_is_taken_on_trust_and_what_may_pass_is_not() {
        for never in [Code::TopicAuthorizationFailed, Code::UnsupportedVersion, Code::UnsupportedFeature] {
            assert!(is_never_told(never), "{never}");
        }
        for passing in [Code::RequestTimedOut, Code::OperationTimedOut, Code::NotCoordinator, Code::Unknown] {
            assert!(!is_never_told(passing), "{passing}");
        }
    }

    #[test]
    fn what_loses_messages_or_takes_none_is_told_with_its_remedy() {
        let cleanup = |policy: &str| Terms { cleanup: Some(policy.into()), ..Terms::default() };
        for (what, terms, remedy) in [
            (Use::Messages, cleanup("compact"), "set it to `delete`"),
            (Use::Messages, cleanup("delete,compact"), "set it to `delete`"),
            (Use::Keys, cleanup("delete"), "set it to `compact`"),
            (Use::Keys, cleanup("compact,delete"), "set it to `compact`"),
            (Use::Messages, Terms { retention_millis: Some(DAY - 1), ..Terms::default() }, "raise `retention.ms`"),
            (Use::Keys, Terms { bytes_max: Some(1_048_575), ..Terms::default() }, "raise `max.message.bytes`"),
        ] {
            let told = wrong(what, &terms);
            assert!(told.contains(remedy), "{terms:?}: {told}");
        }
    }
}
