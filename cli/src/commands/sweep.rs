//! A sweep by hand.

use hapax::operator::{Selection, Swept, printable};

use super::{answered, ended, is_there, open_store, selection};
use crate::{
    args::{Common, Sweep},
    ask::Hand,
    failure::Failure,
    ids::millis,
    print::{Out, counted, span},
    transport::{sending, way_out, with_transport},
};

/// What is written down that was done.
const SWEPT: &str = "swept outbox entries";

pub(super) async fn run(asked: &Sweep, common: &Common, out: &mut Out) -> Result<(), Failure> {
    let (opened, of) = (open_store(common).await?, selection(&asked.of));
    let by = way_out(&opened, common);
    let hand = Hand::new(&asked.changing, common);
    let operator = if hand.dry_run { with_transport(opened, common).await? } else { sending(opened, common).await? };
    let waiting = operator.waiting(&of, asked.older_than, 0, asked.limit).await.map_err(|error| Failure::of(&error))?;
    let waiting = answered(waiting)?;
    if waiting.is_empty() {
        is_there(&operator, asked.of.endpoint.as_ref()).await?;
    }
    let age = span(millis(asked.older_than));
    let swept = if waiting.is_empty() && !hand.dry_run {
        Swept::default()
    } else {
        // So many were looked at in all, and so many are swept of each saga.
        let many = match waiting.len() {
            many if many < asked.limit => counted(many, "entity", "entities"),
            _ => format!("up to {} of each saga", counted(asked.limit, "entity", "entities")),
        };
        if !hand.asks(&format!("send what has waited for {age} in {many} by {by}"), out)? {
            return Ok(());
        }
        hand.opens_log()?;
        let whose = whose(&of);
        let swept = operator.sweep(&of, asked.older_than, asked.limit).await;
        let swept =
            swept.map_err(|error| hand.broke_off(SWEPT, &whose, None, &error, "`hapax outbox list --entities`"))?;
        let swept = answered(swept)?;
        hand.writes_down(SWEPT, &whose, swept.finished as u64)?;
        swept
    };
    ended(if common.json { out.json(&swept) } else { out.text(&text(&swept)) }, swept.failed > 0)
}

/// What was swept, for the log.
fn whose(of: &Selection) -> String {
    match (&of.endpoint, &of.saga) {
        (Some(endpoint), Some(saga)) => format!("{endpoint}/{saga}"),
        (Some(endpoint), None) => endpoint.to_string(),
        (None, Some(saga)) => format!("{saga} of all endpoints"),
        (None, None) => "all endpoints".to_owned(),
    }
}

fn text(swept: &Swept) -> String {
    let Swept { entities, entries, finished, failed, reasons, .. } = swept;
    let reasons: String = reasons.iter().map(|left| format!("  {}: {}\n", left.entity, printable(&left.why))).collect();
    format!(
        "{finished} of {} in {} finished; {} failed\n{reasons}",
        counted(entries, "outbox entry", "outbox entries"),
        counted(entities, "entity", "entities"),
        counted(failed, "entity", "entities")
    )
}
