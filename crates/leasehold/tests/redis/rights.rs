//! Who may come in, and what a user must be allowed to do.

use futures_util::StreamExt as _;
use leasehold::{Error, ErrorKind, Fate, Locks};
use leasehold_testbed::redis::{Builder, Server};
use leasehold_testbed::until;

use crate::replicas::pair_of;
use crate::{connect, redisson, soon, until_waiting};

/// All that locks need in the default namespace: their keys and what lies beside them, the channels of clients and of those
/// who observe a key, and these commands. `+select` is for a database other than the first.
const RIGHTS: &str = "~lock:* ~{lock:* resetchannels &leasehold:* &{lock:* -@all +ping +info +time +scan +evalsha \
                      +script|load +subscribe +unsubscribe +publish +get +set +hlen +del +exists +type +pexpire +pttl \
                      +hset +hget +hmget +hdel +hexists +zadd +zrem +zcard +zscore +zrank +zrange";

/// What of it is needed only for locks that are plain strings.
const RIGHTS_OF_CANONICAL: &str = "+get +set +hlen";

/// What `?replicas=` needs besides.
const RIGHTS_OF_REPLICAS: &str = "+wait";

/// What `?layout=redisson` needs besides.
const RIGHTS_OF_REDISSON: &str = "+hkeys &redisson_lock__channel:*";

const SECRET: &str = "s3cret-do-not-print";

/// How that user reaches the server.
fn url(server: &Server, login: &str) -> String {
    format!("redis://{login}@127.0.0.1:{}", server.port())
}

/// A server that lets the user `locker` in with the rights, and nobody as the default user.
fn with_locker() -> Builder {
    Server::builder().password("of-default").user(&format!("locker on >{SECRET} {RIGHTS}"))
}

