//! The bytes that Redisson's `RLock` reads and writes.

use std::process::{Child, Command, Stdio};

use leasehold::{ErrorKind, Locks};
use leasehold_testbed::redis::Server;
use leasehold_testbed::until;
use tempfile::NamedTempFile;

use crate::{TTL, connect, soon, until_waiting};

/// The client and the thread of one that is not ours.
const OWNER: &str = "8a3b5f1e-6c2d-4e7f-9a0b-1c2d3e4f5a6b:77";
/// Where an `RLock`'s end is told.
const CHANNEL: &str = "redisson_lock__channel:{lock:k}";

async fn redisson(server: &Server) -> Locks {
    connect(&format!("{}?layout=redisson", server.url())).await
}

/// As an `RLock` of that owner would be taken.
pub(crate) fn take_as_redisson(server: &Server, key: &str) {
    server.cli(&["HINCRBY", key, OWNER, "1"]);
    server.cli(&["PEXPIRE", key, &TTL.as_millis().to_string()]);
}

/// As it would be left, and that be said. Returns how many heard it.
pub(crate) fn leave_as_redisson(server: &Server, key: &str) -> String {
    let leave = "redis.call('DEL', KEYS[1]); return redis.call('PUBLISH', ARGV[1], '0')";
    server.cli(&["EVAL", leave, "1", key, &format!("redisson_lock__channel:{{{key}}}")])
}

/// Somebody who listens on a channel, and what is heard.
struct Listener {
    process: Child,
    heard: NamedTempFile,
}

impl Listener {
    fn on(server: &Server, channel: &str) -> Self {
        let heard = NamedTempFile::new().unwrap();
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &server.port().to_string(), "SUBSCRIBE", channel]);
        let process = cli.stdin(Stdio::null()).stdout(heard.reopen().unwrap()).spawn().unwrap();
        let listener = Self { process, heard };
        listener.until_heard(&format!("subscribe\n{channel}\n1\n"));
        listener
    }

    /// Returns when exactly that has been heard since the beginning.
    fn until_heard(&self, what: &str) {
        until(what, || std::fs::read_to_string(&self.heard).unwrap() == what).unwrap();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_ours_is_the_hash_of_an_rlock_and_its_end_is_published() {
    let server = Server::start().unwrap();
    let locks = redisson(&server).await;
    let listener = Listener::on(&server, CHANNEL);
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(server.cli(&["TYPE", "lock:k"]), "hash");
    let fields = server.cli(&["HGETALL", "lock:k"]);
    let [owner, count] = fields.lines().collect::<Vec<_>>()[..] else { panic!("one field and its value: {fields}") };
    let (uuid, thread) = owner.split_once(':').unwrap();
    assert_eq!((thread, count), ("1", "1"));
    assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
    assert!(uuid.chars().all(|it| it == '-' || it.is_ascii_hexdigit() && !it.is_ascii_uppercase()), "{uuid}");
    assert_eq!(uuid.replace('-', ""), guard.entry().to_string());
    let ms: u128 = server.cli(&["PTTL", "lock:k"]).parse().unwrap();
    assert!((1..=TTL.as_millis()).contains(&ms), "{ms}");

    guard.release().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "lock:k"]), "0");
    listener.until_heard(&format!("subscribe\n{CHANNEL}\n1\nmessage\n{CHANNEL}\n0\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_rlock_of_theirs_excludes_us_until_they_say_that_it_is_free() {
    let server = Server::start().unwrap();
    let locks = redisson(&server).await;
    take_as_redisson(&server, "lock:k");
    assert!(locks.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    let holder = locks.inspect("k").await.unwrap().unwrap().holders.remove(0);
    assert!(holder.foreign);
    assert_eq!(*holder.note.owner, *OWNER);

    let mutex = locks.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&locks, "k", 1).await.unwrap();
    assert_eq!(server.cli(&["HGETALL", "lock:k"]), format!("{OWNER}\n1"), "and it is left as it was");
    until("our waiter listens", || server.cli(&["PUBSUB", "NUMSUB", CHANNEL]).ends_with('1')).unwrap();
    assert_eq!(leave_as_redisson(&server, "lock:k"), "1", "it is heard");
    soon("our turn", waiter).await.unwrap().check().unwrap();
}

#[tokio::test]
async fn an_rlock_of_theirs_can_be_evicted_and_is_not_touched_otherwise() {
    let server = Server::start().unwrap();
    let locks = redisson(&server).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    server.cli(&["DEL", "lock:k"]);
    take_as_redisson(&server, "lock:k");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(server.cli(&["HGETALL", "lock:k"]), format!("{OWNER}\n1"));
    let holder = locks.inspect("k").await.unwrap().unwrap().holders.remove(0);
    locks.evict(&holder).await.unwrap();
    locks.mutex("k").unwrap().try_lock().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_string_at_the_key_and_readers_are_refused() {
    let server = Server::start().unwrap();
    let locks = redisson(&server).await;
    server.cli(&["SET", "lock:k", "somebody"]);
    let refused = locks.mutex("k").unwrap().lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::KindMismatch, "{refused}");
    assert!(refused.to_string().contains("string"), "{refused}");
    assert_eq!(server.cli(&["GET", "lock:k"]), "somebody");
    assert_eq!(locks.rw_lock("r").map(drop).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(locks.semaphore("s", 2).map(drop).unwrap_err().kind(), ErrorKind::Unsupported);
}
