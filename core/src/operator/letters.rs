//! Dead letters of several endpoints as one list.

use std::time::Duration;

use super::{Operator, Selection};
use crate::{
    endpoint::office::{DeadLetterOffice, Filter},
    ids::EndpointName,
    ports::{Answer, DeadLetter, StoreError},
};

/// Letters that are looked at to count them: they come with their bodies.
const AT_ONCE: usize = 100;

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
            let listed = office.list(filter, skip, limit - found.len()).await?;
            let passed = if listed.is_empty() { number(&office, filter, skip).await? } else { skip };
            skip -= passed;
            found.extend(listed);
        }
        Ok(Answer::Is(found))
    }
}

/// How many there are, up to `most`.
async fn number(office: &DeadLetterOffice, filter: &Filter, most: usize) -> Result<usize, StoreError> {
    let mut number = 0;
    while number < most {
        let listed = office.list(filter, number, AT_ONCE.min(most - number)).await?;
        if listed.is_empty() {
            break;
        }
        number += listed.len();
    }
    Ok(number)
}
