//! What the MariaDB store rests on, beyond the promises of the ports: what it waits for, and what it then sees.

mod session;

use std::{sync::Arc, time::Duration};

use hapax::{
    MySql,
    entity::{DedupEntry, Entity, Expected, OutboxEntry},
    ids::{DedupKey, EndpointName},
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, ErrorKind, Page, Saved, Survey},
    time::Timestamp,
};
use hapax_tests::{LogLines, MySqlTables, samples};
use session::{Session, begin, entity, key, knows, mark};
use sqlx::Row;

/// The insert's statement may not have looked before it had the lock: it would write into what is closed.
#[tokio::test]
async fn an_insert_that_waits_for_a_rotation_goes_into_the_next_generation() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    store.insert(&[mark(1)]).await.unwrap();
    let mut rotation = Session::new(&tables).await;
    rotation.run("BEGIN; SELECT * FROM s.generation FOR UPDATE").await;
    let inserting = tokio::spawn({
        let store = store.clone();
        async move { store.insert(&[mark(2)]).await }
    });
    Session::new(&tables).await.until_somebody_waits("generation").await;
    rotation
        .run("UPDATE s.generation SET closed_at = 1; INSERT INTO s.generation (id, slot, opened_at) VALUES (2, 1, 1); COMMIT")
        .await;
    inserting.await.unwrap().unwrap();
    assert_eq!(rotation.number("SELECT count(*) FROM s.dedup_0").await, 1);
    assert_eq!(rotation.number("SELECT count(*) FROM s.dedup_1").await, 1);
    assert!(knows(&store, &mark(1)).await && knows(&store, &mark(2)).await);
}

/// What a process knows of the generations may be old.
#[tokio::test]
async fn handles_find_what_others_have_put_into_generations_that_they_do_not_know() {
    let tables = MySqlTables::new();
    let (old, other) = (tables.open().await, tables.open().await);
    old.insert(&[mark(1)]).await.unwrap();
    let mut session = Session::new(&tables).await;
    session.run("UPDATE s.generation SET opened_at = 0").await;
    other.evict(Duration::from_secs(7 * 24 * 3600)).await.unwrap();
    assert_eq!(session.number("SELECT max(id) FROM s.generation").await, 2);
    other.insert(&[mark(2)]).await.unwrap();
    assert!(knows(&old, &mark(2)).await, "the check looks into the newest");
    old.insert(&[mark(3)]).await.unwrap();
    assert_eq!(session.number("SELECT count(*) FROM s.dedup_1").await, 2);
    let saved = old.save(&key("k"), &Expected::Absent, &entity("1"), &[mark(4)]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)));
    assert!(knows(&other, &mark(1)).await && knows(&other, &mark(4)).await);
}

#[tokio::test]
async fn eviction_empties_a_table_and_keeps_what_is_within_the_retention() {
    const DAY: i64 = 24 * 3600 * 1000;
    let tables = MySqlTables::new();
    let store = tables.open().await;
    let week = Duration::from_millis(7 * DAY as u64);
    store.insert(&[mark(1), mark(2)]).await.unwrap();
    let mut session = Session::new(&tables).await;
    // As if a week less a minute, and then a week, had passed since it was closed.
    session.run("UPDATE s.generation SET opened_at = 0").await;
    store.evict(week).await.unwrap();
    let closed = |ago: i64| {
        format!("UPDATE s.generation SET closed_at = FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000) - {ago} WHERE id = 1")
    };
    session.run(&closed(7 * DAY - 60_000)).await;
    assert_eq!(store.evict(week).await.unwrap().entries, 0);
    assert!(knows(&store, &mark(1)).await);
    session.run(&closed(7 * DAY + 1)).await;
    assert_eq!(
        store.evict(Duration::from_secs(1)).await.unwrap().entries,
        2,
        "and nobody shortens the longest retention"
    );
    assert!(!knows(&store, &mark(1)).await);
    assert_eq!(session.number("SELECT count(*) FROM s.dedup_0").await, 0);
    assert_eq!(session.number("SELECT count(*) FROM s.generation WHERE slot = 0").await, 0);
}

