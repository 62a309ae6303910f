//! The calls to be tried, by name: where a store goes about one call in several ways, each way can fail elsewhere and is one of its own.

use super::{Ports, entities, marks, reads, trouble::Armed};

/// More than one item or one page of a service holds.
const LARGE: usize = 500_000;
/// What calls with large bodies meet, once each: a client library takes long for them where it is not optimised.
const FOR_LARGE: [&str; 3] = ["request lost", "answer lost", "answered with nothing"];

/// One call of a port, as it is made here. Of what a store does in several ways each way is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Loads an entity, and asks for two messages.
    Load,
    /// Loads an entity that is large.
    LoadLarge,
    /// Asks for an entity's version.
    Version,
    /// Lists what waits.
    Pending,
    /// Asks for one message.
    Contains,
    /// Asks for several.
    ContainsSeveral,
    /// Lists dead letters.
    List,
    /// Lists a large one.
    ListLarge,
    /// Saves an entity that is not there.
    Create,
    /// Saves over one that is there.
    Replace,
    /// The same with one that is large.
    ReplaceLarge,
    /// Saves an entity with dedup entries.
    SaveWithMarks,
    /// Finishes, and cleans up.
    Finish,
    /// Finishes what is partly over already.
    FinishAgain,
    /// Finishes where another has saved the entity meanwhile.
    FinishOvertaken,
    /// Finishes, with nothing to clean up.
    FinishMarks,
    /// Removes a tombstone.
    Purge,
    /// Removes a tombstone that is large.
    PurgeLarge,
    /// Inserts one dedup entry.
    Insert,
    /// Inserts several.
    InsertSeveral,
    /// Inserts one that another attempt has inserted before.
    InsertKnown,
    /// Adds a dead letter.
    Add,
    /// Adds a large one.
    AddLarge,
    /// Discards a dead letter.
    Discard,
    /// Discards a large one.
    DiscardLarge,
}

impl Operation {
    /// All calls of an entity store that keeps dedup entries too.
    pub const ENTITIES: &[Self] = &[
        Self::Load,
        Self::LoadLarge,
        Self::Version,
        Self::Pending,
        Self::Create,
        Self::Replace,
        Self::ReplaceLarge,
        Self::SaveWithMarks,
        Self::Finish,
        Self::FinishAgain,
        Self::FinishOvertaken,
        Self::FinishMarks,
        Self::Purge,
        Self::PurgeLarge,
    ];
    /// All calls of a dedup store but its eviction, which asks the service for nothing or is a matter of time.
    pub const DEDUP: &[Self] =
        &[Self::Contains, Self::ContainsSeveral, Self::Insert, Self::InsertSeveral, Self::InsertKnown];
    /// All calls of a place for dead letters.
    pub const LETTERS: &[Self] =
        &[Self::List, Self::ListLarge, Self::Add, Self::AddLarge, Self::Discard, Self::DiscardLarge];

    /// The method of the port.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Load | Self::LoadLarge => "load",
            Self::Version => "version",
            Self::Pending => "pending",
            Self::Contains | Self::ContainsSeveral => "contains",
            Self::List | Self::ListLarge => "list",
            Self::Create | Self::Replace | Self::ReplaceLarge | Self::SaveWithMarks => "save",
            Self::Finish | Self::FinishAgain | Self::FinishOvertaken | Self::FinishMarks => "finish",
            Self::Purge | Self::PurgeLarge => "purge",
            Self::Insert | Self::InsertSeveral | Self::InsertKnown => "insert",
            Self::Add | Self::AddLarge => "add",
            Self::Discard | Self::DiscardLarge => "discard",
        }
    }

    /// Whether it sends or receives much.
    pub(super) const fn is_large(self) -> bool {
        matches!(
            self,
            Self::LoadLarge
                | Self::ListLarge
                | Self::ReplaceLarge
                | Self::PurgeLarge
                | Self::AddLarge
                | Self::DiscardLarge
        )
    }

    /// Whether it is made with this trouble. Of those that send or receive much only the load meets all: there alone many items
    /// are read at once.
    pub(super) fn meets(self, trouble: &str) -> bool {
        !self.is_large() || self == Self::LoadLarge || FOR_LARGE.contains(&trouble)
    }

    /// Makes the call of `faulty`, judges what it says by what `plain` sees then, and makes it again by `plain`.
    pub(super) async fn run(self, faulty: &Ports, plain: &Ports, armed: &Armed<'_>) -> Result<(), String> {
        match self {
            Self::Load => reads::load(faulty, plain, armed, 0).await,
            Self::LoadLarge => reads::load(faulty, plain, armed, LARGE).await,
            Self::Version => reads::version(faulty, plain, armed).await,
            Self::Pending => reads::pending(faulty, plain, armed).await,
            Self::Contains => reads::contains(faulty, plain, armed, 1).await,
            Self::ContainsSeveral => reads::contains(faulty, plain, armed, 3).await,
            Self::List => reads::list(faulty, plain, armed, 0).await,
            Self::ListLarge => reads::list(faulty, plain, armed, LARGE).await,
            Self::Create => entities::save(faulty, plain, armed, None, 0, 0).await,
            Self::Replace => entities::save(faulty, plain, armed, Some(0), 0, 0).await,
            Self::ReplaceLarge => entities::save(faulty, plain, armed, Some(LARGE), LARGE, 0).await,
            Self::SaveWithMarks => entities::save(faulty, plain, armed, Some(0), 0, 2).await,
            Self::Finish => entities::finish(faulty, plain, armed, false, false).await,
            Self::FinishAgain => entities::finish(faulty, plain, armed, true, false).await,
            Self::FinishOvertaken => entities::finish(faulty, plain, armed, false, true).await,
            Self::FinishMarks => entities::finish_marks(faulty, plain, armed).await,
            Self::Purge => entities::purge(faulty, plain, armed, 0).await,
            Self::PurgeLarge => entities::purge(faulty, plain, armed, LARGE).await,
            Self::Insert => marks::insert(faulty, plain, armed, 1).await,
            Self::InsertSeveral => marks::insert(faulty, plain, armed, 3).await,
            Self::InsertKnown => marks::insert_known(faulty, plain, armed).await,
            Self::Add => marks::add(faulty, plain, armed, 0).await,
            Self::AddLarge => marks::add(faulty, plain, armed, LARGE).await,
            Self::Discard => marks::discard(faulty, plain, armed, 0).await,
            Self::DiscardLarge => marks::discard(faulty, plain, armed, LARGE).await,
        }
    }
}
