//! Groups as nearly all are: everybody wins. The rows go into prepared statements, which take versions as they are expected to
//! be and fail as a whole where one is another. Nobody has to look first, and no value is spelt out in a text, of which the
//! server reads a hundred bytes in a microsecond.
//!
//! Where somebody loses, nothing was written, and the group is [planned](super::plan) with a look.

use std::{collections::HashMap, sync::Arc};

use sqlx::mysql::MySqlArguments;

use super::{
    super::{group::Changed, rows::DedupRow},
    arguments::Text,
    connection::Answer,
    error::Failure,
    names::Names,
    plan::{Put, bind_dedup},
    rows::{Columns, GIVEN_BYTES},
    statements::{self, AS_THEY_ARE, DEDUP_ROW, IF_EXPECTED, ROW, SHARED, WAS_THERE},
    write::{Change, Writer},
};

/// With fewer rows of a kind, one text for all of them is faster than a round trip for each statement.
const ROWS_MIN: usize = 8;
/// Statements are prepared for so many rows, and for half as many, and so on down to [`ROWS_MIN`]: a group takes a few of them, and
/// what is left goes as a text.
const ROWS_MAX: usize = 256;
/// Groups that look first after somebody has lost: where many processes write the same entities, that is the rule.
const LOOKS: u32 = 16;

/// One writer's texts, by the number of their rows, and how it has gone lately.
#[derive(Debug, Default)]
pub(super) struct Optimistic {
    entities: HashMap<usize, Arc<str>>,
    dedup: HashMap<(i16, usize), Arc<str>>,
    looks: u32,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum Hoped {
    /// Everybody has won.
    Written(Vec<Changed>),
    /// The generation is not the newest any more; nothing was written.
    Rotated,
    /// Somebody has lost; nothing was written.
    Lost,
}

/// What is written if everybody wins.
struct Hope<'a> {
    puts: Vec<Put<'a>>,
    dedup: Vec<&'a DedupRow>,
    changed: Vec<Changed>,
}

impl<'a> Hope<'a> {
    /// `None`: some of it has to be looked at first, or it is so little that looking costs less.
    fn of(group: &'a [Change], bytes_max: usize) -> Option<Self> {
        let (mut rows, mut done, mut bytes) = (0, 0, 0);
        for change in group {
            done += change.done.len();
            bytes += change.done.iter().map(DedupRow::size).sum::<usize>();
            if let Some(row) = &change.entity {
                rows += 1;
                bytes += row.size() + row.key.as_str().len();
                row.expected?;
                if row.pending.as_ref().map_or(0, Vec::len) > GIVEN_BYTES {
                    return None; // Some of them may wait already.
                }
            }
        }
        if rows.max(done) < ROWS_MIN || bytes > bytes_max {
            return None;
        }
        let mut hope = Self { puts: Vec::with_capacity(rows), dedup: Vec::with_capacity(done), changed: Vec::new() };
        for change in group {
            hope.dedup.extend(&change.done);
            hope.changed.push(match &change.entity {
                Some(row) => {
                    let put = Put::expected(row, change.gives_way);
                    let version = put.version();
                    hope.puts.push(put);
                    Changed::At(version)
                }
                None => change.unless_won(),
            });
        }
        hope.puts.sort_unstable_by(|a, b| a.place().cmp(&b.place()));
        hope.dedup.sort_by_key(|row| row.key);
        Some(hope)
    }
}

/// How many of `left` rows go into the next statement; the rest below [`ROWS_MIN`] is a text's.
fn part(left: usize) -> Option<usize> {
    (left >= ROWS_MIN).then(|| ROWS_MAX.min(1 << left.ilog2()))
}

impl Optimistic {
    fn entities(&mut self, names: &Names, rows: usize) -> Arc<str> {
        let text = || statements::PUT_ENTITIES.to_owned() + &[ROW].repeat(rows).join(",") + IF_EXPECTED;
        self.entities.entry(rows).or_insert_with(|| names.put_into(&text()).into()).clone()
    }

    fn dedup(&mut self, names: &Names, slot: i16, rows: usize) -> Arc<str> {
        let text = || statements::put_dedup(slot) + &[DEDUP_ROW].repeat(rows).join(",") + AS_THEY_ARE;
        self.dedup.entry((slot, rows)).or_insert_with(|| names.put_into(&text()).into()).clone()
    }
}

impl Writer {
    /// Writes `group` as if everybody won; `None` where that is not tried. Whatever is locked, is locked in the order in which
    /// all groups do it.
    pub(super) async fn hope(
        &mut self,
        group: &[Change],
        settles: bool,
        generation: i64,
        slot: i16,
    ) -> Result<Option<Hoped>, Failure> {
        if self.optimistic.looks > 0 {
            self.optimistic.looks -= 1;
            return Ok(None);
        }
        let Some(mut hope) = Hope::of(group, self.packet_bytes_max / 2) else { return Ok(None) };
        match self.write_hope(&mut hope, settles, generation, slot).await {
            Ok(true) => Ok(Some(Hoped::Written(hope.changed))),
            Ok(false) => Ok(Some(Hoped::Rotated)),
            Err(Unhoped::Failed(failure)) if !failure.is_of_a_lost_update() => Err(failure),
            Err(_) => {
                self.optimistic.looks = LOOKS;
                Ok(Some(Hoped::Lost))
            }
        }
    }