/// Somebody reads the table: the eviction gives way, and so does nobody wait behind it for long.
#[tokio::test]
async fn eviction_gives_way_to_those_who_read() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    store.insert(&[mark(1)]).await.unwrap();
    let mut session = Session::new(&tables).await;
    session.run("UPDATE s.generation SET opened_at = 0").await;
    store.evict(Duration::from_millis(1)).await.unwrap();
    session.run("UPDATE s.generation SET closed_at = 1 WHERE id = 1").await;
    session.run("BEGIN; SELECT * FROM s.dedup_0").await;
    let evicted = store.evict(Duration::from_millis(1)).await.unwrap();
    assert!(evicted.more && evicted.entries == 0, "{evicted:?}");
    session.run("COMMIT").await;
    assert_eq!(store.evict(Duration::from_millis(1)).await.unwrap().entries, 1);
}

/// Else an entity that comes again could have a version that its predecessor had.
#[tokio::test]
async fn an_entity_that_waits_for_a_purge_begins_above_it() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    begin(&store, &key("named"), &entity("1")).await;
    let mut purge = Session::new(&tables).await;
    purge.run("BEGIN; SELECT * FROM s.floor FOR UPDATE").await;
    let saving = tokio::spawn({
        let store = store.clone();
        async move { store.save(&key("new"), &Expected::Absent, &entity("1"), &[]).await }
    });
    Session::new(&tables).await.until_somebody_waits("floor").await;
    purge.run("UPDATE s.floor SET version = 41; COMMIT").await;
    let Saved::At(version) = saving.await.unwrap().unwrap() else { panic!("nobody else has saved it") };
    assert_eq!(version.as_number(), Some(42));
}

/// The negative control of design clause "one plain SELECT": with a row lock, the entity is shown as it is by then, beside
/// dedup entries as they were before. The store's load takes none, and shows one moment.
#[tokio::test]
async fn a_load_that_locks_would_see_two_moments_and_the_stores_does_not() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    let (key, mark) = (key("k"), mark(7));
    let before = begin(&store, &key, &entity("before")).await.as_number().unwrap();

    let (mut writer, mut locking) = (Session::new(&tables).await, Session::new(&tables).await);
    writer.run("BEGIN; UPDATE s.entity SET version = version + 1, state = 'after'").await;
    let (bytes, short) = ("UNHEX(REPEAT('07', 24))", "UNHEX(REPEAT('07', 16))");
    writer.run(&format!("INSERT INTO s.dedup_0 VALUES ({bytes}, {short}, {short}, 0, NULL)")).await;

    let meanwhile = store.load(&key, &[mark.key]).await.unwrap();
    assert_eq!(meanwhile.stored.unwrap().version.as_number(), Some(before));
    assert!(meanwhile.known.unwrap().entry(&mark.key).is_none());

    // As the store's own sessions are.
    locking.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
    let sql =
        format!("SELECT version, EXISTS (SELECT 1 FROM s.dedup_0 WHERE `key` = {bytes}) FROM s.entity FOR UPDATE");
    let locked = tokio::spawn(async move {
        let row = locking.row(&sql).await;
        (row.get::<i64, _>(0), row.get::<i64, _>(1) != 0)
    });
    Session::new(&tables).await.until_somebody_waits("FOR UPDATE").await;
    writer.run("COMMIT").await;
    assert_eq!(locked.await.unwrap(), (before + 1, false), "the server has mended it? then this control is void");
    let after = store.load(&key, &[mark.key]).await.unwrap();
    assert_eq!(after.stored.unwrap().version.as_number(), Some(before + 1));
}

