//! Watching: who holds a key, who waits for it, since when, and what to do about somebody who hangs.

use std::time::Duration;

use leasehold::backend::{Departure, EntryView};
use leasehold::{Attempt, Locks};

const STORE: &str = "memory:watching-example";

/// Lets one client hold a key and another wait, and looks at them as an operator would.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let worker = Locks::builder(STORE).label("worker-7").connect().await?;
    let other = Locks::builder(STORE).label("worker-8").connect().await?;
    let operator = leasehold::connect(STORE).await?;

    // Whoever is turned away can be told why.
    let stuck = worker.mutex("billing/close")?.lock().await?;
    match other.mutex("billing/close")?.attempt_within(Duration::ZERO).await? {
        Attempt::Held(_) => unreachable!("worker-7 has it"),
        Attempt::Busy(busy) => println!("{busy}"),
    }

    let waiting = other.mutex("billing/close")?;
    let (granted, ()) = tokio::try_join!(waiting.lock(), async {
        for view in operator.inspect_all().await? {
            let waiters = view.waiters.unwrap_or_default();
            println!("{}: {} holding, {} waiting", view.key, view.holders.len(), waiters.len());
            println!("  holds  {}", line(&view.holders[0]));
            println!("  waits  {}", line(&waiters[0]));
            assert_eq!((&*view.holders[0].note.owner, &*waiters[0].note.owner), ("worker-7", "worker-8"));

            // Evicting names the entry that was seen, so it cannot hit whoever holds the key by now.
            assert_eq!(operator.evict(&view.holders[0]).await?, Departure::WasHolding);
            assert_eq!(operator.evict(&view.holders[0]).await?, Departure::WasGone);
        }
        Ok(())
    })?;

    println!("evicted: the next in line holds it under token {}", granted.token());
    assert!(granted.token() > stuck.token());
    Ok(())
}

fn line(entry: &EntryView) -> String {
    format!("{}, ticket {}, {} claim, lease ends in {:?}", entry.note, entry.ticket, entry.claim, entry.lease_left)
}
