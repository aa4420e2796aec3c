//! Encrypted connections, and users.

use std::time::Duration;

use leasehold::{ErrorKind, Locks};
use leasehold_testbed::Tls;
use leasehold_testbed::zookeeper::Server;

use crate::{connect, soon};

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_connection_is_verified() {
    let tls = Tls::new().unwrap();
    let server = Server::builder().tls(&tls).start().unwrap();
    let url = format!("{}?ca={}", server.url(), tls.ca().display());
    let locks = soon("connecting", connect(&url)).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    let untrusted = Locks::builder(&server.url()).ttl(Duration::from_secs(5)).connect().await.unwrap_err();
    assert_eq!(untrusted.kind(), ErrorKind::Unreachable, "{untrusted}");
    let another = Tls::new().unwrap();
    let url = format!("{}?ca={}", server.url(), another.ca().display());
    let untrusted = Locks::builder(&url).ttl(Duration::from_secs(5)).connect().await.unwrap_err();
    assert_eq!(untrusted.kind(), ErrorKind::Unreachable, "{untrusted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_locks_is_for_that_user_alone_unless_it_says_otherwise() {
    let server = Server::shared();
    let url = |login: &str, rest: &str| format!("zookeeper://{login}{}/{rest}", server.address());
    let (al, al_too) = (connect(&url("al:secret@", "users")).await, connect(&url("al:secret@", "users")).await);
    let (bo, nobody) = (connect(&url("bo:secret@", "users")).await, connect(&url("", "users")).await);
    let guard = al.mutex("k").unwrap().lock().await.unwrap();
    assert!(al_too.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    for stranger in [&bo, &nobody] {
        let refused = stranger.mutex("k").unwrap().try_lock().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable, "{refused}");
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
    guard.release().await.unwrap();
    let open = connect(&url("al:secret@", "open?acl=open")).await;
    let guard = open.mutex("k").unwrap().lock().await.unwrap();
    let everybody = connect(&url("", "open")).await;
    assert!(everybody.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    everybody.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
}
