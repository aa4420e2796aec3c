//! How many locks the store keeps renewed: more and more are held, and each is watched for a whole lease.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold::clock::{Moment, Timer};
use leasehold::{Error, Guard, Locks};

use super::ground::name;
use super::measure::{Timings, let_others_run};
use super::plan::TASKS;

/// The lease of the locks that are held: short, so that there is much to renew, and long enough for a store in another
/// town to be asked three times.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// How many locks are held first. Then it is ten times as many.
const LOCKS_FIRST: usize = 100;

/// How often the locks are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What became of more and more locks.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) steps: Vec<Step>,
    pub(crate) ended: Ended,
}

impl Held {
    /// The most locks of which none was lost.
    pub(crate) fn most(&self) -> usize {
        self.steps.iter().filter(|step| step.lost == 0).map(|step| step.locks).max().unwrap_or(0)
    }
}

/// So many locks, held at once for a whole lease and longer.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) locks: usize,
    pub(crate) lost: usize,
    /// For each lock, by how much it missed the moment by which it was to be renewed, at worst.
    pub(crate) late: Timings,
    /// How little was left of the lease of any of them, at worst.
    pub(crate) left: Duration,
}

/// Why no more locks were tried.
#[derive(Debug)]
pub(crate) enum Ended {
    /// There were as many as there may be.
    Keys,
    /// There was no time to take, watch and release more.
    Time,
    /// Some were lost.
    Lost,
    /// The store failed under them.
    Failed(Error),
}

/// Holds up to `keys` locks, and gives them back in time for the store to be done with them then.
pub(crate) async fn grow(timer: &Timer, client: &Locks, keys: usize, until: Moment) -> leasehold::Result<Held> {
    let (mut guards, mut next) = (Vec::new(), 0);
    let (mut steps, mut taking) = (Vec::new(), Duration::ZERO);
    let ended = loop {
        let (before, began) = (guards.len(), timer.now());
        // Without the time for two more steps, the next is the last, and as large as the time allows.
        let goal = match steps.last() {
            _ if began.until(until) < LEASE * 3 => keys,
            None => LOCKS_FIRST.min(keys),
            Some(Step { locks, .. }) => (locks * 10).min(keys),
        };
        // Releasing takes about as long as taking did.
        let room = began.until(until).saturating_sub(LEASE + taking) / 2;
        let taken = timer.within(room, take(client, goal, &mut next, &mut guards)).await;
        taking += began.until(timer.now());
        match taken {
            // That it fails under so many is what was to be found out; that it fails at once is not.
            Some(Err(error)) if steps.is_empty() => return Err(error),
            Some(Err(error)) => break Ended::Failed(error),
            None if guards.len() == before => break Ended::Time,
            Some(Ok(())) | None => {}
        }
        steps.push(watch(timer, &guards).await);
        let step = steps.last().expect("it was just pushed");
        match taken {
            _ if step.lost > 0 => break Ended::Lost,
            None => break Ended::Time,
            _ if step.locks >= keys => break Ended::Keys,
            _ => {}
        }
    };
    Ok(Held { steps, ended })
}

/// Takes locks until `goal` have been tried.
///
/// A name that was tried when this was dropped is not tried again: it may still be on its way out.
async fn take(client: &Locks, goal: usize, next: &mut usize, guards: &mut Vec<Guard>) -> leasehold::Result<()> {
    let (next, guards) = (Cell::from_mut(next), RefCell::new(guards));
    let task = async |()| {
        while next.get() < goal {
            let nth = next.replace(next.get() + 1);
            let guard = client.mutex(name(nth))?.lock().await?;
            guards.borrow_mut().push(guard);
            let_others_run().await;
        }
        Ok(())
    };
    let tasks: FuturesUnordered<_> = std::iter::repeat_n((), TASKS).map(task).collect();
    tasks.try_collect().await
}

/// Looks at the locks until each that is not renewed is lost.
async fn watch(timer: &Timer, guards: &[Guard]) -> Step {
    let until = guards.iter().map(|guard| guard.remaining()).max().unwrap_or_default();
    let until = timer.now().after(until);
    let mut least = vec![Duration::MAX; guards.len()];
    // What a renewal gives. Some stores lend for longer than they were asked to.
    let mut whole = LEASE - LEASE / 100;
    loop {
        for (guard, least) in guards.iter().zip(&mut least) {
            let left = guard.remaining();
            *least = left.min(*least);
            whole = left.max(whole);
        }
        if timer.now() >= until {
            break;
        }
        timer.sleep(LOOK_EVERY).await;
    }
    // A lease is renewed when a third of it is over, give or take a tenth of that.
    let due = whole / 3 + whole / 30;
    let late = least.iter().map(|left| (whole - *left).saturating_sub(due)).collect();
    Step {
        locks: guards.len(),
        lost: guards.iter().filter(|guard| guard.check().is_err()).count(),
        late: Timings::new(late, Duration::ZERO),
        left: least.iter().min().copied().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::clock::Clock;

    use super::*;

    #[tokio::test]
    async fn locks_that_are_taken_away_count_as_lost_and_those_that_are_renewed_do_not() {
        let timer = Timer::on_callers_runtime(Clock::boot());
        let locks = Locks::builder("memory:").ttl(Duration::from_secs(1)).connect().await.unwrap();
        let mut guards = Vec::new();
        take(&locks, 3, &mut 0, &mut guards).await.unwrap();
        let views = locks.inspect_all().await.unwrap();
        locks.evict(&views[1].holders[0]).await.unwrap();
        let step = watch(&timer, &guards).await;
        assert_eq!((step.locks, step.lost, step.left), (3, 1, Duration::ZERO));

        for view in [&views[0], &views[2]] {
            locks.evict(&view.holders[0]).await.unwrap();
        }
        let step = watch(&timer, &guards).await;
        assert_eq!((step.locks, step.lost), (3, 3));
        assert_eq!(Held { steps: vec![step], ended: Ended::Lost }.most(), 0);
    }
}