/// A constraint of the user's own refuses one of a group.
#[tokio::test]
async fn a_row_that_is_refused_hurts_no_other_of_its_group() {
    const MEMBERS: usize = 40;
    let tables = MySqlTables::new();
    let store = tables.open().await;
    begin(&store, &key("named"), &entity("1")).await;
    Session::new(&tables).await.run("ALTER TABLE s.entity ADD CHECK (`key` <> 'refused')").await;
    let commits = store.commits();
    let saves = (0..MEMBERS).map(|number| {
        let store = store.clone();
        let name = if number == MEMBERS / 2 { "refused".to_owned() } else { format!("k{number}") };
        tokio::spawn(
            async move { store.save(&key(&name), &Expected::Absent, &entity("1"), &[mark(number as u8)]).await },
        )
    });
    let saves: Vec<_> = saves.collect();
    let mut refused = Vec::new();
    for (number, save) in saves.into_iter().enumerate() {
        match save.await.unwrap() {
            Ok(saved) => assert!(matches!(saved, Saved::At(_)), "{number}"),
            Err(error) => refused.push((number, error)),
        }
    }
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].0, refused[0].1.kind()), (MEMBERS / 2, ErrorKind::Misconfigured));
    assert!(store.commits() - commits >= 2);
    for number in 0..MEMBERS {
        assert_eq!(knows(&store, &mark(number as u8)).await, number != MEMBERS / 2, "{number}");
    }
}

/// An entity whose outbox is emptied is looked at by one more sweep, and by no later one.
#[tokio::test]
async fn a_sweep_looks_only_at_entities_that_have_changed_since() {
    let entry = OutboxEntry {
        key: mark(1).key,
        attempt: mark(1).attempt,
        fingerprint: mark(1).fingerprint,
        commit: 1,
        saved_at: Timestamp::from_millis(0),
        outgoing: Vec::new(),
        reply: None,
        reply_sent: false,
    };
    let tables = MySqlTables::new();
    let store = tables.open().await;
    let key = key("k");
    let waiting = Entity { outbox: vec![Arc::new(entry)], ..entity("1") };
    let version = begin(&store, &key, &waiting).await;
    let mut session = Session::new(&tables).await;
    let watched = "SELECT count(*) FROM s.entity WHERE watched";
    assert_eq!(session.number(watched).await, 1);
    let list = async || store.pending(key.scope(), Duration::ZERO, None, 10).await.unwrap().len();
    assert_eq!(list().await, 1);
    assert_eq!(session.number(watched).await, 1, "something waits");
    let emptied = store.save(&key, &Expected::Version(version), &entity("2"), &[]).await.unwrap();
    assert!(matches!(emptied, Saved::At(_)));
    assert_eq!(session.number(watched).await, 1, "an emptied outbox changes no index");
    assert_eq!(list().await, 0);
    assert_eq!(session.number(watched).await, 0);
}

/// The server shows a commit before it is on the disk: what a message's fate hangs on is given after a commit of our own, and
/// what this store has itself been told is not asked for again.
#[tokio::test]
async fn what_others_have_committed_is_settled_before_it_is_relied_on() {
    let tables = MySqlTables::new();
    let (store, other) = (tables.open().await, tables.open().await);
    let (entry, key) = (mark(1), key("k"));
    let waiting = OutboxEntry {
        key: entry.key,
        attempt: entry.attempt,
        fingerprint: entry.fingerprint,
        commit: 1,
        saved_at: Timestamp::from_millis(0),
        outgoing: Vec::new(),
        reply: None,
        reply_sent: false,
    };
    begin(&other, &key, &Entity { outbox: vec![Arc::new(waiting)], ..entity("1") }).await;
    let commits_of = async |store: &MySql, ids: &[DedupKey]| {
        let before = store.commits();
        store.load(&key, ids).await.unwrap();
        store.commits() - before
    };
    store.load(&self::key("another"), &[]).await.unwrap(); // So that it knows the saga's number.
    assert_eq!(commits_of(&other, &[entry.key]).await, 0, "it was told so");
    assert_eq!(commits_of(&store, &[entry.key]).await, 1, "an outbox entry of somebody else");
    assert_eq!(commits_of(&store, &[]).await, 1, "as the sweeper looks");
    other.insert(&[mark(2)]).await.unwrap();
    let before = store.commits();
    assert!(knows(&store, &mark(2)).await && !knows(&store, &mark(3)).await);
    assert_eq!(store.commits() - before, 1, "a dedup entry, and none");
}

