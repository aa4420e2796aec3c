//! Encrypted connections.

use leasehold::{ErrorKind, Locks};
use leasehold_testbed::Tls;
use leasehold_testbed::postgres::Server;

use crate::{TTL, hand_over, held_and_awaited};

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_connection_locks_and_one_that_cannot_be_verified_is_refused() {
    let tls = Tls::new().unwrap();
    let server = Server::builder().tls(&tls).start().unwrap();
    let (_locks, guard, waiter) = held_and_awaited(&server.url(), TTL).await;
    hand_over(guard, waiter).await;
    let stranger = Tls::new().unwrap();
    let elsewhere = server.url().replace(&*tls.ca().to_string_lossy(), &stranger.ca().to_string_lossy());
    let refused = Locks::builder(&elsewhere).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused:?}");
    let plain = server.url().replace("sslmode=verify-full", "sslmode=disable");
    let plain = plain.split("&ca=").next().unwrap();
    assert!(Locks::builder(plain).connect().await.is_err());
}