fn assert_unusable(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let said = format!("{error} {error:?} {error:#?} {cause}");
    assert!(!said.contains(SECRET), "{said}");
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_are_refused_without_saying_the_secret() {
    let server = Server::builder().password("right").user("off off >right ~* &* +@all").start().unwrap();
    for login in [format!(":{SECRET}"), format!("default:{SECRET}"), format!("nobody:{SECRET}"), "off:right".into()] {
        assert_unusable(&leasehold::connect(&url(&server, &login)).await.unwrap_err());
    }
    assert_unusable(&leasehold::connect(&format!("redis://127.0.0.1:{}", server.port())).await.unwrap_err());
    let locks = leasehold::connect(&url(&server, ":right")).await.unwrap();
    assert!(!format!("{locks} {locks:?}").contains("right"));
}

#[tokio::test]
async fn a_user_without_the_rights_is_told_so_without_saying_the_secret() {
    for rights in
        ["~lock:* ~{lock:* &* +ping", "~other:* &* +@all", "~* +@all", "~* &* +@all -evalsha", "~* &* +@all -get"]
    {
        let weak = format!("weak on >{SECRET} resetchannels {rights}");
        let server = Server::builder().password("of-default").user(&weak).start().unwrap();
        let refused = match leasehold::connect(&url(&server, &format!("weak:{SECRET}"))).await {
            Err(refused) => refused,
            Ok(locks) => match locks.mutex("k").unwrap().lock().await {
                Err(refused) => refused,
                Ok(guard) => guard.release().await.unwrap_err(),
            },
        };
        assert_unusable(&refused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_no_more_than_the_rights_can_do_everything() {
    let server = with_locker().start().unwrap();
    server.cli(&["RPUSH", "lock:not-a-lock", "x"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    let url = url(&server, &format!("locker:{SECRET}"));
    do_everything(&server, &connect(&url).await, &connect(&url).await).await;
    assert_all_needed(&server, RIGHTS);
}

/// Nothing was refused since the statistics were reset, and each of these commands was used.
fn assert_all_needed(server: &Server, rights: &str) {
    assert_eq!(server.cli(&["ACL", "LOG"]), "", "nothing was refused");
    let used = server.cli(&["INFO", "commandstats"]);
    for command in rights.split_whitespace().filter_map(|word| word.strip_prefix('+')) {
        assert!(used.contains(&format!("cmdstat_{command}:")), "nobody needs {command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_replicas_confirm_need_one_right_more() {
    let (server, _replica) = pair_of(with_locker());
    let url = format!("{}?replicas=1", url(&server, &format!("locker:{SECRET}")));
    let locks = connect(&url).await;
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert_eq!((refused.kind(), refused.fate()), (ErrorKind::Unreachable, Fate::Unknown), "{refused}");
    assert!(refused.to_string().contains("the replicas could not be asked"), "{refused}");
    until("nothing is left held", || server.cli(&["EXISTS", "lock:k"]) == "0").unwrap();

    server.cli(&["RPUSH", "lock:not-a-lock", "x"]);
    server.cli(&["ACL", "SETUSER", "locker", RIGHTS_OF_REPLICAS]);
    server.cli(&["ACL", "LOG", "RESET"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    do_everything(&server, &connect(&url).await, &connect(&url).await).await;
    assert_all_needed(&server, RIGHTS_OF_REPLICAS);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layout_of_redisson_needs_one_command_and_its_channels_more() {
    let server = with_locker().start().unwrap();
    server.cli(&["RPUSH", "lock:not-a-lock", "x"]);
    let url = format!("{}?layout=redisson", url(&server, &format!("locker:{SECRET}")));
    assert_unusable(&connect(&url).await.mutex("k").unwrap().lock().await.unwrap_err());

    let more: Vec<&str> = RIGHTS_OF_REDISSON.split_whitespace().collect();
    server.cli(&[&["ACL", "SETUSER", "locker"], &more[..1]].concat());
    let locks = connect(&url).await;
    // It is published on its channel that a lock has been left, which is found to be forbidden when it has been.
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let refused = guard.release().await.unwrap_err();
    assert_unusable(&refused);
    assert_eq!(refused.fate(), Fate::Unknown, "{refused}");
    locks.close().await;

    server.cli(&[&["ACL", "SETUSER", "locker"], &more[1..]].concat());
    server.cli(&["DEL", "lock:k"]);
    server.cli(&["ACL", "LOG", "RESET"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    let (one, other) = (connect(&url).await, connect(&url).await);
    do_everything(&server, &one, &other).await;
    redisson::take_as_redisson(&server, "lock:theirs");
    let mutex = one.mutex("theirs").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&other, "theirs", 1).await.unwrap();
    redisson::leave_as_redisson(&server, "lock:theirs");
    soon("our turn", waiter).await.unwrap().release().await.unwrap();
    let rights = format!("{RIGHTS} {RIGHTS_OF_REDISSON}");
    assert_all_needed(&server, &rights.replace(RIGHTS_OF_CANONICAL, ""));
}

#[tokio::test]
async fn another_database_needs_one_right_more() {
    let server = with_locker().start().unwrap();
    let url = format!("{}/1", url(&server, &format!("locker:{SECRET}")));
    assert_unusable(&leasehold::connect(&url).await.unwrap_err());
    server.cli(&["ACL", "SETUSER", "locker", "+select"]);
    let _guard = connect(&url).await.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(server.cli(&["-n", "1", "EXISTS", "lock:k"]), "1");
}

async fn do_everything(server: &Server, one: &Locks, other: &Locks) {
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    assert!(other.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(one, "k", 1).await.unwrap();
    guard.release().await.unwrap();
    let guard = soon("the waiter's turn", waiter).await.unwrap();
    let holder = one.inspect("k").await.unwrap().unwrap().holders.remove(0);
    one.ask_to_yield(&holder).await.unwrap();
    soon("it is asked to yield", guard.yield_requested()).await;
    one.evict(&holder).await.unwrap();
    soon("it is evicted", guard.lost()).await;

    // Whoever waits behind a foreign holder looks for itself.
    if one.capabilities().shared {
        server.cli(&["SET", "lock:foreign", "x", "NX", "PX", "200"]);
        one.mutex("foreign").unwrap().lock().await.unwrap().release().await.unwrap();
    }

    if one.capabilities().shared {
        let readers = one.rw_lock("rw").unwrap();
        let (first, second) = (readers.read().await.unwrap(), readers.read().await.unwrap());
        assert_eq!(one.inspect_all().await.unwrap().len(), 1);
        first.release().await.unwrap();
        second.release().await.unwrap();
        one.semaphore("s", 2).unwrap().acquire(2).await.unwrap().release().await.unwrap();
    }
    assert!(one.inspect_all().await.unwrap().is_empty());
    one.all_of(["a", "b"]).unwrap().lock().await.unwrap().release().await.unwrap();
    let election = one.election("e").unwrap();
    let mut leaders = Box::pin(other.election("e").unwrap().observe());
    assert!(soon("nobody leads", leaders.next()).await.unwrap().unwrap().is_none());
    let mut leader = election.campaign("me").await.unwrap();
    leader.proclaim("myself").await.unwrap();
    soon("the leader is seen", async {
        while leaders.next().await.unwrap().unwrap().is_none_or(|leader| *leader.value != *b"myself") {}
    })
    .await;
    leader.resign().await.unwrap();

    assert_eq!(one.mutex("not-a-lock").unwrap().lock().await.unwrap_err().kind(), ErrorKind::KindMismatch);
    one.checkup().await.unwrap();
}
