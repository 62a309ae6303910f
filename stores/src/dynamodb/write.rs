//! Writing an entity, alone or with dedup entries: one request, all or nothing.

use aws_sdk_dynamodb::{
    operation::{
        put_item::{PutItemError, PutItemOutput},
        transact_write_items::{TransactWriteItemsError, TransactWriteItemsOutput},
    },
    types::{
        CancellationReason, Delete, Put, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure,
        TransactWriteItem,
        builders::{DeleteBuilder, PutBuilder},
    },
};
use hapax_core::{
    entity::Version,
    ports::{ErrorKind, Saved, StoreError},
};
use uuid::Uuid;

use super::{
    DynamoDb,
    call::{CONDITION_FAILED, Doing, Failed},
    entity::{Written, version_of},
    keys::{ATTEMPT, Item, PK, Place, VERSION, text},
};

/// Most actions in one transaction.
pub(super) const ACTIONS_MAX: usize = 100;
/// Most bytes in one transaction; DynamoDB takes 4 MB with names and keys.
const TRANSACTION_BYTES_MAX: usize = 4_000_000;
/// What a dedup entry without a reply has, about.
const MARK_BYTES: usize = 250;

/// That there is none.
const ABSENT: &str = "attribute_not_exists(#pk)";
/// That it has the version.
const SAME: &str = "#v = :v";
/// That a dedup entry is not there, or is this one.
pub(super) const NEW_MARK: &str = "attribute_not_exists(#pk) OR #a = :a";

/// Why a transaction did nothing.
enum Cancelled {
    /// The entity is not what was expected.
    Lost,
    /// One's own write had taken effect before.
    Ours,
    /// Of these of its dedup entries there is another attempt's.
    Known(Vec<usize>),
}

impl DynamoDb {
    /// Whether `marks` can be in the transaction that writes `written`.
    pub(super) fn fits(written: &Written, marks: &[Item]) -> bool {
        let actions = 1 + written.puts.len() + written.deletes.len() + marks.len();
        actions <= ACTIONS_MAX && written.bytes + marks_bytes(marks) <= TRANSACTION_BYTES_MAX
    }

    /// Writes the entity with `marks`, or nothing. A mark of another attempt's that is there is a lost race: that attempt was not
    /// known when this one handled the message.
    pub(super) async fn save_with(
        &self,
        doing: Doing,
        written: Written,
        marks: Vec<Item>,
    ) -> Result<Saved, StoreError> {
        self.write(doing, written, marks, false).await
    }

    /// Writes the entity, and those of `marks` with it that are not there, if it wins.
    pub(super) async fn finish_with(
        &self,
        doing: Doing,
        written: Written,
        marks: Vec<Item>,
    ) -> Result<Saved, StoreError> {
        self.write(doing, written, marks, true).await
    }

    async fn write(
        &self,
        doing: Doing,
        written: Written,
        mut marks: Vec<Item>,
        without_known: bool,
    ) -> Result<Saved, StoreError> {
        if !Self::fits(&written, &marks) {
            let why = format!(
                "{} chunks and {} dedup entries, {} bytes with the entity, are more than the {ACTIONS_MAX} actions or the \
                 {TRANSACTION_BYTES_MAX} bytes of one transaction: save fewer messages at a time, or send references",
                written.puts.len() + written.deletes.len(),
                marks.len(),
                written.bytes + marks_bytes(&marks),
            );
            return Err(doing.error(ErrorKind::TooLarge, why));
        }
        let doing = doing.of_bytes(written.bytes + marks_bytes(&marks));
        let won = || Saved::At(Version::text(written.version.clone()));
        if marks.is_empty() && written.puts.is_empty() && written.deletes.is_empty() {
            return Ok(if self.put(doing, &written).await? { won() } else { Saved::Conflict });
        }
        loop {
            match self.transact(doing, &written, &marks).await? {
                None | Some(Cancelled::Ours) => return Ok(won()),
                Some(Cancelled::Lost) => return Ok(Saved::Conflict),
                Some(Cancelled::Known(_)) if !without_known => return Ok(Saved::Conflict),
                // An entry that is there stays as it is: the others are written without it.
                Some(Cancelled::Known(known)) => {
                    let mut index = 0;
                    marks.retain(|_| {
                        index += 1;
                        !known.contains(&(index - 1))
                    });
                }
            }
        }
    }

    /// Writes an item that is all of the entity; answers whether it won.
    async fn put(&self, doing: Doing, written: &Written) -> Result<bool, StoreError> {
        let request = self.0.client.put_item().table_name(&self.0.table).set_item(Some(written.item.clone()));
        let request = match &written.expected {
            None => request.condition_expression(ABSENT).expression_attribute_names("#pk", PK),
            Some(version) => request
                .condition_expression(SAME)
                .expression_attribute_names("#v", VERSION)
                .expression_attribute_values(":v", text(&**version)),
        };
        let request = request
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let whole = |answer: &PutItemOutput| answer.consumed_capacity().is_some();
        match self.0.limits.call_whole(doing, whole, || request.clone().send()).await {
            Ok(answer) => {
                self.spent(answer.consumed_capacity());
                Ok(true)
            }
            Err(Failed::Refused(PutItemError::ConditionalCheckFailedException(stored))) => {
                Ok(stored.item().is_some_and(|item| is_ours(item, written)))
            }
            Err(failed) => Err(failed.into_error(doing)),
        }
    }

