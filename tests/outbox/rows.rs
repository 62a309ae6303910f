//! What a person is shown of an outbox and decides about it, asked for by hand; and tables that break a promise each, which must be noticed.

use std::{slice, time::Duration};

use async_trait::async_trait;
use hapax::{
    ids::MessageId,
    ports::{Care, OutboxRow, OutboxRows, OutboxTable, Outcome, Page, RowStatus, StoreError},
};

use super::{
    promises::{Kept, LONG, Lie, Lying, Relay, check, orders, store},
    rig::{Outbox, Place},
    sink::{PATIENCE, Placed},
};

const ALL: [RowStatus; 4] = [RowStatus::Waits, RowStatus::Sent, RowStatus::Failed, RowStatus::Expired];

/// Two messages of each status, in the order of `ALL`, each with a key of its own. Who has made them so.
async fn two_of_each<'t>(place: &Place, outbox: &'t Outbox) -> Relay<'t> {
    store(place, outbox, (0..8).map(|at| at * 100), None).await;
    let relay = Relay::new(outbox, 1).await;
    for row in relay.claim(1, LONG).await {
        let outcome = match orders(slice::from_ref(&row))[0] / 200 {
            0 => Outcome::GivenBack,
            1 => Outcome::Sent,
            2 => Outcome::Failed("no".into()),
            _ => Outcome::Expired,
        };
        assert_eq!(relay.end([row.claim], outcome).await, 1);
    }
    relay
}

fn shown(rows: &[OutboxRow]) -> Vec<u32> {
    let order = |row: &OutboxRow| {
        serde_json::from_slice::<Placed>(&row.outgoing.as_ref().unwrap().envelope.body).unwrap().order
    };
    rows.iter().map(order).collect()
}

async fn all(table: &dyn OutboxRows) -> Vec<OutboxRow> {
    table.rows(None, &Page::first(100)).await.unwrap()
}

async fn with_id(table: &dyn OutboxRows, id: &MessageId) -> Vec<OutboxRow> {
    table.rows(None, &Page { message_id: Some(id.clone()), ..Page::first(100) }).await.unwrap()
}

/// Everything that is over goes to the archive, as soon as it is over for any time at all.
async fn archive(outbox: &Outbox) {
    let care = Care { keep: Duration::ZERO, archive: Some(LONG), rows: 100 };
    let caring = async {
        let mut ended = 0;
        while ended < 4 {
            ended += outbox.care(&care).await.unwrap().ended;
        }
    };
    tokio::time::timeout(PATIENCE, caring).await.expect("what is over goes to the archive");
}

/// 1. Each row of a status once, by pages; and one by its id, wherever it is.
async fn listed(place: &Place, outbox: &Outbox, table: &dyn OutboxRows) -> Kept {
    two_of_each(place, outbox).await;
    for (at, status) in (0..).zip(ALL) {
        let mut rows = Vec::new();
        while rows.len() < 3 {
            let page = table.rows(Some(status), &Page { skip: rows.len(), ..Page::first(1) }).await.unwrap();
            if page.is_empty() {
                break;
            }
            rows.extend(page);
        }
        check(rows.iter().all(|row| row.status == status), || format!("of {status:?}: {rows:?}"))?;
        check(rows.is_sorted_by_key(|row| row.ended), || format!("not in the order in which they ended: {rows:?}"))?;
        let mut seen = shown(&rows);
        if status != RowStatus::Waits {
            seen.sort_unstable(); // Both may have ended in one millisecond.
        }
        check(seen == [at * 200, at * 200 + 100], || format!("{status:?}: {seen:?}"))?;
    }
    let rows = all(table).await;
    let mut seen = shown(&rows);
    seen.sort_unstable();
    check(seen == [0, 100, 200, 300, 400, 500, 600, 700], || format!("all: {seen:?}"))?;
    archive(outbox).await;
    for row in &rows {
        let found = with_id(table, &row.message_id).await;
        let is_over = matches!(row.status, RowStatus::Sent | RowStatus::Expired);
        let is_it = matches!(&found[..], [one] if one.archived == is_over && one.status == row.status);
        check(is_it && shown(&found) == shown(slice::from_ref(row)), || format!("{row:?} is found as {found:?}"))?;
    }
    let strange = with_id(table, &MessageId::random()).await;
    check(strange.is_empty(), || format!("a message that was never stored: {strange:?}"))
}

