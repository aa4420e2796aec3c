//! Fencing: a holder that was paused wakes up too late and writes all the same, and the ledger refuses it.
//!
//! No lock can prevent the attempt. Between "is it still mine?" and the write that follows, a process may be stopped for
//! any time, and cannot notice. So the last word belongs to the resource, and the token is what it judges by.

use std::sync::Mutex;

use leasehold::fence::Gate;
use leasehold::{ErrorKind, FencingToken, Locks};

const STORE: &str = "memory:fencing-example";

/// What the lock protects. It remembers the highest token it has seen, and decides and writes in one step.
#[derive(Default)]
struct Ledger {
    gate: Gate,
    lines: Mutex<Vec<String>>,
}

impl Ledger {
    fn write(&self, token: FencingToken, line: &str) -> leasehold::Result<()> {
        let mut lines = self.lines.lock().expect("nobody panicked");
        self.gate.admit(token)?;
        lines.push(line.into());
        Ok(())
    }
}

/// Lets a second holder take over while the first one is paused, and the first one wake up.
#[tokio::main]
pub async fn main() -> leasehold::Result<()> {
    let ledger = Ledger::default();
    let paused = Locks::builder(STORE).label("paused").connect().await?.mutex("ledger")?.lock().await?;
    ledger.write(paused.token(), "opened by the first holder")?;

    // From here on the first holder does nothing, as if its machine had stopped. An operator takes its entry out of the
    // line, which is what the store would do by itself when the lease runs out.
    let second = Locks::builder(STORE).label("second").connect().await?;
    let view = second.inspect("ledger").await?.expect("the first holder has it");
    second.evict(&view.holders[0]).await?;
    let guard = second.mutex("ledger")?.lock().await?;
    ledger.write(guard.token(), "closed by the second holder")?;

    // The first holder wakes up in the middle of a write: whatever it last asked its guard, it asked before the pause.
    let refused = ledger.write(paused.token(), "reopened by the first holder").expect_err("its token is stale");
    println!("refused: {refused}");
    assert_eq!(refused.kind(), ErrorKind::Stale);
    let lines = ledger.lines.lock().expect("nobody panicked");
    assert_eq!(*lines, ["opened by the first holder", "closed by the second holder"]);
    Ok(())
}
