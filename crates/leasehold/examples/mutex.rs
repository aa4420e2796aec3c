//! A mutex: four workers add to one number, each by reading it, doing something else, and writing it back.
//!
//! Without the lock most of the additions would overwrite each other. The workers share nothing but the store's address,
//! as four processes would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use leasehold::Locks;

const STORE: &str = "memory:mutex-example";

/// Takes the lock 4 × 25 times and loses no addition.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let locks = leasehold::connect(STORE).await?;
    let total = Arc::new(AtomicU32::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for nth in 1..=4 {
        workers.spawn(add(total.clone(), format!("worker-{nth}")));
    }
    for added in workers.join_all().await {
        added?;
    }
    println!("4 workers added 25 each: {}", total.load(Relaxed));
    assert_eq!(total.load(Relaxed), 100);

    // Whoever does not want to wait gets an answer at once. Busy is an answer, not an error.
    let mutex = locks.mutex("total")?;
    let guard = mutex.lock().await?;
    println!("held under token {}, for {:?} more unless renewed", guard.token(), guard.remaining());
    assert!(guard.token().get() > 100, "every grant has a larger number than the one before");
    assert!(mutex.try_lock().await?.is_none());
    guard.release().await?;
    assert!(mutex.try_lock().await?.is_some());
    Ok(())
}

async fn add(total: Arc<AtomicU32>, label: String) -> leasehold::Result<()> {
    let locks = Locks::builder(STORE).label(label).connect().await?;
    let mutex = locks.mutex("total")?;
    for _ in 0..25 {
        let guard = mutex.lock().await?;
        let seen = total.load(Relaxed);
        tokio::task::yield_now().await;
        total.store(seen + 1, Relaxed);
        guard.release().await?;
    }
    Ok(())
}
