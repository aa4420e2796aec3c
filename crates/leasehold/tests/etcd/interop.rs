//! One line with `etcdctl lock` and `etcdctl elect`.

use std::fs;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold::ErrorKind;
use leasehold::backend::Departure;
use leasehold_testbed::etcd::Cluster;
use leasehold_testbed::until;

use crate::{connect, keys, soon, timer, until_waiting};

#[tokio::test(flavor = "multi_thread")]
async fn while_etcdctl_holds_we_are_refused_see_it_and_get_in_when_it_has_left() {
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let theirs = server.session(&["lock", "lock/they-hold"]).unwrap();
    let key = theirs.line();
    let mutex = locks.mutex("they-hold").unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(locks.rw_lock("they-hold").unwrap().try_read().await.unwrap().is_none());
    let refused = locks.semaphore("they-hold", 2).unwrap().try_acquire(1).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::KindMismatch);

    let view = locks.inspect("they-hold").await.unwrap().unwrap();
    let [holder] = &view.holders[..] else { panic!("{view:?}") };
    assert!(holder.foreign && holder.token.is_some(), "{holder:?}");
    assert_eq!(format!("lock/they-hold/{}", holder.note.owner), key);
    assert!(holder.lease_left > Duration::ZERO && holder.lease_left <= Duration::from_secs(10), "{holder:?}");
    assert_eq!(locks.ask_to_yield(holder).await.unwrap_err().kind(), ErrorKind::Unsupported);

    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&locks, "they-hold", 1).await.unwrap();
    theirs.end();
    soon("our turn", waiter).await.unwrap().unwrap().release().await.unwrap();
}

