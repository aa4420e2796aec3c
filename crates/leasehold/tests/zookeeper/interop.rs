//! One lock with Curator and with kazoo: mutexes, read/write locks and elections, both ways.

use std::any::Any;
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold::{Claim, Locks};
use leasehold_testbed::interop::{Answer, Peer, ZookeeperLibrary};
use leasehold_testbed::zookeeper::Server;

use crate::{TTL, connect, soon, timer, until_waiting};

/// A peer, and our locks as it names its own of that kind.
async fn beside(library: ZookeeperLibrary, kind: &str) -> (Peer, Locks) {
    let server = Server::shared();
    let layout = match (library, kind) {
        (ZookeeperLibrary::Curator, "read" | "write") => "curator-rw",
        (ZookeeperLibrary::Curator, _) => "curator",
        (ZookeeperLibrary::Kazoo, _) => "kazoo",
    };
    let locks = connect(&format!("{}?layout={layout}", server.url())).await;
    (library.start(&server.address()).unwrap(), locks)
}

/// What they call the lock that we call `name`.
fn theirs(kind: &str, name: &str) -> String {
    format!("{kind}:/lock/{name}")
}

/// Whatever of ours holds alone and is of that kind.
async fn hold_alone(locks: &Locks, kind: &str, name: &str) -> Box<dyn Any + Send> {
    match kind {
        "election" => Box::new(locks.election(name).unwrap().campaign("ours").await.unwrap()),
        _ => Box::new(locks.mutex(name).unwrap().lock().await.unwrap()),
    }
}

const BOTH: [ZookeeperLibrary; 2] = [ZookeeperLibrary::Curator, ZookeeperLibrary::Kazoo];

