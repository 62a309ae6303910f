//! How the server goes about the store's statements: whatever it takes the tables for, it looks up what it is asked for.

use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use super::{super::statements, Place};

/// What a table of those that grow without end may be when a plan is made: never looked at by the server, large, emptied;
/// and looked at while it was large, or empty.
const STEPS: [&str; 6] = [
    "SELECT",
    "INSERT INTO hapax.entity (scope, key, version, token, changed_at, completed_at, pending_since, watched, pending, \
       outbox, state) \
     SELECT i % 3, 'k' || i, 1, 0, i, CASE WHEN i % 5 = 0 THEN i END, CASE WHEN i % 7 = 0 THEN i END, i % 7 = 0, \
       CASE WHEN i % 7 = 0 THEN decode(repeat(lpad(to_hex(i), 8, '0'), 12), 'hex') END, '', 'state' \
       FROM generate_series(1, 20000) AS i; \
     INSERT INTO hapax.dedup_0 (key, attempt, fingerprint, time) \
     SELECT decode(repeat(lpad(to_hex(i), 8, '0'), 6), 'hex'), '', '', i FROM generate_series(1, 20000) AS i; \
     INSERT INTO hapax.dedup_3 SELECT * FROM hapax.dedup_0; \
     INSERT INTO hapax.dead_letter (endpoint, message_id, saga, destination, fingerprint, attempts, time, reason, envelope) \
     SELECT 'e' || i % 3, 'm' || i, '', '', '', 1, i, '', '' FROM generate_series(1, 20000) AS i; \
     INSERT INTO hapax.schedule (endpoint, message_id, destination, due_at, bytes, envelope) \
     SELECT 'e' || i % 3, 'm' || i, '', i, 1, 'x' FROM generate_series(1, 20000) AS i",
    "ANALYZE hapax.entity, hapax.dedup_0, hapax.dedup_1, hapax.dedup_2, hapax.dedup_3, hapax.dead_letter, hapax.schedule",
    "TRUNCATE hapax.entity, hapax.dedup_0, hapax.dedup_3, hapax.dead_letter, hapax.schedule",
    "ANALYZE hapax.entity, hapax.dedup_0, hapax.dedup_1, hapax.dedup_2, hapax.dedup_3, hapax.dead_letter, hapax.schedule",
    "SELECT",
];

async fn plan(connection: &mut PgConnection, explain: String) -> Value {
    let row = sqlx::query(AssertSqlSafe(explain)).persistent(false).fetch_one(connection).await.unwrap();
    serde_json::from_str(row.get_unchecked(0)).unwrap()
}

/// Each node of a plan.
fn nodes<'p>(plan: &'p Value, see: &mut impl FnMut(&'p Value)) {
    see(plan);
    for below in plan["Plans"].as_array().into_iter().flatten() {
        nodes(below, see);
    }
}

/// Whether a table, or that of an index, may have millions of rows.
fn grows(name: &str) -> bool {
    [
        "entity",
        "hapax_entity",
        "dead_letter",
        "dedup_",
        "schedule",
        "hapax_schedule",
        "long_run",
        "long_key",
        "hapax_long_key",
        "body",
        "hapax_body",
    ]
    .iter()
    .any(|table| name.starts_with(table))
}

/// What may go through a whole table: emptying one counts what was in it, a person looks at dead letters now and then, and what is counted up to a
/// limit, or the first of an index, goes along it so far.
fn of_whole_tables() -> [String; 5] {
    let [letters, lettered] = [statements::LETTER_LIST, statements::survey::LETTERED].map(str::to_owned);
    [statements::count(0), statements::holds_any(0), letters, statements::survey::dedup(), lettered]
}

#[tokio::test]
async fn no_statement_goes_through_a_whole_table_whatever_it_was_when_it_was_planned() {
    let place = Place::migrated().await;
    let mut connection = place.connect().await;
    let mut wrong = Vec::new();
    for step in STEPS {
        connection.execute(sqlx::raw_sql(place.text(step))).await.unwrap();
        for sql in super::all().iter().filter(|sql| !of_whole_tables().contains(sql)) {
            let most = (1..40).rev().find(|at| sql.contains(&format!("${at}"))).unwrap_or(0);
            let nulls = if most == 0 { String::new() } else { format!("({})", vec!["NULL"; most].join(", ")) };
            connection.execute(sqlx::raw_sql(place.text(&format!("PREPARE p AS {sql}")))).await.unwrap();
            let plan = plan(&mut connection, format!("EXPLAIN (FORMAT JSON) EXECUTE p{nulls}")).await;
            connection.execute(sqlx::raw_sql("DEALLOCATE p")).await.unwrap();
            nodes(&plan[0]["Plan"], &mut |node| {
                if let Some(why) = what_is_wrong(node) {
                    wrong.push(format!("{why}: {node}\n  of {sql}\n  after {step}"));
                }
            });
        }
    }
    place.end().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `None` for what looks up as much as is asked for.
fn what_is_wrong(node: &Value) -> Option<&'static str> {
    let kind = node["Node Type"].as_str()?;
    // What looks for pages in an index first is judged by how it looks.
    let place = if kind == "Bitmap Index Scan" { "Index Name" } else { "Relation Name" };
    if !node[place].as_str().is_some_and(grows) || !kind.contains("Scan") || kind == "Bitmap Heap Scan" {
        return None;
    }
    if !kind.contains("Index") {
        return Some("a whole table");
    }
    let Some(condition) = node["Index Cond"].as_str() else { return Some("a whole index") };
    // A saga has as many entities as there are.
    let all_of_one = condition.contains("scope") && !condition.contains("key") && !condition.contains("completed_at");
    all_of_one.then_some("all of a saga")
}