/// First we, then `etcdctl`, then we again: each in the order of arrival.
#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_waits_for_us_and_we_for_it_in_the_order_of_arrival() {
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let first = locks.mutex("in-turn").unwrap().lock().await.unwrap();
    let theirs = server.session(&["lock", "lock/in-turn"]).unwrap();
    until_waiting(&locks, "in-turn", 1).await.unwrap();
    let mutex = locks.mutex("in-turn").unwrap();
    let last = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&locks, "in-turn", 2).await.unwrap();
    assert_eq!(theirs.has_printed(), None, "it holds while we do");
    let token = first.token();
    first.release().await.unwrap();
    assert!(theirs.line().starts_with("lock/in-turn/"));
    let view = locks.inspect("in-turn").await.unwrap().unwrap();
    assert!(view.holders[0].foreign && !last.is_finished());
    theirs.end();
    let last = soon("our turn", last).await.unwrap().unwrap();
    assert!(last.token() > token);
    last.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_permits_of_ours_keep_etcdctl_out() {
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let readers = locks.rw_lock("shared").unwrap();
    let (one, other) = (readers.read().await.unwrap(), readers.read().await.unwrap());
    let permits = locks.semaphore("counted", 3).unwrap();
    let permit = permits.acquire(2).await.unwrap();
    let (shared, counted) =
        (server.session(&["lock", "lock/shared"]).unwrap(), server.session(&["lock", "lock/counted"]).unwrap());
    until_waiting(&locks, "shared", 1).await.unwrap();
    until_waiting(&locks, "counted", 1).await.unwrap();
    // Whoever comes later stands behind the stranger, although there would be room.
    assert!(readers.try_read().await.unwrap().is_none());
    assert!(permits.try_acquire(1).await.unwrap().is_none());
    let late = tokio::spawn(async move { permits.acquire(1).await });
    until_waiting(&locks, "counted", 2).await.unwrap();
    one.release().await.unwrap();
    assert_eq!(shared.has_printed(), None, "it holds beside a reader");
    other.release().await.unwrap();
    permit.release().await.unwrap();
    assert!(shared.line().starts_with("lock/shared/"));
    assert!(counted.line().starts_with("lock/counted/"));
    assert!(!late.is_finished());
    shared.end();
    counted.end();
    soon("our permit", late).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_that_is_evicted_makes_way() {
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let theirs = server.session(&["lock", "lock/evicted-stranger"]).unwrap();
    theirs.line();
    let view = locks.inspect("evicted-stranger").await.unwrap().unwrap();
    assert_eq!(locks.evict(&view.holders[0]).await.unwrap(), Departure::WasHolding);
    assert_eq!(locks.evict(&view.holders[0]).await.unwrap(), Departure::WasGone);
    let guard = locks.mutex("evicted-stranger").unwrap().try_lock().await.unwrap().expect("it made way");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_sees_whoever_leads_among_us_and_what_it_proclaims() {
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let election = locks.election("our-office").unwrap();
    let mut leadership = election.campaign("10.0.0.7:80").await.unwrap();
    let listener = server.session(&["elect", "--listen", "lock/our-office"]).unwrap();
    assert!(listener.line().starts_with("lock/our-office/"));
    assert_eq!(listener.line(), "10.0.0.7:80");
    leadership.proclaim("10.0.0.7:81").await.unwrap();
    assert!(listener.line().starts_with("lock/our-office/"));
    assert_eq!(listener.line(), "10.0.0.7:81");
    leadership.resign().await.unwrap();
    let _next = election.campaign("10.0.0.8:80").await.unwrap();
    assert!(listener.line().starts_with("lock/our-office/"));
    assert_eq!(listener.line(), "10.0.0.8:80");
}

#[tokio::test(flavor = "multi_thread")]
async fn we_see_whoever_leads_among_them_and_lead_when_it_has_resigned() {
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let election = locks.election("their-office").unwrap();
    let mut leaders = pin!(election.observe());
    assert!(soon("a vacancy", leaders.next()).await.unwrap().unwrap().is_none());
    let theirs = server.session(&["elect", "lock/their-office", "from afar"]).unwrap();
    let seen = soon("their leader", leaders.next()).await.unwrap().unwrap().expect("somebody leads");
    assert_eq!(&*seen.value, b"from afar");
    let leader = election.leader().await.unwrap().expect("somebody leads");
    assert_eq!((&*leader.value, leader.token), (&b"from afar"[..], seen.token));
    let candidate = tokio::spawn(async move { election.campaign("from here").await });
    until_waiting(&locks, "their-office", 1).await.unwrap();
    theirs.end();
    let leadership = soon("our term", candidate).await.unwrap().unwrap();
    assert!(leadership.token() > seen.token);
    leadership.resign().await.unwrap();
}

/// Each adds one to a number in a file, slowly and without any lock but this one. Whoever was not excluded takes another's
/// addition away.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_beside_another_while_etcdctl_and_we_contend() {
    const EACH: usize = 12;
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let folder = tempfile::tempdir().unwrap();
    let (file, script) = (folder.path().join("count"), folder.path().join("add.sh"));
    fs::write(&file, "0").unwrap();
    fs::write(&script, "n=$(cat \"$1\"); sleep 0.01; echo $((n + 1)) > \"$1\"").unwrap();
    let (path, add) = (file.to_str().unwrap(), script.to_str().unwrap());
    let theirs: Vec<_> =
        (0..EACH).map(|_| server.session(&["lock", "lock/contended", "sh", add, path]).unwrap()).collect();
    let ours = (0..4).map(|_| {
        let (mutex, file) = (locks.mutex("contended").unwrap(), file.clone());
        tokio::spawn(async move {
            for _ in 0..EACH / 4 {
                let guard = mutex.lock().await.unwrap();
                let count: usize = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
                timer().sleep(Duration::from_millis(10)).await;
                guard.check().unwrap();
                fs::write(&file, (count + 1).to_string()).unwrap();
                guard.release().await.unwrap();
            }
        })
    });
    for task in ours.collect::<Vec<_>>() {
        soon("all of ours had their turn", task).await.unwrap();
    }
    for session in theirs {
        assert!(session.wait(), "etcdctl failed");
    }
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), (2 * EACH).to_string());
    until("nothing is left", || keys(server, "lock/contended/").is_empty()).unwrap();
}