/// Who dies after a generation has ceased to count leaves a table that is not empty.
#[tokio::test]
async fn a_generation_that_somebody_began_to_drop_is_dropped_by_the_next_one() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    store.insert(&[mark(1), mark(2)]).await.unwrap();
    let mut session = Session::new(&tables).await;
    session.run("UPDATE s.generation SET opened_at = 0").await;
    store.evict(Duration::from_secs(3600)).await.unwrap();
    session.run("UPDATE s.generation SET dropping = 1 WHERE id = 1").await;
    assert!(!knows(&store, &mark(1)).await, "it does not count any more");
    // Whoever has the lock is about it.
    session.run("DO GET_LOCK(CONCAT('hapax-', MD5(CONCAT(DATABASE(), '.', 's.')), '-d'), 0)").await;
    let evicted = store.evict(Duration::from_secs(3600)).await.unwrap();
    assert!(evicted.more && evicted.entries == 0, "{evicted:?}");
    assert_eq!(session.number("SELECT count(*) FROM s.dedup_0").await, 2);
    drop(session);
    let evicted = loop {
        let evicted = store.evict(Duration::from_secs(3600)).await.unwrap();
        if !evicted.more {
            break evicted; // The lock goes with its session, when the server gets to it.
        }
    };
    assert_eq!(evicted.entries, 2);
    let mut session = Session::new(&tables).await;
    assert_eq!(session.number("SELECT count(*) FROM s.generation WHERE slot = 0").await, 0);
    assert_eq!(session.number("SELECT count(*) FROM s.dedup_0").await, 0);
}

