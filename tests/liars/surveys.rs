//! Lies about what a store holds, told to a person.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    Memory,
    ids::{EndpointName, EntityKey, MessageId, Scope},
    ports::{Answer, Count, DeadLetters, DedupEntries, Page, Scheduled, ScheduledMessage, StoreError, Survey},
    testing::survey::{self, Surveyed},
};

use crate::lie::expect;

const NAMED: &str = "survey 1, named";
const COUNTED: &str = "survey 2, counted";
const FOUND: &str = "survey 3, found";
const READ_ONLY: &str = "survey 4, read only";
const HONEST: &str = "survey 5, honest";

#[derive(Debug, Clone, Copy)]
enum Lie {
    /// Lists no saga but the first.
    ForgetsNames,
    /// Lists the key that is to be begun behind, too.
    BeginsAgain,
    /// Counts what all endpoints have.
    CountsAll,
    /// Says nothing of a limit that was reached.
    HidesTheLimit,
    /// Takes what is not due yet for overdue.
    AllIsOverdue,
    /// Shows messages of others.
    ShowsOthers,
    /// Removes letters when it is asked for something else.
    RemovesLetters,
    /// Says that there is nothing where it does not know.
    MakesZerosUp,
    /// The same of endpoints with letters alone.
    HidesLetters,
    /// Gives no reason.
    SaysNoReason,
}

#[derive(Debug, Clone)]
struct Liar(Memory, Lie);

#[async_trait]
impl survey::Builder for Liar {
    async fn surveyed(&self) -> Surveyed {
        let store = Arc::new(self.0.clone());
        Surveyed { survey: Arc::new(self.clone()), schedule: Some(store.clone()), ..Surveyed::of(&store) }
    }
}

#[async_trait]
impl Survey for Liar {
    async fn scopes(&self, limit: usize) -> Result<Answer<Vec<Scope>>, StoreError> {
        match self.1 {
            Lie::ForgetsNames => self.0.scopes(1).await,
            Lie::MakesZerosUp | Lie::HidesLetters | Lie::SaysNoReason => {
                Ok(Answer::unknown("it keeps no list of them"))
            }
            _ => self.0.scopes(limit).await,
        }
    }

    async fn lettered(&self, limit: usize) -> Result<Answer<Vec<EndpointName>>, StoreError> {
        match self.1 {
            Lie::ForgetsNames | Lie::HidesLetters => Ok(Answer::Is(Vec::new())),
            _ => self.0.lettered(limit).await,
        }
    }

    async fn entity_keys(
        &self,
        scope: &Arc<Scope>,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Answer<Vec<EntityKey>>, StoreError> {
        match self.1 {
            Lie::SaysNoReason => Ok(Answer::unknown("")),
            Lie::MakesZerosUp => Ok(Answer::Is(Vec::new())),
            Lie::BeginsAgain if after.is_some() => {
                let all = self.0.entity_keys(scope, None, usize::MAX).await?;
                let from = |key: &EntityKey| after.is_none_or(|after| key >= after);
                Ok(all.map(|keys| keys.into_iter().filter(from).take(limit).collect::<Vec<_>>()).map(ended))
            }
            _ => self.0.entity_keys(scope, after, limit).await,
        }
    }

    async fn dedup_count(&self, limit: u64) -> Result<Answer<DedupEntries>, StoreError> {
        self.0.dedup_count(limit).await
    }

    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError> {
        let told = self.0.dead_letter_count(endpoint, limit).await?;
        match self.1 {
            Lie::CountsAll => Ok(told.map(|count| Count { number: count.number + 1, ..count })),
            Lie::HidesTheLimit => Ok(told.map(|count| Count::exactly(count.number))),
            _ => Ok(told),
        }
    }

    async fn scheduled(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Scheduled>, StoreError> {
        let told = self.0.scheduled(endpoint, limit).await?;
        match self.1 {
            Lie::AllIsOverdue => Ok(told.map(|all| Scheduled { overdue: all.messages, ..all })),
            _ => Ok(told),
        }
    }

    async fn scheduled_message(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError> {
        let told = self.0.scheduled_message(endpoint, id).await?;
        match self.1 {
            Lie::RemovesLetters => {
                let letters = self.0.list(endpoint, &Page::first(10)).await?;
                self.0.discard(&letters).await?;
                Ok(told)
            }
            Lie::ShowsOthers => Ok(told.map(|mut all| {
                all.extend(all.first().cloned());
                all
            })),
            _ => Ok(told),
        }
    }
}

/// A list that never ended would be no lie that a suite can end at.
fn ended(keys: Vec<EntityKey>) -> Vec<EntityKey> {
    if keys.len() > 1 { keys } else { Vec::new() }
}

async fn breaks(promise: &str, lie: Lie) {
    expect(promise, survey::first_broken(&Liar(Memory::new(), lie)).await);
}

macro_rules! rejected {
    ($($test:ident: $lie:ident $promise:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                breaks($promise, Lie::$lie).await;
            }
        )+
    };
}

rejected! {
    a_survey_that_forgets_names_is_rejected: ForgetsNames NAMED;
    a_survey_that_lists_where_it_began_is_rejected: BeginsAgain NAMED;
    a_survey_that_counts_what_others_have_is_rejected: CountsAll COUNTED;
    a_survey_that_hides_its_limit_is_rejected: HidesTheLimit COUNTED;
    a_survey_that_takes_all_for_overdue_is_rejected: AllIsOverdue COUNTED;
    a_survey_that_shows_other_messages_is_rejected: ShowsOthers FOUND;
    a_survey_that_removes_letters_is_rejected: RemovesLetters READ_ONLY;
    a_survey_that_makes_zeros_up_is_rejected: MakesZerosUp HONEST;
    a_survey_that_hides_whose_letters_it_has_is_rejected: HidesLetters HONEST;
    a_survey_that_gives_no_reason_is_rejected: SaysNoReason HONEST;
}
