//! How the server goes about the store's statements: whatever it takes the tables for, it looks up what it is asked for.

use sqlx::{Executor, MySqlConnection, Row};

use super::{super::statements, Place, of_many};

/// `n` of each row of it: 0 to 19,999.
const NUMBERS: &str = "(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n \
    FROM digit AS a, digit AS b, digit AS c, digit AS e, digit AS f WHERE f.d < 2) AS i";
const DIGITS: &str = "CREATE TEMPORARY TABLE digit (d INT NOT NULL); \
    INSERT INTO digit VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)";

/// What a table of those that grow without end may be when a plan is made: empty, large, of one saga, small, and empty again; each
/// as the server has known it before, and once it has been told to look. [`NUMBERS`] stands for `numbers`.
const STEPS: [&str; 8] = [
    "DO 0",
    "INSERT INTO hapax.entity (scope, `key`, version, changed_at, completed_at, pending_since, watched, pending, outbox, state) \
     SELECT n % 3, CONCAT('k', n), 1, n, IF(n % 5 = 0, n, NULL), IF(n % 7 = 0, n, NULL), n % 7 = 0, \
       IF(n % 7 = 0, REPEAT('x', 48), NULL), '', 'state' FROM numbers; \
     INSERT INTO hapax.dedup_0 (`key`, attempt, fingerprint, time) \
     SELECT CONCAT('d', LPAD(n, 23, '0')), REPEAT('a', 16), REPEAT('f', 16), n FROM numbers; \
     INSERT INTO hapax.dedup_3 SELECT * FROM hapax.dedup_0; \
     INSERT INTO hapax.dead_letter (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
     SELECT CONCAT('e', n % 3), CONCAT('m', n), '', '', REPEAT('f', 16), 1, n, '', '' FROM numbers; \
     INSERT INTO hapax.schedule (endpoint, message_id, destination, due_at, bytes, envelope) \
     SELECT CONCAT('e', n % 3), CONCAT('m', n), '', n, 1, 'x' FROM numbers; \
     INSERT INTO hapax.scope (endpoint, saga) SELECT CONCAT('e', n), 's' FROM numbers WHERE n < 500",
    "ANALYZE TABLE hapax.entity, hapax.dedup_0, hapax.dedup_3, hapax.dead_letter, hapax.scope, hapax.schedule",
    "UPDATE hapax.entity SET scope = 1",
    "ANALYZE TABLE hapax.entity",
    "DELETE FROM hapax.entity WHERE `key` > 'k1001'; DELETE FROM hapax.dedup_0 WHERE time > 10; \
     DELETE FROM hapax.dedup_3 WHERE time > 10; DELETE FROM hapax.schedule WHERE due_at > 10",
    "ANALYZE TABLE hapax.entity, hapax.dedup_0, hapax.dedup_3, hapax.dead_letter, hapax.schedule",
    "TRUNCATE TABLE hapax.entity; TRUNCATE TABLE hapax.dedup_0; TRUNCATE TABLE hapax.dedup_3; TRUNCATE TABLE hapax.schedule",
];

/// In which of them there are many entities.
const LARGE: std::ops::Range<usize> = 1..5;

/// A row of a plan: its table, how that is read, by which index and how much of it, and what else is done.
async fn plan(connection: &mut MySqlConnection, place: &Place, sql: &str) -> Vec<[String; 5]> {
    let rows = connection.fetch_all(sqlx::raw_sql(place.text(&format!("EXPLAIN {sql}")))).await;
    let rows = rows.unwrap_or_else(|e| panic!("{e}: {sql}"));
    let column = |row: &sqlx::mysql::MySqlRow, column: &str| {
        let text = row.try_get_unchecked::<Option<Vec<u8>>, _>(column).unwrap();
        String::from_utf8(text.unwrap_or_default()).unwrap()
    };
    let columns = ["table", "type", "key", "key_len", "Extra"];
    rows.iter().map(|row| columns.map(|name| column(row, name))).collect()
}

/// What may go through a whole table: emptying one counts what was in it, a person looks at dead letters now and then, and what is counted or
/// listed up to a limit goes along an index so far.
fn of_whole_tables() -> [String; 5] {
    let [letters, scopes] = [statements::LETTER_LIST, statements::survey::SCOPES].map(str::to_owned);
    [statements::count(0), statements::holds_any(0), letters, statements::survey::dedup(), scopes]
}

/// What a plan is made for. The others say which rows they insert, or are about a table as a whole.
fn is_planned(sql: &str) -> bool {
    !sql.starts_with("TRUNCATE") && !sql.contains("GET_LOCK") && (!sql.starts_with("INSERT") || sql.contains("SELECT"))
}

#[tokio::test]
async fn no_statement_goes_through_a_whole_table_whatever_it_was_when_it_was_planned() {
    let place = Place::migrated().await;
    let mut connection = place.connect().await;
    connection.execute(sqlx::raw_sql(DIGITS)).await.unwrap();
    let given = |sql: &String| sql.replace("LIMIT ?", "LIMIT 7").replace("- ?", "- 7").replace('?', "'7'");
    let (of_whole_tables, of_one) = (of_whole_tables(), statements::all());
    let of_one = of_one.iter().filter(|sql| !of_whole_tables.contains(sql)).map(given);
    let texts: Vec<String> = of_one.chain(of_many(500)).filter(|sql| is_planned(sql)).collect();
    let mut wrong = Vec::new();
    for (at, step) in STEPS.into_iter().enumerate() {
        connection.execute(sqlx::raw_sql(place.text(&step.replace("numbers", NUMBERS)))).await.unwrap();
        for sql in &texts {
            if sql.starts_with("DELETE FROM hapax.entity") && !LARGE.contains(&at) {
                continue; // It cannot be told which index to use.
            }
            for row in plan(&mut connection, &place, sql).await {
                if let Some(why) = what_is_wrong(&place, &row) {
                    wrong.push(format!("{why}: {row:?}\n  of {:.300}\n  after {:.60}", sql, step));
                }
            }
        }
    }
    place.end().await;
    assert!(wrong.is_empty(), "{} wrong: {}", wrong.len(), wrong.join("\n"));
}

/// `None` for what looks up as much as is asked for.
fn what_is_wrong(place: &Place, [table, how, key, bytes, extra]: &[String; 5]) -> Option<&'static str> {
    let table = table.strip_prefix(place.names.prefix()).unwrap_or(table);
    if !["e", "entity", "scope", "dead_letter", "s", "schedule", "long_run", "long_key"].contains(&table)
        && !table.starts_with("dedup_")
    {
        return None;
    }
    if !["const", "eq_ref", "ref", "range"].contains(&how.as_str()) {
        return Some(if how == "index" { "a whole index" } else { "a whole table" });
    }
    // It comes in the order of its index, so that a limit ends it.
    if extra.contains("filesort") || extra.contains("temporary") {
        return Some("all of it is sorted");
    }
    // A saga has as many entities as there are: a number of 8 bytes and no more is all of one.
    let least = match key.as_str() {
        "PRIMARY" if ["e", "entity"].contains(&table) => 8 + 257,
        "watched" => 8 + 1 + 257,
        "completed" => 8 + 9,
        _ => 0,
    };
    (bytes.parse::<u32>().unwrap_or_default() < least).then_some("all of a saga")
}
