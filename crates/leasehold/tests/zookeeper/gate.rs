//! A gate on ZooKeeper: what is written too late is refused, and with it everything beside it.

use leasehold::backend::zookeeper::{Gate, Write};
use leasehold::fence::{FenceGate as _, FencingToken};
use leasehold::{ErrorKind, Fate};
use leasehold_testbed::zookeeper::Server;

use crate::{connect, soon};

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn set(path: &str, data: &str) -> Write {
    Write::Set { path: path.into(), data: data.into(), version: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_refuses_a_token_lower_than_the_highest_seen_by_anybody() {
    let url = Server::shared().url();
    let gates = [Gate::connect(&url, "/gate-order").await.unwrap(), Gate::connect(&url, "/gate-order").await.unwrap()];
    gates[0].admit(token(5)).await.unwrap();
    gates[1].admit(token(5)).await.unwrap();
    gates[1].admit(token(7)).await.unwrap();
    let stale = gates[0].admit(token(6)).await.unwrap_err();
    assert_eq!((stale.kind(), stale.fate()), (ErrorKind::Stale, Fate::NotApplied));
    assert!(stale.to_string().contains("token 6 is older than 7"), "{stale}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_happens_with_its_token_or_not_at_all() {
    let gate = Gate::connect(&Server::shared().url(), "/gate-writes").await.unwrap();
    let made = Write::Create { path: "/gate-data".into(), data: b"0".into() };
    gate.write(token(3), std::slice::from_ref(&made)).await.unwrap();
    gate.write(token(4), &[set("/gate-data", "1")]).await.unwrap();
    let late = gate.write(token(3), &[set("/gate-data", "late")]).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Stale);
    // It was version 1 after one change, and has not changed since.
    let unless = |version| Write::Set { path: "/gate-data".into(), data: b"2".into(), version: Some(version) };
    let refused = gate.write(token(9), &[unless(7)]).await.unwrap_err();
    assert_eq!((refused.kind(), refused.fate()), (ErrorKind::Unusable, Fate::NotApplied), "{refused}");
    // The token did not pass either.
    gate.write(token(5), &[unless(1)]).await.unwrap();
    let again = gate.write(token(6), &[set("/gate-data", "3"), made]).await.unwrap_err();
    assert!(again.to_string().contains("change 2"), "{again}");
    gate.write(token(6), &[Write::Delete { path: "/gate-data".into(), version: Some(2) }]).await.unwrap();
}

/// Many at once, each with a token of its own: each passes, or somebody with a higher one did before.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_come_at_once_pass_in_their_order() {
    let gate = Gate::connect(&Server::shared().url(), "/gate-crowd").await.unwrap();
    let crowd = (1..=10).map(|number| {
        let gate = gate.clone();
        tokio::spawn(async move { (number, gate.admit(token(number)).await) })
    });
    for task in crowd.collect::<Vec<_>>() {
        let (number, passed) = soon("its answer", task).await.unwrap();
        match passed {
            Ok(()) => {}
            Err(error) => assert!(error.kind() == ErrorKind::Stale && number < 10, "{number}: {error}"),
        }
    }
    assert_eq!(gate.admit(token(9)).await.unwrap_err().kind(), ErrorKind::Stale);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_lock_passes_its_gate_until_the_next_holders_has() {
    let url = Server::shared().url();
    let (locks, gate) = (connect(&url).await, Gate::connect(&url, "/gate-lock").await.unwrap());
    let mutex = locks.mutex("gated").unwrap();
    let first = mutex.lock().await.unwrap();
    let late = first.token();
    gate.admit(late).await.unwrap();
    first.release().await.unwrap();
    let second = mutex.lock().await.unwrap();
    gate.admit(second.token()).await.unwrap();
    assert_eq!(gate.admit(late).await.unwrap_err().kind(), ErrorKind::Stale);
    second.release().await.unwrap();
}
