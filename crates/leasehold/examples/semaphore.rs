//! A semaphore: at most three calls to a payment service at a time, counted over all processes that use the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use leasehold::{ErrorKind, Semaphore};

/// Makes nine calls of which no more than three are ever under way together.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let locks = leasehold::connect("memory:").await?;
    let calls = locks.semaphore("payment-service", 3)?;

    let (under_way, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..9 {
        callers.spawn(pay(calls.clone(), under_way.clone(), most.clone()));
    }
    for paid in callers.join_all().await {
        paid?;
    }
    println!("9 calls made, at most {} at a time", most.load(SeqCst));
    assert!((1..=3).contains(&most.load(SeqCst)));

    // Several permits are granted together or not at all.
    let two = calls.acquire(2).await?;
    assert!(calls.try_acquire(2).await?.is_none());
    println!("2 of {} permits taken: no room for 2 more", calls.permits());
    two.release().await?;
    let all = calls.acquire(3).await?;

    // Everybody who uses the key must mean the same number.
    let mistaken =
        locks.semaphore("payment-service", 5)?.try_acquire(1).await.expect_err("it is in use with 3 permits");
    println!("{mistaken}");
    assert_eq!(mistaken.kind(), ErrorKind::CapacityMismatch);
    all.release().await
}

async fn pay(calls: Semaphore, under_way: Arc<AtomicU32>, most: Arc<AtomicU32>) -> leasehold::Result<()> {
    let permit = calls.acquire(1).await?;
    most.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
    tokio::task::yield_now().await; // here the service would be called
    under_way.fetch_sub(1, SeqCst);
    permit.release().await
}