    /// `None`: all of it is written.
    async fn transact(&self, doing: Doing, written: &Written, marks: &[Item]) -> Result<Option<Cancelled>, StoreError> {
        let mut actions = vec![self.action(doing, |put| entity_put(put, written))?];
        for mark in marks {
            actions.push(self.action(doing, |put| mark_put(put, mark))?);
        }
        for chunk in &written.puts {
            actions.push(self.action(doing, |put| put.set_item(Some(chunk.clone())))?);
        }
        for place in &written.deletes {
            actions.push(self.deletion(doing, place)?);
        }
        match self.transaction(doing, actions).await {
            Ok(()) => Ok(None),
            Err(Failed::Refused(TransactWriteItemsError::TransactionCanceledException(cancelled))) => {
                let reasons = cancelled.cancellation_reasons();
                if let Some(why) = judge(reasons, written, marks.len()) {
                    return Ok(Some(why));
                }
                Err(Failed::Refused(TransactWriteItemsError::TransactionCanceledException(cancelled)).into_error(doing))
            }
            Err(failed) => Err(failed.into_error(doing)),
        }
    }

    /// Does all of `actions` or nothing. Tries of one call have one token, so that the service does them once.
    pub(super) async fn transaction(
        &self,
        doing: Doing,
        actions: Vec<TransactWriteItem>,
    ) -> Result<(), Failed<TransactWriteItemsError>> {
        let request = self.0.client.transact_write_items().set_transact_items(Some(actions));
        let request = request
            .client_request_token(Uuid::new_v4().to_string())
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let whole = |answer: &TransactWriteItemsOutput| !answer.consumed_capacity().is_empty();
        let answer = self.0.limits.call_whole(doing, whole, || request.clone().send()).await?;
        self.spent(answer.consumed_capacity());
        Ok(())
    }

    pub(super) fn action(
        &self,
        doing: Doing,
        fill: impl FnOnce(PutBuilder) -> PutBuilder,
    ) -> Result<TransactWriteItem, StoreError> {
        let put = fill(Put::builder().table_name(&self.0.table)).build();
        let put =
            put.map_err(|e| doing.error(ErrorKind::Misconfigured, "the request could not be made").caused_by(e))?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    pub(super) fn deletion(&self, doing: Doing, place: &Place) -> Result<TransactWriteItem, StoreError> {
        self.deletion_if(doing, place, |delete| delete)
    }

    pub(super) fn deletion_if(
        &self,
        doing: Doing,
        place: &Place,
        condition: impl FnOnce(DeleteBuilder) -> DeleteBuilder,
    ) -> Result<TransactWriteItem, StoreError> {
        let delete = condition(Delete::builder().table_name(&self.0.table).set_key(Some(place.key()))).build();
        let delete =
            delete.map_err(|e| doing.error(ErrorKind::Misconfigured, "the request could not be made").caused_by(e))?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }
}

pub(super) fn entity_put(put: PutBuilder, written: &Written) -> PutBuilder {
    let put = match &written.expected {
        None => put.condition_expression(ABSENT).expression_attribute_names("#pk", PK),
        Some(version) => put
            .condition_expression(SAME)
            .expression_attribute_names("#v", VERSION)
            .expression_attribute_values(":v", text(&**version)),
    };
    put.set_item(Some(written.item.clone()))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
}

fn mark_put(put: PutBuilder, mark: &Item) -> PutBuilder {
    let put = put
        .condition_expression(NEW_MARK)
        .expression_attribute_names("#pk", PK)
        .expression_attribute_names("#a", ATTEMPT);
    let attempt = mark.get(ATTEMPT).cloned();
    put.set_expression_attribute_values(attempt.map(|attempt| [(":a".to_owned(), attempt)].into()))
        .set_item(Some(mark.clone()))
}

fn judge(reasons: &[CancellationReason], written: &Written, marks: usize) -> Option<Cancelled> {
    let failed = |reason: &CancellationReason| reason.code() == Some(CONDITION_FAILED);
    let entity = reasons.first()?;
    if failed(entity) {
        let ours = entity.item().is_some_and(|item| is_ours(item, written));
        return Some(if ours { Cancelled::Ours } else { Cancelled::Lost });
    }
    let known: Vec<usize> = (0..marks).filter(|index| reasons.get(index + 1).is_some_and(failed)).collect();
    (!known.is_empty()).then_some(Cancelled::Known(known))
}

/// Whether what is stored is what this very call has written: its answer was lost, and it was tried again.
fn is_ours(item: &Item, written: &Written) -> bool {
    version_of(item).is_some_and(|version| *version == *written.version)
}

fn marks_bytes(marks: &[Item]) -> usize {
    let reply =
        |mark: &Item| mark.get(super::keys::BYTES).and_then(|reply| reply.as_b().ok()).map_or(0, |b| b.as_ref().len());
    marks.iter().map(|mark| MARK_BYTES + reply(mark)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries of one call have one token, which the service knows for ten minutes; a try that comes later still meets its own.
    #[test]
    fn a_transaction_of_dynamodb_that_met_its_own_write_has_won() {
        let version = "1.00000000000000000000000000000007||";
        let written = Written {
            expected: None,
            version: version.into(),
            item: Item::new(),
            puts: Vec::new(),
            deletes: Vec::new(),
            bytes: 0,
        };
        let met = |stored: &str| {
            let reason = CancellationReason::builder().code(CONDITION_FAILED).item(VERSION, text(stored)).build();
            judge(&[reason, CancellationReason::builder().code("None").build()], &written, 1)
        };
        assert!(matches!(met(version), Some(Cancelled::Ours)));
        assert!(matches!(met("1.00000000000000000000000000000008||"), Some(Cancelled::Lost)));
    }
}
