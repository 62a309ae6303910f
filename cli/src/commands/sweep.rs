//! A sweep by hand.

use hapax::operator::Swept;

use super::{answered, open_store, selection};
use crate::{
    args::{Common, Sweep},
    ask::Hand,
    failure::Failure,
    print::{Out, shown, span},
    transport::{sending, with_transport},
};

/// What is written down that was done.
const SWEPT: &str = "swept outbox entries";

pub(super) async fn run(asked: &Sweep, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let (opened, of) = (open_store(common).await?, selection(&asked.of));
    let hand = Hand::new(&asked.changing, &common.store().unwrap_or_default());
    let operator = if hand.dry_run { with_transport(opened, common).await? } else { sending(opened, common).await? };
    let waiting = operator.waiting(&of, asked.older_than, 0, asked.limit).await.map_err(|error| Failure::of(&error))?;
    let waiting = answered(waiting)?;
    let age = span(u64::try_from(asked.older_than.as_millis()).unwrap_or(u64::MAX));
    let swept = if waiting.is_empty() && !hand.dry_run {
        Swept::default()
    } else {
        if !hand.asks(&format!("send what has waited for {age} in {} entities", waiting.len()))? {
            return Ok(());
        }
        hand.opens_log()?;
        let endpoint = of.endpoint.as_ref().map_or("all endpoints", |endpoint| endpoint.as_str());
        let swept = operator.sweep(&of, asked.older_than, asked.limit).await;
        let swept =
            swept.map_err(|error| hand.broke_off(SWEPT, endpoint, None, &error, "`hapax outbox list --entities`"))?;
        let swept = answered(swept)?;
        hand.writes_down(SWEPT, endpoint, swept.finished as u64)?;
        swept
    };
    if common.json {
        out.json(&swept)?;
    } else {
        let Swept { entities, entries, finished, failed, .. } = &swept;
        out.line(&format!(
            "{finished} of {entries} outbox entries in {entities} entities are finished; {failed} entities failed"
        ))?;
        for left in &swept.reasons {
            out.line(&format!("  {}: {}", left.entity, shown(&left.why)))?;
        }
    }
    if swept.failed > 0 { Err(Failure::Found) } else { Ok(()) }
}
