//! What the server does not take, does not have, or has in another way; and servers that do not do.

use hapax::{
    RedisStreams,
    ids::EndpointName,
    ports::{DispatchError, Dispatcher, ErrorKind, Transport, TransportError},
    transports::redis::MayLose,
};
use hapax_tests::RedisServer;

use super::rig::*;

fn misconfigured<T: std::fmt::Debug>(result: Result<T, TransportError>, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn a_server_that_may_lose_what_it_confirms_is_refused_unless_that_is_accepted() {
    let accepting = |accepted| RedisStreams::options().may_lose(accepted);
    let nothing = RedisServer::start_with(&[("appendonly", "no")]).await;
    misconfigured(RedisStreams::open(nothing.url()).await, "MayLose::Everything");
    misconfigured(accepting(MayLose::Seconds).open(nothing.url()).await, "appendonly yes");
    accepting(MayLose::Everything).open(nothing.url()).await.unwrap();
    // A snapshot now and then keeps what was there then.
    let snapshots = RedisServer::start_with(&[("appendonly", "no"), ("save", "1 1")]).await;
    misconfigured(RedisStreams::open(snapshots.url()).await, "MayLose::Everything");
    for settings in [("appendfsync", "everysec"), ("appendfsync", "no"), ("no-appendfsync-on-rewrite", "yes")] {
        let server = RedisServer::start_with(&[settings]).await;
        misconfigured(RedisStreams::open(server.url()).await, "MayLose::Seconds");
        accepting(MayLose::Seconds).open(server.url()).await.unwrap();
    }
    // One that does not tell.
    let silent = RedisServer::start_with(&[("rename-command", "CONFIG hidden")]).await;
    misconfigured(RedisStreams::open(silent.url()).await, "CONFIG GET");
    let kept = RedisServer::start().await;
    RedisStreams::open(kept.url()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_set_otherwise_while_it_runs_is_refused_at_the_next_connection() {
    let mut server = RedisServer::start().await;
    let queue = RedisStreams::open(server.url()).await.unwrap();
    let here = endpoint();
    queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("kept"))]).await;
    let mut connection = plain(&server.url()).await;
    ask::<String>(&mut connection, "CONFIG SET appendfsync everysec").await;
    ask::<u64>(&mut connection, "CLIENT KILL TYPE normal SKIPME yes").await;
    let until_refused = async {
        loop {
            match queue.dispatch(&[to(&here, envelope("not kept"))]).await.pop().unwrap() {
                Err(DispatchError::Transient(e)) if e.to_string().contains("MayLose") => break,
                Ok(()) => panic!("it was sent to a server that may lose it"),
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, until_refused).await.expect("it is never told");
    server.kill();
}

#[tokio::test]
async fn servers_of_other_kinds_are_refused_with_the_reason() {
    let open = |url: String| RedisStreams::options().may_lose(MayLose::Everything).open(url);
    let evicting = RedisServer::start_with(&[("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")]).await;
    misconfigured(open(evicting.url()).await, "maxmemory-policy");
    let cluster = RedisServer::start_with(&[("cluster-enabled", "yes")]).await;
    misconfigured(open(cluster.url()).await, "cluster");
    let original = RedisServer::start().await;
    let of = format!("127.0.0.1 {}", original.port());
    let replica = RedisServer::start_with(&[("replicaof", &of)]).await;
    misconfigured(open(replica.url()).await, "is a replica");
}

/// With these options some keys have a time to live; a server whose owner lets it drop such keys may drop a queue.
#[tokio::test]
async fn a_server_that_drops_keys_with_a_time_to_live_is_refused_where_queues_have_one() {
    let server = RedisServer::start_with(&[("maxmemory", "100mb"), ("maxmemory-policy", "volatile-lru")]).await;
    let removed = RedisStreams::options().remove_unused(std::time::Duration::from_secs(60));
    misconfigured(removed.clone().open(server.url()).await, "RedisStreamsOptions::remove_unused");
    misconfigured(RedisStreams::options().ordered_keys(true).open(server.url()).await, "maxmemory-policy volatile-lru");
    // None of the others' have one.
    RedisStreams::open(server.url()).await.unwrap();
    // And no memory is too little where there is no bound.
    let mut connection = plain(&server.url()).await;
    ask::<String>(&mut connection, "CONFIG SET maxmemory 0").await;
    removed.open(server.url()).await.unwrap();
}

#[tokio::test]
async fn a_server_without_memory_takes_nothing_until_some_is_handled() {
    let server = RedisServer::start_with(&[("maxmemory", "8mb"), ("maxmemory-policy", "noeviction")]).await;
    let queue = RedisStreams::open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let large = "x".repeat(500_000);
    let mut sent = 0;
    let refused = loop {
        match queue.dispatch(&[to(&here, envelope(&large))]).await.pop().unwrap() {
            Ok(()) => sent += 1,
            Err(refused) => break refused,
        }
    };
    let DispatchError::Transient(why) = &refused else { panic!("{refused:?}") };
    assert!(why.kind() == ErrorKind::Unavailable && why.to_string().contains("maxmemory"), "{why:?}");
    assert!((3..20).contains(&sent), "{sent}");
    // All that was confirmed comes, and makes room.
    for _ in 0..sent {
        ack(&ends, &next(&ends).await).await;
    }
    send(&queue, &[to(&here, envelope(&large))]).await;
}

#[tokio::test]
async fn who_may_not_declare_works_with_what_is_there_and_is_told_what_is_missing() {
    let (here, missing) = (endpoint(), endpoint());
    let topic = message_type();
    open().await.connect(&here, &[]).await.unwrap();
    let guest = options().declare(false).open(url()).await.unwrap();
    misconfigured(guest.connect(&missing, &[]).await, "RedisStreamsOptions::declare");
    let unheard = hapax::ids::TypeName::parse(unique("shop.unheard")).unwrap();
    misconfigured(guest.connect(&here, &[unheard]).await, "subscribes");
    open().await.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let ends = guest.connect(&here, &[topic]).await.unwrap();
    send(&guest, &[to(&here, envelope("by a guest"))]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "by a guest");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn a_queue_that_was_declared_otherwise_is_an_error_that_says_so() {
    let here = endpoint();
    open().await.connect(&here, &[]).await.unwrap();
    let ordered = options().ordered_keys(true).open(url()).await.unwrap();
    misconfigured(ordered.connect(&here, &[]).await, "declared in another way");
    ordered.connect(&endpoint(), &[]).await.unwrap();
    let no_queue = EndpointName::parse(unique("text")).unwrap();
    let mut connection = plain(&url()).await;
    ask::<String>(&mut connection, &format!("SET {} text EX 60", queue_of(&no_queue))).await;
    misconfigured(open().await.connect(&no_queue, &[]).await, "is no stream");
    let sent = open().await.dispatch(&[to(&no_queue, envelope("m"))]).await.pop().unwrap();
    assert!(matches!(sent, Err(DispatchError::Transient(e)) if e.kind() == ErrorKind::Misconfigured));
}

/// Each connection asks for what it needs; an account with less is told so.
#[tokio::test]
async fn an_account_needs_the_keys_of_its_prefix_and_no_others() {
    let server = RedisServer::start().await;
    let mut connection = plain(&server.url()).await;
    let account = "+@read +@write +@connection +time +info +evalsha +script|load +config|get";
    ask::<String>(&mut connection, &format!("ACL SETUSER shop on >secret ~hapax:* {account}")).await;
    ask::<String>(&mut connection, "ACL SETUSER guest on >secret ~other:* +@all").await;
    let open = |user| RedisStreams::open(format!("redis://{user}:secret@127.0.0.1:{}", server.port()));
    let queue = open("shop").await.unwrap();
    let here = endpoint();
    let topic = message_type();
    let ends = queue.connect(&here, &[topic]).await.unwrap();
    send(&queue, &[to(&here, envelope("m"))]).await;
    ack(&ends, &next(&ends).await).await;
    let denied = open("guest").await.unwrap().connect(&here, &[]).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied:?}");
    assert!(!format!("{denied:?}").contains("secret"), "{denied:?}");
}
