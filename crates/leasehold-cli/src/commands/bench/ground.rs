//! The keys that a bench uses. They are its own: one bench at a time has them, and nobody else is let in by mistake.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::backend::{EntryView, KeyView};
use leasehold::{Attempt, Guard, Locks};

use crate::exit::{self, Failure};
use crate::output::{line, short_id, who};

/// The key of whoever measures.
const TURN: &str = "leasehold-bench";

/// What the names of all other keys begin with. They are the same for each bench: what a store keeps of a name that was
/// once used, such as an empty folder, does not grow with the number of benches.
pub(crate) const PREFIX: &str = "leasehold-bench/";

/// The name of a key.
pub(crate) fn name(nth: usize) -> String {
    format!("{PREFIX}{nth}")
}

/// Claims the keys for as long as the guard lives; a failure if somebody is on them.
pub(crate) async fn claim(locks: &Locks) -> anyhow::Result<Guard> {
    let turn = match locks.mutex(TURN)?.attempt_within(Duration::ZERO).await? {
        Attempt::Held(turn) => turn,
        Attempt::Busy(busy) => {
            let why = format!("{busy}: another bench runs on this store; wait for its end");
            return Err(Failure::new(exit::BUSY, why).into());
        }
    };
    let views = keys_in_use(locks).await?;
    match views.iter().find_map(|view| line(view).next().map(|entry| (&view.key, entry))) {
        None => Ok(turn),
        Some((key, entry)) => {
            let (who, id) = (who(entry), short_id(entry));
            let why = format!(
                "\"{key}\" is in use by {who}, and keys that begin with \"{PREFIX}\" are for measuring alone: nothing was \
                 measured; wait until it is given back, or take it away with: leasehold evict {key} {id}"
            );
            Err(Failure::new(exit::BUSY, why).into())
        }
    }
}

/// Takes whatever of ours is still on the keys out of its line.
pub(crate) async fn sweep(locks: &Locks) -> leasehold::Result<()> {
    for view in keys_in_use(locks).await? {
        // Whoever else came meanwhile is none of our business.
        for entry in line(&view).filter(|entry| is_ours(entry)) {
            locks.evict(entry).await?;
        }
    }
    Ok(())
}

async fn keys_in_use(locks: &Locks) -> leasehold::Result<Vec<KeyView>> {
    let mut views = locks.inspect_all().await?;
    views.retain(|view| view.key.name().starts_with(PREFIX.as_bytes()));
    Ok(views)
}

fn is_ours(entry: &EntryView) -> bool {
    let system = rustix::system::uname();
    !entry.foreign && entry.note.pid == std::process::id() && *entry.note.host == *system.nodename().to_string_lossy()
}

/// Waits until the store knows that these clients have left every line. They must have given up all they held.
pub(crate) async fn close_all(clients: &[Locks]) {
    join_all(clients.iter().map(Locks::close)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sweep_takes_what_is_left_of_ours_under_the_prefix_and_nothing_else() {
        let locks = leasehold::connect("memory:").await.unwrap();
        let names = [name(0), name(4711), "leasehold-bench-results".into(), "billing/close".into()];
        let mut guards = Vec::new();
        for name in &names {
            guards.push(locks.mutex(name).unwrap().lock().await.unwrap());
        }
        sweep(&locks).await.unwrap();
        let left: Vec<_> = locks.inspect_all().await.unwrap().iter().map(|view| view.key.to_string()).collect();
        assert_eq!(left, ["billing/close", "leasehold-bench-results"]);
    }
}
