//! Several keys at once: transfers between accounts, in both directions, that cannot wait for each other for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use leasehold::{Attempt, Locks};

type Balances = Arc<[AtomicI64; 2]>;

/// Sends money both ways at the same time, then shows that all keys are taken or none.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let locks = leasehold::connect("memory:").await?;
    let balances: Balances = Arc::new([100.into(), 100.into()]);

    // Taken one by one, "0 then 1" and "1 then 0" would sooner or later each hold what the other one waits for.
    let mut transfers = tokio::task::JoinSet::new();
    for nth in 0..20 {
        transfers.spawn(transfer(locks.clone(), balances.clone(), nth % 2, 1 - nth % 2));
    }
    for done in transfers.join_all().await {
        done?;
    }
    println!("after 20 transfers in both directions: {balances:?}");
    assert_eq!([balances[0].load(SeqCst), balances[1].load(SeqCst)], [100, 100]);

    // If one key stays taken, the others are given back, and the answer says which one was in the way.
    let taken = locks.mutex("account/1")?.lock().await?;
    let both = locks.all_of(["account/0", "account/1"])?;
    match both.attempt_within(Duration::ZERO).await? {
        Attempt::Held(_) => unreachable!("one of them is taken"),
        Attempt::Busy(busy) => {
            println!("{busy}");
            assert_eq!(busy.key.name(), b"account/1");
        }
    }
    locks.mutex("account/0")?.lock().await?.release().await?;
    taken.release().await
}

async fn transfer(locks: Locks, balances: Balances, from: usize, to: usize) -> leasehold::Result<()> {
    let guard = locks.all_of([format!("account/{from}"), format!("account/{to}")])?.lock().await?;
    let (debit, credit) = (balances[from].load(SeqCst), balances[to].load(SeqCst));
    tokio::task::yield_now().await;
    balances[from].store(debit - 7, SeqCst);
    balances[to].store(credit + 7, SeqCst);
    guard.release().await
}
