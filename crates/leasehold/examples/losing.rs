//! Losing a lock: work under it is stopped as soon as the loss is known, and nothing brings the lock back.

use std::future::pending;
use std::time::Duration;

use leasehold::{ErrorKind, Locks, Loss, State};

/// Says so when it is dropped, so that the end of the work can be seen.
struct Transaction<'a>(&'a mut bool);

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        *self.0 = true;
    }
}

/// Runs endless work under a lock that an operator takes away.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let locks = leasehold::connect("memory:").await?;
    let guard = locks.mutex("report")?.lock().await?;
    assert_eq!(guard.state(), State::Held);

    let mut rolled_back = false;
    let work = async {
        let _transaction = Transaction(&mut rolled_back);
        evict_the_holder(&locks).await?;
        pending::<leasehold::Result<()>>().await // work that would go on for hours
    };
    let lost = guard.run(work).await.expect_err("the lock was taken away");
    println!("{lost}");
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(rolled_back, "the work was dropped, and cleaned up behind itself");

    // Lost is final: the guard says so from now on, and so does giving it up. To go on, take the lock again.
    assert_eq!(guard.state(), State::Lost(Loss::Gone));
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.release().await.expect_err("it was not ours any more").kind(), ErrorKind::Lost);
    locks.mutex("report")?.lock().await?.release().await
}

/// What an operator does, from anywhere.
async fn evict_the_holder(locks: &Locks) -> leasehold::Result<()> {
    let view = locks.inspect("report").await?.expect("somebody holds it");
    locks.evict(&view.holders[0]).await?;
    Ok(())
}