/// 2. Who decides about rows that have not failed changes nothing.
async fn only_the_failed(place: &Place, outbox: &Outbox, table: &dyn OutboxRows) -> Kept {
    let relay = two_of_each(place, outbox).await;
    let ids: Vec<MessageId> = all(table).await.into_iter().map(|row| row.message_id).collect();
    let count = async |status| table.rows(Some(status), &Page::first(100)).await.unwrap().len();
    let counts = async || [count(ALL[0]).await, count(ALL[1]).await, count(ALL[2]).await, count(ALL[3]).await];
    let retried = [table.retry(&ids).await.unwrap(), table.retry(&ids).await.unwrap()];
    check(retried == [2, 0], || format!("first and once more: {retried:?} are tried again"))?;
    let now = counts().await;
    check(now == [4, 2, 0, 2], || format!("tried again, there are {now:?} of {ALL:?}"))?;
    for row in relay.claim(2, LONG).await {
        let anew = orders(slice::from_ref(&row))[0] / 200 == 2;
        check(!anew || row.attempts == 1, || format!("{row:?} does not begin with its first attempt"))?;
        let outcome = if anew { Outcome::Failed("no".into()) } else { Outcome::GivenBack };
        relay.end([row.claim], outcome).await;
    }
    let given_up = [table.discard(&ids).await.unwrap(), table.discard(&ids).await.unwrap()];
    check(given_up == [2, 0], || format!("first and once more: {given_up:?} are given up"))?;
    let now = counts().await;
    check(now == [2, 2, 0, 4], || format!("given up, there are {now:?} of {ALL:?}"))
}

#[async_trait]
impl OutboxRows for Lying {
    async fn rows(&self, status: Option<RowStatus>, page: &Page) -> Result<Vec<OutboxRow>, StoreError> {
        let status = status.filter(|_| self.lie != Lie::AnyStatus);
        let page = if self.lie == Lie::OnePage { Page { skip: 0, ..page.clone() } } else { page.clone() };
        let mut rows = self.inner.rows(status, &page).await?;
        rows.retain(|row| self.lie != Lie::NoArchive || !row.archived);
        Ok(rows)
    }

    async fn retry(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        let retried = self.inner.retry(messages).await?;
        Ok(if self.lie == Lie::AnyRow { messages.len() as u64 } else { retried })
    }

    async fn discard(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        if self.lie == Lie::GivesUpNothing {
            return Ok(0);
        }
        self.inner.discard(messages).await
    }
}

macro_rules! promises {
    ($($promise:ident, $($lie:ident),*;)*) => {$(
        #[tokio::test]
        async fn $promise() {
            for ordered in [false, true] {
                let place = if ordered { Place::ordered().await } else { Place::new().await };
                let outbox = place.outbox().await;
                assert_eq!(super::$promise(&place, &outbox, &outbox).await, Ok(()), "ordered: {ordered}");
                for lie in [$(Lie::$lie),*] {
                    let place = if ordered { Place::ordered().await } else { Place::new().await };
                    let outbox = place.outbox().await;
                    let noticed = super::$promise(&place, &outbox, &Lying::new(&outbox, lie)).await;
                    assert!(noticed.is_err(), "ordered: {ordered}: nobody has noticed {lie:?}");
                }
            }
        }
    )*};
}

mod kept {
    use super::{Lie, Lying, Place};

    promises! {
        listed, AnyStatus, OnePage, NoArchive;
        only_the_failed, AnyRow, GivesUpNothing;
    }
}
