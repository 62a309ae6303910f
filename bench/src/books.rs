//! Did every message take effect once? Without this a rate says nothing.

/// What a run was asked to do, and what is found after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Books {
    /// Distinct ids that were delivered.
    pub(crate) distinct: u64,
    /// Sum of the effects in all states.
    pub(crate) effects: u64,
    /// Sum of the versions of all states, a commit number each; `None`: the side counts none.
    pub(crate) versions: Option<u64>,
    /// Entries of the dedup store; `None`: the side keeps none.
    pub(crate) dedup_entries: Option<u64>,
    /// Outgoing messages that were confirmed.
    pub(crate) sent: u64,
    /// Outgoing messages that each message has.
    pub(crate) sent_each: u64,
    /// Entries that are still in an outbox.
    pub(crate) outbox_left: u64,
    /// Passes that were made again, and whatever else did not go well at once.
    pub(crate) disturbed: u64,
}

impl Books {
    /// What does not add up.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { distinct, effects, versions, dedup_entries, sent, sent_each, outbox_left, disturbed } = *self;
        if effects != distinct {
            return Some(format!("{distinct} distinct ids took effect {effects} times"));
        }
        if let Some(versions) = versions.filter(|versions| *versions != distinct) {
            return Some(format!("{distinct} distinct ids made {versions} versions of states"));
        }
        if let Some(entries) = dedup_entries.filter(|entries| *entries != distinct) {
            return Some(format!("{distinct} distinct ids left {entries} dedup entries"));
        }
        // What was disturbed may have been sent again under its old id; less than once is never right.
        if sent < distinct * sent_each || (disturbed == 0 && sent != distinct * sent_each) {
            return Some(format!("{distinct} distinct ids sent {sent} messages"));
        }
        (outbox_left > 0).then(|| format!("{outbox_left} outbox entries are left"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Books = Books {
        distinct: 10,
        effects: 10,
        versions: Some(10),
        dedup_entries: Some(10),
        sent: 10,
        sent_each: 1,
        outbox_left: 0,
        disturbed: 0,
    };

    #[test]
    fn books_of_a_good_run_add_up() {
        assert_eq!(GOOD.problem(), None);
        assert_eq!(Books { versions: None, dedup_entries: None, sent: 0, sent_each: 0, ..GOOD }.problem(), None);
    }

    #[test]
    fn a_double_or_lost_effect_voids_the_run() {
        assert!(Books { effects: 11, ..GOOD }.problem().is_some());
        assert!(Books { effects: 9, ..GOOD }.problem().is_some());
        assert!(Books { versions: Some(11), ..GOOD }.problem().is_some());
    }

    #[test]
    fn a_missing_mark_a_lost_message_and_a_left_over_entry_void_the_run() {
        assert!(Books { dedup_entries: Some(9), ..GOOD }.problem().is_some());
        assert!(Books { sent: 9, disturbed: 1, ..GOOD }.problem().is_some());
        assert!(Books { outbox_left: 1, ..GOOD }.problem().is_some());
    }

    #[test]
    fn a_repeated_send_counts_only_where_something_was_disturbed() {
        assert!(Books { sent: 11, ..GOOD }.problem().is_some());
        assert_eq!(Books { sent: 11, disturbed: 1, ..GOOD }.problem(), None);
    }
}