/// Long enough for a peer to be sure that it is not its turn.
const A_WHILE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn while_they_hold_we_wait_and_get_in_when_they_have_left() {
    for library in BOTH {
        for kind in ["mutex", "write", "election"] {
            let (mut peer, locks) = beside(library, kind).await;
            let name = format!("they-hold-{library:?}-{kind}");
            let key = theirs(kind, &name);
            assert_eq!(peer.lock(&key, TTL, Duration::from_secs(5)).unwrap(), Answer::Held, "{library:?} {kind}");
            assert!(locks.mutex(&name).unwrap().try_lock().await.unwrap().is_none(), "{library:?} {kind}");
            assert!(locks.rw_lock(&name).unwrap().try_read().await.unwrap().is_none(), "{library:?} {kind}");
            let view = locks.inspect(&name).await.unwrap().unwrap();
            let [holder] = &view.holders[..] else { panic!("{library:?} {kind}: {view:?}") };
            assert!(holder.foreign && holder.token.is_some(), "{library:?} {kind}: {holder:?}");
            let mutex = locks.mutex(&name).unwrap();
            let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
            until_waiting(&locks, &name, 1).await.unwrap();
            assert_eq!(peer.unlock(&key).unwrap(), Answer::Released, "{library:?} {kind}");
            let guard = soon("our turn", waiter).await.unwrap();
            assert!(Some(guard.token()) > holder.token, "{library:?} {kind}");
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_we_hold_they_are_busy_and_get_in_when_we_have_left() {
    for library in BOTH {
        for kind in ["mutex", "read", "write", "election"] {
            let (mut peer, locks) = beside(library, kind).await;
            let name = format!("we-hold-{library:?}-{kind}");
            let key = theirs(kind, &name);
            let guard = hold_alone(&locks, kind, &name).await;
            assert_eq!(peer.lock(&key, TTL, A_WHILE).unwrap(), Answer::Busy, "{library:?} {kind}");
            drop(guard);
            assert_eq!(peer.lock(&key, TTL, Duration::from_secs(5)).unwrap(), Answer::Held, "{library:?} {kind}");
            assert_eq!(peer.unlock(&key).unwrap(), Answer::Released, "{library:?} {kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn their_readers_share_with_ours_and_keep_writers_out() {
    for library in BOTH {
        let (mut peer, locks) = beside(library, "read").await;
        let name = format!("readers-{library:?}");
        let lock = locks.rw_lock(&name).unwrap();
        let ours = lock.read().await.unwrap();
        let theirs_read = theirs("read", &name);
        assert_eq!(peer.lock(&theirs_read, TTL, Duration::from_secs(5)).unwrap(), Answer::Held, "{library:?}");
        let view = locks.inspect(&name).await.unwrap().unwrap();
        assert!(view.holders.iter().map(|holder| holder.claim).eq([Claim::Shared, Claim::Shared]), "{view:?}");
        assert!(lock.try_write().await.unwrap().is_none());
        assert_eq!(peer.lock(&theirs("write", &name), TTL, A_WHILE).unwrap(), Answer::Busy, "{library:?}");
        ours.release().await.unwrap();
        let writing = lock.clone();
        let writer = tokio::spawn(async move { writing.write().await.unwrap() });
        until_waiting(&locks, &name, 1).await.unwrap();
        assert_eq!(peer.unlock(&theirs_read).unwrap(), Answer::Released, "{library:?}");
        soon("our writer's turn", writer).await.unwrap().release().await.unwrap();
    }
}

/// Readers and permits of ours are in the way of Curator's mutex too, although it knows nothing of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_curator_mutex_waits_for_our_readers_and_permits() {
    let (mut peer, locks) = beside(ZookeeperLibrary::Curator, "mutex").await;
    let key = theirs("mutex", "shared");
    let reader = locks.rw_lock("shared").unwrap().read().await.unwrap();
    assert_eq!(peer.lock(&key, TTL, A_WHILE).unwrap(), Answer::Busy);
    reader.release().await.unwrap();
    let permit = locks.semaphore("shared", 3).unwrap().acquire(2).await.unwrap();
    assert_eq!(peer.lock(&key, TTL, A_WHILE).unwrap(), Answer::Busy);
    permit.release().await.unwrap();
    assert_eq!(peer.lock(&key, TTL, Duration::from_secs(5)).unwrap(), Answer::Held);
    assert!(locks.rw_lock("shared").unwrap().try_read().await.unwrap().is_none());
    assert_eq!(peer.unlock(&key).unwrap(), Answer::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn their_leader_is_named_to_us_and_ours_takes_over() {
    for library in BOTH {
        let (mut peer, locks) = beside(library, "election").await;
        let name = format!("office-{library:?}");
        let (key, election) = (theirs("election", &name), locks.election(&name).unwrap());
        assert_eq!(peer.lock(&key, TTL, Duration::from_secs(5)).unwrap(), Answer::Held);
        let leader = election.leader().await.unwrap().expect("they lead");
        assert_eq!(*leader.value, *format!("{library:?}").to_lowercase().as_bytes());
        let mut leaders = pin!(election.observe());
        let seen = soon("their term is seen", leaders.next()).await.unwrap().unwrap();
        assert_eq!(seen.map(|seen| seen.token), Some(leader.token));
        let candidacy = election.clone();
        let candidate = tokio::spawn(async move { candidacy.campaign("ours").await.unwrap() });
        until_waiting(&locks, &name, 1).await.unwrap();
        assert_eq!(peer.unlock(&key).unwrap(), Answer::Released);
        let leadership = soon("our term", candidate).await.unwrap();
        assert!(leadership.token() > leader.token);
        let seen = soon("our term is seen", leaders.next()).await.unwrap().unwrap();
        assert_eq!(seen.map(|seen| seen.token), Some(leadership.token()), "{library:?}");
        leadership.resign().await.unwrap();
    }
}

/// Both ways, in the form in which Curator does it.
#[tokio::test(flavor = "multi_thread")]
async fn a_curator_mutex_is_asked_to_yield_and_asks_ours() {
    let (mut peer, locks) = beside(ZookeeperLibrary::Curator, "mutex").await;
    let key = theirs("mutex", "yielding");
    assert_eq!(peer.lock(&key, TTL, Duration::from_secs(5)).unwrap(), Answer::Held);
    let holder = locks.inspect("yielding").await.unwrap().unwrap().holders.remove(0);
    locks.ask_to_yield(&holder).await.unwrap();
    soon("it is asked", async {
        while peer.extend(&key, TTL).unwrap() != Answer::Lost {
            timer().sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(peer.unlock(&key).unwrap(), Answer::Released);
    let guard = locks.mutex("yielding").unwrap().lock().await.unwrap();
    peer.revoke("/lock/yielding").unwrap();
    soon("we are asked", guard.yield_requested()).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
}

/// Adds one to the number in a file, so many times, each under the lock and slowly enough to be caught without it.
async fn hammer(locks: Locks, kind: &str, name: &str, file: &Path, times: u32) {
    for _ in 0..times {
        let guard = match kind {
            "write" => locks.rw_lock(name).unwrap().write().await.unwrap(),
            _ => locks.mutex(name).unwrap().lock().await.unwrap(),
        };
        let number: u32 = fs::read_to_string(file).unwrap().parse().unwrap();
        timer().sleep(Duration::from_micros(300)).await;
        fs::write(file, (number + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
}

async fn all_hammer(library: ZookeeperLibrary, kind: &'static str, times: u32) {
    let name = format!("hammer-{library:?}-{kind}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("number");
    fs::write(&file, "0").unwrap();
    let (mut one, ours) = beside(library, kind).await;
    let (mut two, ours_too) = beside(library, kind).await;
    let tasks = [ours, ours_too].map(|locks| {
        let (name, file) = (name.clone(), file.clone());
        tokio::spawn(async move { hammer(locks, kind, &name, &file, times).await })
    });
    let key = theirs(kind, &name);
    std::thread::scope(|scope| {
        for peer in [&mut one, &mut two] {
            scope.spawn(|| peer.hammer(&key, &file, times).unwrap());
        }
    });
    for task in tasks {
        soon("our own additions", task).await.unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), (times * 4).to_string(), "{library:?} {kind}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_with_curators_mutex() {
    all_hammer(ZookeeperLibrary::Curator, "mutex", 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_with_curators_write_lock() {
    all_hammer(ZookeeperLibrary::Curator, "write", 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_with_kazoos_lock() {
    all_hammer(ZookeeperLibrary::Kazoo, "mutex", 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_with_kazoos_write_lock() {
    all_hammer(ZookeeperLibrary::Kazoo, "write", 60).await;
}
