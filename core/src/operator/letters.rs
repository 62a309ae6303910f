//! Dead letters of several endpoints as one list.

use std::time::Duration;

use super::{Operator, Selection, ShownLetter};
use crate::{
    endpoint::office::{DeadLetterOffice, Filter},
    ids::EndpointName,
    ports::{Answer, DeadLetter, StoreError},
};

impl Operator {
    /// Dead letters of `endpoint`, or of all that are known here one after the other, as far as `filter` lets them through; `skip` of them are
    /// passed by, and `limit` are given at most, with their bodies.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn dead_letters(
        &self,
        endpoint: Option<&EndpointName>,
        filter: &Filter,
        skip: usize,
        limit: usize,
    ) -> Result<Answer<Vec<DeadLetter>>, StoreError> {
        self.letters_as(endpoint, filter, (skip, limit), |letter| letter).await
    }

    /// The same as a list shows them, without their bodies. These are read with them; no more than a hundred are held at a time.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn shown_letters(
        &self,
        endpoint: Option<&EndpointName>,
        filter: &Filter,
        skip: usize,
        limit: usize,
    ) -> Result<Answer<Vec<ShownLetter>>, StoreError> {
        self.letters_as(endpoint, filter, (skip, limit), |letter| ShownLetter::of(&letter)).await
    }

    async fn letters_as<T>(
        &self,
        endpoint: Option<&EndpointName>,
        filter: &Filter,
        (skip, limit): (usize, usize),
        shown: fn(DeadLetter) -> T,
    ) -> Result<Answer<Vec<T>>, StoreError> {
        let of = Selection { endpoint: endpoint.cloned(), saga: None };
        let endpoints = match self.endpoints(&of).await? {
            Answer::Is(endpoints) => endpoints,
            Answer::Unknown { why } => return Ok(Answer::Unknown { why }),
        };
        let (mut skip, mut found) = (skip, Vec::new());
        for endpoint in endpoints {
            if found.len() >= limit {
                break;
            }
            // Nobody is in it who could change anything.
            let office = self.dead_letter_office(&endpoint, "", Duration::ZERO);
            let listed = office.list_as(filter, skip, limit - found.len(), shown).await?;
            let passed = if listed.is_empty() { number(&office, filter, skip).await? } else { skip };
            skip -= passed;
            found.extend(listed);
        }
        Ok(Answer::Is(found))
    }
}

/// How many there are, up to `most`.
async fn number(office: &DeadLetterOffice, filter: &Filter, most: usize) -> Result<usize, StoreError> {
    Ok(office.list_as(filter, 0, most, drop).await?.len())
}