/// What is too large for one text goes in several messages, and is one write all the same.
#[tokio::test]
async fn a_large_entity_is_written_whole_and_one_that_is_too_large_not_at_all() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    let most = EntityStore::capabilities(&store).entity_bytes_max - Entity::default().size();
    let large = |bytes: usize| Entity { state: vec![0xa7; bytes].into(), ..Entity::default() };
    let version = begin(&store, &key("k"), &large(most)).await;
    let saved = store.save(&key("k"), &Expected::Version(version.clone()), &large(most - 1), &[mark(1)]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)));
    let loaded = store.load(&key("k"), &[mark(1).key]).await.unwrap();
    assert!(loaded.known.unwrap().entry(&mark(1).key).is_some());
    assert!(loaded.stored.unwrap().entity == large(most - 1));
    let lost = store.save(&key("k"), &Expected::Version(version), &large(most), &[mark(2)]).await.unwrap();
    assert!(matches!(lost, Saved::Conflict));
    assert!(!knows(&store, &mark(2)).await);
    let error = store.save(&key("other"), &Expected::Absent, &large(most + 1), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

/// By a write alone and by one among others, which are different statements.
#[tokio::test]
async fn an_outbox_entry_waits_since_it_was_first_saved_and_another_since_now() {
    const STORED_BYTES: usize = 48;
    let tables = MySqlTables::new();
    let store = tables.open().await;
    let waiting = |numbers: &[u8]| {
        let entry = |number: &u8| OutboxEntry {
            key: mark(*number).key,
            attempt: mark(*number).attempt,
            fingerprint: mark(*number).fingerprint,
            commit: 1,
            saved_at: Timestamp::from_millis(0),
            outgoing: Vec::new(),
            reply: None,
            reply_sent: false,
        };
        Entity { outbox: numbers.iter().map(entry).map(Arc::new).collect(), ..entity("1") }
    };
    let mut session = Session::new(&tables).await;
    let mut version = begin(&store, &key("k"), &waiting(&[1])).await;
    // As if it had been saved long ago.
    session
        .run("UPDATE s.entity SET pending_since = 7, pending = CONCAT(SUBSTR(pending, 1, 40), x'0000000000000007')")
        .await;
    let mut now = 7;
    for (numbers, marks) in [(&[1][..], &[][..]), (&[1], &[1]), (&[1, 2], &[]), (&[2, 1], &[2]), (&[2], &[])] {
        let marks: Vec<DedupEntry> = marks.iter().map(|number| mark(100 + number)).collect();
        let saved = store.save(&key("k"), &Expected::Version(version), &waiting(numbers), &marks).await.unwrap();
        let Saved::At(at) = saved else { panic!("{numbers:?}: {saved:?}") };
        version = at;
        let row = session.row("SELECT pending, pending_since FROM s.entity").await;
        let (pending, since): (Vec<u8>, i64) = (row.get(0), row.get(1));
        assert_eq!(since, 7, "no entry is older");
        assert_eq!(pending.len(), numbers.len() * STORED_BYTES);
        for (stored, number) in pending.chunks(STORED_BYTES).zip(numbers) {
            let at = i64::from_be_bytes(stored[40..].try_into().unwrap());
            assert_eq!(stored[..24], [*number; 24], "{numbers:?}");
            match number {
                1 => assert_eq!(at, 7, "{numbers:?}"),
                _ if now == 7 => now = at,
                _ => assert_eq!(at, now, "{numbers:?}"),
            }
        }
    }
    assert!(now > 1_700_000_000_000, "{now}");
}

#[tokio::test]
async fn a_letter_that_cannot_be_read_hides_no_other() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    let endpoint = EndpointName::parse("e").unwrap();
    let letters = [(); 3].map(|()| samples::letter(endpoint.clone(), "x"));
    for letter in &letters {
        store.add(letter).await.unwrap();
    }
    let damage = async |letter: &DeadLetter| {
        let id = &letter.envelope.message_id;
        let damage = format!("UPDATE s.dead_letter SET envelope = x'07' WHERE message_id = '{id}'");
        Session::new(&tables).await.run(&damage).await;
    };
    damage(&letters[1]).await;
    let logged = LogLines::here();
    assert_eq!(store.list(&endpoint, &Page::first(10)).await.unwrap(), [letters[0].clone(), letters[2].clone()]);
    assert_eq!(logged.with("is left out").len(), 1);
    // Nor does a whole page of them.
    damage(&letters[0]).await;
    for (skip, limit, left_out) in [(0, 1, 1), (1, 1, 1), (2, 1, 0), (0, 2, 2), (2, 2, 0)] {
        let (page, logged) = (Page { skip, ..Page::first(limit) }, LogLines::here());
        assert_eq!(store.list(&endpoint, &page).await.unwrap(), letters[2..], "{page:?}");
        assert_eq!(logged.with("is left out").len(), left_out, "{page:?}");
    }
    for page in [Page { skip: 3, ..Page::first(1) }, Page::first(0)] {
        assert_eq!(store.list(&endpoint, &page).await.unwrap(), [], "{page:?}");
    }
}

/// The server ends a recursion after a thousand steps, in silence.
#[tokio::test]
async fn endpoints_with_letters_are_listed_however_many_there_are() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    for number in 0..3 {
        store.add(&samples::letter(EndpointName::parse(format!("e{number}")).unwrap(), "x")).await.unwrap();
    }
    let columns = "message_id, saga, destination, fingerprint, attempts, time, reason, envelope";
    let copy = format!(
        "INSERT INTO s.dead_letter (endpoint, {columns}) SELECT CONCAT('f', n.seq), {columns} FROM s.dead_letter JOIN seq_1_to_1500 AS n \
         WHERE endpoint = 'e0'"
    );
    Session::new(&tables).await.run(&copy).await;
    let listed = store.lettered(5_000).await.unwrap();
    assert_eq!(listed.is().map(Vec::len), Some(1503));
    assert_eq!(store.lettered(7).await.unwrap().is().map(Vec::len), Some(7));
}