    /// Whether the generation is the newest.
    async fn write_hope(
        &mut self,
        hope: &mut Hope<'_>,
        settles: bool,
        generation: i64,
        slot: i16,
    ) -> Result<bool, Unhoped> {
        let mut text = Text::with_capacity(400);
        if !hope.dedup.is_empty() {
            text.sql(&self.texts.hold_generation).number(generation).sql(SHARED).end();
        }
        text.sql(&self.texts.now);
        let answers = self.link.begin(text).await?;
        if !hope.dedup.is_empty() && answers.first().is_none_or(|answer| answer.rows.is_empty()) {
            self.link.roll_back().await;
            return Ok(false);
        }
        let Some(now) = answers.last().and_then(|answer| answer.rows.first()?.number(0).ok()) else {
            self.link.roll_back().await;
            return Err(Failure::of_read(sqlx::Error::RowNotFound).into());
        };
        for put in &mut hope.puts {
            put.at(now);
        }
        self.put_entities(&hope.puts).await?;
        let (mut text, was_there) = self.put_dedup(&hope.dedup, slot).await?;
        if settles {
            text.sql(&self.texts.settle);
        }
        let answers = self.link.commit(text).await?;
        let was_there = was_there || answers.iter().any(was_there_in);
        // What was there already is no change, and without one a commit waits for no disk: see `transact`.
        if hope.puts.is_empty() && !settles && was_there {
            self.settle().await.map_err(Failure::into_unknown)?;
        }
        Ok(true)
    }

    async fn put_entities(&mut self, puts: &[Put<'_>]) -> Result<(), Unhoped> {
        let mut rest = puts;
        while let Some(rows) = part(rest.len()) {
            let (these, others) = rest.split_at(rows);
            let sql = self.optimistic.entities(&self.texts.names, rows);
            let mut arguments = MySqlArguments::default();
            for put in these {
                put.bind(&mut arguments);
            }
            let affected = self.link.step(&sql, arguments).await?.affected;
            self.all_changed(rows, affected).await?;
            rest = others;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let mut text = Text::with_capacity(rest.iter().map(Put::text_bytes).sum());
        for (at, put) in rest.iter().enumerate() {
            text.sql(if at == 0 { &self.texts.put_entity } else { ", " });
            put.write(&mut text);
        }
        text.sql(IF_EXPECTED);
        let answers = self.link.steps(text).await?;
        self.all_changed(rest.len(), answers.first().map_or(0, |answer| answer.affected)).await
    }

    /// Two for each row that was there and has changed. One that was not there was inserted, and counts as one.
    async fn all_changed(&mut self, rows: usize, affected: u64) -> Result<(), Unhoped> {
        if affected == 2 * rows as u64 {
            return Ok(());
        }
        self.link.roll_back().await;
        Err(Unhoped::Lost)
    }

    /// Gives what is left for the text of the commit, and whether any of the others was there.
    async fn put_dedup(&mut self, dedup: &[&DedupRow], slot: i16) -> Result<(Text, bool), Failure> {
        let (mut rest, mut was_there) = (dedup, false);
        while let Some(rows) = part(rest.len()) {
            let (these, others) = rest.split_at(rows);
            let sql = self.optimistic.dedup(&self.texts.names, slot, rows);
            let mut arguments = MySqlArguments::default();
            for row in these {
                bind_dedup(&mut arguments, row);
            }
            was_there |= was_there_in(&self.link.step(&sql, arguments).await?);
            rest = others;
        }
        let mut text = Text::with_capacity(200 + 200 * rest.len());
        self.dedup_text(&mut text, rest, slot);
        Ok((text, was_there))
    }
}

fn was_there_in(answer: &Answer) -> bool {
    answer.inserted == WAS_THERE
}

/// Why not everybody has won.
#[derive(Debug)]
enum Unhoped {
    Lost,
    Failed(Failure),
}

impl From<Failure> for Unhoped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_taken_apart_into_few_statements_and_a_short_text() {
        let parts = |mut left: usize| {
            let mut parts = Vec::new();
            while let Some(rows) = part(left) {
                parts.push(rows);
                left -= rows;
            }
            (parts, left)
        };
        assert_eq!(parts(7), (vec![], 7));
        assert_eq!(parts(8), (vec![8], 0));
        assert_eq!(parts(203), (vec![128, 64, 8], 3));
        assert_eq!(parts(1024), (vec![256; 4], 0));
    }
}
