//! What consumers tell their coordinator, as far as it takes that to know whether a group is being formed.

use std::collections::HashMap;

/// Kinds of requests, as Kafka's protocol numbers them, and the last version of each whose lengths are not short.
const JOIN: (i16, i16) = (11, 5);
const LEAVE: (i16, i16) = (13, 1);
const SYNC: (i16, i16) = (14, 3);
/// Versions from which on there is more in a request to have partitions dealt, and in the answers.
const SYNC_HAS_INSTANCE: i16 = 3;
const ANSWER_HAS_THROTTLE: i16 = 1;

/// All groups of one coordinator.
#[derive(Debug, Default)]
pub(super) struct Groups(HashMap<String, Group>);

#[derive(Debug, Default)]
struct Group {
    /// How often somebody has asked to join it, or has left it.
    changes: u64,
    /// With all changes up to there partitions were dealt.
    formed: Option<u64>,
}

/// What a request is, where that is to be known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Partitions are dealt; once that is confirmed, the group is formed, if nothing changes before.
    Deals(Deal),
    /// Somebody leaves a group that is formed.
    Leaves,
    /// The same of one that is not; and the answer.
    LeavesUnformed(Vec<u8>),
    /// Somebody joins, or asks what was dealt.
    OfGroup,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Deal {
    group: String,
    changes: u64,
    has_throttle: bool,
}

/// The number of a request or of an answer.
pub(super) fn number_of_request(request: &[u8]) -> Option<[u8; 4]> {
    request.get(4..8)?.try_into().ok()
}

pub(super) fn number_of_answer(answer: &[u8]) -> Option<[u8; 4]> {
    answer.get(..4)?.try_into().ok()
}

impl Groups {
    /// Takes note of a request that is about to be passed on.
    pub(super) fn asked(&mut self, request: &[u8]) -> Asked {
        // What cannot be read is none of these.
        self.note(request).unwrap_or(Asked::Other)
    }

    fn note(&mut self, request: &[u8]) -> Option<Asked> {
        let mut bytes = Bytes(request);
        let (kind, version) = (bytes.short()?, bytes.short()?);
        let is = |(of, last): (i16, i16)| kind == of && version <= last;
        if ![JOIN, LEAVE, SYNC].into_iter().any(is) {
            return None;
        }
        let number = bytes.take(4)?;
        bytes.text()?; // Who asks.
        let name = bytes.text()?;
        let group = self.0.entry(name.clone()).or_default();
        if is(JOIN) {
            group.changes += 1;
            return Some(Asked::OfGroup);
        }
        if is(LEAVE) {
            let is_formed = group.formed == Some(group.changes);
            group.changes += 1;
            let throttle = if version >= ANSWER_HAS_THROTTLE { &[0; 4][..] } else { &[] };
            let answer = || [number, throttle, &[0; 2]].concat();
            return Some(if is_formed { Asked::Leaves } else { Asked::LeavesUnformed(answer()) });
        }
        bytes.take(4)?; // The generation.
        bytes.text()?; // Whose it is.
        if version >= SYNC_HAS_INSTANCE {
            bytes.text()?;
        }
        let deals = bytes.int()? > 0;
        let deal = Deal { group: name, changes: group.changes, has_throttle: version >= ANSWER_HAS_THROTTLE };
        Some(if deals { Asked::Deals(deal) } else { Asked::OfGroup })
    }

    /// Takes note of an answer to who has dealt partitions.
    pub(super) fn answered(&mut self, deal: &Deal, answer: &[u8]) {
        let error = if deal.has_throttle { answer.get(8..10) } else { answer.get(4..6) };
        if error == Some(&[0; 2])
            && let Some(group) = self.0.get_mut(&deal.group)
        {
            group.formed = Some(deal.changes);
        }
    }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    fn short(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// Nothing is the same as an empty one.
    fn text(&mut self) -> Option<String> {
        let count = self.short()?;
        String::from_utf8(self.take(usize::try_from(count).unwrap_or(0))?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<u8> {
        let length = i16::try_from(text.len()).unwrap_or_default();
        [&length.to_be_bytes(), text.as_bytes()].concat()
    }

    fn request((kind, _): (i16, i16), version: i16, rest: &[u8]) -> Vec<u8> {
        let head = [kind.to_be_bytes(), version.to_be_bytes()].concat();
        [&head[..], &[0, 0, 0, 7], &text("client"), &text("group"), rest].concat()
    }

    fn deal(groups: &mut Groups) -> Deal {
        let rest = [&[0, 0, 0, 1][..], &text("member"), &[0xff, 0xff, 0, 0, 0, 1]].concat();
        match groups.asked(&request(SYNC, 3, &rest)) {
            Asked::Deals(deal) => deal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_group_is_formed_once_partitions_are_dealt_and_until_somebody_comes_or_goes() {
        let mut groups = Groups::default();
        let leave = request(LEAVE, 1, &text("member"));
        let unformed = || Asked::LeavesUnformed(vec![0, 0, 0, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups.asked(&leave), unformed());
        assert_eq!(groups.asked(&request(JOIN, 5, &[])), Asked::OfGroup);
        let dealt = deal(&mut groups);
        groups.answered(&dealt, &[0, 0, 0, 7, 0, 0, 0, 0, 0, 27]); // It is refused.
        assert_eq!(groups.asked(&leave), unformed());
        let dealt = deal(&mut groups);
        groups.answered(&dealt, &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups.asked(&leave), Asked::Leaves);
        assert_eq!(groups.asked(&leave), unformed());
        let dealt = deal(&mut groups);
        groups.asked(&request(JOIN, 5, &[])); // Before it is confirmed.
        groups.answered(&dealt, &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(groups.asked(&leave), unformed());
        for cut in 0..leave.len() - text("member").len() {
            assert_eq!(groups.asked(&leave[..cut]), Asked::Other, "of {cut} bytes");
        }
    }
}
