//! What a user must be allowed to do.

use leasehold::backend::Departure;
use leasehold::{ErrorKind, Locks};
use leasehold_testbed::redis::Server;

use crate::{SHORT, raise_fences, soon, timer, until};

/// All that locks need in the default namespace, as the documentation has it.
const RIGHTS: &str = "~lock:* ~{lock:* ~leasehold:redlock resetchannels &leasehold:* &redlock:* -@all +ping +info \
                      +config|get +time +subscribe +unsubscribe +evalsha +script|load +scan +get +set +del +exists +type \
                      +pttl +pexpire +hget +hset +hdel +hexists +zadd +zrem +zrange +zrangebyscore +zscore \
                      +zmscore +publish +watch +unwatch +multi +exec";

async fn connect(servers: &[Server]) -> leasehold::Result<Locks> {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let url = format!("redlock://locker:secret@{}?longest=2&blank=accept", hosts.join(","));
    Locks::builder(&url).ttl(SHORT).connect().await
}

fn servers(rights: &str) -> Vec<Server> {
    let server = || Server::builder().user(&format!("locker on >secret {rights}")).start().unwrap();
    (0..3).map(|_| server()).collect()
}

/// Whatever can be done with locks.
async fn do_everything(servers: &[Server]) {
    let (one, other) = (connect(servers).await.unwrap(), connect(servers).await.unwrap());
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    let holder = other.inspect("k").await.unwrap().unwrap().holders.remove(0);
    other.ask_to_yield(&holder).await.unwrap();
    soon("the wish", guard.yield_requested()).await;
    guard.release().await.unwrap();
    soon("the next", waiter).await.unwrap().release().await.unwrap();
    let readers = [one.rw_lock("k").unwrap().read().await.unwrap(), other.rw_lock("k").unwrap().read().await.unwrap()];
    for holder in other.inspect("k").await.unwrap().unwrap().holders {
        other.ask_to_yield(&holder).await.unwrap();
        assert_eq!(other.evict(&holder).await.unwrap(), Departure::WasHolding);
    }
    drop(readers);
    let kept = one.rw_lock("kept").unwrap().read().await.unwrap();
    servers[0].cli(&["DEL", "lock:kept"]);
    until("it is put back", async || servers[0].cli(&["EXISTS", "lock:kept"]) == "1").await;
    drop(kept);
    servers[1].cli(&["DEL", "leasehold:redlock"]);
    one.mutex("again").unwrap().lock().await.unwrap();
    until("it is let in again", async || !servers[1].cli(&["ZSCORE", "leasehold:redlock", "epoch"]).is_empty()).await;
    let listed = one.inspect_all().await.unwrap();
    assert!(listed.len() <= 1, "{listed:?}");
    one.checkup().await.unwrap();
    let listening = || servers[0].cli(&["PUBSUB", "CHANNELS", "leasehold:freed:*"]);
    until("nobody listens any more", async || listening().is_empty()).await;
    // A guess that is behind the fences needs a second trip.
    servers.iter().for_each(|server| raise_fences(server, "7000000000000000"));
    drop(one.mutex("committed").unwrap().lock().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_no_more_than_the_rights_can_do_everything() {
    let servers = servers(RIGHTS);
    for server in &servers {
        server.cli(&["RPUSH", "lock:not-a-lock", "x"]);
        server.cli(&["CONFIG", "RESETSTAT"]);
    }
    let locks = connect(&servers).await.unwrap();
    let in_the_way = locks.mutex("not-a-lock").unwrap().lock().await.unwrap_err();
    assert_eq!(in_the_way.kind(), ErrorKind::KindMismatch, "{in_the_way}");
    do_everything(&servers).await;
    let used: Vec<String> = servers.iter().map(|server| server.cli(&["INFO", "commandstats"])).collect();
    for server in &servers {
        assert_eq!(server.cli(&["ACL", "LOG"]), "", "something was refused");
    }
    for command in RIGHTS.split_whitespace().filter_map(|word| word.strip_prefix('+')) {
        assert!(used.iter().any(|used| used.contains(&format!("cmdstat_{command}:"))), "nobody needs {command}");
    }
}

/// Without the right to ask how a server writes to its disk, it is one that may forget.
#[tokio::test(flavor = "multi_thread")]
async fn locks_work_without_the_right_to_see_the_settings() {
    let servers = servers(&RIGHTS.replace("+config|get", ""));
    let locks = connect(&servers).await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(timer().within(SHORT, guard.lost()).await, None);
    guard.release().await.unwrap();
}
