//! Rare paths: an exploration that never took them has shown little.

pub(super) const CONFLICT: &str = "conflict";
pub(super) const DUPLICATE: &str = "dedup hit";
pub(super) const RESUMED: &str = "resumed from the outbox";
pub(super) const HELPED: &str = "helped another message";
pub(super) const SWEPT: &str = "swept";

/// A rare path: its name, whether only what sends can take it, and how a check comes to it.
pub(super) struct Path {
    pub(super) name: &'static str,
    pub(super) needs_outbox: bool,
    pub(super) remedy: &'static str,
}

/// All rare paths.
pub(super) const ALL: [Path; 5] = [
    Path { name: CONFLICT, needs_outbox: false, remedy: "give .workers(2) two messages for one saga instance" },
    Path { name: DUPLICATE, needs_outbox: false, remedy: "allow .duplicates(1) or .crashes(1)" },
    Path { name: RESUMED, needs_outbox: true, remedy: "allow .crashes(1)" },
    Path {
        name: HELPED,
        needs_outbox: true,
        remedy: "give .workers(2) two messages for one saga instance, and .crashes(1)",
    },
    Path { name: SWEPT, needs_outbox: true, remedy: "allow .crashes(1).sweeps(1)" },
];
